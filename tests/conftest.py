"""What tests of several folders share."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rank_pool import RankPool

sys.path.append(str(Path(__file__).parent))  # test files lie in no package


def pytest_collection_finish() -> None:
    """Leave what imports made to the end: every collection would walk through a million objects of torch's."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPool]:
    """Four processes for real process groups, started when first used."""
    from rank_pool import RankPool

    pool = RankPool()
    yield pool
    pool.stop()
