"""Small questions that torch answers only through private names."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._guards import TracingContext
from torch._ops import OpOverload
from torch.autograd.function import BackwardCFunction
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_GRAPH_TASK = -1
_FAKE = torch._C._TorchDispatchModeKey.FAKE


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Run torch operators that nobody else sees: no modes, no autograd, no autocast.

    Without this, hashing would enter the operator counters of a selective policy.
    """
    with (
        _disable_current_modes(),
        torch._C.DisableTorchFunction(),
        torch._C._DisableAutocast(),  # type: ignore[no-untyped-call, attr-defined, unused-ignore]
        torch.no_grad(),
    ):
        yield


def graph_task() -> int:
    """Return the number of the backward pass that runs in this thread, -1 outside of one."""
    return int(torch._C._current_graph_task_id())


def in_backward() -> bool:
    """Say whether a backward pass runs in this thread."""
    return graph_task() != NO_GRAPH_TASK


def backward_node() -> int:
    """Return the number of the node of the graph that backward runs in this thread, -1 for none.

    Nodes are numbered as the forward of this thread makes them; a custom Function has its number
    while its forward runs, see `node_number`.
    """
    node: object = torch._C._current_autograd_node()
    return -1 if node is None else node_number(node)


def in_own_function() -> bool:
    """Say whether backward runs the backward of a custom autograd Function in this thread."""
    return isinstance(torch._C._current_autograd_node(), BackwardCFunction)


def node_number(node: object) -> int:
    """Return the number of a node, which is the context of its Function as well; -1 for what is none."""
    return int(node._sequence_nr()) if isinstance(node, torch.autograd.graph.Node) else -1


def tracing() -> bool:
    """Say whether there are no values to look at: AOTAutograd traces, or tensors are fake.

    DTensors run each operator once on fake tensors, to learn the shape of its result.
    """
    return TracingContext.try_get() is not None or torch._C._get_dispatch_mode(_FAKE) is not None


def is_compiled(module: nn.Module) -> bool:
    """Say whether calls of this module run compiled code (`torch.compile` or `module.compile()`)."""
    return isinstance(module, torch._dynamo.OptimizedModule) or module._compiled_call_impl is not None


def has_gradient_consumer(parameter: torch.Tensor) -> bool:
    """Say whether a post-accumulate hook is set, as an optimizer inside backward sets it."""
    return bool(parameter._post_accumulate_grad_hooks)


def num_hooks(parameter: torch.Tensor) -> int:
    """Return how many hooks wait for the gradient of a parameter."""
    tables: tuple[Any, ...] = (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)
    return sum(len(table) for table in tables if table)


def packs_saved_tensors() -> Callable[..., Any] | None:
    """Return the function by which the code that runs packs what is saved for backward; None for none.

    That of checkpointing itself is no such function.
    """
    hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks(False)  # noqa: FBT003 - torch's signature
    if not hooks or hooks[0].__module__ == "torch.utils.checkpoint":
        return None
    pack: Callable[..., Any] = hooks[0]
    return pack


def sees_parts(operator: object, types: tuple[type, ...]) -> bool:
    """Say whether a mode shall let DTensors come first, by returning `NotImplemented`.

    A mode is asked before tensor subclasses are, and does not see what they call in turn. A
    DTensor turns a call into operators on local parts and collectives: those are to be seen.
    """
    return isinstance(operator, OpOverload) and any(
        t.__name__ == "DTensor" and t.__module__.startswith("torch.distributed.") for t in types
    )


def plain_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the plain dense tensors that hold the content of `tensor` in this process.

    A DTensor gives its local part, a tensor subclass its inner tensors, a sparse tensor its
    indices and values, a tensor that still waits for a collective its result.
    """
    if hasattr(tensor, "trigger_wait"):
        return plain_parts(tensor.trigger_wait())
    if type(tensor) not in (torch.Tensor, nn.Parameter) and hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        # a DTensor names its mesh as well, which is no tensor
        inner = [part for part in (getattr(tensor, name) for name in names) if isinstance(part, torch.Tensor)]
        return tuple(part for tensor in inner for part in plain_parts(tensor))
    if tensor.layout is not torch.strided:
        return _sparse_parts(tensor)
    if tensor.is_quantized:
        return (tensor.int_repr(),)
    return (tensor.detach(),)


def _sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    match tensor.layout:
        case torch.sparse_coo:
            together = tensor.coalesce()
            return (together.values(), together.indices())
        case torch.sparse_csr | torch.sparse_bsr:
            return (tensor.values(), tensor.crow_indices(), tensor.col_indices())
        case torch.sparse_csc | torch.sparse_bsc:
            return (tensor.values(), tensor.ccol_indices(), tensor.row_indices())
        case _:
            return (tensor.to_dense(),)
