"""What each module returns in the first forward of a traced step, by content."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from acgate.evidence.trace_records import ModuleOutput
from acgate.observe.calls import watched_modules
from acgate.observe.content_hash import content_hash
from acgate.observe.module_state import tensors_inside
from acgate.observe.seam_torch import in_backward, quiet, tracing

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn
    from torch.utils.hooks import RemovableHandle


class ModuleOutputs:
    """Records the outputs of modules from its making until `stop`, outside of backward.

    Modules inside compiled code are left out, see `watched_modules`.
    """

    def __init__(self, model: nn.Module) -> None:
        """Hook the modules of `model`."""
        self._found: list[ModuleOutput] = []
        self._calls: Counter[str] = Counter()
        self._handles: list[RemovableHandle] = [
            module.register_forward_hook(self._hook(name)) for name, module in watched_modules(model).items()
        ]

    def stop(self) -> tuple[ModuleOutput, ...]:
        """Take the hooks away, and return the outputs in the order in which calls ended."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        return tuple(self._found)

    def _hook(self, name: str) -> Callable[[nn.Module, object, object], None]:
        def note(module: nn.Module, _inputs: object, output: object) -> None:
            if in_backward() or tracing():
                return
            with quiet():
                hashes = tuple(content_hash(tensor) for tensor in tensors_inside(output))
            call = self._calls[name]
            self._calls[name] += 1
            self._found.append(ModuleOutput(module=name, call=call, outputs=hashes, training=module.training))

        return note
