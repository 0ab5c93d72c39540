"""Axes become named cells and jobs; a plan can be printed without running anything."""
