"""The tensor-parallel plan that a transformers model brings along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acgate.errors import TargetError
from acgate.spec.globs import glob_matches

if TYPE_CHECKING:
    from torch import nn


def tensor_parallel_plan(model: nn.Module) -> dict[str, Any]:
    """Return the plan of a `PreTrainedModel`: globs over module names and words for styles.

    Entries for parts that this model does not have are left out, and so is a module that shares its weight
    with one that the plan does not split (a tied head): splitting one of them would train them apart.

    Raises:
        TargetError: The model has no plan, or an adapter around it that no plan knows.
    """
    if hasattr(model, "get_base_model"):
        raise TargetError(
            "transformers has no tensor-parallel plan for a model with an adapter of peft: leave out the"
            " topologies tp and fsdp+tp, or load it in a Python file and define tensor_parallel_plan there"
        )
    plan: dict[str, Any] = dict(getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None) or {})
    if not plan:
        raise TargetError(
            f"{type(model).__name__} has no tensor-parallel plan in this version of transformers; load the"
            " model in a Python file and define tensor_parallel_plan there, such as"
            ' {"model.layers.*.mlp.up_proj": "colwise", "model.layers.*.mlp.down_proj": "rowwise"}'
        )
    names = [name for name, _ in model.named_modules()] + [name for name, _ in model.named_parameters()]
    present = {glob: style for glob, style in plan.items() if any(glob_matches(glob, name) for name in names)}
    return {glob: style for glob, style in present.items() if not _tied_to_unsplit(glob, present, model)}


def _tied_to_unsplit(glob: str, plan: dict[str, Any], model: nn.Module) -> bool:
    """Tell whether a module that `glob` matches shares a parameter with one that the plan leaves whole."""
    owners: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), []).append(name.rpartition(".")[0])
    return any(
        any(glob_matches(glob, owner) for owner in sharing)
        and not all(any(glob_matches(other, owner) for other in plan) for owner in sharing)
        for sharing in owners.values()
    )
