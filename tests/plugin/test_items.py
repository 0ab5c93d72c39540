"""Cells of the gate as items of pytest: what is collected, run, and told."""

from __future__ import annotations

import pytest
from stub_verdicts import CAUSE, CELL, CHECKS, GREEN, OTHER_CELL, answer, bad, case, good, plan, track

from acgate.judge.cause_text import with_causes
from acgate.vocabulary import Outcome

pytest_plugins = ["pytester"]


def test_a_cell_is_run_once_and_every_check_is_an_item(project):
    """One run of acgate serves all items of a cell, of all of its tracks."""
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest()
    assert session.code == 0, session.out
    names = {f"{CELL}.{track}.{check}" for track in ("block", "selective") for check in CHECKS}
    assert session.outcomes() == dict.fromkeys(names, "passed")
    assert len(project.calls("plan")) == 1
    (run,) = project.calls("run")
    assert f"--select={CELL}" in run["arguments"]
    assert any(
        argument.startswith("--out=") and argument.endswith(f"acgate-out/pytest/{CELL}")
        for argument in run["arguments"]
    )


def test_every_check_can_be_listed_and_selected(project):
    """`--collect-only` lists node ids and runs nothing; `-k`, `-m` and node ids select."""
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest("--collect-only", "-q")
    assert session.code == 0
    assert f"acgate.toml::{CELL}::selective::gradient[layers.1]" in session.out.splitlines()
    assert not project.calls("run")
    assert set(project.pytest("-k", "selective and layers.1").items) == {
        f"{CELL}.selective.gradient[layers.1]"
    }
    assert len(project.pytest("-m", "acgate").items) == 2 * len(CHECKS)
    assert len(project.pytest(f"acgate.toml::{CELL}::block").items) == len(CHECKS)
    one = f"acgate.toml::{CELL}::block::gradient[layers.0]"
    assert set(project.pytest(one).items) == {f"{CELL}.block.gradient[layers.0]"}


def test_outcomes_stay_apart(project):
    """Failed is a failure, not checked is an error, skipped and warned say why."""
    cases = (
        case("structure", Outcome.FAIL),
        case("loss", Outcome.ERROR),
        case("gradient[layers.0]", Outcome.SKIPPED),
        case("gradient[layers.1]", Outcome.WARN),
        case("resources"),
    )
    project.answers(plan(tracks=["block"]), {CELL: answer(track("block", *cases))})
    session = project.pytest("-rs")
    assert session.code == 1
    found = {name.removeprefix(f"{CELL}.block."): item for name, item in session.items.items()}
    assert {name: item.outcome for name, item in found.items()} == {
        "structure": "failed",
        "loss": "error",
        "gradient[layers.0]": "skipped",
        "gradient[layers.1]": "passed",
        "resources": "passed",
    }
    assert found["structure"].message == "structure is fail"
    assert found["structure"].text.splitlines()[:2] == ["structure is fail", "the whole message of structure"]
    assert found["loss"].message.endswith('"loss is error"')
    assert found["gradient[layers.0]"].message == "gradient[layers.0] is skipped"
    assert found["gradient[layers.1]"].properties["acgate.note"] == "gradient[layers.1] is warn"
    assert f"warn  acgate.toml::{CELL}::block::gradient[layers.1]: gradient[layers.1] is warn" in session.out
    assert "acgate.toml:1: gradient[layers.0] is skipped" in session.out


def test_a_red_item_speaks_as_acgate_does(project):
    """A failure shows headline, text and where the evidence lies, and no line of Python."""
    project.answers(plan(), {CELL: answer(bad("block", "gradient[layers.1]"), good("selective"))})
    session = project.pytest()
    assert session.code == 1
    assert "the whole message of gradient[layers.1]" in session.out
    assert f"evidence: acgate-out/pytest/{CELL}" in session.out
    assert (
        f"FAILED acgate.toml::{CELL}::block::gradient[layers.1] - gradient[layers.1] is fail" in session.out
    )
    assert "Traceback" not in session.out
    assert ".py:" not in session.out
    assert f"FAIL  acgate.toml::{CELL}" in session.out
    assert "  block: cause: " in session.out


def test_what_is_wrong_with_a_cell_is_said_at_length_once(project):
    """The last words of acgate stand at one item, also where that is run again; the others refer to it."""
    words = "\n".join(f"word {number}" for number in range(12))
    project.answers(plan(), {CELL: {"code": 0, "says": words, "kills_itself": True}})
    session = project.pytest("-p", "pytest_rerunfailures", "--reruns=1")
    assert session.code == 1
    assert session.out.splitlines().count("word 11") == 1
    texts = [item.text for item in session.items.values()]
    assert "word 11\n" in texts[0]
    assert len(texts) == 2 * len(CHECKS)
    assert (
        session.items[f"{CELL}.block.loss"].message == 'failed on setup with "acgate was killed by SIGKILL"'
    )
    for text in texts[1:]:
        assert text.startswith("acgate was killed by SIGKILL")
        assert text.endswith("(said in full at block::structure)")


def test_the_evidence_of_a_cause_is_told_at_length_once(project):
    """Of many red items the first tells it, also where it is run again; all say what, why and what to try."""
    cause = CAUSE.model_copy(update={"evidence": ("one fact", "another fact")})
    told = with_causes(case("loss", Outcome.FAIL), (cause,))
    others = [with_causes(case(f"gradient[layers.{n}]", Outcome.FAIL), (cause,)) for n in range(2)]
    judged = track("block", case("structure"), told, *others, case("resources"), causes=(cause,))
    project.answers(plan(tracks=["block"]), {CELL: answer(judged)})
    session = project.pytest("-p", "pytest_rerunfailures", "--reruns=1")
    assert session.items[f"{CELL}.block.loss"].text.startswith(told.text)
    assert session.out.count("another fact") == 1
    for one in others:
        assert session.items[f"{CELL}.block.{one.name}"].text.startswith(
            f"{one.headline}\ncause: rng-not-restored in region layers.1\n"
            "  the replay draws other numbers\n  one fact\n  (more evidence at block::loss)\n"
            f"the whole message of {one.name}\ntry: preserve_rng_state=True\n"
        )


def test_the_command_of_a_message_can_be_copied(project):
    """A folder with a blank in its name is quoted for the shell."""
    project.toml('model = "model.py"\n', "my models/acgate.toml")
    project.answers(plan(), {CELL: answer(bad("block", "loss"), good("selective"))}, "my models")
    out = project.pytest("my models").out
    assert f"(python -m acgate judge 'my models/acgate-out/pytest/{CELL}' -v says everything)" in out


@pytest.mark.parametrize("family", ["xunit1", "xunit2"])
def test_figures_go_into_both_dialects(project, family):
    """How much was compared, the worst difference, its limit, times and memory are properties."""
    project.answers(plan(), {CELL: answer(bad("block", "gradient[layers.1]"), good("selective"))})
    session = project.pytest("-o", f"junit_family={family}")
    red = session.items[f"{CELL}.block.gradient[layers.1]"].properties
    assert red["acgate.outcome"] == "fail"
    assert red["acgate.compared"] == "7"
    assert (red["acgate.rel_err"], red["acgate.max_abs_err"]) == ("0.125", "0.25")
    assert (red["acgate.cosine"], red["acgate.limit"]) == ("0.9375", "0.001")
    assert red["acgate.tensor"] == "gradient layers.1.up.weight step 2"
    assert red["acgate.cause"].startswith("cause: ")
    costs = session.items[f"{CELL}.block.resources"].properties
    assert (costs["acgate.peak_bytes"], costs["acgate.held_bytes"]) == ("4096", "1024")
    assert "acgate.rel_err" not in session.items[f"{CELL}.block.loss"].properties


def test_two_cells_are_two_runs(project):
    """Each cell has a run and a directory of its own."""
    project.answers(
        plan((CELL, OTHER_CELL)),
        {CELL: GREEN, OTHER_CELL: answer(good("block"), good("selective"), cell=OTHER_CELL)},
    )
    session = project.pytest()
    assert session.code == 0, session.out
    assert len(session.items) == 4 * len(CHECKS)
    assert len(project.calls("run")) == 2


def test_names_of_a_model_cannot_disturb_a_report(project):
    """Control characters in the names of layers are written out, and the items still find their cases."""
    hostile = "gradient[a\x1b[31m\n::b]"
    checks = ("structure", hostile)
    project.answers(plan(tracks=["block"], checks=checks), {CELL: answer(track("block", *map(case, checks)))})
    session = project.pytest("-v")
    assert session.code == 0, session.out
    assert "\\x1b[31m\\n::b]" in session.out
    assert "\x1b[31m\n" not in session.out


def test_pyproject_configures_as_well(project):
    """A table [tool.acgate] makes items of a pyproject.toml; one without it makes none."""
    (project.path / "acgate.toml").unlink()
    project.toml("[tool.other]\nacgate = 1\n", "pyproject.toml")
    assert project.pytest().code == 5
    project.toml('[tool.acgate]\nmodel = "model.py"\n', "pyproject.toml")
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest()
    assert session.code == 0, session.out
    assert len(session.items) == 2 * len(CHECKS)


def test_two_configurations_in_one_folder_are_an_error(project):
    """Neither of two configurations is quietly preferred."""
    project.toml("[tool.acgate]\nsteps = 3\n", "pyproject.toml")
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest()
    assert session.code == 2
    assert "remove one of them" in session.out


def test_projects_lie_in_any_folder(project):
    """Every acgate.toml below the folder counts, with results beside it."""
    project.toml("", "deep/er/acgate.toml")
    project.answers(plan(), {CELL: GREEN})
    project.answers(plan(), {CELL: GREEN}, "deep/er")
    session = project.pytest()
    assert session.code == 0
    assert len(session.items) == 4 * len(CHECKS)
    assert (project.path / "deep/er/acgate-out/pytest/.gitignore").is_file()
    assert len(project.calls("run", "deep/er")) == 1


def test_hooks_name_the_target_and_see_the_verdict(project):
    """A conftest may name the model, and look at each verdict once."""
    (project.path / "conftest.py").write_text(
        "def pytest_acgate_target(config, path):\n"
        "    return 'model.py' if path.name == 'acgate.toml' else None\n"
        "def pytest_acgate_verdict(config, path, cell, verdict):\n"
        "    print('\\nSEEN', path.name, cell, verdict.outcome.value, verdict.cells[0].cell)\n"
    )
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest("-s")
    assert session.out.count(f"SEEN acgate.toml {CELL} pass {CELL}") == 1
    expected = f"--model={project.path / 'model.py'}"
    assert all(expected in call["arguments"] for call in project.calls())


@pytest.mark.parametrize(
    "answer", ["path.parent / 'model.py'", "'model.py'", "str(path.parent / 'model.py')"]
)
def test_a_hook_may_name_a_file_by_its_path(project, answer):
    """A path is as good as text."""
    (project.path / "conftest.py").write_text(f"def pytest_acgate_target(path): return {answer}\n")
    project.answers(plan(), {CELL: GREEN})
    assert project.pytest().code == 0
    assert all(f"--model={project.path / 'model.py'}" in call["arguments"] for call in project.calls())


@pytest.mark.parametrize("answer", ["3", "''", "lambda: 0"])
def test_a_hook_that_names_no_target_is_told(project, answer):
    """What a hook returned is shown, without a traceback."""
    (project.path / "conftest.py").write_text(f"def pytest_acgate_target(path): return {answer}\n")
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest()
    assert session.code == 2
    assert "acgate.toml: the hook pytest_acgate_target returned" in session.out
    assert ".py:" not in session.out
    assert not project.calls()


def test_the_header_names_acgate_only_where_it_is_used(project):
    """A project without acgate sees nothing of it."""
    project.answers(plan(), {CELL: GREEN})
    assert "\nacgate: 0." in project.pytest("--acgate-steps=4").out
    assert "steps=4" in project.pytest("--acgate-steps=4").out
    (project.path / "acgate.toml").unlink()
    (project.path / "test_own.py").write_text("def test_own(): pass")
    session = project.pytest()
    assert session.code == 0
    assert "acgate" not in session.out.replace(str(project.path), "")


@pytest.mark.parametrize("quiet", [False, True])
def test_a_long_run_says_what_it_does(project, monkeypatch, quiet):
    """A line tells what a run that takes long is doing, also while items are collected; none with `-q`."""
    monkeypatch.setenv("STUB_QUIET", "0.1")
    project.answers(
        plan(tracks=["block"]),
        {CELL: {**answer(good("block")), "sleeps": 0.5, "says": "[3/9] block"}},
        sleeps=0.5,
    )
    out = project.pytest(*(["-q"] if quiet else ["-v"])).out
    assert (f"\nacgate: acgate.toml::{CELL}: [3/9] block\n" in out) is not quiet
    assert ("\nacgate: acgate.toml: plan: [1]" in out) is not quiet
