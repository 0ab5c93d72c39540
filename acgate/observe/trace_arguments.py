"""What an operator is called with besides tensors, as text that forward and replay can be compared by."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TENSOR = "_"
MAX_LENGTH = 400
SMALL = 8
"""Elements of a constant that are told: `torch.tensor(0.3)` hands its number over as a tensor."""


def arguments_text(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return everything in the arguments that is no tensor, which a `_` stands for."""
    pieces = [_text(value) for value in args]
    pieces.extend(f"{name}={_text(value)}" for name, value in kwargs.items())
    text = ", ".join(pieces)
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}... {len(text)} characters"


def constant_text(tensor: torch.Tensor, content: str) -> str:
    """Return the numbers of a small tensor; of a large one the first, and its `content` hash."""
    if tensor.numel() <= SMALL:
        return repr(tensor.tolist())
    first = ", ".join(f"{number:.6g}" for number in tensor.flatten()[: SMALL // 2].tolist())
    return f"[{first}, ...] ({tensor.numel()} numbers, {content})"


def generators_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Generator]:
    """Yield the generators that an operator was told to draw from."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Generator):
            yield value


def tensor_text(tensor: torch.Tensor) -> str:
    """Return dtype and shape, such as `float32[2, 16]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _text(value: Any) -> str:
    match value:
        case torch.Tensor():
            return TENSOR
        case None | bool() | int() | float() | complex() | str() | torch.Size():
            return repr(value)
        case torch.dtype() | torch.device() | torch.layout() | torch.memory_format() | enum.Enum():
            return str(value)
        case list() | tuple():
            return f"[{', '.join(_text(item) for item in value)}]"
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            return str(value)
        case _:
            return type(value).__name__  # an address would differ at every call
