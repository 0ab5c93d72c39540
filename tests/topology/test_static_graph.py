"""DDP with a static graph reduces in its first backward, or ends in an assertion of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from rank_pool import RankFailedError

from acgate.spec.models import Parallel

if TYPE_CHECKING:
    from conftest import Lab


def test_a_static_graph_of_the_target_is_refused_where_reductions_are_left_out(lab: Lab) -> None:
    """Settings do not tell what `parallelize` asked for, so DDP itself is looked at, on every rank."""
    with pytest.raises(RankFailedError) as caught:
        lab.step(2, "ddp", "none", "float32", None, 1e9, "static_ddp_of_the_target")
    told = str(caught.value)
    assert told.count("UsageError: DistributedDataParallel with static_graph=True cannot wait") == 2, told
    assert told.count('set gradient_sync = "every"') == 2


def test_a_static_graph_that_reduces_every_time_trains_as_any_other(lab: Lab) -> None:
    """What the message says to change helps."""
    every = Parallel(gradient_sync="every")
    told = lab.step(2, "ddp", "block", "float32", every, 1e9, "static_ddp_of_the_target")
    plain = lab.step(2, "ddp", "block", "float32", every)
    for mine, theirs in zip(told, plain, strict=True):
        assert mine.reduced == (True, True)
        for name, held in mine.updated.items():
            assert np.array_equal(held.local, theirs.updated[name].local), name
