"""What each step of a run leaves: tensors by hash and norm, counts, state and times."""

from __future__ import annotations

from typing import Literal

from acgate.spec.models import Frozen
from acgate.vocabulary import Schedule


class TensorRecord(Frozen):
    """One tensor at one moment.

    Attributes:
        hash: Mixed 64-bit content hash, 16 hexadecimal digits.
        norm: Euclidean norm in float64; None for tensors that are not floating point.
        nonfinite: Count of NaN and infinite elements.
        part: Which part of the tensor this rank holds. Ranks with the same part hold replicas, which
            must be equal and count once; a tensor that each rank has for itself (its loss, its
            buffers) has a part per rank. -1: this rank has nothing of it, and the record says nothing.
        ranks: In merged evidence of several ranks, the hash on each rank ("" where it has nothing).
    """

    hash: str
    shape: tuple[int, ...]
    dtype: str
    norm: float | None = None
    nonfinite: int = 0
    part: int = 0
    ranks: tuple[str, ...] = ()


class MicroRecord(Frozen):
    """One forward and backward.

    Attributes:
        gradients: Accumulated raw gradient per trainable parameter (canonical name), before
            clipping and optimizer; None where there is none. With an optimizer inside backward,
            the gradients that arrived, in order.
        input_gradients: Gradients of batch tensors that require one.
        rng: Digest of every random generator's state after this micro-step.
        unprotected: Blocks that were called though no checkpointed region was entered in this
            micro-step; not recorded for the reference.
        reduced: False where gradients were not yet reduced over the ranks, so that each rank has its own.
    """

    micro: int
    loss: TensorRecord
    gradients: dict[str, TensorRecord | None]
    input_gradients: dict[str, TensorRecord | None] = {}
    rng: dict[str, str] = {}
    unprotected: tuple[str, ...] = ()
    reduced: bool = True


class StateRecord(Frozen):
    """A Python attribute of a module.

    Attributes:
        kind: `tensor`, `number`, `value` (compared by digest) or `log` (a list or deque:
            growth alone is reported, not judged).
        digest: Content digest, or that of the common prefix for a log.
        number: The value of a number.
        items: Digests of the items of a log, in order (at most 1,000).
        tensor: For a tensor.
    """

    kind: Literal["tensor", "number", "value", "log"]
    digest: str
    number: float | None = None
    items: tuple[str, ...] = ()
    tensor: TensorRecord | None = None


class Seconds(Frozen):
    """Wall time of one optimizer step by phase; `observe` is what acgate itself added."""

    forward: float = 0.0
    backward: float = 0.0
    optimizer: float = 0.0
    observe: float = 0.0


class StepRecord(Frozen):
    """One optimizer step.

    Attributes:
        weights: Trainable and frozen parameters after the step.
        hook_counts: How often a gradient arrived at each trainable parameter.
        forward_calls: Calls of each module outside backward.
        replay_calls: Calls of each module inside backward.
        moved: Trainable parameters whose content changed.
        moved_share: Share of sampled weight elements that changed, None where not sampled.
        regions: Regions entered in forward; `replays`: regions replayed in backward.
    """

    step: int
    schedule: Schedule
    micro: tuple[MicroRecord, ...]
    weights: dict[str, TensorRecord] = {}
    buffers: dict[str, TensorRecord] = {}
    state: dict[str, StateRecord] = {}
    hook_counts: dict[str, int] = {}
    forward_calls: dict[str, int] = {}
    replay_calls: dict[str, int] = {}
    moved: int = 0
    moved_share: float | None = None
    regions: int = 0
    replays: int = 0
    seconds: Seconds = Seconds()
