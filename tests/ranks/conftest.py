"""Makes `fixtures` importable and holds what tests of several ranks share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="session")
def two_ranks():
    """Two processes that train fixtures in plain torch."""
    from fixtures.ranks.plain_torch import Ranks

    ranks = Ranks(2)
    yield ranks
    ranks.close()
