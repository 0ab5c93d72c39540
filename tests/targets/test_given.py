"""Objects that a process holds become a target: batches are copied, models new, and their code is found."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from acgate.errors import UsageError
from acgate.targets import fresh
from acgate.targets.given import Given, built, taken
from acgate.targets.load import load_target
from acgate.targets.own_code import own_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_a_stream_that_fills_one_tensor_again_and_again_gives_different_batches() -> None:
    """What is taken stays as it was when it was offered, and only as much as is needed is asked for."""

    def stream() -> Iterator[dict[str, torch.Tensor]]:
        buffer = torch.zeros(1)
        for index in itertools.count():
            asked.append(index)
            yield {"x": buffer.fill_(index)}

    asked: list[int] = []
    assert [float(batch["x"]) for batch in taken(stream(), 3, seed=1)] == [0.0, 1.0, 2.0]
    assert asked == [0, 1, 2]


def test_a_model_that_shares_a_buffer_with_the_one_before_is_refused() -> None:
    """Batch statistics that two tracks count into would make the second one differ."""
    norm = nn.BatchNorm1d(2)

    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        model[1].running_mean = norm.running_mean
        return model

    with pytest.raises(UsageError, match=r"the same tensors twice \(1.running_mean\)"):
        built(build, seed=1)


def test_building_draws_from_a_seed_of_its_own() -> None:
    """The caller's stream stays where it is, and both models would be equal."""
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, second = (built(lambda: nn.Linear(2, 2, bias=True), seed=1) for _ in range(2))
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(torch.get_rng_state(), before)


def test_code_is_followed_through_imports_and_ends_at_installed_packages(
    write: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The model's file and what it imports are own code; torch, the standard library and other projects are not."""
    monkeypatch.syspath_prepend(str(tmp_path))
    write(text="import json\nCOUNT = 0\ndef step(): pass\n", name="hw_inner.py")
    write(text="def far(): pass\n", name="site-packages/hw_installed.py")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    write(
        add="from hw_inner import step\nimport hw_installed\nclass Net(torch.nn.Linear): pass",
        name="hw_outer.py",
    )
    try:
        outer = importlib.import_module("hw_outer")
        names = [module.__name__ for module in own_code([json.dumps], outer.Net(1, 1), tmp_path)]
        assert names == ["hw_inner", "hw_outer"]
        assert own_code([outer.Net], nn.Linear(1, 1), tmp_path / "elsewhere") == ()
    finally:
        for name in ("hw_inner", "hw_outer", "hw_installed"):
            sys.modules.pop(name, None)


def test_each_import_begins_as_the_first_and_none_stays(
    write: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A target of objects is loaded like any other, afresh each time, and can be forgotten whole."""
    file = tmp_path / "test_it.py"
    file.write_text("")
    code = type(sys)("hw_code")
    code.__file__ = write(text="", name="hw_code.py")
    begun: list[int] = []
    attributes = {"build_model": lambda: nn.Linear(1, 1), "batches": lambda bucket: [torch.ones(1)]}
    finder = Given("hw_given", file, attributes, (code,), lambda: begun.append(1))
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    targets = [load_target("hw_given", seed=1) for _ in range(2)]
    assert [target.reused for target in targets] == [False, False]
    assert len({target.digest for target in targets}) == 1
    assert len(begun) == 2
    assert code in fresh.own_modules()
    write(text="changed = 1", name="hw_code.py")
    assert load_target("hw_given", seed=1).digest != targets[0].digest
    fresh.forget("hw_given")
    assert "hw_given" not in sys.modules
    assert code not in fresh.own_modules()
