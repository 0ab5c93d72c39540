"""The dialect as a person asks for it: on the command line and in a configuration, with stored evidence."""

from __future__ import annotations

import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from junit_reading import FAMILIES, breaks, cases_of, result_of

from acgate.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

Gate = Callable[..., tuple[int, str]]
MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    factor = 1.0
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
    def forward(self, x):
        Block.factor = Block.factor + 0.5
        return x + torch.tanh(self.a(x) * Block.factor)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))
    def forward(self, x):
        Block.factor = 1.0
        for layer in self.layers:
            x = layer(x)
        return x

def build_model():
    return Net()

def batches(bucket):
    g = torch.Generator().manual_seed(0)
    return [{"x": torch.randn(2, 4, 8, generator=g)} for _ in range(8)]

def loss(model, batch):
    return model(batch["x"]).pow(2).mean()
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evidence of a model whose replay multiplies by another number, and the report of its run."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "counting.py").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "acgate.toml").write_text("junit_family = 'xunit1'\n")
        options = "--model counting.py --dtypes float32 --tracks none,block --steps 1 --micro-steps 1"
        assert main(["run", "--in-process", *options.split(), "--out", "out", "--junitxml", "run.xml"]) == 1
    return folder


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gate:
    """Runs acgate in an empty folder with a stale report; returns exit code and standard error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junit.xml").write_text("<testsuites><testsuite name='stale'/></testsuites>")

    def run(*arguments: str, config: str = "") -> tuple[int, str]:
        if config:
            (tmp_path / "acgate.toml").write_text(textwrap.dedent(config))
        return main([*arguments, "--junitxml", "junit.xml"]), " ".join(capsys.readouterr().err.split())

    return run


@pytest.mark.parametrize("family", FAMILIES)
def test_stored_evidence_is_judged_into_either_dialect(
    stored: Path, gate: Gate, tmp_path: Path, family: str
) -> None:
    """The file is of that dialect, and only the older one says in which line the fault is."""
    assert gate("judge", str(stored / "out"), "--junit-family", family)[0] == 1
    text = (tmp_path / "junit.xml").read_text()
    assert breaks(text, family) == []
    failed = {one.name for one in cases_of(text) if result_of(one) == "failure"}
    assert "gradient[layers.0]" in failed
    elements = [one for one in ET.fromstring(text).iter("testcase") if one.find("failure") is not None]
    places = {(one.get("file"), one.get("line")) for one in elements}
    line = MODEL.splitlines().index("        return x + torch.tanh(self.a(x) * Block.factor)") + 1
    assert places == ({(None, None)} if family == "xunit2" else {("counting.py", str(line))})
    properties = [one for element in elements for one in element.iter("property")]
    assert bool(properties) == (family == "xunit1")


def test_the_strict_dialect_is_the_default(stored: Path, gate: Gate, tmp_path: Path) -> None:
    """What is not asked for is what the schema of Jenkins allows."""
    assert gate("judge", str(stored / "out"))[0] == 1
    text = (tmp_path / "junit.xml").read_text()
    assert breaks(text, "xunit2") == []
    assert gate("judge", str(stored / "out"), "--junit-family", "xunit2")[0] == 1
    assert (tmp_path / "junit.xml").read_text() == text


def test_a_configuration_names_the_dialect_of_both_reports_of_a_run(stored: Path) -> None:
    """That in the run directory, and that which was asked for, are the same."""
    text = (stored / "run.xml").read_text()
    assert text == (stored / "out" / "junit.xml").read_text()
    assert breaks(text, "xunit1") == []
    assert breaks(text, "xunit2")


@pytest.mark.parametrize("command", [["judge", "nowhere"], ["run", "--in-process"]])
def test_an_unknown_dialect_is_refused_with_the_nearest_name(
    gate: Gate, tmp_path: Path, command: list[str]
) -> None:
    """Exit code 4 before any work, and the report says so: that of an earlier run is gone."""
    code, err = gate(*command, "--junit-family", "xunit3")
    assert code == 4
    for text in (err, (tmp_path / "junit.xml").read_text()):
        assert "--junit-family" in text
        assert "xunit3" in text
        assert "did you mean" in text
    assert "stale" not in (tmp_path / "junit.xml").read_text()


@pytest.mark.parametrize(
    ("name", "config", "place"),
    [
        ("acgate.toml", "junit_family = 'xunit'", "acgate.toml"),
        ("pyproject.toml", "[tool.acgate]\njunit_family = 'xunit'", "tool.acgate"),
        ("acgate.toml", "junit_family = 2", "acgate.toml"),
    ],
)
def test_an_unknown_dialect_in_a_configuration_is_refused_with_its_place(
    gate: Gate, tmp_path: Path, name: str, config: str, place: str
) -> None:
    """Section and key, and what is possible."""
    (tmp_path / name).write_text(config)
    code, err = gate("run", "--in-process")
    assert code == 4
    for word in (place, "junit_family", "xunit1", "xunit2"):
        assert word in err
    (one,) = cases_of((tmp_path / "junit.xml").read_text())
    assert result_of(one) == "error"
    assert "junit_family" in one.result[0].message


@pytest.mark.parametrize("family", FAMILIES)
def test_a_problem_is_reported_in_the_dialect_that_was_asked_for(
    gate: Gate, tmp_path: Path, family: str
) -> None:
    """Evidence that is not there: an error that both dialects can say."""
    code, _ = gate("judge", "nowhere", "--junit-family", family)
    assert code == 7
    text = (tmp_path / "junit.xml").read_text()
    assert breaks(text, family) == []
    (one,) = cases_of(text)
    assert (one.classname, one.name, result_of(one)) == ("acgate", "run", "error")
    assert "nowhere" in one.result[0].text
