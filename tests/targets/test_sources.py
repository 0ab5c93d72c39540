"""Which files a target was read from."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from acgate.targets.hugging_face_directory import files_of
from acgate.targets.load import load_target
from acgate.targets.sources import source_files

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MODEL = """
from torch import nn
import {helper}

def build_model():
    from {lazy} import Net
    return Net()

def batches(bucket):
    return []
"""


def test_all_modules_of_the_target_are_named_lazy_imports_included(tmp_path: Path) -> None:
    """The file itself comes first; torch and acgate are no part of it."""
    model, helper, lazy = (tmp_path / name for name in ("model.py", "helper_ab.py", "lazy_ab.py"))
    helper.write_text("WIDTH = 2\n")
    lazy.write_text(
        "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(2, 2)\n"
    )
    model.write_text(MODEL.format(helper="helper_ab", lazy="lazy_ab"))
    target = load_target(str(model), seed=0)
    assert source_files(target) == (model, helper)
    target.build_model()
    assert source_files(target) == (model, helper, lazy)
    assert set(source_files(load_target(None, seed=0))).isdisjoint({model, helper, lazy})


def test_a_module_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package around it is part of it."""
    package = tmp_path / "package_ab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("def build_model(): ...\ndef batches(bucket): ...\n")
    monkeypatch.chdir(tmp_path)
    files = source_files(load_target("package_ab.model", seed=0))
    assert sorted(files) == [package / "__init__.py", package / "model.py"]
    assert "package_ab" in sys.modules


def test_of_a_hugging_face_directory_configuration_and_weights_are_named(tmp_path: Path) -> None:
    """What else lies there, such as a tokenizer or a README, changes no check."""
    for name in (
        "config.json",
        "model-00001-of-00001.safetensors",
        "model.safetensors.index.json",
        "README.md",
    ):
        (tmp_path / name).write_text("{}")
    target = replace(load_target(None, seed=0), files=files_of(tmp_path))
    assert [file.name for file in source_files(target)] == [
        "config.json",
        "model.safetensors.index.json",
        "model-00001-of-00001.safetensors",
    ]
