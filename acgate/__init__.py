"""acgate: the release gate for activation checkpointing in PyTorch training."""

__version__ = "0.1.0"
