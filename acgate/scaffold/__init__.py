"""Writes what a project needs to be gated, from what is found in it."""

from __future__ import annotations

from acgate.scaffold.report import describe
from acgate.scaffold.writing import Scaffold, write_project

__all__ = ["Scaffold", "describe", "write_project"]
