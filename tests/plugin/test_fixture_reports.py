"""What a test with the fixture `acgate` shows, and that it never comes out green by accident."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parents[2]

CONFTEST = '''
import pytest
from acgate.errors import ExitCode
from acgate.pytesting.handwritten import Door, opened
from acgate.pytesting.handwritten_result import Result
from acgate.vocabulary import Outcome


class Quick(Door):
    """Every check comes out as the test says, without a run."""

    says = ExitCode.FAIL, Outcome.FAIL

    def _run(self, objects, spec, place):
        code, outcome = self.says
        text = "the whole message\\n" * 3
        return Result(
            exit_code=code, outcome=outcome, headline="made up", message=text, evidence=place, verdict=None
        )


@pytest.fixture
def quick(request, monkeypatch):
    monkeypatch.setattr("acgate.pytesting.handwritten.Door", Quick)
    with opened(request) as door:
        yield door


@pytest.fixture
def checks_late(quick):
    yield
    quick.check(*quick.given)
'''

TESTS = """
import contextlib
import threading
import unittest

import numpy as np
import pytest
import torch
from torch import nn
from acgate.errors import ExitCode
from acgate.vocabulary import Outcome


class Block(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.up, self.down, self.share = nn.Linear(8, 8), nn.Linear(8, 8), share

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)) * self.share())


def batches(bucket):
    return [torch.ones(2, 8)] * 2


def loss(model, batch):
    return model(batch).square().mean()


def build(share):
    return nn.Sequential(Block(share), nn.Linear(8, 1))


FEW = {"blocks": ["0"], "tracks": ["none", "block"], "steps": 1, "micro_steps": 1}
GIVEN = (lambda: build(np.random.rand), batches, loss)


def test_clean(acgate):
    assert acgate.check(lambda: build(torch.tensor(2.0).item), batches, loss, **FEW)


def test_numpy(acgate):
    assert acgate.check(*GIVEN, **FEW)


def test_never_calls(acgate):
    pass


def test_skips(acgate):
    pytest.skip("not today")


def test_fails_before(acgate):
    assert False, "something else"


def test_bad_argument(acgate):
    acgate.check(*GIVEN, steps=0)


def test_never_asks(quick):
    quick.check(*GIVEN)
    print(quick.results[-1], quick.results[-1].message)


def test_skips_after_red(quick):
    quick.check(*GIVEN)
    pytest.skip("not today")


@pytest.mark.xfail(strict=False)
def test_expected_to_fail_and_never_asks(quick):
    quick.check(*GIVEN)


@pytest.mark.xfail(strict=True)
def test_expected_to_fail(quick):
    assert quick.check(*GIVEN)


def test_not_checked_is_not_red_as_wanted(quick):
    quick.says = ExitCode.INCOMPLETE, Outcome.ERROR
    assert not quick.check(*GIVEN)


def test_wants_red(quick):
    assert not quick.check(*GIVEN)


def test_asks_for_one_of_two(quick):
    quick.check(*GIVEN)
    assert quick.check(*GIVEN).failed


@pytest.mark.usefixtures("checks_late")
def test_of_a_fixture_that_checks_late(quick):
    quick.given = GIVEN
    assert quick.check(*GIVEN).failed


TRIES = []


@pytest.mark.flaky(reruns=1)
def test_is_green_at_the_second_try(quick):
    TRIES.append(1)
    quick.says = (ExitCode.FAIL, Outcome.FAIL) if len(TRIES) == 1 else (ExitCode.PASS, Outcome.PASS)
    assert quick.check(*GIVEN)


def test_takes_a_word_for_a_question(quick):
    assert quick.check(*GIVEN).outcome


def test_fails_after_red(quick):
    quick.check(*GIVEN)
    assert False, "something else"


@pytest.fixture
def broken(quick):
    quick.check(*GIVEN)
    raise ValueError("something else")


def test_of_a_fixture_that_fails_after_red(broken):
    pass


@pytest.mark.usefixtures("quick")
def test_of_a_fixture_that_never_checks():
    pass


@pytest.fixture
def checks_at_its_end(quick):
    yield
    assert quick.check(*GIVEN).failed


@pytest.mark.usefixtures("checks_at_its_end")
def test_of_a_fixture_that_checks_at_its_end():
    pass


def test_catches_what_a_check_raises(quick):
    with pytest.raises(Exception):
        quick.check(*GIVEN, steps=0)


def test_checks_in_a_thread(quick):
    found = []
    thread = threading.Thread(target=lambda: found.append(quick.check(*GIVEN)))
    thread.start()
    thread.join()
    assert found[0].failed


def test_loses_what_a_thread_raises(quick):
    def check():
        with contextlib.suppress(Exception):
            quick.check(*GIVEN, steps=0)

    assert quick.check(*GIVEN).failed
    thread = threading.Thread(target=check)
    thread.start()
    thread.join()


def test_checks_inside_a_check(quick):
    quick.check(lambda: quick.check(*GIVEN), batches, loss)


KEPT = []


def test_keeps_the_fixture(quick):
    KEPT.append(quick)
    assert quick.check(*GIVEN).failed


def test_uses_the_fixture_of_another():
    KEPT[0].check(*GIVEN)


class TestOfUnittest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _take(self, quick):
        self.acgate = quick

    def test_subtests_that_ask_later(self):
        with self.subTest("prepares"):
            pass
        with self.subTest("checks"):
            result = self.acgate.check(*GIVEN)
        with self.subTest("asks"):
            assert result.failed

    def test_subtests_that_never_ask(self):
        with self.subTest("checks"):
            self.acgate.check(*GIVEN)
"""


class Run:
    """One run of pytest over the tests above."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_by_hand.py").write_text(TESTS)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--show-capture=no"]
        done = subprocess.run(
            [
                *command,
                "-p",
                "acgate.pytest_plugin",
                "-p",
                "pytest_rerunfailures",
                "--junitxml=junit.xml",
                *options,
            ],
            cwd=folder,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)]),
                "COLUMNS": "200",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the plugin may be installed as well
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        self.output = done.stdout + done.stderr
        cases = ET.parse(folder / "junit.xml").iter("testcase")
        self.cases = {case.attrib["name"]: case for case in cases}

    def outcome(self, name: str) -> str:
        """`passed`, or the tag that is no property."""
        tags = [child.tag for child in self.cases[name] if child.tag not in {"properties", "system-out"}]
        return "+".join(tags) or "passed"

    def text(self, name: str) -> str:
        """What the test's own part of the report holds."""
        return "".join(child.text or "" for child in self.cases[name])

    def figures(self, name: str) -> dict[str, str]:
        found = self.cases[name].iter("property")
        return {item.attrib["name"]: item.attrib["value"] for item in found}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("by_hand") / "project")


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("clean", "passed"),
        ("numpy", "failure"),
        ("never_calls", "failure"),
        ("skips", "skipped"),
        ("fails_before", "failure"),
        ("bad_argument", "failure"),
        ("never_asks", "failure"),
        ("skips_after_red", "failure"),
        ("expected_to_fail_and_never_asks", "failure"),
        ("expected_to_fail", "skipped"),
        ("not_checked_is_not_red_as_wanted", "failure"),
        ("wants_red", "passed"),
        ("asks_for_one_of_two", "failure"),
        ("of_a_fixture_that_checks_late", "error"),
        ("is_green_at_the_second_try", "failure"),
        ("takes_a_word_for_a_question", "failure"),
        ("fails_after_red", "failure"),
        ("of_a_fixture_that_fails_after_red", "error"),
        ("of_a_fixture_that_never_checks", "error"),
        ("of_a_fixture_that_checks_at_its_end", "passed"),
        ("catches_what_a_check_raises", "failure"),
        ("checks_in_a_thread", "passed"),
        ("loses_what_a_thread_raises", "failure"),
        ("checks_inside_a_check", "failure"),
        ("keeps_the_fixture", "passed"),
        ("uses_the_fixture_of_another", "failure"),
        ("subtests_that_ask_later", "passed"),
        ("subtests_that_never_ask", "failure"),
    ],
)
def test_only_what_was_asked_and_right_is_green(run, name, outcome):
    """A red result that nobody asked, a check that was never made or not possible: none of them passes."""
    assert run.outcome(f"test_{name}") == outcome, run.output


def test_the_whole_message_stands_in_the_failure(run):
    """Quiet and without captured output, terminal and XML say cause, place and what to try, in full."""
    for text in (run.output, run.text("test_numpy")):
        assert "CAUSE  single-float32 / block / rng-not-restored in region 0: " in text
        assert "test_by_hand.py:" in text
        assert "try: draw from torch's default generator" in text
        assert "FAIL  single-float32 / block / gradient[0]" in text
        assert re.search(r"^evidence: /.*acgate-test_numpy0.run$", text, re.MULTILINE)
    assert run.output.count("CAUSE  single-float32 / block") == 1
    assert "> " in run.text("test_numpy").split("assert acgate.check")[0]
    assert "handwritten.py" not in run.text("test_numpy")


def test_a_test_that_did_not_ask_is_told_what_to_write(run):
    """Each of these sentences says what to change; that of an unnoticed result holds its message."""
    assert "never calls acgate.check(...), so nothing was checked" in run.text("test_never_calls")
    for name in ("never_asks", "skips_after_red", "expected_to_fail_and_never_asks", "asks_for_one_of_two"):
        text = run.text(f"test_{name}")
        assert "the test never asked whether it passed; write `assert acgate.check(...)`" in text, name
        assert text.count("the whole message") == 3, name
    assert "could not be checked" not in run.text("test_numpy")
    assert "CouldNotBeCheckedError" in run.text("test_not_checked_is_not_red_as_wanted")
    assert "another try does not make it right" in run.text("test_is_green_at_the_second_try")
    assert "never calls" not in run.text("test_fails_before")
    assert "`assert result.failed` where red is wanted" in run.text("test_takes_a_word_for_a_question")
    assert "raised and the test went on" in run.text("test_catches_what_a_check_raises")
    assert "still runs in another thread, or raised there" in run.text("test_loses_what_a_thread_raises")
    assert "one after the other" in run.text("test_checks_inside_a_check")
    assert "belongs to test_keeps_the_fixture, which is over" in run.text("test_uses_the_fixture_of_another")


def test_a_bad_argument_shows_the_call_and_what_to_change(run):
    """The traceback ends in the test, with the message of acgate."""
    text = run.text("test_bad_argument")
    assert "UsageError: steps: must be 1 or more, got 0" in text
    assert "acgate.check(*GIVEN, steps=0)" in text
    assert "handwritten" not in text


def test_figures_are_properties_of_the_test(run):
    """Counts, limits and times stand beside the test in XML, also of one that passes."""
    assert int(run.figures("test_clean")["acgate.single-float32.compared"]) > 20
    assert run.figures("test_clean")["acgate.outcome"] == "pass"
    assert float(run.figures("test_numpy")["acgate.single-float32.block.rel_err"]) > 1e-5
    assert run.figures("test_numpy")["acgate.exit_code"] == "1"


@pytest.mark.slow
def test_workers_of_xdist_report_alike(run, tmp_path):
    """What one process says, workers say as well, and messages come whole."""
    spread = Run(tmp_path / "project", "-n", "2")
    assert {name: spread.outcome(name) for name in spread.cases} == {
        name: run.outcome(name) for name in run.cases
    }
    assert "try: draw from torch's default generator" in spread.text("test_numpy")
    assert spread.figures("test_clean").keys() == run.figures("test_clean").keys()
