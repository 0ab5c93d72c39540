"""A rank that waits for others is told from one that is at work, whatever the moment at which it is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

import acgate
from acgate.run import world
from acgate.run.stacks import Frame
from acgate.run.stance import Look, waits_for_others

PACKAGE = Path(acgate.__file__).parent
TORCH = "/lib/site-packages/torch"
REDUCED = {"operator": "c10d.allreduce_.default", "collective": "c10d.allreduce_ float32[3] ranks 0,1"}
ADDED = {"operator": "aten.add.Tensor", "collective": "c10d.allreduce_ float32[3] ranks 0,1"}

SEEN_BY_THE_OBSERVER = (
    f"{PACKAGE}/observe/operator_mode.py:__torch_dispatch__",
    f"{TORCH}/_dynamo/eval_frame.py:_fn",
    f"{TORCH}/_compile.py:inner",
)
REPLAYED = (
    f"{TORCH}/nn/modules/module.py:_call_impl",
    f"{TORCH}/utils/checkpoint.py:unpack_hook",
    f"{TORCH}/autograd/graph.py:_engine_run_backward",
    f"{PACKAGE}/run/step.py:_backward",
)
IN_FORWARD = (
    "/srv/model.py:forward",
    f"{TORCH}/nn/modules/module.py:_call_impl",
    f"{PACKAGE}/run/step.py:run",
)
IN_HOOK = ("/srv/model.py:hook", f"{TORCH}/nn/modules/module.py:inner", *IN_FORWARD)
IN_OPTIMIZER = ("/srv/model.py:step", f"{TORCH}/optim/optimizer.py:wrapper", f"{PACKAGE}/run/step.py:run")
IN_WRAPPER = (
    "/srv/model.py:forward",
    f"{TORCH}/distributed/algorithms/_checkpoint/checkpoint_wrapper.py:forward",
)
IN_SHARDING_HOOK = (
    "/srv/model.py:hook",
    f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_collectives.py:reduce",
)
IN_REPLAY = ("/srv/model.py:forward", *REPLAYED)
IN_DDP = REPLAYED[2:]
IN_COLLECTIVE = (
    f"{TORCH}/distributed/distributed_c10d.py:all_reduce",
    f"{TORCH}/distributed/c10d_logger.py:wrapper",
    *IN_REPLAY,
)


def frames(*places: str) -> tuple[Frame, ...]:
    return tuple(Frame(file, "1", function) for file, function in (place.rsplit(":", 1) for place in places))


def look(*places: str, **said: str) -> Look:
    return Look(frames(*places), said)


@pytest.mark.parametrize("at", [IN_FORWARD, IN_HOOK, IN_OPTIMIZER, IN_WRAPPER, IN_SHARDING_HOOK, IN_REPLAY])
@pytest.mark.parametrize(
    "inside",
    [
        (),
        (f"{TORCH}/nn/modules/linear.py:forward",),
        (f"{TORCH}/_ops.py:__hash__", *SEEN_BY_THE_OBSERVER),
        (f"{TORCH}/_guards.py:try_get", f"{PACKAGE}/observe/seam_torch.py:tracing", *SEEN_BY_THE_OBSERVER),
        (f"{TORCH}/distributed/distributed_c10d.py:is_initialized",),
        (f"{TORCH}/distributed/tensor/_dispatch.py:dispatch",),
        ("<frozen importlib._bootstrap>:_find_and_load",),
    ],
)
def test_a_loop_is_work_at_every_moment(at, inside):
    """A single look is enough: in the loop's own line, in an operator of it, or in what observes that operator."""
    assert waits_for_others([look(*inside, *at, **ADDED)]) is False


@pytest.mark.parametrize(
    "at",
    [
        IN_COLLECTIVE,
        (world.__file__ + ":await_key", f"{PACKAGE}/run/agreeing.py:agree"),
        (f"{TORCH}/_ops.py:__call__", *SEEN_BY_THE_OBSERVER, *IN_COLLECTIVE),
        (f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_collectives.py:wait", *IN_FORWARD),
    ],
)
def test_a_rank_among_others_waits(at):
    """In a collective, in its wait, in a message through the store, and while the observer passes a collective on."""
    assert waits_for_others([look(*at)] * 3) is True
    assert waits_for_others([look(*at)], asynchronous=True) is True


def test_an_operator_that_communicates_is_waited_for_wherever_it_was_called():
    """Torch's own code issues it without a line in `torch.distributed`."""
    called = (f"{TORCH}/_ops.py:__call__", *SEEN_BY_THE_OBSERVER, *IN_FORWARD)
    waited = {"operator": "_c10d_functional.wait_tensor.default"}
    assert waits_for_others([look(*called, **waited)]) is True
    assert waits_for_others([look(*called, **ADDED)]) is False


def test_where_both_look_alike_it_is_not_guessed(tmp_path):
    """Backward in C++ may hold DDP's wait; a line after a collective, or one that says so, may be a wait."""
    assert waits_for_others([]) is None
    assert waits_for_others([Look()]) is None
    assert waits_for_others([look(*IN_DDP, **ADDED)] * 3) is None
    assert waits_for_others([look(*IN_FORWARD, **REDUCED)] * 3) is None
    assert waits_for_others([look(f"{TORCH}/nn/parallel/distributed.py:_sync_buffers", *IN_FORWARD)]) is None
    source = tmp_path / "model.py"
    source.write_text("handle.wait()\n")
    assert waits_for_others([look(f"{source}:forward", *IN_FORWARD, **ADDED)] * 3) is None
    source.with_name("other.py").write_text("values = values + 1\n")
    assert waits_for_others([look(f"{source.with_name('other.py')}:forward", **ADDED)] * 3) is False


def test_on_a_device_any_operator_may_wait_for_a_collective():
    """Work is queued there: a full queue or a value that is read back stops the process in a plain operator."""
    operator = look(f"{TORCH}/nn/functional.py:linear", *IN_FORWARD, **ADDED)
    reads = look(*IN_FORWARD, operator="aten._local_scalar_dense.default")
    for at in (operator, reads):
        assert waits_for_others([at] * 3) is False
        assert waits_for_others([at] * 3, asynchronous=True) is None
    assert waits_for_others([look(*IN_FORWARD, **ADDED)], asynchronous=True) is False


def test_a_rank_that_moves_does_not_wait():
    """Another line or another operator between two looks is work, also where one look alone would not tell."""
    here, there = look(*IN_DDP, **ADDED), look(*IN_DDP, operator="aten.mm.default")
    assert waits_for_others([here, there, there]) is False
    assert waits_for_others([look(*IN_FORWARD, **REDUCED), look(*IN_HOOK, **REDUCED)]) is False
    assert waits_for_others([look(*IN_COLLECTIVE), here]) is False


def test_a_stack_cut_short_is_no_move():
    """A rank that could write only the first lines in time stands still all the same; no answer counts for nothing."""
    whole = look(*IN_DDP, **ADDED)
    assert waits_for_others([whole, look(*IN_DDP[:1], **ADDED), Look((), ADDED), whole]) is None


def test_a_rank_that_comes_to_a_collective_meanwhile_is_not_blamed():
    """It worked at first and waits now: whether it is stuck cannot be told."""
    assert waits_for_others([look(*IN_FORWARD, **ADDED), look(*IN_COLLECTIVE, **REDUCED)]) is None
