"""Processes, tracks, steps, precision and determinism: the side where torch lives."""
