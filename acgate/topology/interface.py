"""What a topology decides: how ranks share model and batch, and which part of a tensor each one holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

Batch = TypeVar("Batch")

NOTHING = -1
"""Part of a tensor that this rank does not have at all."""


@dataclass(frozen=True, slots=True)
class Shard:
    """What this rank holds of one tensor.

    Attributes:
        local: The data that lies here; empty where an uneven split leaves nothing.
        part: Which part it is. Ranks with the same part hold replicas; a tensor that every data-parallel
            replica has for itself (its loss, a gradient before the reduction) has a part per replica.
        shape: Of the whole tensor.
        box: The part of the whole as one slice per dim; None where it is no box.
        flat: The part of the flattened whole, from first to last element (exclusive), where FSDP1
            cuts across rows; None elsewhere.
        own: True where each replica has a tensor of its own, so that there is no whole.
    """

    local: Tensor
    part: int = 0
    shape: tuple[int, ...] = ()
    box: tuple[slice, ...] | None = None
    flat: tuple[int, int] | None = None
    own: bool = False


class Topology(Protocol):
    """How ranks share a model and a batch; made for one run inside its process group."""

    @property
    def name(self) -> str:
        """Word of `--topologies`."""

    @property
    def world_size(self) -> int:
        """Ranks that take part."""

    @property
    def rank(self) -> int:
        """This process."""

    @property
    def replica(self) -> int:
        """Share of the data that this rank sees; a tensor-parallel group or a pipeline sees one."""

    @property
    def num_replicas(self) -> int:
        """Shares of the data."""

    @property
    def stage(self) -> int:
        """Pipeline stage of this rank."""

    @property
    def num_stages(self) -> int:
        """Pipeline stages, 1 without a pipeline."""

    @property
    def shared_by(self) -> str:
        """`acgate`, or `target` where the target's own `parallelize` shares the work."""

    @property
    def replicates(self) -> bool:
        """True where ranks with the same part must be equal.

        False where the target's `parallelize` wraps the model in nothing known.
        """

    def before_ac(self, model: nn.Module) -> nn.Module:
        """Return the model after what must come before AC: tensor parallelism, pipeline stages."""

    def after_ac(self, model: nn.Module, blocks: Sequence[str]) -> nn.Module:
        """Return the model as this rank trains it: DDP around, or FSDP per block and around."""

    def share(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return the micro-batches of the global batch that this replica takes, in order.

        Micro-batch `i` of replica `r` is number `i * num_replicas + r` of the global order.
        """

    def seed(self, base: int) -> int:
        """Return the seed of this rank's random streams: alike inside a tensor-parallel group."""

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager[bool]:
        """Surround forward and backward of a micro-step; the value says whether gradients are reduced."""

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Clip gradients by their norm over all ranks."""

    def gradient(self, name: str, parameter: Tensor, *, reduced: bool) -> Tensor | None:
        """Return the accumulated gradient of a parameter as it lies here; the whole one where not reduced.

        Args:
            name: Canonical name.
            parameter: As `named_parameters` of the wrapped model gives it.
            reduced: As `accumulating` said.
        """

    def shard(self, name: str, tensor: Tensor, *, reduced: bool = True) -> Shard:
        """Say what this rank holds of a parameter, or of its gradient or update."""

    def own(self, tensor: Tensor) -> Shard:
        """Say that this replica has a tensor for itself: its loss, a buffer, state of a module."""
