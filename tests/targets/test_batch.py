"""Walking micro-batches as models have them."""

from __future__ import annotations

import dataclasses
from collections import UserDict
from typing import NamedTuple

import pytest
import torch

from acgate.targets.batch import map_tensors, named_tensors


class Pair(NamedTuple):
    left: object
    right: object


@dataclasses.dataclass(frozen=True)
class Sample:
    image: object
    caption: str = "a cat"
    computed: object = dataclasses.field(init=False, default=None)


ONE = torch.ones(2)


@pytest.mark.parametrize(
    ("batch", "names"),
    [
        (ONE, ["batch"]),
        ({"x": ONE, "n": 3}, ["x"]),
        ({"x": {"y": (ONE, [ONE, None])}}, ["x.y.0", "x.y.1.0"]),
        (Pair(ONE, "b"), ["0"]),
        (Sample({"raw": ONE}), ["image.raw"]),
        (UserDict(x=ONE), ["x"]),
    ],
)
def test_every_tensor_has_a_path_and_is_replaced_in_a_twin(batch: object, names: list[str]) -> None:
    """Nested mappings, tuples, lists and dataclasses are walked, rebuilt in kind, and left as they were."""
    assert [name for name, _ in named_tensors(batch)] == names
    twin = map_tensors(batch, lambda tensor: tensor + 1)
    assert type(twin) is type(batch)
    assert [name for name, _ in named_tensors(twin)] == names
    assert all(torch.equal(tensor, ONE + 1) for _, tensor in named_tensors(twin))
    assert all(tensor is ONE for _, tensor in named_tensors(batch))
