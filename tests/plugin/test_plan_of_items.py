"""How items come from a plan: asked once, kept while nothing changes, and what where it fails."""

from __future__ import annotations

import hashlib
import json
import os

import pytest
from stub_verdicts import CAUSE, CELL, CHECKS, GREEN, OTHER_CELL, answer, case, plan, track

from acgate.report.file_digest import file_digest
from acgate.vocabulary import Outcome

pytest_plugins = ["pytester"]

LISTING = ("--collect-only", "-q")


def kept_plan(project, **rest) -> dict:
    source = project.path / "model.py"
    return plan(sources={str(source): hashlib.sha256(source.read_bytes()).hexdigest()}, **rest)


def test_a_plan_is_kept_while_nothing_changes(project):
    """A second session asks for no survey; each of what a plan depends on makes it ask again."""
    project.answers(kept_plan(project), {})
    for changes, asked in [
        (lambda: None, 1),
        (lambda: None, 1),
        (lambda: (project.path / "model.py").write_text("other = 1\n"), 2),
        (lambda: project.toml('model = "model.py"\nsteps = 4\n'), 3),
        (lambda: (project.path / "pytest.ini").write_text("[pytest]\nacgate_micro_steps = 5\n"), 4),
    ]:
        changes()
        project.answers(kept_plan(project), {})
        assert project.pytest(*LISTING).code == 0
        assert len(project.calls("plan")) == asked
    assert project.pytest(*LISTING).code == 0
    assert len(project.calls("plan")) == 4
    assert project.pytest(*LISTING, "--cache-clear").code == 0
    assert len(project.calls("plan")) == 5


def test_without_a_cache_nothing_is_kept(project):
    """`-p no:cacheprovider` asks each time, and works."""
    project.answers(kept_plan(project), {CELL: GREEN})
    for _ in range(2):
        assert project.pytest("-p", "no:cacheprovider").code == 0
    assert len(project.calls("plan")) == 2
    assert not (project.path / ".pytest_cache").exists()


def test_a_plan_that_names_no_files_is_not_kept(project):
    """Where nobody knows what a survey depends on, it is made again."""
    project.answers(plan(), {})
    for _ in range(2):
        project.pytest(*LISTING)
    assert len(project.calls("plan")) == 2


@pytest.mark.parametrize("lacks", ["document", "sources", "cells", "dropped"])
def test_a_plan_that_was_kept_in_another_way_is_made_anew(project, lacks):
    """What another version of acgate has left in the cache is no obstacle."""
    project.answers(kept_plan(project), {})
    assert project.pytest(*LISTING).code == 0
    (kept,) = (project.path / ".pytest_cache/v/acgate/plan").iterdir()
    content = json.loads(kept.read_text())
    content.pop(lacks, None)
    content.get("document", {}).pop(lacks, None)
    kept.write_text(json.dumps(content))
    assert project.pytest(*LISTING).code == 0
    assert len(project.calls("plan")) == 2


def test_where_the_survey_fails_each_track_has_one_item(project):
    """Cells and tracks come from the configuration; the items run, and acgate says what is wrong."""
    project.toml('model = "model.py"\ndtypes = ["float32"]\ntopologies = ["single", "ddp"]\n')
    project.answers({"code": 4, "says": "acgate: model.py: has no build_model"}, {})
    assert project.pytest(*LISTING).out.splitlines()[:5] == [
        "acgate.toml::single-float32::block::gradient",
        "acgate.toml::single-float32::selective::gradient",
        "acgate.toml::ddp-float32::none::gradient",
        "acgate.toml::ddp-float32::block::gradient",
        "acgate.toml::ddp-float32::selective::gradient",
    ]
    refusal = {"code": 4, "says": "acgate: model.py: has no build_model"}
    project.answers(refusal, {CELL: refusal, "ddp-float32": refusal})
    session = project.pytest()
    assert session.code == 1
    assert set(session.outcomes().values()) == {"error"}
    assert session.items[f"{CELL}.block.gradient"].text.startswith("model.py: has no build_model")
    assert "the survey failed, so each track has one item: model.py: has no build_model" in session.out


@pytest.mark.parametrize("check", ["gradient[layers.1]", "loss", "wiring"])
def test_the_one_item_of_a_track_stands_for_all_of_its_checks(project, check):
    """Where the checks are not known, whatever is red in a track turns its one item red."""
    cases = (*map(case, CHECKS), case("wiring"))
    red = tuple(case(one.name, Outcome.FAIL) if one.name == check else one for one in cases)
    project.toml('model = "model.py"\ndtypes = ["float32"]\n')
    judged = answer(track("block", *red, causes=(CAUSE,)), track("selective", *cases))
    project.answers({"code": 7}, {CELL: judged})
    session = project.pytest()
    assert session.outcomes() == {f"{CELL}.block.gradient": "failed", f"{CELL}.selective.gradient": "passed"}
    assert f"the whole message of {check}" in session.items[f"{CELL}.block.gradient"].text


def test_a_wrong_configuration_is_an_error_of_collection(project):
    """Its message is acgate's own, with the options of pytest."""
    project.toml("stepz = 3\n")
    project.answers({"code": 4, "says": "acgate: no"}, {})
    session = project.pytest()
    assert session.code == 2
    assert "\nacgate.toml: stepz: unknown key" in session.out
    assert "Traceback" not in session.out
    project.toml("")
    session = project.pytest("--acgate-select=fsdp-*")
    assert session.code == 2
    assert '--acgate-select "fsdp-*" matches no cell' in session.out


def test_options_reach_acgate(project):
    """Each option becomes an argument; paths are those of the folder where pytest was started."""
    (project.path / "limits").mkdir()
    project.answers(plan(), {CELL: GREEN})
    given = {
        "model": "model.py",
        "tracks": "none,block",
        "topologies": "single,ddp",
        "world-size": "4",
        "reference-layers": "2",
        "dtypes": "float32",
        "steps": "5",
        "micro-steps": "3",
        "policy": "policy.toml",
    }
    flags = [f"--acgate-{name}={value}" for name, value in given.items()]
    extra = ["--acgate-as-shipped", "--acgate-explain", "--acgate-tolerances=limits", "--acgate-out=results"]
    session = project.pytest(*flags, *extra, "--acgate-select=single-*", "--acgate-select=ddp-*")
    assert session.code == 0, session.out
    (asked,), (run,) = (project.calls(command) for command in ("plan", "run"))
    here = project.path
    paths = {"model": here / "model.py", "policy": here / "policy.toml"}
    expected = [f"--{name}={paths.get(name, value)}" for name, value in given.items()]
    expected += ["--select=single-*", "--select=ddp-*", "--as-shipped", f"--config={here / 'acgate.toml'}"]
    assert set(asked["arguments"]) == {"plan", "-q", *expected} | {
        one for one in asked["arguments"] if "--json" in one
    }
    more = ["--explain", f"--tolerances={here / 'limits'}", f"--out={here / 'results' / CELL}"]
    assert set(run["arguments"]) >= {*expected[:-4], *more, f"--select={CELL}"}
    assert not {"--select=single-*", "--select=ddp-*"} & set(run["arguments"])


def test_each_option_has_its_twin_in_the_ini_file(project):
    """What stands in the ini file is as good as the option; paths are those of its folder."""
    (project.path / "pytest.ini").write_text(
        "[pytest]\nacgate_steps = 5\nacgate_explain = true\nacgate_policy = policy.toml\n"
        "acgate_select = single-* ddp-*\nacgate_out = results\nacgate_tracks = none, block\n"
    )
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest("--acgate-steps=7")
    assert session.code == 0, session.out
    (asked,), (run,) = (project.calls(command) for command in ("plan", "run"))
    wanted = {"--steps=7", "--tracks=none,block", f"--policy={project.path / 'policy.toml'}"}
    assert set(asked["arguments"]) >= {*wanted, "--select=single-*", "--select=ddp-*"}
    assert set(run["arguments"]) >= {*wanted, "--explain", f"--out={project.path / 'results' / CELL}"}


def test_lists_of_a_toml_file_are_taken(project):
    """In pyproject.toml a list may be written as one, and a number without quotation marks."""
    project.toml(
        '[tool.pytest.ini_options]\nacgate_tracks = ["none", "block"]\nacgate_steps = 5\n', "pyproject.toml"
    )
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest("-W", "ignore")
    assert session.code == 0, session.out
    assert {"--tracks=none,block", "--steps=5"} <= set(project.calls("run")[0]["arguments"])


@pytest.mark.parametrize(
    "line",
    [
        "acgate_steps = many",
        "acgate_required = 'single-*",
        "acgate_explain = maybe",
        "acgate_tracks = none,,block",
    ],
)
def test_a_line_of_the_ini_file_that_says_nothing_is_refused_by_name(project, line):
    """The message names the line."""
    (project.path / "pytest.ini").write_text(f"[pytest]\n{line}\n")
    project.answers(plan(), {CELL: GREEN})
    session = project.pytest()
    assert session.code == 4
    assert f"ERROR: {line.split()[0]}: " in session.out


def test_results_lie_where_the_configuration_says(project):
    """`out` of acgate.toml holds; two projects never share a directory that an option names."""
    project.toml('out = "elsewhere"\n')
    project.toml("", "deeper/acgate.toml")
    project.answers(plan(), {CELL: GREEN})
    project.answers(plan(), {CELL: GREEN}, "deeper")
    assert project.pytest().code == 0
    assert (project.path / "elsewhere/pytest/.sessions").is_dir()
    assert (project.path / "deeper/acgate-out/pytest/.sessions").is_dir()
    assert project.pytest("--acgate-out=results").code == 0
    outs = {
        one
        for where in (".", "deeper")
        for call in project.calls("run", where)
        for one in call["arguments"]
        if one.startswith("--out=")
    }
    assert {f"--out={project.path}/results/{CELL}", f"--out={project.path}/results/deeper/{CELL}"} <= outs


def test_what_acgate_leaves_out_is_said(project):
    """Cells that the plan drops stand in the summary with their reason."""
    project.answers(plan(dropped={OTHER_CELL: "no second device"}), {CELL: GREEN})
    assert f"not run: acgate.toml::{OTHER_CELL}: no second device" in project.pytest().out


def test_modules_of_the_project_are_found(project):
    """What `pythonpath` adds to the path of pytest, acgate has as well."""
    (project.path / "src").mkdir()
    (project.path / "pytest.ini").write_text("[pytest]\npythonpath = src\n")
    project.answers(plan(), {CELL: GREEN})
    assert project.pytest().code == 0
    assert project.calls("run")[0]["pythonpath"].split(":")[0] == str(project.path / "src")


def test_relative_entries_of_the_path_mean_what_they_mean_to_pytest(project, monkeypatch):
    """acgate runs in the folder of its configuration; PYTHONPATH is relative to where pytest was started."""
    project.toml('model = "model.py"\n', "below/acgate.toml")
    project.answers(plan(), {CELL: GREEN}, "below")
    monkeypatch.setenv("PYTHONPATH", f"lib{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert project.pytest("below").code == 0
    assert project.calls("run", "below")[0]["pythonpath"].split(os.pathsep)[0] == str(project.path / "lib")


def test_large_weights_are_known_by_their_header(project, monkeypatch):
    """A plan is kept by the digests that acgate itself made of its files."""
    monkeypatch.setattr("acgate.report.file_digest.WHOLE", 4)
    weights = project.path / "model.safetensors"
    weights.write_bytes(bytes(64))
    for _ in range(2):
        project.answers(plan(sources={str(weights): file_digest(weights)}), {})
        assert project.pytest(*LISTING).code == 0
    assert len(project.calls("plan")) == 1


def test_another_configuration_is_named_on_the_command_line(project):
    """`acgate-gpu.toml` is collected where it is given, with results beside those of `acgate.toml`."""
    project.toml("", "acgate-gpu.toml")
    project.answers(plan(), {CELL: GREEN})
    assert len(project.pytest().items) == 2 * len(CHECKS)
    session = project.pytest("acgate.toml", "acgate-gpu.toml")
    assert session.code == 0, session.out
    assert f"pass  acgate-gpu.toml::{CELL}" in session.out
    outs = {one for call in project.calls("run") for one in call["arguments"] if one.startswith("--out=")}
    here = project.path / "acgate-out/pytest"
    assert outs == {f"--out={here / CELL}", f"--out={here / 'acgate-gpu' / CELL}"}
