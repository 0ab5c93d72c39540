"""Canonical names: what a parameter is called whatever wraps its module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterable

WRAPPER_PARTS = frozenset({"_checkpoint_wrapped_module", "_orig_mod", "_fsdp_wrapped_module"})


def canonical(name: str) -> str:
    """Return a module or parameter name without the parts that wrappers insert."""
    return ".".join(part for part in name.split(".") if part not in WRAPPER_PARTS)


def canonical_map(names: Iterable[str]) -> dict[str, str]:
    """Map canonical names to the model's own names.

    Raises:
        TargetError: Two names become one without their wrapper parts.
    """
    result: dict[str, str] = {}
    for name in names:
        short = canonical(name)
        if short in result:
            raise TargetError(
                f"the names {result[short]!r} and {name!r} are both {short!r} without wrapper prefixes;"
                " rename one of the two modules"
            )
        result[short] = name
    return result
