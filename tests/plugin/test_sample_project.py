"""A project with only an `acgate.toml` and a model file: green as it is, and red with the reason for each of ten faults."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from acgate.cause_kinds import CauseKind

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "fixtures" / "projects" / "sample"
PATCHES = {path.stem: path for path in sorted((SAMPLE.parent / "faults").glob("*.patch"))}
CELL = "single-float32"


@dataclass(frozen=True)
class Fault:
    """What a fault must be called.

    Attributes:
        red: A check that fails.
        where: The lying line of the model file, or a region.
        tracks: Those that are red.
    """

    red: str
    kind: CauseKind
    where: str
    tracks: tuple[str, ...] = ("block", "selective")

    def place(self, model: str) -> str:
        """Return what a message must name."""
        numbers = [number for number, line in enumerate(model.splitlines(), 1) if self.where in line]
        return f"model.py:{numbers[0]}" if numbers else self.where


FAULTS = {
    "mask_from_numpy": Fault("gradient[blocks.0]", CauseKind.RNG_NOT_RESTORED, "kept = torch.from_numpy"),
    "saved_output_changed": Fault("wiring", CauseKind.SAVED_OUTPUT_CHANGED, "F.relu_", ("selective",)),
    "cache_of_keys_and_values": Fault("wiring", CauseKind.ATTRIBUTE_CHANGED, "torch.cat(self.cache"),
    "context_not_replayed": Fault(
        "gradient[blocks.0]", CauseKind.CONTEXT_NOT_REPLAYED, "scale=SHARPNESS.get()", ("block",)
    ),
    "fast_path_without_gradients": Fault(
        "gradient[blocks.2]", CauseKind.CONTROL_FLOW, "torch.is_grad_enabled()"
    ),
    "hook_scales_by_calls": Fault("gradient[blocks.0]", CauseKind.OTHER_NUMBER, "return output * min("),
    "input_changed_in_place": Fault("wiring", CauseKind.INPUT_CHANGED, "in blocks.2"),
    "late_bound_closure": Fault(
        "gradient[blocks.1]", CauseKind.LATE_BOUND, "region LanguageModel.forward.<locals>.<lambda>"
    ),
    "running_mean_in_block": Fault("buffers", CauseKind.BUFFER_CHANGED, "self.mean.lerp_"),
    "warmup_by_calls": Fault("state", CauseKind.ATTRIBUTE_CHANGED, "self.calls += 1"),
}
QUICK = ("mask_from_numpy",)
GREEN = "no fault"


@dataclass(frozen=True)
class Told:
    """What a run of pytest told.

    Attributes:
        model: The model file.
        terminal: Output of pytest.
        red: Texts of failures and errors of pytest's XML, by track and check.
        passed: Names of the cases that passed.
        summary: The Markdown that GitHub would show.
    """

    model: str
    code: int
    terminal: str
    red: dict[str, str]
    passed: tuple[str, ...]
    summary: str


def run_pytest(folder: Path, fault: str) -> Told:
    """Copy the project, plant a fault, run pytest on it, and have GitHub told of the verdict."""
    shutil.copytree(SAMPLE, folder)
    if fault != GREEN:
        subprocess.run(["git", "apply", str(PATCHES[fault])], cwd=folder, check=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the plugin may be installed as well
    command = [sys.executable, "-m", "pytest", "-p", "acgate.pytest_plugin", "--junitxml=report.xml"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    told = [sys.executable, "-m", "acgate", "judge", f"acgate-out/pytest/{CELL}", "--github", "--quiet"]
    environment["GITHUB_STEP_SUMMARY"] = str(folder / "summary.md")
    subprocess.run(told, cwd=folder, env=environment, capture_output=True, timeout=60, check=False)
    red, passed = {}, []
    for case in ET.parse(folder / "report.xml").iter("testcase"):
        name = f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name']}"
        problem = next((child for child in case if child.tag in {"failure", "error"}), None)
        if problem is not None:
            red[name] = problem.text or ""
        elif case.find("skipped") is None:
            passed.append(name)
    return Told(
        model=(folder / "model.py").read_text(),
        code=done.returncode,
        terminal=done.stdout + done.stderr,
        red=red,
        passed=tuple(passed),
        summary=html.unescape((folder / "summary.md").read_text()),
    )


@pytest.fixture(scope="module")
def sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Future[Told]]:
    """Runs of pytest for the tests that were selected, two at a time."""
    selected = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    wanted = [item.callspec.params["fault"] for item in selected if hasattr(item, "callspec")]
    with ThreadPoolExecutor(max_workers=2) as pool:
        folder = tmp_path_factory.mktemp("projects")
        yield {fault: pool.submit(run_pytest, folder / fault.replace(" ", "-"), fault) for fault in wanted}


def test_the_sample_is_what_a_team_would_have() -> None:
    """A short configuration and a model file of fewer than a hundred lines; ten faults, each a small patch."""
    assert sorted(path.name for path in SAMPLE.iterdir() if path.is_file()) == ["acgate.toml", "model.py"]
    assert len((SAMPLE / "model.py").read_text().splitlines()) < 100
    assert "acgate." not in (SAMPLE / "model.py").read_text()
    assert PATCHES.keys() == FAULTS.keys()
    assert len(PATCHES) == 10
    for patch in PATCHES.values():
        changed = re.findall(r"^[+-](?![+-]{2} )", patch.read_text(), re.MULTILINE)
        assert 2 <= len(changed) <= 25
        assert patch.read_text().splitlines()[0].endswith(".")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [GREEN])
def test_without_a_fault_every_check_passes(sessions: dict[str, Future[Told]], fault: str) -> None:
    """Every check of both tracks is an item, and each of them compared something."""
    told = sessions[fault].result()
    assert told.code == 0, told.terminal
    assert not told.red
    for track in ("block", "selective"):
        checks = {name.removeprefix(f"{track}::") for name in told.passed if name.startswith(track)}
        assert {"gradient[blocks.0]", "gradient[other]", "buffers", "rng", "wiring[two-forwards]"} <= checks
    assert f"{len(told.passed)} passed" in told.terminal.splitlines()[-1]
    assert "acgate: passed" in told.summary


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in sorted(FAULTS)]
)
def test_a_fault_is_red_with_its_reason(sessions: dict[str, Future[Told]], fault: str) -> None:
    """What is wrong and where stands in the terminal, in the failed case of the XML, and in the job summary."""
    told, expected = sessions[fault].result(), FAULTS[fault]
    assert told.code == 1, told.terminal
    assert {name.partition("::")[0] for name in told.red} == set(expected.tracks)
    place = expected.place(told.model)
    for track in expected.tracks:
        failure = told.red[f"{track}::{expected.red}"]
        for text in (failure, told.terminal, told.summary):
            assert expected.kind in text
            assert expected.kind.sentence in text
            assert expected.kind.advice in text
            assert place in text.replace("</code>", "").replace("<code>", "")
        assert f"FAILED acgate.toml::{CELL}::{track}::{expected.red}" in told.terminal
    assert "acgate: failed" in told.summary
