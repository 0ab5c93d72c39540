"""Which way a track is applied: by acgate's policy, by the target, or by the model's own switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.checkpointing import apply_policy, selective_context_fn
from acgate.errors import PolicyError, TargetError
from acgate.targets.blocks import find_blocks

if TYPE_CHECKING:
    from torch import nn

    from acgate.spec.models import GateSpec
    from acgate.targets.protocol import Target


def apply_track(model: nn.Module, track: str, target: Target, spec: GateSpec) -> nn.Module:
    """Return the model as `track` trains it; `none` is the model as it was built.

    Raises:
        PolicyError: The policy does not fit the model, or nobody knows this track.
        TargetError: The target's `apply_ac` returned something else than a module or None.
    """
    if track == "none":
        return model
    match target.applies_ac:
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
            blocks = find_blocks(model, target.blocks)
            apply_policy(model, track, spec.policy, blocks.names)
            return model


def _context_fn(track: str, spec: GateSpec) -> object:
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
