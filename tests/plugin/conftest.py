"""A project that has an `acgate.toml`, pytest run on it, and what it reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Pytest run inside a test forgets what it imported; what lies here already is kept.
import acgate.gate
import acgate.pytesting.items
import acgate.pytesting.summing_up  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
STUB = Path(__file__).parent / "stub"
sys.path.append(str(STUB))


@dataclass
class Reported:
    """One test case of pytest's own XML."""

    outcome: str
    message: str
    text: str
    properties: dict[str, str]


@dataclass
class Session:
    """A finished run of pytest."""

    code: int
    out: str
    items: dict[str, Reported] = field(default_factory=dict)

    def outcomes(self) -> dict[str, str]:
        return {name: item.outcome for name, item in self.items.items()}

    def having(self, outcome: str) -> list[str]:
        return [name for name, item in self.items.items() if item.outcome == outcome]


class Project:
    """A folder with an `acgate.toml`; a process that answers from a file stands in for acgate."""

    def __init__(self, path: Path, pytester: pytest.Pytester) -> None:
        self.path = path
        self._pytester = pytester
        self._started: list[subprocess.Popen[str]] = []
        self.toml('model = "model.py"\n')
        (path / "model.py").write_text("")

    def toml(self, text: str, name: str = "acgate.toml") -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def answers(self, plan: dict, cells: dict[str, dict], where: str = ".", **how: object) -> None:
        """Say what acgate answers: a plan's document (or a whole answer), and an answer for each cell."""
        answer = plan if "code" in plan else {"code": 0, "document": plan, **how}
        (self.path / where / "stub.json").write_text(json.dumps({"plan": answer, "cells": cells}))

    def calls(self, command: str = "", where: str = ".") -> list[dict]:
        """What acgate was asked, in order."""
        log = self.path / where / "calls.log"
        found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [call for call in found if command in ("", call["arguments"][0])]

    def arguments(self, *arguments: str, real: bool = False) -> list[str]:
        stub = [] if real else ["-p", "stub_engine"]
        # Where acgate is installed, the plugin was imported before this session could rewrite its asserts.
        quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        return ["-p", "acgate.pytest_plugin", *quiet, *stub, "--junitxml=report.xml", *arguments]

    def pytest(self, *arguments: str) -> Session:
        """Run pytest inside this process."""
        result = self._pytester.runpytest_inprocess(*self.arguments(*arguments))
        return self._session(int(result.ret), result.stdout.str() + result.stderr.str())

    def environment(self, environment: dict[str, str] | None = None) -> dict[str, str]:
        kept = os.environ.get("PYTHONPATH")
        paths = [*([kept] if kept else []), str(ROOT), str(STUB)]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(environment or {})}

    def start(self, *arguments: str, real: bool = False, **environment: str) -> subprocess.Popen[str]:
        """Start pytest as a process of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *self.arguments(*arguments, real=real)],
            cwd=self.path,
            env=self.environment(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def stop(self) -> None:
        """End what a failed test left running."""
        for process in self._started:
            process.kill()
            process.communicate()

    def process(self, *arguments: str, real: bool = False, **environment: str) -> Session:
        """Run pytest as a process of its own."""
        process = self.start(*arguments, real=real, **environment)
        out, _ = process.communicate(timeout=240)
        return self._session(process.returncode, out)

    def _session(self, code: int, out: str) -> Session:
        report = self.path / "report.xml"
        items = _items(ET.parse(report).getroot()) if report.exists() else {}
        report.unlink(missing_ok=True)
        return Session(code, out, items)


def _items(root: ET.Element) -> dict[str, Reported]:
    found = {}
    for case in root.iter("testcase"):
        tags = {child.tag: child for child in case}
        red = next((tags[tag] for tag in ("failure", "error", "skipped") if tag in tags), None)
        words = {"failure": "failed", "error": "error", "skipped": "skipped"}
        properties = {one.get("name", ""): one.get("value", "") for one in case.iter("property")}
        outcome = "passed" if red is None else words[red.tag]
        name = f"{case.get('classname', '').removeprefix('acgate.toml.')}.{case.get('name')}"
        message, text = ("", "") if red is None else (red.get("message", ""), red.text or "")
        found[name] = Reported(outcome, message, text, properties)
    return found


@pytest.fixture
def project(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """An empty project; the test's module asks for the plugin `pytester`."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("CI", raising=False)
    pytester: pytest.Pytester = request.getfixturevalue("pytester")
    made = Project(pytester.path, pytester)
    yield made
    made.stop()
