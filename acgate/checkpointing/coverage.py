"""Which modules a policy makes into regions: names in, names out, no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import PolicyError
from acgate.spec.explain import nearest
from acgate.spec.globs import glob_matches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from acgate.spec.models import BlockCoverage


def covered_blocks(
    coverage: BlockCoverage, blocks: Sequence[str], modules: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the blocks that a policy covers, in the order given.

    `include` chooses first, then `coverage` counts among what is left.

    Args:
        coverage: What the policy says.
        blocks: Names of the model's blocks, in order of forward.
        modules: Names of all modules; needed where `include` names submodules.

    Raises:
        PolicyError: There are no blocks, or a glob of `include` matches nothing.
    """
    if not blocks:
        raise PolicyError("there are no blocks to checkpoint: name them in the target (blocks = [...])")
    candidates = {block: (block, *_below(block, coverage.submodules, modules)) for block in blocks}
    for glob in coverage.include:
        names = [name for group in candidates.values() for name in group]
        if not any(glob_matches(glob, name) for name in names):
            raise PolicyError(
                f"include = {glob!r} matches no block{_suggest(glob, names)};"
                f" the blocks are {_listed(blocks)}"
            )
    included = [block for block in blocks if any(_included(name, coverage) for name in candidates[block])]
    match coverage.coverage.partition("-"):
        case ("every", _, count):
            return tuple(included[:: int(count)])
        case ("last", _, count):
            return tuple(included[-int(count) :])
        case _:
            return tuple(included)


def covered_modules(
    coverage: BlockCoverage, blocks: Sequence[str], modules: Collection[str]
) -> tuple[str, ...]:
    """Return the names of the modules that become regions of one module each, in order.

    Raises:
        PolicyError: As `covered_blocks`; or a glob of `submodules` matches nothing below the covered blocks;
            or one region would lie inside another.
    """
    covered = covered_blocks(coverage, blocks, modules)
    if not coverage.submodules:
        return covered
    for glob in coverage.submodules:
        if not any(_below(block, (glob,), modules) for block in covered):
            below = sorted({name.removeprefix(f"{b}.") for b in covered for name in _children(b, modules)})
            raise PolicyError(
                f"submodules = {glob!r} matches nothing below the {len(covered)} covered blocks"
                f"{_suggest(glob, below)}; below a block are {_listed(below) or 'no modules'}"
            )
    names = tuple(
        name
        for block in covered
        for name in _below(block, coverage.submodules, modules)
        if _included(block, coverage) or _included(name, coverage)
    )
    for outer in names:
        for inner in names:
            if inner.startswith(f"{outer}."):
                raise PolicyError(
                    f"submodules make {inner!r} a region inside the region {outer!r}, which would be"
                    " recomputed twice: name only one of them"
                )
    return names


def _included(name: str, coverage: BlockCoverage) -> bool:
    return not coverage.include or any(glob_matches(glob, name) for glob in coverage.include)


def _below(block: str, globs: Iterable[str], modules: Collection[str]) -> list[str]:
    globs = tuple(globs)
    return [
        name
        for name in _children(block, modules)
        if any(glob_matches(glob, name.removeprefix(f"{block}.")) for glob in globs)
    ]


def _children(block: str, modules: Collection[str]) -> list[str]:
    return [name for name in modules if name.startswith(f"{block}.")]


def _suggest(glob: str, names: Iterable[str]) -> str:
    near = nearest(glob, names)
    return f"; did you mean {near!r}?" if near else ""


def _listed(names: Sequence[str], limit: int = 12) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
