"""Verdicts become text: terminal, JUnit, JSON."""
