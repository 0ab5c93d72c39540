"""What the observed step says about regions: their flags, operators, memory and replays."""

from __future__ import annotations

from typing import Literal

from acgate.evidence.trace_records import Effect, ModuleOutput, RegionTrace
from acgate.spec.models import Frozen
from acgate.vocabulary import Implementation


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


class Kept(Frozen):
    """Who keeps memory of a region alive until backward.

    Attributes:
        name: Such as `Square.forward, ctx.x`.
        source: Line that keeps it.
    """

    name: str
    source: str = ""


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
        decided: Digest of the sequence of operators that they are about.
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
        kept: Who keeps that, as far as it is known: contexts of custom autograd Functions.
        mismatches: Saved tensors whose replay differs by value (explains, does not judge).
        effects: What its replay did outside that any observed step notices (logging, files, sockets, output,
            tensors outside that operators wrote to).
        trace: What the operator trace says; None where none was made.
        rank: Rank on which it was seen.
    """

    index: int
    rank: int = 0
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
    decided: str | None = None
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
    kept: tuple[Kept, ...] = ()
    mismatches: tuple[ValueMismatch, ...] = ()
    effects: tuple[Effect, ...] = ()
    trace: RegionTrace | None = None


class Collective(Frozen):
    """One call of a collective operator, as the dispatcher saw it.

    Attributes:
        phase: `forward`, `backward`, `replay` (inside a region that backward recomputes) or `optimizer`.
        operator: Such as `_c10d_functional.all_reduce` or `c10d.allreduce_`.
        shapes: Of its tensor arguments, with dtype: `float32[64, 16]`.
        group: The ranks that take part, such as `0,1`; empty where that is not known.
        region: Name of the region that runs or is replayed; empty outside of regions.
        where: Source file and line of the target's code that issued it; empty where a library did.
    """

    phase: Literal["forward", "backward", "replay", "optimizer"]
    operator: str
    shapes: tuple[str, ...] = ()
    group: str = ""
    region: str = ""
    where: str = ""

    @property
    def signature(self) -> str:
        """What must be equal on the ranks of a group."""
        return f"{self.phase} {self.operator} {' '.join(self.shapes)} ranks {self.group}"


class Observation(Frozen):
    """One observed step of a track.

    Attributes:
        peak_bytes: Peak of live tensor storage during the step, parameters included.
        held_bytes: Live tensor storage between forward and backward, parameters excluded.
        forward_flops: Floating-point operations of all forwards.
        backward_flops: Floating-point operations of all backwards, replays included.
        random_drawn: True where any random operator drew.
        collectives: In the order in which they were issued; those of the library around backward too.
        replay_order: Names of the regions in the order in which backward replayed them.
        choices: Digest of what operators chose by comparing numbers (top-k, argmax, sort) in the
            forward, as routers do; empty where none ran.
        outputs: What each module returned in the first forward, in order of its end; of a trace only.
    """

    step: int
    peak_bytes: int
    held_bytes: int
    forward_flops: int
    backward_flops: int
    random_drawn: bool
    regions: tuple[RegionRecord, ...] = ()
    collectives: tuple[Collective, ...] = ()
    replay_order: tuple[str, ...] = ()
    choices: str = ""
    outputs: tuple[ModuleOutput, ...] = ()
