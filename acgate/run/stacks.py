"""Reads the stacks that `faulthandler` writes, and finds the target's part in them."""

from __future__ import annotations

import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import acgate

if TYPE_CHECKING:
    from collections.abc import Sequence

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_THREAD = re.compile(r"^(Current thread|Thread) ")
_ENTRY = "run_worker"
_CUT = "\n  ...\n"
_STARTED_BY_PYTHON = "_bootstrap"

BACKWARD = "_engine_run_backward"
"""In this function of torch, autograd is at work in C++."""


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


def main_frames(text: str) -> list[Frame]:
    """Return the frames of the worker's main thread, innermost first; nothing for an empty dump.

    Where that thread waits for autograd, which runs backward on a device's thread, the frames of
    Python that autograd calls there (a replay, a hook) come first.
    """
    stacks = threads(text)
    main = next((frames for frames in stacks if any(frame.function == _ENTRY for frame in frames)), [])
    if not main and (len(stacks) == 1 or _CUT in text):
        main = stacks[-1]  # it is the last one, and too deep to be shown to its end
    if not main or main[0].function != BACKWARD:
        return main
    called = next((frames for frames in stacks if frames is not main and _is_called_by_autograd(frames)), [])
    return called + main


def target_frames(text: str, most: int = 5) -> list[Frame]:
    """Return the innermost frames of the worker's main thread that belong to the target.

    Where the target has no frame there, the innermost frames of all; nothing for an empty dump.
    """
    main = main_frames(text)
    own = [frame for frame in main if _is_target(frame.file)]
    return (own or main)[:most]


def _is_called_by_autograd(frames: Sequence[Frame]) -> bool:
    """Say whether a thread came to Python through autograd, and was not started by Python."""
    outermost = frames[-1]
    return is_torch(outermost.file) or outermost.function != _STARTED_BY_PYTHON


def is_torch(file: str) -> bool:
    """Say whether a file belongs to torch."""
    return "/site-packages/torch/" in file or "/dist-packages/torch/" in file


def is_pythons_own(file: str) -> bool:
    """Say whether a file belongs to Python or its library."""
    if file.startswith("<"):
        return True
    path = Path(file)
    installed = "site-packages" in path.parts or "dist-packages" in path.parts
    return not installed and path.is_relative_to(Path(sysconfig.get_paths()["stdlib"]))


def _is_target(file: str) -> bool:
    """Say whether a file is neither acgate's, nor torch's, nor Python's own."""
    if is_torch(file) or is_pythons_own(file):
        return False
    path = Path(file)
    package = Path(acgate.__file__).parent
    return not path.is_relative_to(package) or path.is_relative_to(package / "_data")
