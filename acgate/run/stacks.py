"""Reads the stacks that `faulthandler` writes, and finds the target's part in them."""

from __future__ import annotations

import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import acgate

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_THREAD = re.compile(r"^(Current thread|Thread) ")
_ENTRY = "run_worker"


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack."""

    file: str
    line: str
    function: str

    def __str__(self) -> str:
        """Show the frame as people expect it."""
        return f"{self.file}:{self.line} in {self.function}"


def threads(text: str) -> list[list[Frame]]:
    """Split a dump into threads, each with its innermost frame first."""
    found: list[list[Frame]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            found.append([])
        elif (match := _FRAME.match(line)) and found:
            found[-1].append(Frame(**match.groupdict()))
    return [frames for frames in found if frames]


def target_frames(text: str, most: int = 5) -> list[Frame]:
    """Return the innermost frames of the worker's main thread that belong to the target.

    Where the target has no frame there, the innermost frames of all; nothing for an empty dump.
    """
    stacks = threads(text)
    if not stacks:
        return []
    main = next(
        (frames for frames in stacks if any(frame.function == _ENTRY for frame in frames)), stacks[-1]
    )
    own = [frame for frame in main if _is_target(frame.file)]
    return (own or main)[:most]


def _is_target(file: str) -> bool:
    """Say whether a file is neither acgate's, nor torch's, nor Python's own."""
    if file.startswith("<") or "/site-packages/torch/" in file or "/dist-packages/torch/" in file:
        return False
    path = Path(file)
    package = Path(acgate.__file__).parent
    if path.is_relative_to(package):
        return path.is_relative_to(package / "_data")
    library = Path(sysconfig.get_paths()["stdlib"])
    installed = "site-packages" in path.parts or "dist-packages" in path.parts
    return installed or not path.is_relative_to(library)
