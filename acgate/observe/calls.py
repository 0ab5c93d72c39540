"""How often modules are called, in forward and inside backward."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn

from acgate.evidence.names import is_wrapper, naming
from acgate.observe.seam_torch import in_backward, is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from torch.utils.hooks import RemovableHandle

Listener: TypeAlias = "Callable[[str, nn.Module], None]"


def watched_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules whose Python `__call__` runs, by canonical name.

    Wrappers give their name to what they wrap. Modules inside compiled code are left out: a
    hook there would be compiled too, and change the graph.
    """
    compiled: set[int] = set()
    for module in model.modules():
        if is_compiled(module):
            compiled.update(id(inner) for inner in module.modules())
    name_of = naming(model)
    result: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if id(module) in compiled or is_wrapper(module) or isinstance(module, torch.jit.ScriptModule):
            continue
        result[name_of(name)] = module
    return result


class CallCounter:
    """Counts calls of each module of a model; a context manager that removes its hooks.

    The hooks are forward pre-hooks: they change nothing that a model computes, but they end the
    inference-only fast path of torch's own Transformer layers.
    """

    def __init__(self, model: nn.Module, *, on_replay: Listener | None = None) -> None:
        """Prepare to watch `model`; `on_replay` is told of each call inside backward."""
        self._modules = watched_modules(model)
        self._on_replay = on_replay
        self.on_forward: Listener | None = None
        self._handles: list[RemovableHandle] = []
        self._forward: Counter[str] = Counter()
        self._replays: Counter[str] = Counter()

    def __enter__(self) -> Self:
        for name, module in self._modules.items():
            self._handles.append(module.register_forward_pre_hook(self._hook(name), prepend=True))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook(self, name: str) -> Callable[[nn.Module, object], None]:
        def count(module: nn.Module, _arguments: object) -> None:
            if not in_backward():
                self._forward[name] += 1
                if self.on_forward is not None:
                    self.on_forward(name, module)
                return
            self._replays[name] += 1
            if self._on_replay is not None:
                self._on_replay(name, module)

        return count

    def reset(self) -> None:
        """Begin to count from zero."""
        self._forward.clear()
        self._replays.clear()

    def forward(self) -> dict[str, int]:
        """Return calls outside backward, by canonical module name."""
        return dict(self._forward)

    def replays(self) -> dict[str, int]:
        """Return calls inside backward, by canonical module name."""
        return dict(self._replays)

    def idle(self) -> tuple[str, ...]:
        """Return the outermost modules that were not called outside backward, nor anything in them."""
        busy = {""}
        for name in self._forward:
            parts = name.split(".")
            busy.update(".".join(parts[:length]) for length in range(1, len(parts) + 1))
        return tuple(name for name in self._modules if name not in busy and name.rpartition(".")[0] in busy)
