"""What is otherwise after a replay than before it: contents of tensors, attributes, globals, settings."""

from __future__ import annotations

import contextvars
import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from acgate.evidence.names import naming
from acgate.evidence.trace_records import Effect
from acgate.observe.content_digest import content_digest, is_plain
from acgate.observe.content_hash import content_hash
from acgate.observe.effects_names import ABSENT, ENVIRONMENT, SETTING
from acgate.observe.iterator_digest import has_position, position
from acgate.observe.module_state import MAX_LOG_ITEMS, attributes, contents, tensors_inside
from acgate.observe.rng import is_generator
from acgate.observe.seam_torch import num_hooks, quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch import nn

    from acgate.evidence.trace_records import EffectKind
    from acgate.observe.outside_state import OutsideState

MAX_PARAMETER_BYTES = 1 << 28
"""Beyond, a region that is no module of the model has no parameters looked at."""

MAX_TENSOR = 1 << 12
"""Elements; a light look leaves larger tensors out, whose contents the operators that read them tell."""

_SHOWN = 60
_SHOWN_ITEMS = 3
_MAX_SHOWN_OF = 256
_KINDS: tuple[tuple[str, EffectKind], ...] = (
    (SETTING, "setting"),
    (ENVIRONMENT, "setting"),
    ("parameter ", "parameter"),  # of others than the model, as a loss with weights
)


@dataclass(frozen=True, slots=True)
class Seen:
    """Something at one moment.

    Attributes:
        content: Digest, or the value itself where it is plain; for a list the digests of its items.
        text: The value where it is plain and short, else what it is.
        items: For containers of a few plain values, the text of each by how it is reached.
    """

    kind: EffectKind
    content: object
    text: str
    items: Mapping[str, str] = field(default_factory=dict)


class StateLook:
    """Looks at everything that a replay may change beside what it computes."""

    def __init__(
        self,
        model: nn.Module,
        outside: OutsideState,
        others: Callable[[], Mapping[str, object]],
        functions: Callable[[], Iterable[tuple[str, object]]] = tuple,
    ) -> None:
        """Prepare to look.

        Args:
            model: Its parameters, buffers and attributes are looked at.
            outside: Knows globals, closures of hooks, and the environment.
            others: Returns further values as they are now, such as process-wide settings.
            functions: Yields what custom autograd Functions keep on their classes and in closures.
        """
        self._model = model
        self._functions = functions
        self._outside = outside
        self._others = others
        self._name_of = naming(model)
        self._modules = frozenset(self._name_of(name) for name, _ in model.named_modules())
        size = sum(parameter.nbytes for parameter in model.parameters())
        self._all_parameters = size <= MAX_PARAMETER_BYTES

    def look(self, region: str) -> dict[str, Seen]:
        """Return everything by name; `region` is the name of the module that is replayed."""
        with quiet():
            return {name: _seen(kind, name, value) for kind, name, value in self._values(region)}

    def glance(self, region: str) -> dict[str, Seen]:
        """Return what `look` does, without parameters, buffers, generators and large tensors.

        It is made around every forward, so that blocks beside the region are left out too.
        """
        container = region.rpartition(".")[0] if region in self._modules else ""

        def among(module: str) -> bool:
            beside = bool(container) and module.startswith(f"{container}.")
            return not beside or f"{module}.".startswith(f"{region}.")

        with quiet():
            return {
                name: _seen(kind, name, value)
                for kind, name, value in self._beside(among)
                if _is_glanced(kind, value)
            }

    def _values(self, region: str) -> Iterator[tuple[EffectKind, str, object]]:
        # to read the parameters of all other modules at every replay would take long
        inside = f"{region}." if region in self._modules and region else ""
        for name, parameter in self._model.named_parameters():
            short = self._name_of(name)
            if short.startswith(inside) if inside else self._all_parameters:
                yield "parameter", short, parameter
                yield "hook", f"hooks on {short}", num_hooks(parameter)
        for name, buffer in self._model.named_buffers():
            yield "buffer", self._name_of(name), buffer
        yield from self._beside(lambda _: True)

    def _beside(self, among: Callable[[str], bool]) -> Iterator[tuple[EffectKind, str, object]]:
        for name, value in attributes(self._model, among):
            yield "generator" if is_generator(value) else "attribute", name, value
        for name, value in self._outside.values(self._others()):
            yield "generator" if is_generator(value) else _kind(name, value), name, value
        for name, value in self._functions():  # some are globals as well, which are told by this kind
            yield "generator" if is_generator(value) else "function", name, value


def seen_in(arguments: Iterable[object]) -> dict[str, Seen]:
    """Return what the arguments of a region hold beside tensors: items of containers, iterators, fields.

    Args:
        arguments: By position; a mapping holds keywords.
    """
    found: dict[str, Seen] = {}
    seen: set[int] = set()
    with quiet():
        for number, value in enumerate(arguments):
            named = value.items() if isinstance(value, dict) else ((f"input {number}", value),)
            for name, item in named:
                if is_plain(item) or isinstance(item, torch.Tensor) or is_generator(item):
                    continue
                known = name if not isinstance(value, dict) else f"keyword {name}"
                for inner, content in contents(known, item, seen):
                    if next(tensors_inside(content), None) is None and not is_generator(content):
                        found[inner] = _seen("argument", inner, content)
    return found


def changes(before: Mapping[str, Seen], after: Mapping[str, Seen]) -> Iterator[Effect]:
    """Yield what is otherwise, what is new, and what is gone."""
    for name, now in after.items():
        then = before.get(name)
        if then is None:
            if now.kind != "function":  # a Function is known once it ran, and was there before
                yield Effect(kind=now.kind, name=name, detail=f"new: {now.text}")
        elif then.content != now.content and not _is_other_shard(then, now):
            grew = _only_grew(then.content, now.content)
            yield Effect(kind=now.kind, name=name, detail=_detail(then, now), only_grew=grew)
    for name, then in before.items():
        if name not in after:
            yield Effect(kind=then.kind, name=name, detail=f"gone: {then.text}")


def _kind(name: str, value: object) -> EffectKind:
    if isinstance(value, contextvars.ContextVar):
        return "setting"
    return next((kind for start, kind in _KINDS if name.startswith(start)), "global")


def _seen(kind: EffectKind, name: str, value: object) -> Seen:
    secret = name.startswith(ENVIRONMENT)  # it may be a password
    text = "set" if secret else _text(value)
    return Seen(kind, _content(value), text, _items(value))


def _is_glanced(kind: EffectKind, value: object) -> bool:
    large = isinstance(value, torch.Tensor) and value.numel() > MAX_TENSOR
    return not large and kind not in {"generator", "buffer", "parameter"}


def _items(value: object) -> dict[str, str]:
    match value:
        case dict() if len(value) <= _MAX_SHOWN_OF:
            found = {f"[{key!r}]": item for key, item in value.items()}
        case list() | tuple() | deque() if len(value) <= _MAX_SHOWN_OF:
            found = {f"[{number}]": item for number, item in enumerate(value)}
        case _:
            return {}
    return {key: _text(item) for key, item in found.items() if is_plain(item)}


def _content(value: object) -> object:
    match value:
        case torch.Tensor():
            emptied = value.numel() and not value.is_meta and not value.untyped_storage().nbytes()
            return "emptied" if emptied else content_hash(value)
        case bool() | int() | float() | str() | None:
            return type(value), repr(value)
        case list() | deque():
            return tuple(content_digest(item) for item in itertools.islice(value, MAX_LOG_ITEMS))
        case _:
            return content_digest(value)


def _is_other_shard(then: Seen, now: Seen) -> bool:
    """Say whether FSDP put a whole parameter in place of its shard, or the other way round."""
    return now.kind == "parameter" and (then.text != now.text or "emptied" in (then.content, now.content))


def _text(value: object) -> str:
    name = type(value).__name__
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        if _is_number(value):
            return str(value.item())
        return f"{type(value).__name__} {dtype}{list(value.shape)}".removeprefix("Tensor ")
    if is_plain(value):
        text = repr(value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    if has_position(value):
        return _position_text(name, value)
    return f"{name} of {len(value)}" if isinstance(value, list | dict | set | tuple | deque) else name


def _position_text(name: str, value: object) -> str:
    told = position(value)
    if not told or not is_plain(told[0]):
        return name
    first = str(told[0])  # a counter shows its number by itself, as `count(3)`
    return (
        first
        if isinstance(value, contextvars.ContextVar) or first.startswith(f"{name}(")
        else f"{name} at {first}"
    )


def _is_number(value: torch.Tensor) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.numel() == 1 and not value.is_meta


def texts(then: Seen | None, now: Seen | None) -> tuple[str, str]:
    """Return what something was and is, each in a few words; of containers the items that differ.

    Both are empty where words do not tell them apart.
    """
    if then is None or now is None:
        return (then.text if then else ABSENT), (now.text if now else ABSENT)
    if then.text != now.text:
        return then.text, now.text
    keys = [key for key in then.items if then.items[key] != now.items.get(key)]
    if not keys or len(keys) > _SHOWN_ITEMS:
        return "", ""
    before, after = (
        ", ".join(f"{key} {one.items.get(key, 'absent')}" for key in keys) for one in (then, now)
    )
    return before, after


def _detail(then: Seen, now: Seen) -> str:
    before, after = texts(then, now)
    if before != after:
        return f"from {before} to {after}"
    return f"{now.text} with other contents"


def _only_grew(then: object, now: object) -> bool:
    """Say whether a list has its old entries, and others behind them."""
    if not isinstance(then, tuple) or not isinstance(now, tuple) or len(now) < len(then):
        return False
    return now[: len(then)] == then
