"""Applying a policy to a model: the track that the gate tests and that training uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

# The wrapper that torch's own recipes use; its folder is private by name only, and this is the one import.
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    CheckpointWrapper,
    checkpoint_wrapper,
)

from acgate.checkpointing.coverage import covered_blocks, covered_modules
from acgate.checkpointing.regions import ChainedBlock, chain_blocks, group_blocks
from acgate.checkpointing.selective import selective_context_fn
from acgate.errors import PolicyError
from acgate.spec.explain import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from acgate.checkpointing.chain import Chain
    from acgate.checkpointing.selective import ContextFn
    from acgate.spec.models import BlockCoverage, Policy


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done to a model.

    Attributes:
        track: The track that was applied.
        regions: Names of the modules that became regions, in order; of a region of several blocks the first.
        members: The modules of each region.
    """

    track: str
    regions: tuple[str, ...]
    members: tuple[tuple[str, ...], ...]


def apply_policy(
    model: nn.Module,
    track: str,
    policy: Policy,
    blocks: Sequence[str],
    *,
    context_fn: ContextFn | None = None,
    chain: Chain | None = None,
) -> Applied:
    """Apply a track's activation checkpointing to a model, in place.

    Always non-reentrant (`use_reentrant=False`), with the states of the random generators saved and restored
    and torch's own determinism check on. The names in `state_dict` do not change.

    Args:
        model: The model, before it is wrapped by DDP or FSDP.
        track: `none`, `block` or `selective`.
        policy: What `policy.toml` says.
        blocks: Names of the model's blocks in order of forward, such as `layers.0`.
        context_fn: Used instead of the one that the policy describes.
        chain: What `prove_chain` returned; needed where the policy's `region_size` is above 1.

    Raises:
        PolicyError: The policy does not fit the model, or the model checkpoints already.
    """
    if track == "none":
        return Applied(track, (), ())
    coverage = _coverage(track, policy)
    if context_fn is None and track == "selective":
        context_fn = selective_context_fn(policy.selective)
    modules = dict(model.named_modules(remove_duplicate=False))
    _require_known(blocks, modules)
    if coverage.region_size > 1:
        groups = _groups(coverage, blocks, chain)
        for name in (name for group in groups for name in group):
            _refuse_second_wrap(name, modules)
        for group in groups:
            chain_blocks(group, [modules[name] for name in group], context_fn)
        return Applied(track, tuple(group[0] for group in groups), groups)
    # A module that is registered under several names is one region, at each of its places.
    first_names: dict[int, str] = {}
    for name in covered_modules(coverage, blocks, modules):
        first_names.setdefault(id(modules[name]), name)
    regions = tuple(first_names.values())
    for name in regions:
        _refuse_second_wrap(name, modules)
    for name in regions:
        _wrap(name, modules, context_fn)
    return Applied(track, regions, tuple((name,) for name in regions))


def _coverage(track: str, policy: Policy) -> BlockCoverage:
    match track:
        case "block":
            return policy.block
        case "selective":
            return policy.selective
        case _:
            raise PolicyError(
                f"acgate does not know how to apply the track {track!r}: it knows block and selective;"
                " for a track of your own define apply_ac(model, track) in the target"
            )


def _require_known(blocks: Sequence[str], modules: dict[str, nn.Module]) -> None:
    for name in blocks:
        if not name or name not in modules:
            near = nearest(name, modules)
            hint = f"; did you mean {near!r}?" if near else ""
            raise PolicyError(f"the model has no module {name!r} to checkpoint{hint}")


def _groups(
    coverage: BlockCoverage, blocks: Sequence[str], chain: Chain | None
) -> tuple[tuple[str, ...], ...]:
    size = coverage.region_size
    if coverage.submodules:
        raise PolicyError(
            f"region_size = {size} joins whole blocks: remove submodules, or use region_size = 1"
        )
    if coverage.coverage.startswith("every-") and coverage.coverage != "every-1":
        raise PolicyError(
            f"region_size = {size} joins neighbouring blocks, and coverage = {coverage.coverage!r} leaves"
            " no neighbours: use all or last-<k>, or region_size = 1"
        )
    if chain is None:
        raise PolicyError(
            f"region_size = {size} needs proof that the blocks are a chain:"
            " pass chain=prove_chain(model, blocks, lambda: model(**batch))"
        )
    return group_blocks(covered_blocks(coverage, blocks), chain, size)


def _refuse_second_wrap(name: str, modules: dict[str, nn.Module]) -> None:
    """Raise where the module, what it holds or what holds it is checkpointed already."""
    parts = name.split(".")
    above = {".".join(parts[:count]) for count in range(len(parts))}
    for place, module in modules.items():
        if place not in above and place != name and not place.startswith(f"{name}."):
            continue
        if isinstance(module, CheckpointWrapper | ChainedBlock):
            raise PolicyError(
                f"{name!r} cannot become a region: {place or 'the model'!r} is checkpointed already, and its"
                " forward would run once more for each wrap; apply activation checkpointing in one place only"
            )
        # The attribute by which Hugging Face models say that they checkpoint themselves.
        if getattr(module, "gradient_checkpointing", False) is True:
            raise PolicyError(
                f"{name!r} cannot become a region: {place or 'the model'!r} checkpoints by itself"
                " (gradient_checkpointing is True); build the model without gradient_checkpointing_enable()"
            )


def _wrap(name: str, modules: dict[str, nn.Module], context_fn: ContextFn | None) -> None:
    module = modules[name]
    options = {} if context_fn is None else {"context_fn": context_fn}
    wrapped = checkpoint_wrapper(
        module, checkpoint_impl=CheckpointImpl.NO_REENTRANT, preserve_rng_state=True, **options
    )
    for place, held in modules.items():
        if held is module:
            parent, _, key = place.rpartition(".")
            modules[parent].register_module(key, wrapped)
