"""What a topology cannot do is refused before anything runs."""

from __future__ import annotations

import pytest

from acgate.errors import UsageError
from acgate.plan.matrix import make_plan
from acgate.spec.models import GateSpec, Parallel

STATIC = Parallel(static_graph=True)


def plan(parallel: Parallel, *topologies: str, **settings: object) -> None:
    made = {"topologies": topologies, "dtypes": ("float32",), "parallel": parallel} | settings
    make_plan(GateSpec.model_validate(made))


def test_a_static_graph_cannot_leave_out_reductions() -> None:
    """DDP would die of it inside torch; the message names both settings, and how each is changed."""
    with pytest.raises(
        UsageError, match=r"static_graph = true .*gradient_sync = \"last\" and 4 micro-steps"
    ) as e:
        plan(STATIC, "single", "ddp", micro_steps=4)
    assert str(e.value).endswith('set gradient_sync = "every", or static_graph = false')


def test_a_static_graph_is_refused_only_where_it_does_harm() -> None:
    """Each way out that the message names is one, and other topologies have no such graph."""
    plan(Parallel(static_graph=True, gradient_sync="every"), "ddp")
    plan(Parallel(static_graph=False), "ddp")
    plan(STATIC, "ddp", micro_steps=1)
    plan(STATIC, "single", "fsdp", "fsdp1")
    plan(STATIC, "single", "ddp", select=("single-*",))
