"""The process of acgate and the start-up of pytest: what they cost, and that none is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from stub_verdicts import CELL, GREEN, answer, bad, good, plan
from waiting import alive, wait_for

from acgate.pytesting import engine
from acgate.pytesting.github import tell
from acgate.pytesting.ledger import Ledger, Told

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
STARTS = """
import os, subprocess, sys, time
from acgate.pytesting import engine
process = subprocess.Popen(engine.command(["plan", "-q", "--config", "acgate.toml"]))
print(process.pid, flush=True)
time.sleep(60)
"""
MEASURES = """
import json, sys, time
import pytest, _pytest.terminal, _pytest.junitxml, _pytest.cacheprovider, _pytest.fixtures
from _pytest.config.argparsing import Parser
parser = Parser(_ispytest=True)
before = set(sys.modules)
begun = time.process_time()
from acgate import pytest_plugin
pytest_plugin.pytest_addoption(parser)
print(json.dumps([time.process_time() - begun, sorted(set(sys.modules) - before)]))
"""


def test_acgate_ends_with_the_process_that_started_it(tmp_path):
    """A worker that is killed leaves no acgate behind, whatever that does at the moment."""
    os.mkfifo(tmp_path / "acgate.toml")  # reading it takes for ever
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTS], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    with parent.stdout:
        time.sleep(0.3)
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
        assert wait_for(lambda: not alive(pid))


def test_acgate_is_started_as_by_hand(tmp_path):
    """What pytest starts is `python -m acgate`, with its arguments, its messages and its exit code."""
    (tmp_path / "acgate.toml").write_text("stepz = 3\n")
    ended = engine.run(
        ["plan", "-q", f"--config={tmp_path / 'acgate.toml'}"],
        directory=tmp_path,
        environment={"PYTHONPATH": str(ROOT)},
        log=tmp_path / "log",
        progress=lambda _: None,
    )
    assert ended.code == 4
    assert ended.message == 'acgate.toml: stepz: unknown key; did you mean "steps"?'


def started(folder: Path, *arguments: str) -> list[str]:
    """Return the modules that a whole run of pytest has imported at its end."""
    (folder / "test_own.py").write_text("def test_own(): pass\n")
    (folder / "conftest.py").write_text(
        "import json, sys\ndef pytest_unconfigure():\n    open('modules.json', 'w').write(json.dumps(sorted(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return json.loads((folder / "modules.json").read_text())


def test_a_project_without_acgate_pays_for_pytest_and_this_package_only(tmp_path):
    """With the plugin loaded, a session imports nothing more than the plugin's own few modules."""
    with_plugin = set(started(tmp_path, "-p", "acgate.pytest_plugin"))
    without = set(started(tmp_path))
    assert with_plugin - without == {
        "acgate",
        "acgate.pytest_plugin",
        "acgate.pytesting",
        "acgate.pytesting.hookspecs",
        "acgate.pytesting.options",
        "acgate.pytesting.sessions",
    }


def test_loading_the_plugin_takes_less_than_ten_milliseconds():
    """Time of the processor counts, and the best of some tries: the machine may be busy."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    best = 1.0
    for _ in range(8):
        done = subprocess.run(
            [sys.executable, "-c", MEASURES], env=environment, capture_output=True, text=True, check=True
        )
        seconds, modules = json.loads(done.stdout)
        best = min(best, seconds)
        if best < 0.010:
            break
    assert best < 0.010, modules


@pytest.mark.parametrize("red", [False, True])
def test_github_is_told_at_the_end(project, red, monkeypatch, tmp_path):
    """With the option, the verdicts of all cells go into one job summary."""
    judged = answer(bad("block", "loss"), good("selective")) if red else GREEN
    project.answers(plan(), {CELL: judged})
    page = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    assert project.pytest().code == int(red)
    assert not page.exists()
    session = project.pytest("--acgate-github", "--acgate-required=fsdp-*")
    assert session.code == 1
    text = page.read_text()
    assert CELL in text
    assert ("loss is fail" in text) is red
    assert 'required "fsdp-*"' in text
    assert ("::error" in session.out) is True
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert project.pytest("--acgate-github").code == int(red)


def test_github_is_told_together_of_all_that_has_no_verdict(monkeypatch, tmp_path, capsys):
    """One summary, with the exit code of each run; one that a signal ended has none of its own."""
    page = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    nothing = Told(
        code=4, outcome="error", headline="there is no x.py", compared=0, seconds=1.0, evidence="", verdict=""
    )
    judged = {"acgate.toml::a": nothing, "acgate.toml::b": replace(nothing, code=-9, headline="was killed")}
    tell(Ledger(judged=judged), ['required "fsdp": no such cell was judged'])
    text = page.read_text()
    assert text.count("\n## ") + text.startswith("## ") == 1
    for said in (
        "there is no x.py (exit code 4)",
        "was killed (exit code 3)",
        "no such cell was judged (exit code 7)",
    ):
        assert said in text.replace("**", "")
    assert capsys.readouterr().out.count("::error ") == 3


def test_a_message_gives_no_commands(project):
    """Lines of a model that look like commands of GitHub's runner are written out."""
    text = "headline\n::error::from the model\n  ::add-mask::x\nsee ##[error] there"
    cases = (case_with_text("loss", text),)
    project.answers(plan(tracks=["block"], checks=["loss"]), {CELL: answer(*cases)})
    session = project.pytest()
    assert session.code == 1
    assert "from the model" in session.out
    assert not [line for line in session.out.splitlines() if line.lstrip().startswith("::") or "##[" in line]


def case_with_text(name: str, text: str):
    from stub_verdicts import case, track

    from acgate.vocabulary import Outcome

    return track("block", case(name, Outcome.FAIL, "headline", text))
