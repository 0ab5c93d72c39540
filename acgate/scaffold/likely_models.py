"""Which of the modules of a project is its model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from acgate.scaffold.modules import LISTS, called

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from acgate.scaffold.modules import ModuleClass

_MODEL_NAME = re.compile(r"\w*(Model|Transformer|Net|Network|LM|GPT\w*|Bert|For[A-Z]\w*)")
_ASIDE = frozenset(
    {"tests", "test", "testing", "examples", "example", "docs", "doc", "benchmarks", "scripts"}
)


def is_aside(path: Path) -> bool:
    """Say whether a file or directory belongs to tests, examples or documentation."""
    name = path.name
    return (
        not _ASIDE.isdisjoint(path.parts)
        or name.startswith(("test_", "conftest"))
        or name.endswith("_test.py")
    )


def models(modules: Mapping[str, ModuleClass], *, aside: bool = False) -> list[ModuleClass]:
    """Return the modules that could be trained as they are, the likeliest model first.

    Left out are those that other modules are made of, those without a forward, and, unless `aside`,
    those of tests and examples.
    """
    inner = {part for module in modules.values() for part in module.parts}
    possible = [
        module
        for module in modules.values()
        if (aside or not is_aside(module.source.path))
        and (module.method("forward") is not None or module.of_transformers)
    ]
    outer = [module for module in possible if module.name not in inner] or possible
    return sorted(outer, key=lambda module: (-_likeness(module), len(module.source.path.parts), module.name))


def _likeness(module: ModuleClass) -> float:
    """Return a number that is larger the more a module looks like a whole model."""
    score = 4.0 * has_list(module) + 2.0 * _holds_list(module)
    score += 3.0 * (_MODEL_NAME.fullmatch(module.name) is not None)
    score += min(4.0, 0.5 * len(_inside(module)) + 0.25 * len(module.attributes))
    score -= 6.0 * module.source.runs
    return score - 12.0 * module.name.startswith("_")


def has_list(module: ModuleClass) -> bool:
    """Say whether a module or one of its parts holds a list of modules, which AC is applied to."""
    return any(_holds_list(each) for each in (module, *_inside(module)))


def _holds_list(module: ModuleClass) -> bool:
    return any(name in LISTS for value in module.attributes.values() for name in called(value))


def inside_of(module: ModuleClass) -> Iterator[ModuleClass]:
    """Yield a module and all that it is made of."""
    yield module
    yield from _inside(module)


def _inside(module: ModuleClass) -> list[ModuleClass]:
    """Return the modules of the project that a module is made of, at any depth."""
    found: dict[str, ModuleClass] = {}
    waiting = list(module.parts)
    while waiting:
        name = waiting.pop()
        if name not in found and name != module.name:
            found[name] = module.project[name]
            waiting += found[name].parts
    return list(found.values())
