"""Lines and calls of the target's code while a region runs: where it draws, what is called, which hooks."""

from __future__ import annotations

import functools
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from acgate.evidence.names import naming
from acgate.observe.call_origin import line_text
from acgate.observe.effects_functions import Functions
from acgate.observe.effects_origin import is_target_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import CodeType, FrameType

    from torch import nn

    from acgate.evidence.trace_records import Effect

_HOOK_TABLES = ("_forward_pre_hooks", "_forward_hooks")


class Lines:
    """Tells after each line of the target's code that it ran; for this thread only.

    Where a debugger or a coverage tool traces already, nothing is traced.
    """

    def __init__(self, ran: Callable[[str], None]) -> None:
        """Prepare to trace; `ran` gets the text of a line once it ran, and what it called."""
        self._ran = ran
        self._known: dict[CodeType, bool] = {}
        self._at: tuple[CodeType, int] | None = None
        # bound once, to be recognised when it is taken away
        self._trace: Callable[[FrameType, str, Any], Any] = self._called

    def start(self) -> None:
        """Trace the calls that begin from here on."""
        self._at = None
        if sys.gettrace() is None:
            sys.settrace(self._trace)

    @property
    def tracing(self) -> bool:
        """Whether lines are told."""
        return sys.gettrace() is self._trace

    def stop(self) -> None:
        """Trace no more, and tell of the line that ran last."""
        if self.tracing:
            sys.settrace(None)
            self._tell()

    def _called(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        code = frame.f_code
        wanted = self._known.get(code)
        if wanted is None:
            wanted = self._known[code] = is_target_code(code)
        return self._line if wanted else None

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "exception":
            return self._line
        self._tell()
        if event == "line":
            self._at = (frame.f_code, frame.f_lineno)
        elif event == "return":
            caller = frame.f_back
            while caller is not None and not self._known.get(caller.f_code):
                caller = caller.f_back  # torch's, or a hook's caller: the line behind them goes on
            self._at = (caller.f_code, caller.f_lineno) if caller is not None else None
        return self._line

    def _tell(self) -> None:
        if self._at is not None:
            self._ran(line_text(*self._at))


class Calls:
    """Notes which functions of the target are called, on which modules; counts the calls of hooks.

    For this thread only, and where nobody profiles it already.
    """

    def __init__(self, model: nn.Module, names: Mapping[int, str]) -> None:
        """Prepare to watch.

        Args:
            model: Its hooks are counted.
            names: Canonical name of each module, by identity.
        """
        self._model = model
        self._names = names
        self._hooks: dict[CodeType, str] = {}
        self._counts: Counter[str] = Counter()
        self._known: dict[CodeType, bool] = {}
        self.called: dict[CodeType, set[str]] = {}
        self.functions = Functions()
        self._profile: Callable[[FrameType, str, Any], Any] = self._called

    def start(self) -> None:
        """Watch from here on; what was called before is forgotten, counts go on."""
        self._hooks = {}
        for name, code in _hooks(self._model):
            self._hooks.setdefault(code, name)
        self.called = {}
        if sys.getprofile() is None:
            sys.setprofile(self._profile)

    def counts(self) -> Counter[str]:
        """Return the calls so far of each hook, by name and place."""
        return self._counts.copy()

    def stop(self) -> None:
        """Watch no more."""
        if sys.getprofile() is self._profile:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        known = self._known.get(code)
        if known is None:
            known = self._known[code] = is_target_code(code)
        if not known:
            return
        if code in self._hooks:
            self._counts[self._hooks[code]] += 1
        owners = self.called.setdefault(code, set())
        if code.co_argcount:
            first = frame.f_locals.get(code.co_varnames[0])
            owner = self._names.get(id(first))
            if owner is not None:
                owners.add(owner)
            else:
                self.functions.ran(first)


_STATE = frozenset({"attribute", "global", "function", "buffer", "parameter", "setting"})


def touching(model: nn.Module, effects: Iterable[Effect]) -> frozenset[str]:
    """Return the hooks whose code names something that was changed; a list that only grew is none."""
    changed = {
        part
        for effect in effects
        if effect.kind in _STATE and not effect.only_grew
        for part in re.findall(r"\w+", effect.name)
    }
    return frozenset(name for name, code in _hooks(model) if changed & {*code.co_names, *code.co_freevars})


def _hooks(model: nn.Module) -> Iterator[tuple[str, CodeType]]:
    """Yield the code of each hook, with a name; of one that several modules share the first name counts."""
    name_of = naming(model)
    for prefix, module in model.named_modules():
        for table in _HOOK_TABLES:
            for hook in vars(module)[table].values():
                code = _code(hook)
                if code is not None and is_target_code(code):
                    kind = table.strip("_").removesuffix("s").replace("_", " ")
                    name = getattr(hook, "__qualname__", type(hook).__qualname__)
                    place = line_text(code, code.co_firstlineno)
                    yield f"{name} ({kind} of {name_of(prefix) or 'the model'}, {place})", code


def _code(hook: Any) -> CodeType | None:
    while isinstance(hook, functools.partial):
        hook = hook.func
    function = getattr(hook, "__func__", hook)  # of a bound method
    code = getattr(function, "__code__", None)
    if code is None:  # an object with a method `__call__`
        call = vars(type(hook)).get("__call__")
        code = getattr(call, "__code__", None)
    return code
