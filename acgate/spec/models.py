"""The frozen models that a run is made from: what was asked, after parsing and validation."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Precision = Literal["float32", "float64", "bfloat16", "bfloat16.pure", "bfloat16.mixed"]
Topology = Literal["single", "ddp", "fsdp", "fsdp1", "tp", "fsdp+tp", "pp"]
Unexplained = Literal["fail", "warn"]

Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Frozen(BaseModel):
    """Base of all models: immutable, no unknown keys, no silent coercion of wrong types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


class Deadlines(Frozen):
    """Seconds that each phase of a worker may take.

    `step` holds until the first step was seen; from then on a step may take
    `step_factor` times the first one, but never less than `step_floor`.
    """

    import_: Seconds = Field(default=300.0, alias="import")
    build: Seconds = 300.0
    step: Seconds = 600.0
    step_factor: Seconds = 20.0
    step_floor: Seconds = 60.0

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Floor(Frozen):
    """How the noise floor is measured where the reference does not repeat itself.

    Attributes:
        repeats: Repeats of the reference, at least three.
        factor: The pooled maximum of the repeats is multiplied by this.
        confirmations: Runs of the track (and further repeats) before *unexplained* fails.
    """

    repeats: Annotated[int, Field(ge=3)] = 3
    factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    confirmations: Positive = 3


class Allow(Frozen):
    """A finding that somebody accepted, by kind and place, with a reason and an end."""

    kind: str
    where: str = "*"
    reason: Annotated[str, Field(min_length=1)]
    until: dt.date | None = None


class BlockCoverage(Frozen):
    """Which blocks of the target become regions.

    Attributes:
        coverage: `all`, `every-<n>` (every n-th block, the first included) or `last-<k>`.
        include: Globs over module names; when given, only blocks (or submodules) that match.
        submodules: Globs below a block, such as `attention`; empty means the block itself.
        region_size: Consecutive blocks in one region; more than 1 needs a proved chain.
    """

    coverage: Annotated[str, Field(pattern=r"^(all|every-[1-9]\d*|last-[1-9]\d*)$")] = "all"
    include: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    region_size: Literal[1, 2, 4, 8] = 1


class SelectivePolicy(BlockCoverage):
    """Which operators of a region are saved; everything else is recomputed.

    Attributes:
        save: Named lists (`matmul`, `attention`, `convolution`, `collectives`) and operator
            overloads such as `aten.mm.default`.
        every_second_matmul: Save every second matrix product of a region instead of all.
        function: `package.module:function` or `path.py:function`, called as torch calls a
            policy: `(ctx, op, *args, **kwargs) -> CheckpointPolicy`.
        by_layer: The policy is meant to decide differently from layer to layer.
    """

    save: tuple[str, ...] = ("matmul", "attention", "convolution")
    every_second_matmul: bool = False
    function: str | None = None
    by_layer: bool = False


class Policy(Frozen):
    """What `policy.toml` says: how each AC track is applied to the model."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    block: BlockCoverage = BlockCoverage()
    selective: SelectivePolicy = SelectivePolicy()

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Parallel(Frozen):
    """How the topologies share the work, where there is a choice.

    Attributes:
        gradient_sync: When gradients are reduced while they accumulate: after the `last` micro-step
            (DDP's `no_sync`, FSDP2's `set_requires_gradient_sync`) or after `every` one.
        static_graph: Of `DistributedDataParallel`.
        find_unused_parameters: Of `DistributedDataParallel`.
        reshard_after_forward: Of `fully_shard`; False keeps parameters whole until backward.
        reduce_dtype: In which dtype FSDP's own mixed precision (`bfloat16.mixed`) reduces gradients.
        tensor_parallel_size: Ranks per tensor-parallel group of `fsdp+tp`.
        pipeline_schedule: Of `torch.distributed.pipelining`.
    """

    gradient_sync: Literal["last", "every"] = "last"
    static_graph: bool = False
    find_unused_parameters: bool = False
    reshard_after_forward: bool = True
    reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    tensor_parallel_size: Annotated[int, Field(ge=2)] = 2
    pipeline_schedule: Literal["1f1b", "gpipe"] = "1f1b"


class GateSpec(Frozen):
    """One run of the gate, completely described.

    Attributes:
        model: What `--model` said; None means the built-in target.
        tracks: AC treatments, `none` first.
        topologies: How ranks share the work.
        world_size: Ranks of every topology but `single`.
        parallel: How topologies share the work, where there is a choice.
        reference_layers: Blocks that are built for the comparison across topologies, where one device
            does not hold the whole model; None builds all.
        dtypes: Precisions; `bfloat16` is autocast, `bfloat16.pure` the pure form, `bfloat16.mixed` the
            mixed precision of FSDP itself.
        steps: Optimizer steps per track.
        micro_steps: Forward/backward pairs per optimizer step.
        bucket: Sequence-length class handed to the target's `batches`.
        seed: Seeds model building and, per track, the random streams.
        select: Globs over cell identifiers; empty means all.
        as_shipped: Judge the kernels of production instead of the deterministic profile.
        device: Where tensors live: `cpu` or `cuda`.
        threads: Intra-op threads; None leaves torch's own choice.
        unexplained: Overrides what a difference inside the limit but outside the floor means.
        key_layers: Globs that get a line of their own in every report.
        allow: Accepted findings.
        policy: How acgate applies AC when the target does not do it itself.
        tolerances: Directory of tolerance files; None means those that come with acgate.
        explain: Trace the operators of every AC track, also where nothing failed.
    """

    model: str | None = None
    tracks: tuple[str, ...] = ("none", "block", "selective")
    topologies: tuple[Topology, ...] = ("single",)
    world_size: Positive = 2
    parallel: Parallel = Parallel()
    reference_layers: Positive | None = None
    dtypes: tuple[Precision, ...] = ("float32", "bfloat16")
    steps: Positive = 3
    micro_steps: Positive = 2
    bucket: str = "default"
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 20_240_229
    select: tuple[str, ...] = ()
    as_shipped: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    threads: Positive | None = None
    unexplained: Unexplained | None = None
    key_layers: tuple[str, ...] = ()
    allow: tuple[Allow, ...] = ()
    deadlines: Deadlines = Deadlines()
    floor: Floor = Floor()
    policy: Policy = Policy()
    tolerances: str | None = None
    explain: bool = False

    @field_validator("tracks")
    @classmethod
    def _reference_first(cls, tracks: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(tracks)) != len(tracks):
            raise ValueError("a track is named twice")
        if "none" not in tracks:
            raise ValueError('the reference track "none" is missing: AC is judged against it')
        if len(tracks) < 2:
            raise ValueError('no AC track: add "block" or "selective"')
        return ("none", *(track for track in tracks if track != "none"))

    @field_validator("topologies", "dtypes", "select")
    @classmethod
    def _no_duplicates(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(values)) != len(values):
            raise ValueError("a value is named twice")
        return values
