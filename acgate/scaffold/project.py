"""A project, looked at without running any of its code; what was read is read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from acgate.scaffold.modules import ModuleClass, find_modules
from acgate.scaffold.source import Source, could_be_target, could_define_model, parse_source, read_bytes
from acgate.scaffold.walk import Listing, list_project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_MOST_BYTES = 3 * 2**20
"""Of source code that is parsed, which takes about a second for each of them."""


@dataclass(eq=False)
class Project:
    """A project.

    Attributes:
        root: Its directory.
        seen_in_part: Whether it is larger than what was looked at until now.
    """

    root: Path
    seen_in_part: bool = field(default=False, init=False)

    @cached_property
    def listing(self) -> Listing:
        """Its files."""
        found = list_project(self.root)
        self.seen_in_part |= not found.complete
        return found

    @cached_property
    def targets(self) -> tuple[Path, ...]:
        """Its files that are targets."""
        return tuple(source.path for source in self._parsed(could_be_target) if source.is_target)

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """Its Python files that could define models."""
        return tuple(self._parsed(could_define_model))

    @cached_property
    def modules(self) -> dict[str, ModuleClass]:
        """The torch modules that it defines, by name."""
        return find_modules(self.sources)

    def _parsed(self, wanted: Callable[[bytes], bool]) -> Iterator[Source]:
        left = _MOST_BYTES
        for path in self.listing.python:
            content = read_bytes(self.root / path)
            if not wanted(content):
                continue
            left -= len(content)
            if left < 0:
                self.seen_in_part = True
                return
            source = parse_source(path, content)
            if source is not None:
                yield source
