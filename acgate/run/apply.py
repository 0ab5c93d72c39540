"""Which way a track is applied: by acgate's policy, by the target, or by the model's own switch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.checkpointing import (
    Applied,
    ContextFn,
    apply_policy,
    covered_blocks,
    prove_chain,
    selective_context_fn,
)
from acgate.checkpointing.coverage import covered_modules
from acgate.errors import PolicyError, TargetError
from acgate.run.precision import convert_batch
from acgate.spec.models import BlockCoverage
from acgate.targets.blocks import find_blocks, modules_by_name

if TYPE_CHECKING:
    from torch import nn

    from acgate.checkpointing import Chain
    from acgate.spec.models import GateSpec
    from acgate.targets.protocol import AppliesAc, Target


@dataclass(frozen=True, slots=True)
class Whole:
    """Names in the whole model, where a rank has a part of it: `every-2` counts all blocks.

    Attributes:
        blocks: Of the blocks, in order of forward.
        modules: Of all modules.
    """

    blocks: tuple[str, ...]
    modules: tuple[str, ...]

    @staticmethod
    def of(model: nn.Module, target: Target) -> Whole:
        """Note the names of a model that was not split yet."""
        blocks = find_blocks(model, target.blocks, required=False).names
        return Whole(blocks, tuple(modules_by_name(model)))

    def within(self, model: nn.Module) -> tuple[str, ...]:
        """Return the names of the blocks that a part of the model has."""
        present = modules_by_name(model)
        return tuple(name for name in self.blocks if name in present)


def apply_track(
    model: nn.Module, track: str, target: Target, spec: GateSpec, whole: Whole | None = None
) -> nn.Module:
    """Return the model as `track` trains it; `none` is the model as it was built.

    Args:
        model: The model, or the part of it that this rank has.
        track: AC treatment.
        target: Where the model comes from.
        spec: For the policy.
        whole: Names of the whole model, where `model` may be a part of it.

    Raises:
        PolicyError: The policy does not fit the model, or nobody knows this track.
        TargetError: The target's `apply_ac` returned something else than a module or None.
    """
    if track == "none":
        return model
    match who_applies(target, spec):
        case "target":
            assert target.apply_ac is not None
            applied = target.apply_ac(model, track)
            if applied is None:
                return model
            if not hasattr(applied, "named_parameters"):
                raise TargetError(
                    f"apply_ac must return the model or None, but returned {type(applied).__name__}"
                )
            return applied
        case "hugging-face":
            assert target.switch_ac is not None
            target.switch_ac(model, _context_fn(track, spec))
            return model
        case "acgate":
            apply_by_policy(model, track, target, spec, whole)
            return model


def who_applies(target: Target, spec: GateSpec) -> AppliesAc:
    """Say who makes the regions.

    A model library's switch covers every block. Where the policy asks for other regions than that,
    acgate makes them instead, so that a policy is never silently ignored.
    """
    if target.applies_ac != "hugging-face":
        return target.applies_ac
    every_block = BlockCoverage()
    same = all(
        getattr(coverage, name) == getattr(every_block, name)
        for coverage in (spec.policy.block, spec.policy.selective)
        for name in BlockCoverage.model_fields
    )
    return "hugging-face" if same else "acgate"


def apply_by_policy(
    model: nn.Module, track: str, target: Target, spec: GateSpec, whole: Whole | None = None
) -> Applied:
    """Apply a track as `policy.toml` says; regions of several blocks need the proof of a chain.

    Raises:
        PolicyError: The policy does not fit the model.
    """
    if whole is None or whole.within(model) == whole.blocks:
        blocks = find_blocks(model, target.blocks).names
        chain = _chain(track, blocks, target, spec)
        return apply_policy(model, track, spec.policy, blocks, chain=chain)
    return _apply_to_part(model, track, target, spec, whole)


def _apply_to_part(model: nn.Module, track: str, target: Target, spec: GateSpec, whole: Whole) -> Applied:
    """Make those regions of the whole model that lie in a part of it."""
    coverage = _coverage(track, spec)
    done: dict[str, object] = {"include": ()}
    if coverage.region_size == 1:
        names = covered_modules(coverage, whole.blocks, whole.modules)
        done |= {"coverage": "all", "submodules": ()}
    else:  # joins whole neighbouring blocks, and refuses what leaves none
        names = covered_blocks(coverage, whole.blocks, whole.modules)
        done |= {} if coverage.coverage.startswith("every-") else {"coverage": "all"}
    present = modules_by_name(model)
    here = tuple(name for name in names if name in present)
    if not here:
        return Applied(track, (), ())
    chain = _chain(track, whole.blocks, target, spec)
    policy = spec.policy.model_copy(
        update={
            "block": spec.policy.block.model_copy(update=done),
            "selective": spec.policy.selective.model_copy(update=done),
        }
    )
    return apply_policy(model, track, policy, here, chain=chain)


def _coverage(track: str, spec: GateSpec) -> BlockCoverage:
    return spec.policy.selective if track == "selective" else spec.policy.block


def _chain(track: str, blocks: tuple[str, ...], target: Target, spec: GateSpec) -> Chain | None:
    """Prove that the covered blocks follow one another, on a model of its own that is thrown away."""
    coverage = _coverage(track, spec)
    if coverage.region_size == 1:
        return None
    model = target.build_model().to(spec.device)
    batch = convert_batch(target.batches(spec.bucket, 1)[0], "float32", spec.device)
    covered = covered_blocks(coverage, blocks, tuple(name for name, _ in model.named_modules()))
    return prove_chain(model, _runs(blocks, covered), lambda: target.loss(model, batch))


def _runs(blocks: tuple[str, ...], covered: tuple[str, ...]) -> tuple[str, ...]:
    """Return the span of blocks from the first covered one to the last: a chain has no holes."""
    first, last = blocks.index(covered[0]), blocks.index(covered[-1])
    return blocks[first : last + 1]


def _context_fn(track: str, spec: GateSpec) -> ContextFn | None:
    match track:
        case "block":
            return None
        case "selective":
            return selective_context_fn(spec.policy.selective)
        case _:
            raise PolicyError(
                f"the track {track!r} is not known for a Hugging Face model: use block or selective,"
                " or give a target file with its own apply_ac"
            )
