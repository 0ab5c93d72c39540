"""A tensor-parallel style for small modules between a column-wise and a row-wise layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.tensor import DTensor, Partial, distribute_module
from torch.distributed.tensor.parallel import ParallelStyle

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh


class ReplicatedWithSummedGradient(ParallelStyle):
    """Every rank has the whole parameters and applies them to its share of the activations.

    A norm over the features of one head, such as those of queries and keys, sees only the heads of its rank,
    so the gradient of its weight is the sum over the ranks. torch has no style for that.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        """Replicate the parameters; the forward works on plain tensors, as the activations are."""
        distribute_module(module, device_mesh)
        forward = module.forward

        def on_local_parameters(*args: Any, **kwargs: Any) -> Any:
            return _on_local_parameters(module, forward, *args, **kwargs)

        module.forward = on_local_parameters
        return module


def _on_local_parameters(module: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
    """Call `forward` while plain tensors stand in the place of the module's parameters."""
    # Outside of `forward` other code, FSDP2 among it, must find the parameters where they belong.
    kept: dict[str, Any] = dict(module._parameters)
    try:
        for name, parameter in kept.items():
            if isinstance(parameter, DTensor):
                del module._parameters[name]
                # A share of the activations gives a term of the gradient.
                vars(module)[name] = parameter.to_local(grad_placements=[Partial()])
        return forward(*args, **kwargs)
    finally:
        for name in kept:
            vars(module).pop(name, None)
        module._parameters.clear()
        module._parameters.update(kept)
