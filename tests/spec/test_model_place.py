"""What `model` names is looked for before anything is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acgate.errors import TargetError
from acgate.spec.model_place import check_place

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "target.py").touch()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("model", [None, "target.py", "target.py:net", "model", "package.module", "a.b:net"])
def test_what_may_be_there_is_let_pass(project: Path, model: str | None) -> None:
    """Files and directories that are there, and names of modules, which only an import can find."""
    check_place(model)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("targt.py", r"there is no file targt\.py; did you mean 'target\.py'\?"),
        ("nowhere/target.py", r"nor a directory nowhere"),
        ("model:net", "has no attributes; leave out ':net'"),
        ("empty", r"the directory empty has no config\.json"),
        ("model/config.json", "is a file; give its directory model"),
        ("./modl", r"there is no \./modl; did you mean 'model'\?"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is_like_it(project: Path, model: str, message: str) -> None:
    """A misspelt path is told in a moment, not after torch was imported."""
    with pytest.raises(TargetError, match=message):
        check_place(model)
