"""Proof that the seam sees: known-bad regions light every detector, known-good ones none."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from acgate.errors import AcgateError
from acgate.observe import rng
from acgate.observe.ledger import Ledger
from acgate.observe.operator_mode import OperatorMode
from acgate.observe.region_notes import RegionNotes
from acgate.observe.seam import RegionMonitor
from acgate.observe.seam_patch import seams
from acgate.plan.job import Plant
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.evidence.region_records import RegionRecord

_SIZE = 4


class _Keep(torch.autograd.Function):
    """Squares, and keeps its input where checkpointing cannot let it go."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.kept = x
        return x.square()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        gradient: torch.Tensor = 2 * ctx.kept * gradients[0]
        return gradient


class _Bad(nn.Module):
    """Draws random numbers, counts its calls in a buffer, keeps an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(_SIZE, _SIZE, device="cpu", dtype=torch.float32)
        self.register_buffer("calls", torch.ones((), device="cpu"))
        self.calls: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        kept: torch.Tensor = _Keep.apply(self.linear(x))  # type: ignore[no-untyped-call]
        return functional.dropout(kept * self.calls, 0.5)


class _InPlace(nn.Module):
    """Adds in place to a product: the version counter of the saved product does not move."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(_SIZE, _SIZE, device="cpu", dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.matmul(x, self.weight)
        y += 1
        return y.sin()


class _Good(nn.Module):
    """Dropout between two linear layers, and nothing that a replay could get wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(_SIZE, 2 * _SIZE, device="cpu", dtype=torch.float32)
        self.last = nn.Linear(2 * _SIZE, _SIZE, device="cpu", dtype=torch.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(functional.dropout(self.first(x).tanh(), 0.5)).tanh()  # type: ignore[no-any-return]


def _save_products(_ctx: object, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if operator in products else CheckpointPolicy.PREFER_RECOMPUTE


def _save_nothing(*_: Any, **__: Any) -> CheckpointPolicy:
    return CheckpointPolicy.PREFER_RECOMPUTE


@functools.cache
def _proved(_: tuple[object, ...]) -> None:
    canary()


def ensure_seeing() -> None:
    """Run the canary unless it proved these very seams before, in this process.

    Raises:
        AcgateError: A detector is blind, or one fires without reason.
    """
    _proved(seams())


def canary() -> None:
    """See that regions are seen on this torch; leaves random and global state as it was.

    Raises:
        AcgateError: A detector is blind, or one fires without reason.
    """
    state = rng.capture()
    try:
        with torch.enable_grad(), torch.autocast("cpu", enabled=False):
            blind = [*_bad_regions(), *_good_regions(), *_planted_faults()]
    finally:
        rng.restore(state)
    if blind:
        raise AcgateError(
            f"the observation seam does not see regions on torch {torch.__version__} as it should:"
            f" {'; '.join(blind)}."
            " Nothing that this run says about recomputation could be believed;"
            " use a version of torch that acgate supports"
        )


def _look(model: nn.Module, forward: Callable[[torch.Tensor], torch.Tensor]) -> tuple[RegionRecord, ...]:
    x = torch.ones(2, 3, _SIZE, device="cpu", dtype=torch.float32, requires_grad=True)
    ledger = Ledger()
    with RegionMonitor(model) as monitor:
        monitor.begin_step()
        mode = OperatorMode(ledger, [*model.parameters(), *model.buffers()], monitor.operator_ran)
        monitor.start_observation(RegionNotes(model, ledger, mode.base, collect=False))
        with mode:
            loss = forward(x).sum()
            monitor.before_backward(loss)
            loss.backward()  # type: ignore[no-untyped-call]
        monitor.stop_observation()
        return monitor.regions()


def _failed(**checks: bool) -> list[str]:
    return [name.replace("_", " ") for name, passed in checks.items() if not passed]


def _selective(policy: Any) -> Any:
    return functools.partial(create_selective_checkpoint_contexts, policy)


def _bad_regions() -> list[str]:
    bad, in_place, good = _Bad(), _InPlace(), _Good()
    regions = _look(bad, lambda x: checkpoint(bad, x, use_reentrant=False, preserve_rng_state=False))
    frames = sum(region.implementation is Implementation.NON_REENTRANT for region in regions)
    if frames != 1:
        return [f"one region ran and {frames} were seen"]
    region = regions[0]
    missed = _failed(
        preserve_rng_state_is_not_seen=not region.preserve_rng_state,
        random_draws_are_not_seen=bool(region.random_drawn),
        the_replay_is_not_seen=region.replays == 1 and region.graph_tasks == 1,
        replayed_values_are_not_compared=bool(region.mismatches),
        memory_that_stays_is_not_seen=region.unexplained_bytes > 0,
        memory_that_goes_is_not_seen=region.freed_bytes > 0,
        the_region_has_no_name=region.class_name == "_Bad",
    )
    saving = _look(
        in_place,
        lambda x: checkpoint(in_place, x, use_reentrant=False, context_fn=_selective(_save_products)),
    )[0]
    nothing = _look(
        good, lambda x: checkpoint(good, x, use_reentrant=False, context_fn=_selective(_save_nothing))
    )[0]
    return missed + _failed(
        a_changed_saved_output_is_not_seen=bool(saving.changed_saved),
        a_policy_that_saves_nothing_is_not_seen=nothing.selective
        and nothing.policy is not None
        and not nothing.saved,
    )


def _good_regions() -> list[str]:
    good = _Good()

    def nested(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(good, x * 2, use_reentrant=False).tanh()  # type: ignore[no-any-return]

    block = _look(good, lambda x: checkpoint(good, x, use_reentrant=False))[0]
    selective = _look(
        good, lambda x: checkpoint(good, x, use_reentrant=False, context_fn=_selective(_save_products))
    )[0]
    inside = _look(good, lambda x: checkpoint(nested, x, use_reentrant=False))
    reentrant = _look(good, lambda x: checkpoint(good, x, use_reentrant=True))
    return _failed(
        block_is_accused=_is_clean(block) and block.replay_flops > 0,
        selective_is_accused=_is_clean(selective) and bool(selective.saved) and selective.saved_bytes > 0,
        nested_regions_are_not_told_apart=[r.parent for r in inside] == [None, 0]
        and all(_is_clean(r) for r in inside),
        the_reentrant_form_is_not_seen=[(r.implementation, r.replays) for r in reentrant]
        == [(Implementation.REENTRANT, 1)],
    )


def _is_clean(region: RegionRecord) -> bool:
    return not (region.mismatches or region.changed_saved or region.unexplained_bytes) and (
        region.replays == 1
        and region.preserve_rng_state
        and region.implementation is Implementation.NON_REENTRANT
    )


def _planted_faults() -> list[str]:
    good = _Good()
    plain = _gradient(good, None)
    return _failed(
        a_clean_replay_is_not_repeatable=torch.equal(plain, _gradient(good, None)),
        a_planted_scale_has_no_effect=not torch.equal(
            plain, _gradient(good, Plant(kind="scale", factor=2.0))
        ),
        a_planted_draw_has_no_effect=not torch.equal(plain, _gradient(good, Plant(kind="rng"))),
    )


def _gradient(model: nn.Module, plant: Plant | None) -> torch.Tensor:
    state = rng.capture()
    x = torch.ones(5, _SIZE, device="cpu", dtype=torch.float32, requires_grad=True)
    with RegionMonitor(model, plant=plant) as monitor:
        monitor.begin_step()
        (gradient,) = torch.autograd.grad(checkpoint(model, x, use_reentrant=False).sum(), x)
    rng.restore(state)
    return gradient
