"""What a replay does that leaves the process: log records, warnings, output, files, sockets, processes."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from acgate.observe import effects_audit
from acgate.observe.content_digest import is_plain
from acgate.observe.effects_origin import origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from acgate.evidence.trace_records import EffectKind
    from acgate.observe.effects_origin import Origin

    class Teller(Protocol):
        """Takes note of an effect; `joins` continues the text of the one before from the same line."""

        def __call__(
            self, kind: EffectKind, name: str, detail: str, place: Origin, *, joins: bool = False
        ) -> None:
            """Take note."""


_OF_TORCH = "Triggered internally at"  # ends warnings that torch's kernels give, whoever called them


class Doings:
    """Listens while a replay runs, in the thread that runs it; changes nothing that is done.

    Every part is chained to what was there, and taken away again; one that somebody else was
    chained to in the meantime stays, and does nothing any more.
    """

    def __init__(self, names: Mapping[int, str], tell: Teller) -> None:
        """Prepare to listen.

        Args:
            names: Canonical name of each module, by identity.
            tell: Told of each effect of the target's code.
        """
        self._names = names
        self._tell = tell
        self._thread = 0
        self._busy = False
        self._ends = contextlib.ExitStack()

    def start(self) -> None:
        """Begin to listen to this thread."""
        self._thread = threading.get_ident()
        effects_audit.listen(self._heard)
        self._ends.callback(effects_audit.leave, self._heard)
        self._chain_log_records()
        self._chain_warnings()
        for name in ("stdout", "stderr"):
            self._chain_stream(name)

    def stop(self) -> None:
        """Take everything away."""
        self._thread = 0
        self._ends.close()

    def _listening(self) -> bool:
        return self._thread == threading.get_ident() and not self._busy

    def _note(
        self,
        look: Callable[[], tuple[EffectKind, str, str] | None],
        *,
        silent: bool = True,
        joins: bool = False,
    ) -> None:
        """Tell of what `look` returns, if the target's code is behind it."""
        self._busy = True
        try:
            place = origin(self._names, silent=silent)
            seen = look() if place is not None else None
            if place is not None and seen is not None:
                self._tell(*seen, place, joins=joins)
        finally:
            self._busy = False

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._listening():
            self._note(lambda: effects_audit.read_event(event, arguments))

    def _chain_log_records(self) -> None:
        before = logging.getLogRecordFactory()

        def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
            made = before(*args, **kwargs)
            if self._listening():
                self._note(lambda: ("log", made.name, f"{made.levelname}: {_message(made)}"), silent=False)
            return made

        logging.setLogRecordFactory(record)
        self._ends.callback(
            _put_back, logging.getLogRecordFactory, logging.setLogRecordFactory, record, before
        )

    def _chain_warnings(self) -> None:
        before = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
            text = _said(message)
            if self._listening() and _OF_TORCH not in text:
                self._note(lambda: ("warning", category.__name__, text), silent=False)
            before(message, category, *args, **kwargs)

        def put(value: Any) -> None:
            warnings.showwarning = value

        put(show)
        self._ends.callback(_put_back, lambda: warnings.showwarning, put, show, before)

    def _chain_stream(self, name: str) -> None:
        stream = getattr(sys, name)
        fields = getattr(stream, "__dict__", None)
        if fields is None:  # none at all, or one that takes no attributes
            return
        before, own = stream.write, "write" in fields

        def write(text: Any) -> Any:
            if self._listening():
                self._note(lambda: ("output", name, str(text)), joins=True)
            return before(text)

        def put(value: Any) -> None:
            if value is before and not own:
                del stream.write
            else:
                stream.write = value

        put(write)
        self._ends.callback(_put_back, lambda: stream.write, put, write, before)


def _put_back(get: Callable[[], Any], put: Callable[[Any], None], ours: Any, before: Any) -> None:
    if get() is ours:
        put(before)


def _message(record: logging.LogRecord) -> str:
    """Return the text of a record, its arguments put in where they are plain.

    To print a tensor runs operators, which would belong to the replay.
    """
    if not isinstance(record.msg, str):
        return type(record.msg).__name__
    try:
        return record.getMessage() if all(map(is_plain, _arguments(record.args))) else record.msg
    except (TypeError, ValueError, KeyError):  # arguments that do not fit: the handler says so
        return record.msg


def _arguments(arguments: Any) -> tuple[Any, ...]:
    return tuple(arguments.values()) if isinstance(arguments, dict) else tuple(arguments or ())


def _said(message: Warning | str) -> str:
    """Return the text of a warning, by the same rule."""
    if isinstance(message, str):
        return message
    return " ".join(part for part in message.args if isinstance(part, str))
