"""Jobs: what a worker is asked to do, small enough to be a file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from acgate.plan.cell import Cell
from acgate.spec.models import Frozen, GateSpec
from acgate.vocabulary import Quantity

Deterministic = Literal["strict", "warn", "off"]


class TensorKey(Frozen):
    """One tensor at one moment; `micro` is -1 for what exists once per optimizer step."""

    step: int
    micro: int
    quantity: Quantity
    name: str


class Plant(Frozen):
    """A fault put into one replay on purpose, which the gate must then catch.

    Attributes:
        kind: `scale` multiplies what a replay recomputed, `sign` so that it changes its sign; `rng` lets a
            replay draw other numbers.
        region: Index of the region in order of forward.
        step: Optimizer step in which it is planted, the last one of its run.
        factor: For `scale` and `sign`, what the recomputed tensors are multiplied by.
        rank: The one rank whose replay is changed; `region` counts the regions of that rank.
    """

    kind: Literal["scale", "sign", "rng"]
    region: int = 0
    rank: int = 0
    step: int = 0
    factor: float = 1.0


class Details(Frozen):
    """Numbers on demand: which steps are recorded as sufficient statistics.

    Attributes:
        keys: Tensors to spill (the reference) or to compare (a candidate).
        spill: True for the reference: write these tensors to a safetensors file.
        reference: For a candidate: name of the run whose spilled tensors it is compared with.
        everything: Every tensor is meant, whatever its key; `keys` is empty then.
        whole: The reference spilled whole tensors, as one device has them: a rank reads its slices.
    """

    keys: tuple[TensorKey, ...] = ()
    everything: bool = False
    whole: bool = False
    spill: bool = False
    reference: str | None = None


class SurveyJob(Frozen):
    """Load the target, build the model once, and say what only the model knows."""

    kind: Literal["survey"] = "survey"
    spec: GateSpec
    name: str = "survey"

    @property
    def ranks(self) -> int:
        """Ranks that take part."""
        return 1


class TrackJob(Frozen):
    """Run one track of one cell and write its evidence.

    Attributes:
        name: File name of the evidence, such as `block.no-early-stop`; always starts with the track.
        track: AC treatment that is applied.
        steps: Optimizer steps.
        micro_steps: Forward/backward pairs per optimizer step.
        two_forwards: Add one further step with two forwards before one backward.
        early_stop: Torch's early stop of replays; False is the audit.
        observe_step: Step whose replays, memory and operators are observed; None observes none.
        observe_micro: Micro-step of that step which is looked at closely.
        plant: A fault to plant.
        details: What to spill or to compare.
        deterministic: `strict` raises where an operator has no deterministic form, `warn` names it,
            `off` leaves the kernels of production (profile *as shipped*).
        fill_memory: New memory is filled with NaN, so that reading what was never written shows.
        virtual: One device plays the ranks of the cell one after another.
        rank_order: For a virtual run: in which order the gradients of the ranks are added up; empty
            means by rank.
        layers: Blocks that are kept, counted from the first; None keeps all.
        offload: Activations wait on the CPU between forward and backward.
        explain: Trace every operator of the observed step, in forward and replay.
        only: Blocks that are checkpointed, the others run without; empty means all that the track means.
    """

    kind: Literal["track"] = "track"
    spec: GateSpec
    cell: Cell
    name: str
    track: str
    steps: int
    micro_steps: int
    two_forwards: bool = False
    early_stop: bool = True
    observe_step: int | None = None
    observe_micro: int = 0
    plant: Plant | None = None
    details: Details | None = None
    deterministic: Deterministic = "strict"
    fill_memory: bool = True
    virtual: bool = False
    rank_order: tuple[int, ...] = ()
    layers: int | None = None
    offload: bool = False
    explain: bool = False
    only: tuple[str, ...] = ()

    @property
    def explains(self) -> bool:
        """True where nothing is judged by this run: it says why others are wrong."""
        return self.explain or bool(self.only)

    @property
    def ranks(self) -> int:
        """Ranks that take part."""
        return 1 if self.virtual else self.cell.world_size


Job = Annotated[SurveyJob | TrackJob, Field(discriminator="kind")]
