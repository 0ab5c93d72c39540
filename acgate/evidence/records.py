"""The contract in the middle: what a run records and a judge reads, as frozen models.

Everything is plain data (numbers, strings, digests), so a stored run can be judged again
later, elsewhere, and without torch.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from acgate.evidence.region_records import Observation
from acgate.evidence.step_records import StateRecord, StepRecord
from acgate.plan.cell import Cell
from acgate.plan.job import Details, Deterministic, Plant, TensorKey
from acgate.spec.models import Frozen
from acgate.vocabulary import Schedule

Schema = Literal[1]
SCHEMA: Schema = 1
"""Evidence of another schema is not read: what it says may mean something else."""


class Statistics(Frozen):
    """Sufficient statistics of one comparison (reference r, candidate c), in float64.

    They add up over shards; every metric follows from them. Non-finite elements are counted
    and left out of the sums.
    """

    elements: int
    max_abs_diff: float
    max_abs_reference: float
    sum_sq_diff: float
    sum_sq_reference: float
    sum_sq_candidate: float
    sum_product: float
    nonfinite_reference: int = 0
    nonfinite_candidate: int = 0


class Measurement(Frozen):
    """Statistics of one tensor."""

    key: TensorKey
    statistics: Statistics


class Fact(Frozen):
    """Something a run noticed that is a finding by itself (lint, unmatched operators, notes)."""

    kind: str
    where: str
    detail: str


class Raised(Frozen):
    """An exception of the target's code or of torch under it.

    Attributes:
        phase: `import`, `build`, `apply`, `forward`, `backward`, `optimizer`, `observe`.
        exits: True where the target asked the process to end (`SystemExit`).
        where: Source file name and line of the deepest frame outside torch and acgate.
        ranks: In merged evidence, the ranks that raised; empty where there is one rank.
        at: Seconds since the epoch, to tell which rank was first.
        consequence: True where a collective failed because another rank was gone or did not come.
    """

    type: str
    message: str
    phase: str
    step: int | None = None
    micro: int | None = None
    schedule: Schedule | None = None
    exits: bool = False
    where: str | None = None
    traceback: str = ""
    ranks: tuple[int, ...] = ()
    at: float = 0.0
    consequence: bool = False


class Identity(Frozen):
    """What must be equal between tracks before the first step."""

    target: str
    configuration: str
    initial_state: str
    batches: tuple[str, ...]
    rng: dict[str, str]
    global_state: str
    torch: str
    device: str


class ParameterRecord(Frozen):
    """A parameter or buffer as the model holds it after a track was applied."""

    shape: tuple[int, ...]
    dtype: str
    trainable: bool = False


class Structure(Frozen):
    """Names before numbers: what the model is made of after the track was applied.

    Attributes:
        tied: Groups of names that share one tensor.
        state_dict: Keys of `state_dict()`, as a model checkpoint on disk would have them.
    """

    parameters: dict[str, ParameterRecord]
    buffers: dict[str, ParameterRecord]
    tied: tuple[tuple[str, ...], ...] = ()
    state_dict: tuple[str, ...] = ()


class RankRecord(Frozen):
    """What one rank of a run cost, and where it stands among the others.

    Attributes:
        stage: Its pipeline stage; ranks of one stage have the same regions and policies.
        replica: Which share of the data it sees; ranks of one stage and replica (a tensor-parallel
            group) see the same data, and must take the same decisions.
        step_seconds: Forward, backward and optimizer of each step, in seconds.
        observe_seconds: What acgate added to each step.
        peak_bytes: Peak of live tensor storage in the observed step.
        peak_bytes_device: Peak of the device's allocator, None on the CPU.
        replicates: False where it is not known that ranks with the same part of a tensor must be equal.
    """

    rank: int
    stage: int = 0
    replica: int = 0
    host: str = ""
    device: str = "cpu"
    step_seconds: tuple[float, ...] = ()
    observe_seconds: tuple[float, ...] = ()
    peak_bytes: int | None = None
    peak_bytes_device: int | None = None
    replicates: bool = True


class TrackEvidence(Frozen):
    """Everything one run of one track left behind.

    Attributes:
        state_before: Python state of modules before the first step, with the track applied: in what
            it differs from the reference's is how AC is switched on, no side effect.
        two_forwards_raised: The further step with two forwards raised; the others are complete.
        no_deterministic_form: Operators that torch warned about.
        deterministic: Profile that the run ended up with; the other tracks of the cell follow `none`.
        fill_memory: Whether new memory was filled with NaN.
        planted: Whether the fault of `plant` was really put in.
        peak_bytes_device: Peak of the device's allocator, None on the CPU.
        worker_seconds: Wall time of the whole job.
        virtual: One device played the ranks.
        offload: Activations waited on the CPU between forward and backward.
        layers: Blocks that were kept; None where all were.
        ranks: One record per rank that took part; empty for one device.
        shared_by: Who shares the work: `acgate`, or the target's own `parallelize`.
    """

    schema_: Schema = Field(default=SCHEMA, alias="schema")
    kind: Literal["track"] = "track"
    nonce: str
    name: str
    track: str
    cell: Cell
    steps_wanted: int
    micro_steps: int
    early_stop: bool = True
    plant: Plant | None = None
    details: Details | None = None
    identity: Identity | None = None
    structure: Structure | None = None
    state_before: dict[str, StateRecord] = {}
    steps: tuple[StepRecord, ...] = ()
    observation: Observation | None = None
    measurements: tuple[Measurement, ...] = ()
    facts: tuple[Fact, ...] = ()
    raised: Raised | None = None
    two_forwards_raised: Raised | None = None
    no_deterministic_form: tuple[str, ...] = ()
    deterministic: Deterministic = "strict"
    fill_memory: bool = True
    planted: bool = False
    peak_bytes_device: int | None = None
    worker_seconds: float = 0.0
    virtual: bool = False
    offload: bool = False
    layers: int | None = None
    explain: bool = False
    only: tuple[str, ...] = ()
    ranks: tuple[RankRecord, ...] = ()
    shared_by: Literal["acgate", "target"] = "acgate"
    end: Literal["end"] = "end"

    model_config = Frozen.model_config | {"populate_by_name": True}


class Survey(Frozen):
    """What only the model knows: blocks, names, what the policy matches, what the target declares.

    Attributes:
        target: Digest of the target's source and configuration.
        label: Short name for reports, safe as an XML class name.
        blocks: Canonical module names, in order.
        blocks_source: How they were found.
        key_layers: Module names that reports show on their own.
        trainable: Names of trainable parameters (unique tensors).
        applies_ac: How tracks are applied: `acgate`, `target` or `hugging-face`.
        regions_expected: Modules that each AC track turns into regions, where acgate applies it.
        judged_schedules: Schedules that the target declares.
        batches: Micro-batches available, at most what was asked.
        input_gradients: Tensors of the batches that require a gradient, by path.
        sources: Files that the target and the policy's own function were read from, absolute.
    """

    schema_: Schema = Field(default=SCHEMA, alias="schema")
    kind: Literal["survey"] = "survey"
    nonce: str
    target: str
    label: str
    source: str
    blocks: tuple[str, ...]
    blocks_source: str
    key_layers: tuple[str, ...]
    trainable: tuple[str, ...]
    frozen: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()
    num_parameters: int = 0
    applies_ac: Literal["acgate", "target", "hugging-face"] = "acgate"
    regions_expected: dict[str, tuple[str, ...]] = {}
    judged_schedules: tuple[str, ...] = ()
    micro_steps: int = 1
    batches: int = 0
    input_gradients: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    torch: str = ""
    device: str = "cpu"
    raised: Raised | None = None
    end: Literal["end"] = "end"

    model_config = Frozen.model_config | {"populate_by_name": True}
