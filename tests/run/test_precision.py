"""What a cell's precision does to a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from acgate.run.precision import convert_model


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Parameter(torch.ones(2, dtype=torch.float16))
        self.rotation = nn.Parameter(torch.full((2,), 1 + 2j, dtype=torch.complex64))
        self.register_buffer("codes", torch.ones(2, dtype=torch.int8))


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        ("float32", torch.float32),
        ("float64", torch.float64),
        ("bfloat16", torch.float32),
        ("bfloat16.pure", torch.bfloat16),
    ],
)
def test_floating_tensors_get_the_dtype_and_others_stay(precision: str, dtype: torch.dtype) -> None:
    """Floating parameters are converted; integers and complex numbers keep dtype and content."""
    model = convert_model(Mixed(), precision, "cpu")
    assert model.norm.dtype is dtype
    assert model.codes.dtype is torch.int8
    assert model.rotation.dtype is torch.complex64
    assert (model.rotation == 1 + 2j).all()
