"""State of custom autograd Functions that ran: attributes of their classes, and what their closures hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from torch.autograd.function import BackwardCFunction

from acgate.observe.effects_origin import is_target_code
from acgate.observe.module_state import contents

if TYPE_CHECKING:
    from collections.abc import Iterator

_METHODS = ("forward", "setup_context", "backward")


class Functions:
    """Remembers the custom autograd Functions of the target that ran."""

    def __init__(self) -> None:
        """Begin with none."""
        self._seen: dict[type[Any], str] = {}
        self._names: Counter[str] = Counter()

    def ran(self, context: object) -> None:
        """Note whose method ran, by its first argument; any other object is no context of a Function."""
        if not isinstance(context, BackwardCFunction):
            return
        function: type[Any] = type(context)._forward_cls  # type: ignore[attr-defined]
        if function not in self._seen:
            name = function.__name__
            self._names[name] += 1
            number = self._names[name]
            self._seen[function] = name if number == 1 else f"{name} {number}"

    def values(self) -> Iterator[tuple[str, object]]:
        """Yield name and value of all state, such as `Square.last`; variables of closures too."""
        for function, name in self._seen.items():
            seen: set[int] = set()
            for key, value in list(vars(function).items()):
                if not key.startswith("_"):
                    yield from contents(f"{name}.{key}", value, seen)
            for method in _METHODS:
                yield from _closure(name, getattr(function, method, None), seen)


def _closure(name: str, function: Any, seen: set[int]) -> Iterator[tuple[str, object]]:
    """Yield what a method closes over, but for variables that another method has as well."""
    code = getattr(function, "__code__", None)
    if code is None or not is_target_code(code):
        return
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if id(cell) in seen:
            continue
        seen.add(id(cell))
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        yield from contents(f"{name}.{variable}", value, seen)
