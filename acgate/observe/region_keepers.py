"""Who keeps memory of a region alive: custom autograd Functions that hold tensors in their contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.autograd.function import BackwardCFunction

from acgate.evidence.region_records import Kept
from acgate.observe.call_origin import line_text
from acgate.observe.effects_names import uses
from acgate.observe.ledger import inner_tensors
from acgate.observe.module_state import tensors_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KEEPING = ("setup_context", "forward")


def kept_by_functions(held: object, serials: Callable[[object], frozenset[int]]) -> dict[int, Kept]:
    """Return who keeps which storage, of all Functions in the graphs behind some tensors.

    Args:
        held: Results of a forward, such as its loss.
        serials: Gives the storages under nested arguments.
    """
    found: dict[int, Kept] = {}
    for node in _nodes(held):
        if not isinstance(node, BackwardCFunction):
            continue
        for name, value in list(vars(node).items()):
            for serial in serials(tuple(tensors_inside(value))):
                found.setdefault(serial, _kept(node, name))
    return found


def _nodes(held: object) -> Iterator[Any]:
    """Yield every node of the autograd graphs behind tensors, once."""
    waiting: list[Any] = [tensor.grad_fn for tensor in inner_tensors(held)]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend(following for following, _ in node.next_functions)


def _kept(node: Any, name: str) -> Kept:
    function = type(node)._forward_cls
    for method in _KEEPING:
        code = getattr(getattr(function, method, None), "__code__", None)
        if code is None:
            continue
        lines = [use.line for use in uses(code).get(name, ()) if use.stores]
        if lines:
            return Kept(name=f"{function.__name__}.{method}, ctx.{name}", source=line_text(code, lines[0]))
    return Kept(name=f"{function.__name__}, ctx.{name}")
