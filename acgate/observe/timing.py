"""How long phases of a step take, waiting for the device where there is one."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Adds up wall time by phase; on an accelerator it waits until the phase's work is done."""

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self._device = torch.device(device)
        self._seconds: dict[str, float] = defaultdict(float)

    def now(self) -> float:
        """Return seconds of a steady clock, after all work of the device is done."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    @contextlib.contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Add the time of the block to `phase`, also where it raises."""
        started = self.now()
        try:
            yield
        finally:
            self._seconds[phase] += self.now() - started

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each phase since the last reset."""
        return dict(self._seconds)

    def reset(self) -> None:
        """Forget what was measured."""
        self._seconds.clear()
