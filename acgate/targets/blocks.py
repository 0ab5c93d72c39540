"""The repeated blocks of a model, which AC is applied to, and the layers that reports show on their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from acgate.errors import TargetError
from acgate.evidence.names import canonical
from acgate.targets.globs import select_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a model.

    Attributes:
        names: Canonical module names, in the order of the model.
        source: How they were found, for the plan.
        class_name: Class of the blocks; several are joined by ` and `.
    """

    names: tuple[str, ...]
    source: str
    class_name: str


def modules_by_name(model: nn.Module) -> dict[str, nn.Module]:
    """Map canonical names to modules, the root left out; of a wrapper and what it wraps, the wrapper."""
    result: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        short = canonical(name)
        if short:
            result.setdefault(short, module)
    return result


def find_blocks(model: nn.Module, globs: Sequence[str] | None, *, required: bool = True) -> Blocks:
    """Find the blocks: by the target's globs, by what the model library says, or by structure.

    Without globs these are the modules of the classes in `_no_split_modules` (Hugging Face), else
    the children of the largest `ModuleList`, or `Sequential` or `ModuleDict` of one class, of which
    at least two are of one class; where there is none, those of a `ModuleList` with one child. Lists
    of the same classes count together, as those of an encoder and a decoder do.

    Args:
        model: The model, with or without wrappers.
        globs: The target's `blocks`, or None to find them.
        required: False where AC needs no blocks from here, because the target or its library
            applies it: where none are found, the result is then empty.

    Raises:
        TargetError: A glob matches nothing, blocks lie within each other, or none are found.
    """
    modules = modules_by_name(model)
    if globs is not None:
        names = select_names(list(modules), globs, "blocks")
        for inner in names:
            outer = next((other for other in names if inner.startswith(f"{other}.")), None)
            if outer is not None:
                raise TargetError(
                    f"blocks: {inner!r} lies inside {outer!r}, and both are matched; narrow the globs"
                    " (`*` stays within one part of a name)"
                )
        return _blocks(names, modules, f"declared: {', '.join(globs)}")
    unsplit = getattr(model, "_no_split_modules", None) or ()
    names = _of_classes(modules, set(unsplit))
    if names:
        return _blocks(names, modules, "the model's _no_split_modules")
    # A model of one layer, or one that applies the same layer many times, has a list of one.
    names = _largest_stack(model, modules, alike=2) or _largest_stack(model, modules, alike=1)
    if names:
        holders = dict.fromkeys(name.rpartition(".")[0] or "the model" for name in names)
        return _blocks(names, modules, f"children of {', '.join(holders)}")
    if not required:
        return Blocks((), "none found", "")
    children = ", ".join(name for name in modules if "." not in name) or "no submodules"
    raise TargetError(
        f"no blocks found in {type(model).__name__} ({children}): it has no ModuleList with two children of"
        ' one class; name them in the target, such as blocks = ["layers.*"]'
    )


def key_layers(model: nn.Module, blocks: Sequence[str], declared: Sequence[str] | None) -> tuple[str, ...]:
    """Return the modules that reports show on their own, in the order of the model.

    Args:
        model: The model.
        blocks: Names of its blocks, from `find_blocks`.
        declared: Globs; None means first and last block, embeddings, and the head (the last linear
            layer outside the blocks).

    Raises:
        TargetError: A declared glob matches nothing.
    """
    modules = modules_by_name(model)
    if declared is not None:
        return select_names(list(modules), declared, "key_layers")
    outside = {name: module for name, module in modules.items() if not _inside(name, blocks)}
    chosen = {*blocks[:1], *blocks[-1:]}
    chosen |= {name for name, module in outside.items() if isinstance(module, nn.Embedding)}
    chosen |= set([name for name, module in outside.items() if isinstance(module, nn.Linear)][-1:])
    return tuple(name for name in modules if name in chosen)


def _blocks(names: tuple[str, ...], modules: dict[str, nn.Module], source: str) -> Blocks:
    classes = dict.fromkeys(type(modules[name]).__name__ for name in names)
    return Blocks(names, source, " and ".join(classes))


def _inside(name: str, blocks: Iterable[str]) -> bool:
    return any(name == block or name.startswith(f"{block}.") for block in blocks)


def _of_classes(modules: dict[str, nn.Module], classes: set[str]) -> tuple[str, ...]:
    """Return the outermost modules of these classes that are stacked; embeddings are named too, but alone."""
    chosen: list[str] = []
    for name, module in modules.items():
        holder = modules.get(name.rpartition(".")[0])
        stacked = isinstance(holder, nn.ModuleList | nn.ModuleDict | nn.Sequential)
        if stacked and type(module).__name__ in classes and not _inside(name, chosen):
            chosen.append(name)
    return tuple(chosen)


def _largest_stack(model: nn.Module, modules: dict[str, nn.Module], alike: int) -> tuple[str, ...]:
    """Return the children of the stacks with the most parameters, stacks of the same classes together."""
    children: dict[str, list[str]] = {}
    for name in modules:
        children.setdefault(name.rpartition(".")[0], []).append(name)
    groups: dict[frozenset[type], list[str]] = {}
    for holder, held in children.items():
        of = modules[holder] if holder else model
        names = (_own_repeated(held, modules) or held) if isinstance(of, nn.Sequential) else held
        classes = Counter(type(modules[name]) for name in names)
        if _is_stack(of, classes, alike):
            groups.setdefault(frozenset(classes), []).extend(names)
    # Of equal sizes the first is taken: it is the outermost.
    largest = max(groups.values(), key=lambda names: _num_parameters(modules, names), default=[])
    if _num_parameters(modules, largest) == 0:
        return ()
    return tuple(name for name in largest if not _inside(name, [other for other in largest if other != name]))


def _is_stack(holder: nn.Module, classes: Counter[type], alike: int) -> bool:
    if any(issubclass(kind, nn.ModuleList | nn.ModuleDict) for kind in classes):
        return False  # stages, each a list of blocks, that nobody calls
    if isinstance(holder, nn.ModuleList):
        return max(classes.values()) >= alike
    return isinstance(holder, nn.Sequential | nn.ModuleDict) and len(classes) == 1 and classes.total() >= 2


def _own_repeated(names: Sequence[str], modules: dict[str, nn.Module]) -> list[str]:
    """Return the children of the one repeated class that is not torch's own, if there is exactly one.

    A stack that ends in a head has one.
    """
    classes = Counter(type(modules[name]) for name in names)
    own = [
        kind for kind, number in classes.items() if number >= 2 and not kind.__module__.startswith("torch.")
    ]
    return [name for name in names if type(modules[name]) is own[0]] if len(own) == 1 else []


def _num_parameters(modules: dict[str, nn.Module], names: Iterable[str]) -> int:
    unique = {id(parameter): parameter for name in names for parameter in modules[name].parameters()}
    return sum(parameter.numel() for parameter in unique.values())
