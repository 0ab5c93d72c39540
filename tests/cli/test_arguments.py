from __future__ import annotations

import json
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acgate.errors import EvidenceError, ExitCode, NothingToDoError, TargetError, WorkerDiedError
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from conftest import Engine

Main = Callable[..., int]


def errors_in(path: Path) -> list[str]:
    return [element.text or "" for element in ET.parse(path).iter("error")]


def test_every_option_of_run_reaches_the_specification(
    acgate_main: Main, engine: Engine, tmp_path: Path
) -> None:
    """What was asked is what is run."""
    (tmp_path / "p.toml").write_text("[block]\ncoverage = 'last-1'\n")
    arguments = (
        "run --model m.py:Tiny --tracks none,block --topologies single --dtypes float64,bfloat16.pure --steps 4"
        " --micro-steps 5 --select *float64* --select *pure* --tolerances tol --policy p.toml --out o"
        " --junit-xml j.xml --json v.json --resume --as-shipped --in-process"
    )
    assert acgate_main(*arguments.split()) == 0
    ((_, spec, rest),) = engine.calls
    assert spec is not None
    assert (spec.model, spec.tracks, spec.topologies) == ("m.py:Tiny", ("none", "block"), ("single",))
    assert (spec.dtypes, spec.steps, spec.micro_steps) == (("float64", "bfloat16.pure"), 4, 5)
    assert (spec.select, spec.tolerances, spec.as_shipped) == (("*float64*", "*pure*"), "tol", True)
    assert spec.policy.block.coverage == "last-1"
    assert rest == {"out": Path("o"), "resume": True, "in_process": True}
    assert json.loads(Path("v.json").read_text())["exit_code"] == 0
    for path in ("j.xml", "o/junit.xml"):
        assert ET.parse(path).getroot().get("tests") == "1"


def test_the_configuration_says_what_arguments_leave_open(
    acgate_main: Main, engine: Engine, tmp_path: Path
) -> None:
    """Flags that are not given override nothing."""
    (tmp_path / "acgate.toml").write_text(
        "as_shipped = true\nselect = ['*32*']\nout = 'o'\njunitxml = 'j.xml'\n"
    )
    assert acgate_main("run") == 0
    ((_, spec, rest),) = engine.calls
    assert spec is not None
    assert (spec.as_shipped, spec.select, rest["out"]) == (True, ("*32*",), Path("o"))
    assert (tmp_path / "j.xml").exists()


def test_explaining_is_asked_for_by_option_or_configuration(
    acgate_main: Main, engine: Engine, tmp_path: Path
) -> None:
    """The option cannot take back what the configuration says."""
    assert acgate_main("run", "--explain") == 0
    assert acgate_main("run") == 0
    (tmp_path / "acgate.toml").write_text("explain = true\n")
    assert acgate_main("run") == 0
    assert [spec.explain for _, spec, _ in engine.calls] == [True, False, True]


def test_options_of_several_ranks_reach_the_specification(acgate_main: Main, engine: Engine) -> None:
    """Topologies, ranks and the blocks of the reference are what was asked."""
    arguments = "run --topologies ddp,fsdp+tp --world-size 4 --reference-layers 3 --dtypes float32"
    assert acgate_main(*arguments.split()) == 0
    ((_, spec, rest),) = engine.calls
    assert spec is not None
    assert (spec.topologies, spec.world_size, spec.reference_layers) == (("ddp", "fsdp+tp"), 4, 3)
    assert rest["in_process"] is False


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.PASS, ExitCode.PASS),
        (Outcome.WARN, ExitCode.PASS),
        (Outcome.FAIL, ExitCode.FAIL),
        (Outcome.ERROR, ExitCode.INCOMPLETE),
        (Outcome.SKIPPED, ExitCode.NOTHING),
    ],
)
def test_the_exit_code_is_that_of_the_verdict(
    acgate_main: Main, engine: Engine, outcome: Outcome, code: ExitCode
) -> None:
    """The gate is this number."""
    engine.outcome, engine.exit_code = outcome, code
    assert acgate_main("run", "-q") == code.value


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TargetError("no build_model"), 4),
        (NothingToDoError("no batch"), 5),
        (WorkerDiedError("killed"), 7),
        (EvidenceError("damaged"), 7),
        (KeyboardInterrupt(), 2),
        (SystemExit(0), 3),
        (ZeroDivisionError("a bug"), 3),
        (MemoryError(), 3),
    ],
)
def test_whatever_is_raised_becomes_a_documented_exit_code(
    acgate_main: Main,
    engine: Engine,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: BaseException,
    code: int,
) -> None:
    """Never 0, always with a message and a JUnit report; a traceback only for what is a bug."""
    engine.raises = error
    assert acgate_main("run", "--junitxml", "j.xml") == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "acgate: " in captured.err
    assert ("Traceback" in captured.err) == (code == 3)
    assert len(errors_in(tmp_path / "j.xml")) == len(errors_in(tmp_path / "acgate-out" / "junit.xml")) == 1


def test_verbose_adds_the_traceback(
    acgate_main: Main, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """For those who debug their target."""
    engine.raises = TargetError("no build_model")
    assert acgate_main("run", "-v") == 4
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert error.splitlines()[-1] == "acgate: no build_model"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "Missing command"),
        ("rnu", "Did you mean 'run'?"),
        ("run --stpes 3", "--steps"),
        ("run --steps x", "--steps"),
        ("run --steps 0", "--steps: must be 1 or more, got 0"),
        ("run extra", "extra"),
        ("run --dtypes float32,,float64", "has an empty entry"),
        ("run --dtypes float23", 'did you mean "float32"?'),
        ("run --tracks block", 'the reference track "none" is missing'),
        ("run --topologies ddp2", 'did you mean "ddp"?'),
        ("run --topologies ddp --world-size 0", "--world-size: must be 1 or more, got 0"),
        ("run --topologies ddp --world-size two", "--world-size"),
        ("run --world-size 2", "--world-size: has no effect where the only topology is single"),
        ("run --in-process --topologies single,ddp", "--in-process runs one rank, and ddp needs several"),
        ("plan --in-process --topologies fsdp", "leave it out, or use --topologies single"),
        ("run --policy=", "--policy: is empty"),
        ("init ''", "the name of the directory is empty"),
        ("run --policy none.toml", "there is no such file"),
        ("run --config none.toml", "there is no such file"),
        ("run --junitxml", "requires an argument"),
        ("run -q -v", "exclude each other"),
        ("judge", "Missing argument"),
        ("plan --out x", "--out"),
        ("plan -q --select *flaot32", 'did you mean "*float32*"?'),
    ],
)
def test_wrong_arguments_are_exit_4_with_a_message_and_no_work(
    acgate_main: Main, engine: Engine, capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    """The parser's own exit code (2) would read as an interrupt."""
    assert acgate_main(*shlex.split(arguments)) == 4
    assert message in capsys.readouterr().err
    assert engine.calls == []


@pytest.mark.parametrize(
    "arguments",
    ["--stpes 3", "--steps 0", "--config none.toml", "--dtypes ,", "--select nothing*", "-q -v"],
)
def test_a_run_that_fails_early_replaces_stale_reports(
    acgate_main: Main, engine: Engine, tmp_path: Path, arguments: str
) -> None:
    """Wherever it fails, and whichever way the file was named."""
    engine.raises = TargetError("not reached in most cases")
    (tmp_path / "acgate-out").mkdir()
    for path in (tmp_path / "j.xml", tmp_path / "acgate-out" / "junit.xml"):
        path.write_text("<testsuites/>")
    (tmp_path / "v.json").write_text("{}")
    assert acgate_main("run", "--junitxml=j.xml", "--json", "v.json", *arguments.split()) == 4
    for path in (tmp_path / "j.xml", tmp_path / "acgate-out" / "junit.xml"):
        assert len(errors_in(path)) == 1
    assert not (tmp_path / "v.json").exists()


def test_reports_named_in_a_configuration_with_mistakes_are_replaced_too(
    acgate_main: Main, engine: Engine, tmp_path: Path
) -> None:
    """The mistake may be in the very file that names the report."""
    (tmp_path / "acgate.toml").write_text("stpes = 3\njunitxml = 'j.xml'\n")
    (tmp_path / "j.xml").write_text("<testsuites/>")
    assert acgate_main("run") == 4
    assert "stpes" in errors_in(tmp_path / "j.xml")[0]
    assert engine.calls == []


def test_a_bad_command_line_does_not_make_a_run_directory(acgate_main: Main, tmp_path: Path) -> None:
    """Only reports that are there, or were asked for, are written."""
    assert acgate_main("run", "--stpes", "3") == 4
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_written_is_exit_4_before_any_work(
    acgate_main: Main, engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not after hours."""
    (tmp_path / "file").touch()
    assert acgate_main("run", "--out", "file") == 4
    assert acgate_main("run", "--out", "file/x") == 4
    assert acgate_main("run", "--junitxml", "file/x/j.xml") == 4
    assert engine.calls == []
    assert "is a file; --out needs a directory" in capsys.readouterr().err


def test_judge_gives_the_stored_run_and_the_tolerances(
    acgate_main: Main, engine: Engine, tmp_path: Path
) -> None:
    """Reports go only where they were asked for: the run's own stay as they were."""
    (tmp_path / "old").mkdir()
    engine.outcome, engine.exit_code = Outcome.FAIL, ExitCode.FAIL
    assert acgate_main("judge", "old", "--tolerances", "t", "--junitxml", "j.xml") == 1
    assert engine.calls == [("judge", None, {"run_dir": Path("old"), "tolerances": Path("t")})]
    assert list((tmp_path / "old").iterdir()) == []
    assert ET.parse(tmp_path / "j.xml").getroot().get("failures") == "1"


def test_plan_shows_the_plan_and_leaves_nothing_behind(
    acgate_main: Main, engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its survey lies in a directory of its own that goes away."""
    assert acgate_main("plan", "--steps", "2") == 0
    output = capsys.readouterr().out
    assert "single-bfloat16" in output
    assert "steps = 2  (--steps)" in output
    ((_, _, rest),) = engine.calls
    assert not Path(str(rest["out"])).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_quiet_plan_needs_no_engine(
    acgate_main: Main, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """The identifiers of cells are known without looking at the model."""
    assert acgate_main("plan", "-q") == 0
    assert capsys.readouterr().out == "single-float32\nsingle-bfloat16\n"
    assert engine.calls == []


@pytest.mark.parametrize("arguments", ["--help", "-h", "run --help", "plan -h", "judge --help"])
def test_help_is_exit_0(acgate_main: Main, capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    """And goes to stdout."""
    assert acgate_main(*arguments.split()) == 0
    assert "Usage: acgate" in capsys.readouterr().out
