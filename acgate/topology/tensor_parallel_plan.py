"""Plans of tensor parallelism: which module is split in which way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from acgate.errors import TargetError, message_of
from acgate.spec.explain import nearest
from acgate.targets.globs import select_names
from acgate.topology.summed_gradient import ReplicatedWithSummedGradient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

    from acgate.targets.protocol import Target


def _colwise_gathered() -> ParallelStyle:
    return ColwiseParallel(output_layouts=Replicate())


def _rowwise_splitting() -> ParallelStyle:
    return RowwiseParallel(input_layouts=Replicate())


# Words of Hugging Face's plans, of which the older ones are here too. None: every rank does all of it.
STYLES: dict[str, Callable[[], ParallelStyle] | None] = {
    "colwise": ColwiseParallel,
    "colwise_gather_output": _colwise_gathered,
    "colwise_rep": _colwise_gathered,
    "rowwise": RowwiseParallel,
    "rowwise_split_input": _rowwise_splitting,
    "rowwise_rep": _rowwise_splitting,
    "embedding_rowwise": _rowwise_splitting,
    "embedding_colwise": _colwise_gathered,
    "sequence_parallel": SequenceParallel,
    "replicated_with_grad_allreduce": ReplicatedWithSummedGradient,
    "replicate": None,
}

_HOW = (
    "tensor parallelism needs a plan, and {source} has none: define tensor_parallel_plan as a dict of globs"
    ' over module names and styles, such as {{"layers.*.attention.query": "colwise",'
    ' "layers.*.attention.out": "rowwise"}}, or parallelize(model, mesh, topology)'
)


def apply_plan(model: nn.Module, mesh: DeviceMesh, target: Target) -> nn.Module:
    """Split modules over the ranks of a mesh, in place, as the target's plan says.

    Args:
        model: Before AC is applied.
        mesh: Of one axis.
        target: With a `tensor_parallel_plan`.

    Raises:
        TargetError: There is no plan, or it does not fit the model.
    """
    plan = _plan_of(target, model)
    what = f"tensor_parallel_plan of {target.source}"
    styles = {glob: _style(glob, style, what) for glob, style in plan.items()}
    names = [name for name, _ in model.named_modules() if name]
    chosen: dict[str, str] = {}
    for glob in plan:
        for name in select_names(names, [glob], what):
            earlier = chosen.setdefault(name, glob)
            if plan[earlier] != plan[glob]:
                raise TargetError(
                    f"{what}: {earlier!r} and {glob!r} both match {name!r} and give it different styles;"
                    " narrow one of them"
                )
    tied = _tied(model)
    for name, glob in chosen.items():
        make = styles[glob]
        _refuse_uneven(name, model.get_submodule(name), plan[glob], mesh, what)
        if make is not None:
            _split(model.get_submodule(name), mesh, make(), f"{what}: {glob!r} cannot be applied to {name!r}")
    _tie_again(model, tied, what)
    return model


def _plan_of(target: Target, model: nn.Module) -> Mapping[str, Any]:
    plan: object = target.tensor_parallel_plan
    if plan is None:
        raise TargetError(_HOW.format(source=target.source))
    if callable(plan):
        plan = plan(model)
    if not isinstance(plan, dict) or not plan or not all(isinstance(glob, str) and glob for glob in plan):
        raise TargetError(
            f"tensor_parallel_plan of {target.source} has the type {type(plan).__name__}, no entries, or keys"
            ' that are no text; it must be a dict such as {"layers.*.up": "colwise"}'
        )
    return plan


def _style(glob: str, style: object, what: str) -> Callable[[], ParallelStyle] | None:
    if isinstance(style, ParallelStyle):
        return lambda: style
    if not isinstance(style, str):
        raise TargetError(
            f"{what}: the style of {glob!r} is {type(style).__name__}; it must be a word such as"
            ' "colwise", or a style of torch.distributed.tensor.parallel'
        )
    if style not in STYLES:
        near = nearest(style, STYLES)
        hint = "" if near is None else f"; did you mean {near!r}?"
        raise TargetError(
            f"{what}: acgate does not know the style {style!r} of {glob!r}{hint};"
            f" known are {', '.join(STYLES)}; for anything else give a style of"
            " torch.distributed.tensor.parallel in a Python file, or define parallelize there"
        )
    return STYLES[style]


def _refuse_uneven(name: str, module: nn.Module, style: object, mesh: DeviceMesh, what: str) -> None:
    """Raise where the shares of ranks would differ in size, so that plain tensors do not fit together."""
    sizes = {"colwise": getattr(module, "out_features", 0), "rowwise": getattr(module, "in_features", 0)}
    size = sizes.get(style, 0) if isinstance(style, str) else 0
    if size % mesh.size():
        raise TargetError(
            f"{what}: {name!r} cannot be {style}: its {size} features do not divide by {mesh.size()} ranks;"
            " leave it out, or use another --world-size"
        )


def _split(module: nn.Module, mesh: DeviceMesh, style: ParallelStyle, cannot: str) -> None:
    try:
        parallelize_module(module, mesh, style)
    except (NotImplementedError, ValueError, RuntimeError) as error:
        raise TargetError(f"{cannot} ({type(module).__name__}): {message_of(error)}") from error


def _tied(model: nn.Module) -> list[list[str]]:
    """Return the names of parameters that share one tensor, group by group."""
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _tie_again(model: nn.Module, groups: list[list[str]], what: str) -> None:
    """Let names that shared one tensor share one again; splitting gives each module a tensor of its own.

    Raises:
        TargetError: They are laid out differently now, and would be trained apart.
    """
    for first, *others in groups:
        kept = model.get_parameter(first)
        for name in others:
            found = model.get_parameter(name)
            if found is kept:
                continue
            if not (
                isinstance(found, DTensor)
                and isinstance(kept, DTensor)
                and found.placements == kept.placements
            ):
                raise TargetError(
                    f"{what} splits {first!r} and {name!r}, which are one tensor, in different ways, so that"
                    " they would be trained apart; give both modules styles that split the same dim, or"
                    " leave both out"
                )
            parent, _, key = name.rpartition(".")
            setattr(model.get_submodule(parent), key, kept)
