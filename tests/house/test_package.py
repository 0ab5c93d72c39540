"""What a user installs is complete: the wheel, an unpacked wheel, and a source checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOOK = """
import sys
from acgate.spec.resources import data_directory
import acgate
print(acgate.__file__)
for kind in ("tolerances", "targets"):
    for path in sorted(data_directory(kind).iterdir()):
        print(kind, path.name)
github = data_directory("github")
for name in ("workflow-template.yml", "actions/acgate/action.yml"):
    print("github", name, (github / name).is_file())
corpus = data_directory("fixtures")
for group in ("faults", "clean", "ranks/faults", "ranks/clean"):
    for path in sorted((corpus / group).glob("*.py")):
        print(group, path.name)
assert "torch" not in sys.modules
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("acgate-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The wheel, installed into an empty folder."""
    folder = tmp_path_factory.mktemp("installed")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--no-compile",
        "--quiet",
        "--target",
        str(folder),
    ]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True, timeout=120)
    return folder


def look(where: Path, cwd: Path) -> list[str]:
    """Import acgate from `where` in a foreign directory and list the data that it finds."""
    result = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(where)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    origin, *found = result.stdout.splitlines()
    assert Path(origin).is_relative_to(where)
    return found


def expected() -> list[str]:
    """What the checkout has."""
    data = [
        f"{kind} {path.name}"
        for kind, folder in (("tolerances", "tolerances"), ("targets", "fixtures/targets"))
        for path in sorted((ROOT / folder).iterdir())
        if path.name != "__pycache__"
    ]
    corpus = [
        f"{group} {path.name}"
        for group in ("faults", "clean", "ranks/faults", "ranks/clean")
        for path in sorted((ROOT / "fixtures" / group).glob("*.py"))
    ]
    github = [f"github {name} True" for name in ("workflow-template.yml", "actions/acgate/action.yml")]
    return data + github + corpus


def test_an_installed_wheel_finds_its_data(installed, tmp_path):
    """Tolerance files and the built-in target are in the wheel, and found from anywhere."""
    found = look(installed, tmp_path)
    assert found == expected()
    assert any(line.startswith("tolerances float32") for line in found)
    assert any(line.startswith("targets ") for line in found)


def test_a_checkout_finds_its_data(tmp_path):
    """The same files are found in a source checkout (and so in an editable install)."""
    assert [line for line in look(ROOT, tmp_path) if "__pycache__" not in line] == expected()


def test_the_wheel_holds_the_whole_package(wheel):
    """Every module is in the wheel, with the licence and the marker for type checkers, and no tests."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "acgate").rglob("*.py")}
    assert modules <= names
    assert "acgate/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith(".pyc")]
    assert not [name for name in names if name.split("/")[0] != "acgate" and ".dist-info/" not in name]


def test_the_installed_command_explains_itself(installed, tmp_path):
    """`python -m acgate --help` works from an installed wheel and names the commands."""
    result = subprocess.run(
        [sys.executable, "-m", "acgate", "--help"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert {"run", "plan", "judge", "selftest"} <= set(result.stdout.split())


def selftest(installed: Path, folder: Path, *arguments: str) -> str:
    """Run `acgate selftest` of the wheel in a foreign directory and return what it prints."""
    result = subprocess.run(
        [sys.executable, "-m", "acgate", "selftest", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_installed_wheel_loads_its_own_corpus(installed, tmp_path):
    """`acgate selftest --list` needs no checkout: it imports the faults and clean cases of the wheel."""
    listed = selftest(installed, tmp_path, "--list", "-k", "late-bound")
    assert "faults/late_bound_closure" in listed
    assert "adapters" not in listed


@pytest.mark.slow  # from a checkout in cli/test_selftest.py
def test_the_installed_wheel_puts_its_own_corpus_through_the_gate(installed, tmp_path):
    """`acgate selftest` needs no checkout: faults and clean cases are in the wheel."""
    said = selftest(installed, tmp_path, "-k", "adapters", "-k", "selective_is_block")
    assert "this gate sees 1 of 1 fault" in said
