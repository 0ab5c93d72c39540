"""The workflow that `acgate init --github` writes, read back as GitHub reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from sample_projects import WORDS

from acgate.scaffold import describe, write_project
from acgate.spec.document import read_toml
from acgate.spec.loading import load_spec
from acgate.spec.resources import data_directory

WORKFLOW = ".github/workflows/acgate.yml"
TARGET = "import torch\ndef build_model(): ...\ndef batches(bucket): ...\n"


def written(root: Path, place: Path | None = None) -> dict[str, Any]:
    """Write everything and return the workflow; `on` is the key True, as YAML 1.1 has it."""
    write_project(root, model=None, github=True)
    workflow: dict[str, Any] = yaml.safe_load(((place or root) / WORKFLOW).read_text())
    return workflow


def gate_inputs(workflow: dict[str, Any], job: str) -> dict[str, str]:
    """Return what a job gives to the action."""
    (step,) = [s for s in workflow["jobs"][job]["steps"] if s.get("uses") == "./.github/actions/acgate"]
    inputs: dict[str, str] = step["with"]
    return inputs


def test_a_project_gets_workflow_action_and_settings(make_project):
    """The one required job, the action that it uses, and the settings of the GPU job are all there."""
    root = make_project({"model.py": WORDS})
    workflow = written(root)
    assert set(workflow["jobs"]) == {"cpu", "gpu", "acgate"}
    assert workflow["jobs"]["acgate"]["if"] == "always()"
    assert workflow[True]["push"] == {"branches": ["main"]}
    action = Path(".github/actions/acgate/action.yml")
    assert (root / action).read_text() == (data_directory("github") / "actions/acgate/action.yml").read_text()
    assert gate_inputs(workflow, "gpu")["config"] == "acgate-gpu.toml"
    spec = load_spec({}, root / "acgate-gpu.toml", root).spec
    assert (spec.device, spec.model) == ("cuda", "acgate_target.py")


@pytest.mark.parametrize("github", [True, False])
def test_how_to_require_the_check_is_told_with_the_workflow(make_project, github):
    """A workflow blocks nothing before somebody makes its check a required one."""
    root = make_project({"model.py": WORDS})
    told = describe(write_project(root, model=None, github=github))
    assert ("require its check acgate" in told) is github


def test_what_the_template_says_but_for_the_values_is_kept(make_project):
    """Pins, permissions and the comparison of every result are those of the template."""
    workflow = written(make_project({"model.py": WORDS}))
    template = yaml.safe_load((data_directory("github") / "workflow-template.yml").read_text())
    assert workflow == template


def test_what_the_project_needs_is_installed(make_project):
    """Requirements and the project itself are installed before the gate, one argument of pip in a line."""
    root = make_project({"model.py": WORDS, "requirements.txt": "", "pyproject.toml": "[project]\n"})
    workflow = written(root)
    for job in ("cpu", "gpu"):
        assert gate_inputs(workflow, job)["requirements"].split() == [
            "--requirement=requirements.txt",
            "--editable=.",
        ]


def test_a_hugging_face_model_needs_transformers(make_project):
    """A model directory brings no requirements of its own; what reads it is installed."""
    workflow = written(make_project({"tiny/config.json": '{"model_type": "bert"}'}))
    assert gate_inputs(workflow, "cpu")["requirements"].split() == ["transformers"]


def test_topologies_of_the_settings_are_not_overridden(make_project):
    """Settings that choose topologies are taken as they are, and the GPU job has them, too."""
    text = (
        '# mine\nmodel = "t.py"\ndevice = "cpu"\ntopologies = ["single", "ddp"]\n[deadlines]\nbuild = 9.0\n'
    )
    root = make_project({"acgate.toml": text, "t.py": TARGET})
    assert "arguments" not in gate_inputs(written(root), "cpu")
    table = read_toml(root / "acgate-gpu.toml")
    assert table == {**read_toml(root / "acgate.toml"), "device": "cuda"}


def test_settings_without_a_model_get_it_for_the_gpu(make_project):
    """A model that only `acgate init` found is named in the settings of the GPU job, above all tables."""
    root = make_project({"acgate.toml": "steps = 4\n[deadlines]\nbuild = 9.0\n", "t.py": TARGET})
    written(root)
    assert read_toml(root / "acgate-gpu.toml") == {
        "device": "cuda",
        "model": "t.py",
        "steps": 4,
        "deadlines": {"build": 9.0},
    }


def test_settings_of_pyproject_are_said_again_for_the_gpu(make_project):
    """[tool.acgate] cannot be read twice with two devices, so the GPU job gets a file of its own."""
    root = make_project({"pyproject.toml": '[tool.acgate]\nmodel = "t.py"\n', "t.py": TARGET})
    written(root)
    assert read_toml(root / "acgate-gpu.toml") == {"device": "cuda", "model": "t.py"}


@pytest.mark.parametrize(("head", "branch"), [("topic", "main"), ("master", "master")])
def test_the_branch_is_not_the_one_that_somebody_works_on(make_project, head, branch):
    """Without a remote the usual branch is taken, unless the old name of it is checked out."""
    root = make_project({".git/HEAD": f"ref: refs/heads/{head}\n", "model.py": WORDS})
    assert written(root)[True]["push"] == {"branches": [branch]}


def test_a_project_inside_a_repository(make_project):
    """GitHub reads workflows at the root of the repository; the gate then runs in the project's folder."""
    root = make_project({".git/HEAD": "ref: refs/heads/topic\n", "parts/shop/model.py": WORDS})
    (root / ".git/refs/remotes/origin").mkdir(parents=True)
    (root / ".git/refs/remotes/origin/HEAD").write_text("ref: refs/remotes/origin/trunk\n")
    workflow = written(root / "parts/shop", root)
    assert workflow[True]["push"] == {"branches": ["trunk"]}
    for job in ("cpu", "gpu"):
        assert gate_inputs(workflow, job)["working-directory"] == "parts/shop"
    assert not (root / "parts/shop/.github").exists()
    assert (root / "parts/shop/acgate-gpu.toml").is_file()
