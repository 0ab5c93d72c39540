"""A project, looked at without running any of its code; what was read is read once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from acgate.scaffold.modules import ModuleClass, find_modules
from acgate.scaffold.source import Source, read_source
from acgate.scaffold.walk import Listing, list_project

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Project:
    """A project.

    Attributes:
        root: Its directory.
    """

    root: Path

    @cached_property
    def listing(self) -> Listing:
        """Its files."""
        return list_project(self.root)

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """Its Python files that say something about models."""
        found = (read_source(self.root, path) for path in self.listing.python)
        return tuple(source for source in found if source is not None)

    @cached_property
    def modules(self) -> dict[str, ModuleClass]:
        """The torch modules that it defines, by name."""
        return find_modules(self.sources)
