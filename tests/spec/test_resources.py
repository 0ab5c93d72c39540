from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acgate.errors import UsageError
from acgate.spec.resources import Kind, data_directory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", ["tolerances", "targets"])
def test_this_installation_has_its_files(kind: Kind) -> None:
    """Wheel or checkout, the directories are there."""
    assert data_directory(kind).is_dir()


@pytest.mark.parametrize("kind", ["tolerances", "targets"])
def test_a_wheel_has_its_files_inside_the_package(tmp_path: Path, kind: Kind) -> None:
    """Beside the package, site-packages may hold a folder of the same name: it is not ours."""
    package = tmp_path / "acgate"
    (package / "_data" / kind).mkdir(parents=True)
    (tmp_path / "tolerances").mkdir()
    assert data_directory(kind, package) == package / "_data" / kind


def test_a_checkout_has_them_at_its_root(tmp_path: Path) -> None:
    """An editable install needs no build step."""
    package = tmp_path / "acgate"
    (tmp_path / "fixtures" / "targets").mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    assert data_directory("targets", package) == tmp_path / "fixtures" / "targets"


def test_a_foreign_folder_is_not_taken(tmp_path: Path) -> None:
    """Without a project file beside it, a folder "tolerances" belongs to somebody else."""
    (tmp_path / "tolerances").mkdir()
    with pytest.raises(
        UsageError, match=r"tolerances that come with acgate are missing.*install acgate again"
    ):
        data_directory("tolerances", tmp_path / "acgate")
