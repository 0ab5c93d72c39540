"""The contract in the middle: what a run records and a judge reads, as frozen models.

Everything is plain data (numbers, strings, digests), so a stored run can be judged again
later, elsewhere, and without torch.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from acgate.plan.cell import Cell
from acgate.plan.job import Details, Deterministic, Plant, TensorKey
from acgate.spec.models import Frozen
from acgate.vocabulary import Implementation, Schedule

Schema = Literal[1]
SCHEMA: Schema = 1
"""Evidence of another schema is not read: what it says may mean something else."""


class TensorRecord(Frozen):
    """One tensor at one moment.

    Attributes:
        hash: Mixed 64-bit content hash, 16 hexadecimal digits.
        norm: Euclidean norm in float64; None for tensors that are not floating point.
        nonfinite: Count of NaN and infinite elements.
    """

    hash: str
    shape: tuple[int, ...]
    dtype: str
    norm: float | None = None
    nonfinite: int = 0


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
    """

    micro: int
    loss: TensorRecord
    gradients: dict[str, TensorRecord | None]
    input_gradients: dict[str, TensorRecord | None] = {}
    rng: dict[str, str] = {}
    unprotected: tuple[str, ...] = ()


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


class ValueMismatch(Frozen):
    """A saved tensor whose replay differs from its forward.

    Attributes:
        position: Index among the tensors the region saved for backward.
        producer: Operator that produced it in the forward, when known.
        call: How often that operator had run in the region before (0-based).
    """

    position: int
    shape: tuple[int, ...]
    dtype: str
    producer: str | None = None
    call: int | None = None


class RegionRecord(Frozen):
    """One checkpointed call, as seen in the observed step.

    Attributes:
        index: Order of forward.
        name: Canonical module name, or the function's qualified name.
        class_name: Class of the module, or `function`.
        parent: Index of the enclosing region; None at the top.
        early_stop: As the region was created.
        preserve_rng_state: As the region was created.
        determinism_check: False where torch's own metadata comparison is off.
        selective: True where a selective policy decides.
        policy: Name of the policy function.
        policy_identity: Digest of the policy function's identity, equal where regions share it.
        allow_cache_entry_mutation: As passed to torch.
        replays: Replays of this call.
        graph_tasks: Backward passes that replayed it.
        operators: Operators of the forward, with their number of calls.
        saved: Operators whose output the policy saved, with their number.
        decisions: Digest of the sequence of the policy's decisions.
        random_drawn: Random operators that really drew, in the forward.
        random_saved: Those of them whose output was saved; in the replay they do not draw.
        mutating_saved: Saved operators that change an input.
        collective_saved: Saved operators that communicate.
        offloaded: Operators for which the policy asked for CPU offload.
        changed_saved: Saved operators whose output changed content between save and replay's use.
        forward_flops: Floating-point operations of the forward.
        replay_flops: Floating-point operations of the replay.
        freed_bytes: Storage that backward needs and checkpointing does not keep.
        saved_bytes: Storage that the selective policy keeps.
        unexplained_bytes: Storage made in the region, alive until backward, that neither the
            policy, the module tree nor later operators account for.
        mismatches: Saved tensors whose replay differs by value (explains, does not judge).
    """

    index: int
    name: str
    class_name: str
    implementation: Implementation
    parent: int | None = None
    early_stop: bool = True
    preserve_rng_state: bool = True
    determinism_check: bool = True
    selective: bool = False
    policy: str | None = None
    policy_identity: str | None = None
    allow_cache_entry_mutation: bool = False
    replays: int = 0
    graph_tasks: int = 0
    operators: dict[str, int] = {}
    saved: dict[str, int] = {}
    decisions: str | None = None
    random_drawn: tuple[str, ...] = ()
    random_saved: tuple[str, ...] = ()
    mutating_saved: tuple[str, ...] = ()
    collective_saved: tuple[str, ...] = ()
    offloaded: tuple[str, ...] = ()
    changed_saved: tuple[str, ...] = ()
    forward_flops: int = 0
    replay_flops: int = 0
    freed_bytes: int = 0
    saved_bytes: int = 0
    unexplained_bytes: int = 0
    mismatches: tuple[ValueMismatch, ...] = ()


class Observation(Frozen):
    """One observed step of a track.

    Attributes:
        peak_bytes: Peak of live tensor storage during the step, parameters included.
        held_bytes: Live tensor storage between forward and backward, parameters excluded.
        forward_flops: Floating-point operations of all forwards.
        backward_flops: Floating-point operations of all backwards, replays included.
        random_drawn: True where any random operator drew.
    """

    step: int
    peak_bytes: int
    held_bytes: int
    forward_flops: int
    backward_flops: int
    random_drawn: bool
    regions: tuple[RegionRecord, ...] = ()


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
        tokens: Elements of the first batch tensor, summed over the batches of one step.
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
    facts: tuple[Fact, ...] = ()
    torch: str = ""
    device: str = "cpu"
    raised: Raised | None = None
    end: Literal["end"] = "end"

    model_config = Frozen.model_config | {"populate_by_name": True}
