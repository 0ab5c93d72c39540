"""Makes `fixtures` importable and keeps these tests on one thread."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="session")
def verdicts(request):
    """What the gate says of the fixtures that are selected."""
    from fault_verdicts import Verdicts

    asked = [item.callspec.params for item in request.session.items if "verdicts" in item.fixturenames]
    pool = Verdicts((one["path"], one["precision"], one["steps"]) for one in asked)
    yield pool
    pool.close()


@pytest.fixture(autouse=True)
def settings_put_back():
    """One thread; what a fixture changes in the process is no business of the next test."""
    import torch

    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
