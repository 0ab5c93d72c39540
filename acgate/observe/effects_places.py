"""Which line changed a name: by what the functions that ran store and load, as far as that tells."""

from __future__ import annotations

import dis
import functools
import re
from typing import TYPE_CHECKING

from acgate.observe.effects_origin import line_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import CodeType

    from acgate.evidence.trace_records import Effect

_OF_MODULES = frozenset({"buffer", "parameter", "attribute", "generator"})
_NAMED = frozenset({"attribute", "global", "buffer"})


def placed(effects: Iterable[Effect], called: Mapping[CodeType, set[str]]) -> Iterator[Effect]:
    """Yield the effects with the module that has the name, and the line that probably changed it.

    Args:
        effects: What was found changed.
        called: Functions of the target that ran, each with the modules whose methods they are.
    """
    for effect in effects:
        owner = effect.name.rpartition(".")[0] if effect.kind in _OF_MODULES else ""
        if owner.startswith("global "):
            owner = ""
        source = _line(effect.name, owner, called) if effect.kind in _NAMED else ""
        yield effect.model_copy(update={"module": owner, "source": source})


def _line(name: str, owner: str, called: Mapping[CodeType, set[str]]) -> str:
    """Return the first line that stores to a name, else the first that loads it.

    Lines of the module that has the name come first. Where its last part stands nowhere, the one
    before it may, as for what an object holds.
    """
    words = re.findall(r"[A-Za-z_]\w*", name)[-2:]
    best: tuple[int, str] | None = None
    for word in reversed(words):
        for code, owners in called.items():
            found = _uses(code).get(word)
            if found is None:
                continue
            line, stores = found
            apart = bool(owner) and not any(_belongs(name, module) for module in owners)
            rank = 2 * (not stores) + apart
            if best is None or rank < best[0]:
                best = rank, line_text(code, line)
        if best is not None:
            break
    return best[1] if best is not None else ""


def _belongs(name: str, module: str) -> bool:
    return not module or name.startswith(f"{module}.")


@functools.lru_cache(maxsize=4096)
def _uses(code: CodeType) -> Mapping[str, tuple[int, bool]]:
    """Return for each name in a function the first line that stores to it, else the first that loads it."""
    found: dict[str, tuple[int, bool]] = {}
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        if instruction.positions is not None and instruction.positions.lineno is not None:
            line = instruction.positions.lineno
        operation, name = instruction.opname, instruction.argval
        if not isinstance(name, str) or not operation.startswith(("STORE_", "DELETE_", "LOAD_")):
            continue
        if operation.endswith(("_FAST", "_CONST")):
            continue
        stores = not operation.startswith("LOAD_")
        if name not in found or (stores and not found[name][1]):
            found[name] = (line, stores)
    return found
