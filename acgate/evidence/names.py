"""Canonical names: what a parameter is called whatever wraps its module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from acgate.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WRAPPER_PARTS = frozenset({"_checkpoint_wrapped_module", "_orig_mod", "_fsdp_wrapped_module"})
"""Names that only wrappers give to what they wrap; models do not use them."""

# These call what they wrap `module`, as models call modules of their own: only the class tells.
_PLAIN_WRAPPERS = frozenset(
    {
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "torch.nn.parallel.data_parallel.DataParallel",
    }
)
_PLAIN_PART = "module"


class Module(Protocol):
    """The part of `torch.nn.Module` that names come from."""

    def named_children(self) -> Iterable[tuple[str, Module]]:
        """Yield name and module of each child."""

    def named_modules(self) -> Iterable[tuple[str, Module]]:
        """Yield path and module, this one and all below."""


def canonical(name: str) -> str:
    """Return a module or parameter name without the parts that wrappers alone insert.

    DDP stays in the name: a name does not tell its `module` from one of the model; see `naming`.
    """
    return ".".join(part for part in name.split(".") if part not in WRAPPER_PARTS)


def wrapped_module(module: Module) -> Module | None:
    """Return what a module wraps, whose name it then has; None where it is no wrapper."""
    parts = WRAPPER_PARTS | {_PLAIN_PART} if _is_plain_wrapper(module) else WRAPPER_PARTS
    return next((child for name, child in module.named_children() if name in parts), None)


def is_wrapper(module: Module) -> bool:
    """Say whether a module only wraps another."""
    return wrapped_module(module) is not None


def naming(model: Module) -> Callable[[str], str]:
    """Return what makes canonical names of a model's own, DDP at the root or inside taken out too."""
    paths = {
        f"{path}.{_PLAIN_PART}".lstrip(".")
        for path, module in model.named_modules()
        if _is_plain_wrapper(module)
    }
    if not paths:
        return canonical

    def name_of(name: str) -> str:
        parts = name.split(".")
        kept = (part for place, part in enumerate(parts) if ".".join(parts[: place + 1]) not in paths)
        return canonical(".".join(kept))

    return name_of


def canonical_map(names: Iterable[str], name_of: Callable[[str], str] = canonical) -> dict[str, str]:
    """Map canonical names to the model's own names.

    Args:
        names: The model's own.
        name_of: What makes them canonical, such as the `naming` of the model.

    Raises:
        TargetError: Two names become one without their wrapper parts.
    """
    result: dict[str, str] = {}
    for name in names:
        short = name_of(name)
        if short in result:
            raise TargetError(
                f"the names {result[short]!r} and {name!r} are both {short!r} without wrapper prefixes;"
                " rename one of the two modules"
            )
        result[short] = name
    return result


def _is_plain_wrapper(module: Module) -> bool:
    return any(f"{kind.__module__}.{kind.__qualname__}" in _PLAIN_WRAPPERS for kind in type(module).__mro__)
