"""A checkpoint made by hand, as tests of what is seen of such a one need it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class ByHand(torch.autograd.Function):
    """A checkpoint made by hand, which does not put autocast back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.Module) -> Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x)
        with torch.no_grad():
            return layer(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None]:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            again = ctx.layer(x)
        torch.autograd.backward(again, gradient.to(again.dtype))
        return x.grad, None
