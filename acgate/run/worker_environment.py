"""What of this process's environment its ranks get."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import acgate
from acgate.run.in_process import CUBLAS

if TYPE_CHECKING:
    from collections.abc import Mapping


def worker_environment(environment: Mapping[str, str], ranks: int = 1) -> dict[str, str]:
    """Return the environment of a pool's launcher and ranks.

    Everything stays but what would reconfigure torch's launcher (`PET_…` sets its options,
    `PYTHON_EXEC` its interpreter) or is the word of another one (`TORCHELASTIC_…`). Threads are
    left alone for one rank; several get one each, as the launcher would have it, which says so in
    ten lines. All ranks are on this machine, so gloo is told to use the loopback device unless the
    user says otherwise: the host's name may resolve to nothing.
    """
    worker = {
        name: value
        for name, value in environment.items()
        if not name.startswith(("PET_", "TORCHELASTIC_")) and name != "PYTHON_EXEC"
    }
    worker["PYTHONUNBUFFERED"] = "1"
    worker.setdefault(*CUBLAS)
    if ranks > 1:
        worker.setdefault("OMP_NUM_THREADS", "1")
    if sys.platform.startswith("linux"):
        worker.setdefault("GLOO_SOCKET_IFNAME", "lo")
    source = str(Path(acgate.__file__).resolve().parent.parent)
    installed = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}
    if source not in installed and not source.endswith(("site-packages", "dist-packages")):
        # A checkout that this process found by its own path must be found by its workers too.
        known = [entry for entry in worker.get("PYTHONPATH", "").split(os.pathsep) if entry]
        if source not in known:
            worker["PYTHONPATH"] = os.pathsep.join([*known, source])
    return worker
