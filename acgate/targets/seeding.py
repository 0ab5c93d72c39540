"""Fixed seeds for the target's own code, without a trace in the caller's random streams."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch, Python and NumPy inside the block, and put their states back after it.

    Models and batches then depend on the seed alone, never on what drew numbers before them.
    Devices are included once they are in use.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    with torch.random.fork_rng(devices=list(devices)):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
