"""What Python's audit events say of files, sockets, processes and the environment.

NOTE [ The audit hook ] Python cannot remove an audit hook. So there is one per process, added when
somebody listens for the first time; it asks a list that is empty while nobody does.
"""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from acgate.evidence.trace_records import EffectKind

    Listener: TypeAlias = "Callable[[str, tuple[Any, ...]], None]"

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_FILES = {
    "os.remove": "removed",
    "os.rename": "renamed",
    "os.mkdir": "made",
    "os.rmdir": "removed",
    "os.link": "linked",
    "os.symlink": "linked",
    "os.truncate": "cut",
    "sqlite3.connect": "opened as a database",
}
_SOCKETS = {
    "socket.connect": "connected to",
    "socket.bind": "bound",
    "socket.sendto": "sent to",
    "socket.sendmsg": "sent to",
    "socket.getaddrinfo": "looked up",
    "socket.gethostbyname": "looked up",
}
_PROCESSES = {
    "subprocess.Popen": "started",
    "os.system": "started",
    "os.posix_spawn": "started",
    "os.spawn": "started",
    "os.exec": "became",
    "os.fork": "forked",
    "os.forkpty": "forked",
    "os.kill": "sent a signal to",
    "_thread.start_new_thread": "started a thread",
}
_SETTINGS = {
    "os.putenv": "environment variable",
    "os.unsetenv": "environment variable",
    "os.chdir": "working directory",
}
_KNOWN = frozenset({"open", *_FILES, *_SOCKETS, *_PROCESSES, *_SETTINGS})
# Devices and views of the kernel, which keep nothing of what is done to them.
_NO_FILES = ("/dev/", "/proc/", "/sys/")


class _Hook:
    """The one hook of this process; see NOTE [ The audit hook ]."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.added = False

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.listeners and event in _KNOWN:
            for listener in tuple(self.listeners):
                listener(event, arguments)


_hook = _Hook()


def listen(listener: Listener) -> None:
    """Tell `listener` of every event that is known here, until `leave`.

    It must raise nothing: what an audit hook raises stops what the event is about.
    """
    if not _hook.added:
        import sys  # noqa: PLC0415 - beside the one call that needs it

        sys.addaudithook(_hook.heard)
        _hook.added = True
    _hook.listeners.append(listener)


def leave(listener: Listener) -> None:
    """Tell `listener` nothing more."""
    _hook.listeners.remove(listener)


def read_event(event: str, arguments: tuple[Any, ...]) -> tuple[EffectKind, str, str] | None:
    """Return kind, name and detail of the effect that an event announces; None for no effect."""
    match event:
        case "open":
            return _opened(*arguments[:3])
        case _ if event in _FILES:
            target = f" to {_text(arguments[1])}" if event in {"os.rename", "os.link", "os.symlink"} else ""
            return "file", _text(arguments[0]), f"{_FILES[event]}{target}"
        case _ if event in _SOCKETS:
            address = arguments[1] if event.startswith(("socket.c", "socket.b", "socket.s")) else arguments[0]
            return "socket", _text(address), _SOCKETS[event]
        case _ if event in _SETTINGS:
            name = _SETTINGS[event]
            return "setting", name if event == "os.chdir" else f"{name} {_text(arguments[0])}", ""
        case _:
            name = _text(arguments[0]) if arguments else event
            return "process", name if event != "_thread.start_new_thread" else "thread", _PROCESSES[event]


def _opened(path: object, mode: object, flags: object) -> tuple[EffectKind, str, str] | None:
    if isinstance(path, int) or (isinstance(path, str | bytes) and _text(path).startswith(_NO_FILES)):
        return None
    writes = isinstance(flags, int) and bool(flags & _WRITES)
    name = _text(path)
    if not writes and PurePath(name).suffix in {".py", ".pyc", ".so"}:
        return None  # code that is loaded, or looked at for a message
    shown = f" with mode {mode!r}" if mode else ""
    return "file", name, f"opened for {'writing' if writes else 'reading'}{shown}"


def _text(value: object) -> str:
    match value:
        case bytes():
            return os.fsdecode(value)
        case os.PathLike():
            return os.fsdecode(value)
        case tuple() | list():
            return ":".join(str(part) for part in value[:2])
        case _:
            return str(value)
