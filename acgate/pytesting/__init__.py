"""Cells of the gate as items of pytest."""
