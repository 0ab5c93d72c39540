"""Kinds of facts that say how a target was made."""

from __future__ import annotations

MODEL_CLASS = "hugging-face"
"""The class of a library that was chosen, with its task and the origin of its weights."""
AC_BY_ACGATE = "ac-by-acgate"
"""The library has no activation checkpointing for a model, so acgate's policy is applied."""
LOSS_OF_ACGATE = "loss-of-acgate"
"""The library has no loss for a model, so acgate makes one of its outputs."""
