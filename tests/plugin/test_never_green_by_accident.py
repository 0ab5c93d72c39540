"""What must never end in a green session, each by itself."""

from __future__ import annotations

import signal

import pytest
from stub_verdicts import CELL, CHECKS, GREEN, OTHER_CELL, answer, bad, case, good, plan, track
from waiting import alive, wait_for

from acgate.errors import ExitCode
from acgate.vocabulary import Outcome

pytest_plugins = ["pytester"]

BOTH = (CELL, OTHER_CELL)
RED = answer(bad("block", "gradient[layers.1]"), good("selective"))
GREEN_TOO = answer(good("block"), good("selective"), cell=OTHER_CELL)


def errors_of(session) -> list[str]:
    return [item.text for item in session.items.values() if item.outcome == "error"]


def test_a_cell_that_was_red_stays_red_when_run_again(project):
    """Plugins that run failures again read the same verdict: acgate is not asked twice."""
    project.answers(plan(), {CELL: RED})
    session = project.pytest("-p", "pytest_rerunfailures", "--reruns=2", "-rR")
    assert session.code == 1
    assert session.having("failed") == [f"{CELL}.block.gradient[layers.1]"]
    assert "2 rerun" in session.out
    assert len(project.calls("run")) == 1


def test_a_verdict_of_another_session_is_not_taken(project):
    """Where acgate ends without a verdict, the one of an earlier session does not count."""
    project.answers(plan(), {CELL: GREEN})
    assert project.pytest().code == 0
    project.answers(plan(), {CELL: {"code": 0}})
    session = project.pytest()
    assert session.code == 1
    assert len(session.having("error")) == 2 * len(CHECKS)


@pytest.mark.parametrize("code", [ExitCode.FAIL, ExitCode.INCOMPLETE, ExitCode.PASS])
def test_verdict_and_exit_code_must_agree(project, code):
    """A green verdict of a process that says otherwise is no verdict, nor is a red one of one that says green."""
    project.answers(plan(), {CELL: {**(RED if code == 0 else GREEN), "code": int(code)}})
    session = project.pytest()
    assert session.code == 1
    assert f"acgate ended with exit code {int(code)}, but its verdict says" in errors_of(session)[0]


def test_two_projects_with_one_directory_of_results_are_judged_apart(project):
    """Cells of the same name in two projects do not read each other's verdict."""
    for where, judged in (("first", GREEN), ("second", RED)):
        project.toml('out = "../results"\n', f"{where}/acgate.toml")
        project.answers(plan(), {CELL: judged}, where)
    session = project.pytest("first", "second")
    assert session.code == 1
    assert session.having("failed") == [f"second.acgate.toml.{CELL}.block.gradient[layers.1]"]


def test_the_verdict_must_be_about_the_cell(project):
    """A verdict that speaks of another cell judges nothing here."""
    project.answers(plan(), {CELL: GREEN_TOO})
    session = project.pytest()
    assert session.code == 1
    assert f"was to judge {CELL}, but its verdict speaks of {OTHER_CELL}" in errors_of(session)[0]


def test_a_verdict_that_cannot_be_read_is_an_error(project):
    """Half a document is no verdict."""
    project.answers(plan(), {CELL: {"code": 0, "document": {"schema": 1}}})
    session = project.pytest()
    assert session.code == 1
    assert "is no verdict that can be read" in errors_of(session)[0]


def test_acgate_that_refuses_speaks_for_itself(project):
    """What acgate complains of is the message of every item, without its traceback."""
    says = (
        "Traceback\n  File x\nacgate: tolerances/float32.toml: there is no such file\nsee the documentation"
    )
    project.answers(plan(), {CELL: {"code": 4, "says": says}})
    session = project.pytest()
    assert session.code == 1
    assert errors_of(session)[0].startswith(
        "tolerances/float32.toml: there is no such file\nsee the documentation"
    )
    assert f"ERROR  acgate.toml::{CELL}: tolerances/float32.toml: there is no such file" in session.out


def test_acgate_that_is_killed_is_an_error(project):
    """A process that a signal ended has no verdict; the signal and its last words are told."""
    project.answers(plan(), {CELL: {"code": 0, "says": "last words", "kills_itself": True}})
    session = project.pytest()
    assert session.code == 1
    assert "was killed by SIGKILL; its last lines:\nlast words" in errors_of(session)[0]
    assert len(project.calls("run")) == 1


def test_an_item_without_a_case_is_an_error(project):
    """What was foreseen and not judged is not passed, be the rest green or red."""
    less = CHECKS[:-1]
    project.answers(plan(tracks=["block"]), {CELL: answer(good("block", less))})
    session = project.pytest()
    assert session.code == 1
    assert session.having("error") == [f"{CELL}.block.resources"]
    assert "it was foreseen, but" in errors_of(session)[0]
    project.answers(plan(tracks=["block"]), {CELL: answer(bad("block", "loss", checks=less))})
    session = project.pytest()
    assert session.having("error") == [f"{CELL}.block.resources"]
    assert "not judged, because block::loss is red: loss is fail" in errors_of(session)[0]


def test_a_track_without_a_verdict_is_an_error(project):
    """A track that the verdict does not speak of is not passed."""
    project.answers(plan(), {CELL: answer(good("block"))})
    session = project.pytest()
    assert session.code == 1
    assert session.having("error") == [f"{CELL}.selective.{check}" for check in CHECKS]


def test_a_red_case_that_nobody_foresaw_is_told(project):
    """It turns the item of the same check red, else the first of its track, else of its cell."""
    cases = (*map(case, CHECKS), case("gradient[late]", Outcome.FAIL), case("planted[rng]", Outcome.ERROR))
    judged = answer(
        track("none", case("loss", Outcome.FAIL)),
        track("block", *cases),
        track("selective", *map(case, CHECKS)),
    )
    project.answers(plan(), {CELL: judged})
    session = project.pytest()
    assert session.code == 1
    assert session.having("failed") == [f"{CELL}.block.structure", f"{CELL}.block.gradient[layers.0]"]
    text = session.items[f"{CELL}.block.structure"].text
    assert "none / loss, which nobody foresaw:\nloss is fail" in text
    assert "block / planted[rng], which nobody foresaw:\nplanted[rng] is error" in text


def test_a_red_cell_without_a_red_case_is_an_error(project):
    """Where acgate is red and no case says so, the first item does."""
    verdict = GREEN["document"] | {
        "exit_code": 7,
        "outcome": "error",
        "headline": "fewer comparisons than expected",
    }
    project.answers(plan(), {CELL: {"code": 7, "document": verdict}})
    session = project.pytest()
    assert session.code == 1
    assert session.having("error") == [f"{CELL}.block.structure"]
    assert "fewer comparisons than expected" in errors_of(session)[0]


def test_a_cell_of_which_everything_is_skipped_is_red(project):
    """Nothing but skipped checks is not a pass."""
    skipped = track("block", *(case(check, Outcome.SKIPPED) for check in CHECKS))
    project.answers(plan(tracks=["block"]), {CELL: answer(skipped)})
    session = project.pytest()
    assert session.code == 1
    assert session.having("error") == [f"{CELL}.block.structure"]


@pytest.mark.parametrize(
    "selection", [["-k", "loss"], ["--deselect", f"acgate.toml::{CELL}::block::gradient[layers.1]"]]
)
def test_a_red_case_among_the_deselected_turns_the_session_red(project, selection):
    """Whoever deselects the item that is red is told so, by name, and the session fails."""
    project.answers(plan(), {CELL: RED})
    session = project.pytest(*selection)
    assert set(session.outcomes().values()) == {"passed"}
    assert session.code == 1
    assert f"acgate: acgate.toml::{CELL}: no item that ran was red, but" in session.out
    assert "deselected and red: block::gradient[layers.1]" in session.out


@pytest.mark.parametrize("judged", [RED, {"code": 0}])
def test_a_red_item_that_is_expected_to_fail_turns_the_session_red(project, judged):
    """An xfail mark is no way to accept a difference; the configuration has one, with a reason."""
    (project.path / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        item.add_marker(pytest.mark.xfail(reason='known'))\n"
    )
    project.answers(plan(), {CELL: judged})
    session = project.pytest()
    assert session.code == 1
    assert "no item that ran was red, but acgate ended with exit code" in session.out


def test_what_is_deselected_is_counted(project):
    """The summary says how many checks were left out, and which cells altogether."""
    project.answers(plan(BOTH), {CELL: GREEN})
    session = project.pytest("-k", "float32 and block")
    assert session.code == 0
    assert (
        f"deselected: {3 * len(CHECKS)} of {4 * len(CHECKS)} checks; cells not judged at all: acgate.toml::{OTHER_CELL}"
        in session.out
    )


def test_what_a_conftest_skips_is_said(project):
    """A cell of which a mark skips every item was not judged; the summary says so, and a requirement fails."""
    (project.path / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        item.add_marker(pytest.mark.skip(reason='no time'))\n"
    )
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest()
    assert session.code == 0
    assert f"not judged, as none of its items ran: acgate.toml::{CELL}" in session.out
    assert not project.calls("run")
    assert project.pytest("--acgate-required=*").code == 1


@pytest.mark.parametrize(
    ("required", "code", "says"),
    [
        ("*", 0, ""),
        (CELL, 0, ""),
        (f"acgate.toml::{CELL}", 0, ""),
        (
            OTHER_CELL,
            1,
            f'required "{OTHER_CELL}": no such cell was judged: acgate.toml::{OTHER_CELL} (deselected)',
        ),
        ("single-*", 1, f'required "single-*": not judged: acgate.toml::{OTHER_CELL} (deselected)'),
        ("fsdp-*", 1, 'required "fsdp-*": no such cell was judged; there are acgate.toml::single-float32'),
        (
            "ddp-*",
            1,
            'required "ddp-*": no such cell was judged: acgate.toml::ddp-float32 is not run: no second device',
        ),
    ],
)
def test_a_required_cell_must_have_been_judged(project, required, code, says):
    """A required cell that is deselected, dropped or unknown turns the session red, with its reason."""
    project.answers(plan(BOTH, dropped={"ddp-float32": "no second device"}), {CELL: GREEN})
    session = project.pytest("-k", "float32 and block", f"--acgate-required={required}")
    assert session.code == code, session.out
    assert says in session.out
    assert set(session.outcomes().values()) == {"passed"}


def test_what_is_required_must_be_collected(project):
    """A session that never sees an acgate.toml fails where a cell is required, by option or ini."""
    (project.path / "test_own.py").write_text("def test_own(): pass")
    assert project.pytest("test_own.py").code == 0
    session = project.pytest("test_own.py", "--acgate-required=*")
    assert session.code == 1
    assert 'required "*": no such cell was judged: no acgate.toml was collected' in session.out
    (project.path / "pytest.ini").write_text("[pytest]\nacgate_required = single-*\n")
    assert project.pytest("test_own.py").code == 1
    assert project.pytest("test_own.py", "--collect-only").code == 0


@pytest.mark.parametrize(
    "conftest",
    [
        "def pytest_sessionfinish(session): session.exitstatus = 0",
        "def pytest_runtest_teardown(item): item.session.testsfailed = 0",
        "def pytest_runtest_logreport(report):\n    if report.failed: __import__('pytest').exit('', returncode=0)",
    ],
)
def test_a_red_cell_outlasts_whoever_makes_the_session_green(project, conftest):
    """A hook that sets the exit code, or the count of failures, does not make a red cell pass."""
    (project.path / "conftest.py").write_text(conftest)
    project.answers(plan(tracks=["block"]), {CELL: answer(bad("block", "resources"))})
    session = project.pytest()
    assert session.code == 1
    assert "is red (" in session.out
    assert "something made the exit code of this session 0" in session.out


@pytest.mark.parametrize("listing", ["--fixtures", "--fixtures-per-test", "--cache-show", "--setup-plan"])
def test_what_only_lists_is_asked_for_nothing(project, listing):
    """Where pytest only lists something, no cell is missed."""
    (project.path / "pytest.ini").write_text("[pytest]\nacgate_required = *\n")
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest(listing)
    assert session.code == 0, session.out
    assert "no such cell was judged" not in session.out
    assert "not judged" not in session.out
    assert not project.calls("run")


@pytest.mark.parametrize("header", ["[tool.acgate]", "[[ tool.'acgate']]", "[tool.acgate.parallel]"])
def test_a_broken_pyproject_below_is_an_error(project, header):
    """A pyproject.toml with a table for acgate that cannot be read is told, not passed over."""
    project.toml(f'[project]\nname = "x\n{header}\nsteps = 3\n', "below/pyproject.toml")
    project.toml('[project]\nname = "x\ndependencies = ["acgate"]\n', "other/pyproject.toml")
    project.answers(plan(), {CELL: GREEN})
    project.answers({"code": 4, "says": "acgate: no"}, {}, "below")
    (project.path / "pytest.ini").write_text("[pytest]\n")
    session = project.pytest()
    assert session.code == 2
    assert "below/pyproject.toml: is not valid TOML" in session.out
    assert "1 error" in session.out


@pytest.mark.parametrize(
    "arguments",
    [["--acgate-required="], ["--acgate-tracks="], ["--acgate-steps=many"], ["--acgate-tracks=none,,block"]],
)
def test_an_option_that_says_nothing_is_refused(project, arguments):
    """An empty value is most likely a variable that is not set; it does not count as not given."""
    (project.path / "test_own.py").write_text("def test_own(): pass")
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest(*arguments)
    assert session.code == 4
    assert arguments[0].partition("=")[0] in session.out
    assert project.pytest("test_own.py", *arguments).code == 4


def test_nothing_planned_is_an_error(project):
    """A plan without a cell collects an error, not nothing."""
    project.answers(plan(()), {})
    session = project.pytest()
    assert session.code == 2
    assert "nothing would be checked" in session.out


def test_the_first_failure_ends_a_session_with_exitfirst(project):
    """`-x` stops, red; `--lf` then runs what was red, and is green only when acgate is."""
    project.answers(plan(), {CELL: RED})
    session = project.pytest("-x")
    assert session.code == 1
    assert len(session.items) == 4
    assert set(project.pytest("--lf").outcomes()) == {f"{CELL}.block.gradient[layers.1]"}
    project.answers(plan(), {CELL: answer(bad("block", "loss"), good("selective"))})
    session = project.pytest("--lf")
    assert session.code == 1
    assert "deselected and red: block::loss" in session.out
    project.answers(plan(), {CELL: GREEN})
    assert project.pytest("--lf", "-p", "no:rerunfailures").code == 0


def test_results_that_cannot_be_written_are_an_error(project):
    """A file in the place of the directory of results is told."""
    (project.path / "acgate-out").write_text("")
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest()
    assert session.code == 2
    assert f"cannot write results: {project.path}/acgate-out" in session.out
    assert "--acgate-out names another place" in session.out
    assert ".py:" not in session.out


def test_an_interrupt_ends_acgate_too(project):
    """Ctrl-C leaves no process behind, and the exit code is that of an interrupt."""
    project.answers(plan(), {CELL: {**GREEN, "sleeps": 60}})
    process = project.start()
    assert wait_for(lambda: project.calls("run"))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 2, out
    (run,) = project.calls("run")
    assert not alive(run["pid"])


def test_a_timeout_ends_acgate_and_the_cell_stays_red(project):
    """What a plugin cuts short has no verdict, for none of its items."""
    project.answers(plan(tracks=["block"]), {CELL: {**GREEN, "sleeps": 60}})
    session = project.process("-p", "pytest_timeout", "--timeout=0.5")
    assert session.code == 1
    assert len(session.having("error")) == len(CHECKS)
    assert "was ended before it had a verdict (Failed: Timeout" in session.out
    first, *_ = errors_of(session)
    assert "the run of this cell was ended before it had a verdict: Timeout" in first
    assert "acgate/" not in first
    (run,) = project.calls("run")
    assert not alive(run["pid"])
