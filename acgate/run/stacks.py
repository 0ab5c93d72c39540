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
_BACKWARD = "_engine_run_backward"
_WORLD = Path(__file__).with_name("world.py")
_DEEP = 2
"""So many frames from the innermost one lie between a collective's call and its wait in C++."""


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
    if not stacks:
        return []
    main = next(
        (frames for frames in stacks if any(frame.function == _ENTRY for frame in frames)), stacks[-1]
    )
    if main[0].function != _BACKWARD:
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


def waits_for_others(frames: Sequence[Frame]) -> bool | None:
    """Say whether a stack, innermost first, shows that its thread waits for other ranks.

    None where that cannot be told: there is no stack, or the innermost call is one of torch that
    may or may not communicate (DDP's collectives, for one, are waited for inside backward).
    """
    for frame in frames[:_DEEP]:
        path = Path(frame.file)
        if path == _WORLD or ("torch" in path.parts and "distributed" in path.parts):
            return True
    if not frames or "torch" in Path(frames[0].file).parts:
        return None
    return False


def _is_called_by_autograd(frames: Sequence[Frame]) -> bool:
    """Say whether a thread came to Python through autograd: its outermost frame is one of torch."""
    return "torch" in Path(frames[-1].file).parts


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
