"""Limits, bands, needs and the decision. Pure: no torch, no files, no processes."""
