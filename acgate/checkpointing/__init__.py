"""Applying activation checkpointing to a module: policies, regions, lint. Training scripts import this."""
