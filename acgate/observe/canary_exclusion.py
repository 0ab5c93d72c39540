"""Proof that regions can be left out: of two that are made, the one that is left out is never replayed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from acgate.errors import AcgateError
from acgate.observe import rng
from acgate.observe.seam import RegionMonitor
from acgate.observe.seam_exclusion import only_regions
from acgate.observe.seam_patch import seams

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZE = 4
_KEPT = "0"


class _Counted(nn.Module):
    """Counts its calls where no comparison looks."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(_SIZE, _SIZE, device="cpu", dtype=torch.float32)
        self.called = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.called += 1
        return self.linear(x).sin()  # type: ignore[no-any-return]


@functools.cache
def _proved(_: tuple[object, ...]) -> None:
    canary_exclusion()


def ensure_leaving_out() -> None:
    """Prove once per process, for the seams that are there, that regions can be left out.

    Raises:
        AcgateError: A region that is left out is replayed, or one that stays is not.
    """
    _proved(seams())


def canary_exclusion() -> None:
    """See that regions are left out on this torch; leaves random and global state as it was.

    Raises:
        AcgateError: A region that is left out is replayed, or one that stays is not.
    """
    state = rng.capture()
    try:
        with torch.enable_grad(), torch.autocast("cpu", enabled=False):
            wrong = [*_wrong(use_reentrant=False), *_wrong(use_reentrant=True)]
    finally:
        rng.restore(state)
    if wrong:
        raise AcgateError(
            f"the seam that leaves regions out does not do so on torch {torch.__version__}:"
            f" {'; '.join(wrong)}. Which blocks are at fault cannot be searched;"
            " use a version of torch that acgate supports"
        )


def _wrong(*, use_reentrant: bool) -> Iterator[str]:
    form = "reentrant" if use_reentrant else "non-reentrant"
    model = nn.Sequential(_Counted(), _Counted())
    plain = _gradients(model, model)
    with RegionMonitor(model) as monitor, only_regions(monitor, (_KEPT,)):
        monitor.begin_step()
        found = _gradients(model, lambda x: _both(model, x, use_reentrant=use_reentrant))
        counts = monitor.end_step()
    if [block.called for block in model] != [3, 2]:
        yield f"a {form} region that is left out is replayed, or one that stays is not"
    if counts != (1, 1):
        yield f"{counts[0]} {form} regions are seen where one stays"
    pairs = zip(plain, found, strict=True)
    if not all(a is not None and b is not None and torch.equal(a, b) for a, b in pairs):
        yield f"a {form} region that is left out has other gradients"


def _both(model: nn.Sequential, x: torch.Tensor, *, use_reentrant: bool) -> Any:
    for block in model:
        x = checkpoint(block, x, use_reentrant=use_reentrant)
    return x


def _gradients(model: nn.Module, forward: Any) -> list[torch.Tensor | None]:
    x = torch.ones(3, _SIZE, device="cpu", dtype=torch.float32, requires_grad=True)
    model.zero_grad(set_to_none=True)
    forward(x).sum().backward()  # torch.autograd.grad is refused by the reentrant form
    return [tensor.grad for tensor in (x, *model.parameters())]
