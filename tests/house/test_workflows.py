from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
OWN = GITHUB / "workflows" / "acgate.yml"
TEMPLATE = GITHUB / "workflow-template.yml"
ACTION = GITHUB / "actions" / "acgate" / "action.yml"
TINY = ROOT / "fixtures" / "targets" / "tiny.py"
CHECK = "acgate"
RESULTS = ("success", "failure", "cancelled", "skipped", "")
# Contexts that an author of a pull request fills; in a script they would become commands.
STRANGE = re.compile(r"\$\{\{")
PINNED = re.compile(r"^[\w.-]+/[\w./-]+@[0-9a-f]{40}$")

workflows = pytest.mark.parametrize("path", [OWN, TEMPLATE], ids=["own", "template"])


def read(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def triggers(workflow: dict[Any, Any]) -> dict[str, Any]:
    found = workflow[True]  # `on` is true in YAML 1.1
    assert isinstance(found, dict)
    return found


def steps_of(path: Path) -> list[dict[str, Any]]:
    document = read(path)
    if "runs" in document:
        return list(document["runs"]["steps"])
    return [step for job in document["jobs"].values() for step in job["steps"]]


def aggregator(path: Path) -> dict[str, Any]:
    [found] = [job for name, job in read(path)["jobs"].items() if name == CHECK]
    assert isinstance(found, dict)
    return found


@workflows
def test_it_starts_for_pull_requests_merge_queues_and_main(path: Path) -> None:
    """A merge queue waits for ever for a check that does not answer `merge_group`."""
    on = triggers(read(path))
    assert set(on) == {"push", "pull_request", "merge_group"}
    assert on["push"] == {"branches": ["main"]}


@workflows
def test_nothing_keeps_it_from_starting(path: Path) -> None:
    """A path or branch filter would leave a required check waiting, and never red."""
    on = triggers(read(path))
    assert on["pull_request"] is None
    assert on["merge_group"] is None
    assert "paths" not in path.read_text(encoding="utf-8").replace("# No path filters", "")


@workflows
def test_it_has_the_least_permissions(path: Path) -> None:
    """Contents may be read; no job asks for more."""
    document = read(path)
    assert document["permissions"] == {"contents": "read"}
    for name, job in document["jobs"].items():
        assert job.get("permissions", {}) == {}, name
        assert job["timeout-minutes"] <= 60, name


@workflows
def test_only_pull_requests_cancel_what_runs(path: Path) -> None:
    """A run of main or of a merge queue comes to its end."""
    concurrency = read(path)["concurrency"]
    assert concurrency["cancel-in-progress"] == "${{ github.event_name == 'pull_request' }}"
    assert "github.ref" in concurrency["group"]


@workflows
def test_one_job_of_a_fixed_name_needs_every_other(path: Path) -> None:
    """A job that nobody adds to `needs` could fail unseen."""
    jobs = read(path)["jobs"]
    job = aggregator(path)
    assert job["name"] == CHECK
    assert "matrix" not in json.dumps(job)  # it would change the name of the check
    assert job["if"] == "always()"
    assert sorted(job["needs"]) == sorted(set(jobs) - {CHECK})
    assert "continue-on-error" not in path.read_text(encoding="utf-8")


@workflows
def test_every_needed_result_is_compared(path: Path) -> None:
    """Each of them, by name, and under its own name."""
    job = aggregator(path)
    [step] = job["steps"]
    lines = step["env"]["RESULTS"].split("\n")
    assert [line for line in lines if line] == [
        f"{name} ${{{{ needs.{name}.result }}}}" for name in job["needs"]
    ]


@workflows
def test_the_gpu_job_is_switched_by_a_variable_alone(path: Path) -> None:
    """And the check reads the same variable: no other reason to skip it counts."""
    jobs = read(path)["jobs"]
    assert jobs["gpu"]["if"] == "vars.ACGATE_GPU_RUNNER != ''"
    assert jobs["gpu"]["runs-on"] == "${{ vars.ACGATE_GPU_RUNNER }}"
    [step] = aggregator(path)["steps"]
    assert step["env"]["GPU_RUNNER"] == "${{ vars.ACGATE_GPU_RUNNER }}"
    assert step["env"]["GPU_REQUIRED"] == "false"
    assert all("if" not in job for name, job in jobs.items() if name not in {"gpu", CHECK})


def conclude(
    path: Path, results: dict[str, str], gpu_runner: str, tmp_path: Path, required: str = "false"
) -> subprocess.CompletedProcess[str]:
    """Run the script of the aggregator as the runner does, with these results."""
    [step] = aggregator(path)["steps"]
    told = re.sub(
        r"\$\{\{ needs\.(\w+)\.result \}\}", lambda match: results[match[1]], step["env"]["RESULTS"]
    )
    return bash(step["run"], {"RESULTS": told, "GPU_RUNNER": gpu_runner, "GPU_REQUIRED": required}, tmp_path)


def bash(script: str, env: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "script.sh"
    file.write_text(script, encoding="utf-8")
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(file)],
        env={**os.environ, **env},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@workflows
def test_the_check_is_green_only_where_everything_succeeded(path: Path, tmp_path: Path) -> None:
    """Every result of every job, alone among successes, switched on: only success passes."""
    names = aggregator(path)["needs"]
    for name, result in itertools.product(names, RESULTS):
        done = conclude(path, dict.fromkeys(names, "success") | {name: result}, "gpu-runner", tmp_path)
        assert done.returncode == (0 if result == "success" else 1), (name, result, done.stdout)
        if result != "success":
            assert f"::error title=acgate::{name}: {result or 'no result'}" in done.stdout


@workflows
def test_a_gpu_job_that_is_switched_off_may_be_skipped_and_nothing_else(path: Path, tmp_path: Path) -> None:
    """Switched off, only the GPU job may be skipped; a failure of it is a failure."""
    names = aggregator(path)["needs"]
    for name, result in itertools.product(names, RESULTS):
        done = conclude(
            path, dict.fromkeys(names, "success") | {"gpu": "skipped", name: result}, "", tmp_path
        )
        fine = result == "success" or (name, result) == ("gpu", "skipped")
        assert done.returncode == (0 if fine else 1), (name, result, done.stdout)


@workflows
@pytest.mark.parametrize("required", ["true", "", "yes"])
def test_a_gpu_that_is_required_may_never_be_skipped(path: Path, tmp_path: Path, required: str) -> None:
    """Also where the variable is missing, as in pull requests from forks; only `false` allows it."""
    names = aggregator(path)["needs"]
    results = dict.fromkeys(names, "success")
    assert conclude(path, results, "", tmp_path, required).returncode == 0
    assert conclude(path, results | {"gpu": "skipped"}, "", tmp_path, required).returncode == 1


def test_a_check_that_compares_nothing_is_red(tmp_path: Path) -> None:
    """Nobody looked, so nothing is known."""
    [step] = aggregator(OWN)["steps"]
    assert (
        bash(step["run"], {"RESULTS": "\n", "GPU_RUNNER": "", "GPU_REQUIRED": "false"}, tmp_path).returncode
        == 1
    )


@pytest.mark.parametrize("path", [OWN, TEMPLATE, ACTION], ids=["own", "template", "action"])
def test_no_script_has_an_expression_in_it(path: Path) -> None:
    """An input or an event would be a piece of the script; as a variable it stays a text."""
    scripts = [step["run"] for step in steps_of(path) if "run" in step]
    assert scripts
    assert not [script for script in scripts if STRANGE.search(script)]
    assert "eval" not in " ".join(scripts)


@pytest.mark.parametrize("path", [OWN, TEMPLATE, ACTION], ids=["own", "template", "action"])
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """A tag can be moved; the version stands in a comment, for those who read and who update."""
    used = [step["uses"] for step in steps_of(path) if "uses" in step]
    assert used
    for name in used:
        assert name == "./.github/actions/acgate" or PINNED.match(name), name
    for line in path.read_text(encoding="utf-8").splitlines():
        if "uses: actions/" in line:
            assert re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_an_action_has_one_commit_everywhere() -> None:
    """Nobody updates one place and forgets the other."""
    found: dict[str, set[str]] = {}
    for path in (OWN, TEMPLATE, ACTION):
        for name, commit in re.findall(r"uses: ([\w/-]+)@(.+)", path.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(commit)
    assert all(len(commits) == 1 for commits in found.values()), found


@workflows
def test_a_checkout_leaves_no_credentials_behind(path: Path) -> None:
    """The code of a change runs after it."""
    checkouts = [step for step in steps_of(path) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@workflows
def test_the_jobs_use_what_the_action_takes(path: Path) -> None:
    """A misspelt input is only a warning on GitHub."""
    inputs = set(read(ACTION)["inputs"])
    used = [step for step in steps_of(path) if step.get("uses") == "./.github/actions/acgate"]
    assert len(used) == 2
    assert all(set(step["with"]) <= inputs for step in used)
    names = [step["with"]["artifact"] for step in used]
    assert len(set(names)) == len(names)  # a second artifact of one name is refused


def test_the_template_is_our_own_workflow_without_our_tests() -> None:
    """What we recommend is what we use."""
    own, template = read(OWN), read(TEMPLATE)
    assert set(own["jobs"]) - set(template["jobs"]) == {"tests"}
    for key in (True, "permissions", "concurrency"):
        assert own[key] == template[key]
    assert own["jobs"][CHECK]["steps"][0]["run"] == template["jobs"][CHECK]["steps"][0]["run"]
    assert "paths" not in template


def test_reports_are_kept_after_a_failure_as_well() -> None:
    """Those of a failure are the ones that are read."""
    [upload] = [step for step in steps_of(ACTION) if "uses" in step]
    assert upload["if"].startswith("always() && ")
    assert upload["with"]["path"].splitlines() == [
        f"${{{{ steps.gate.outputs.directory }}}}/{name}" for name in ("verdict.json", "junit.xml")
    ]


def test_every_input_of_the_action_is_used_and_documented() -> None:
    """An input that nothing reads promises what is not kept."""
    document, text = read(ACTION), ACTION.read_text(encoding="utf-8")
    readme = ACTION.with_name("README.md").read_text(encoding="utf-8")
    for name, entry in document["inputs"].items():
        assert entry["description"]
        assert f"inputs.{name} " in text
        assert f"`{name}`" in readme
    for name, entry in document["outputs"].items():
        assert f"'{name}=%s" in text
        assert entry["value"] == f"${{{{ steps.gate.outputs.{name} }}}}"


def test_the_snippet_for_gitlab_is_a_job_that_can_fail() -> None:
    """It is YAML, runs the gate, keeps the reports of a failure, and allows none."""
    text = ACTION.with_name("README.md").read_text(encoding="utf-8")
    [snippet] = re.findall(r"<!-- gitlab -->\n```yaml\n(.*?)```", text, re.DOTALL)
    job = yaml.safe_load(snippet)[CHECK]
    assert any(line.startswith("python -m acgate run ") for line in job["script"])
    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"]["junit"] in job["artifacts"]["paths"]
    assert "allow_failure" not in job


# The action's own scripts


def step_of(name: str) -> dict[str, Any]:
    [found] = [step for step in steps_of(ACTION) if step.get("name") == name]
    return found


def run_step(
    name: str, inputs: dict[str, str], folder: Path, python: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as the runner does.

    Args:
        python: What stands in for the program `python`, a shell script.
    """
    step = step_of(name)
    values = {key: entry["default"] for key, entry in read(ACTION)["inputs"].items()} | inputs
    env = {
        key: values[match[1]] if (match := re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text)) else text
        for key, text in step["env"].items()
    }
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    program = programs / "python"
    program.write_text(f"#!/bin/bash\n{python}\n", encoding="utf-8")
    program.chmod(0o755)
    (folder / "output.txt").touch()
    return bash(
        step["run"],
        env
        | {"PATH": f"{programs}:{os.environ['PATH']}", "GITHUB_OUTPUT": str(folder / "output.txt")}
        | {"RECORD": str(folder / "record"), "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
        | environment,
        folder,
    )


RECORD = 'printf "%s\\0" "$@" >> "$RECORD"; printf "\\n" >> "$RECORD"'


def recorded(folder: Path) -> list[list[str]]:
    lines = (folder / "record").read_text(encoding="utf-8").split("\0\n")
    return [line.split("\0") for line in lines if line]


def outputs(folder: Path) -> dict[str, str]:
    lines = (folder / "output.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_inputs_become_arguments_and_never_commands(tmp_path: Path) -> None:
    """Whatever stands in an input is one argument of the program."""
    hostile = "$(touch pwned); `touch pwned` \" ' && touch pwned #"
    done = run_step(
        "Run the gate",
        {
            "model": hostile,
            "config": hostile,
            "arguments": f"--steps=2\n\n  {hostile}\n",
            "out": "a b; touch pwned",
        },
        tmp_path,
        RECORD,
    )
    assert done.returncode == 0, done.stderr
    assert recorded(tmp_path) == [
        [
            *("-m", "acgate", "run", "--github", "--out=a b; touch pwned"),
            *(f"--model={hostile}", f"--config={hostile}", "--steps=2", hostile),
        ]
    ]
    assert not (tmp_path / "pwned").exists()


def test_what_is_not_given_is_left_to_acgate(tmp_path: Path) -> None:
    """An empty input is no empty option."""
    assert run_step("Run the gate", {}, tmp_path, RECORD).returncode == 0
    assert recorded(tmp_path) == [["-m", "acgate", "run", "--github", "--out=acgate-out"]]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, 7, 137])
def test_the_exit_code_is_that_of_acgate(tmp_path: Path, code: int) -> None:
    """The step fails with it, after it was told; so does the place of a verdict."""
    done = run_step(
        "Run the gate", {}, tmp_path, f"mkdir -p acgate-out; touch acgate-out/verdict.json; exit {code}"
    )
    assert done.returncode == code
    folder = tmp_path / "acgate-out"
    told = {"directory": str(folder), "exit-code": str(code), "verdict": str(folder / "verdict.json")}
    assert outputs(tmp_path) == told


def test_where_there_is_no_verdict_none_is_named(tmp_path: Path) -> None:
    """The place of the reports is told all the same, for the upload."""
    assert run_step("Run the gate", {}, tmp_path, "exit 4").returncode == 4
    assert outputs(tmp_path) == {"directory": str(tmp_path / "acgate-out"), "exit-code": "4"}


def installed(tmp_path: Path, inputs: dict[str, str], action_path: Path) -> list[list[str]]:
    done = run_step("Install acgate", inputs, tmp_path, RECORD, ACTION_PATH=str(action_path))
    assert done.returncode == 0, done.stderr
    return recorded(tmp_path)


def test_the_action_installs_the_repository_that_it_comes_from(tmp_path: Path) -> None:
    """One commit pins both; torch comes first, so that it is kept."""
    calls = installed(tmp_path, {"torch": "torch==2.13.0", "requirements": "-e\n. \n"}, ACTION.parent)
    own = f"{ACTION.parent}/../../.."
    assert calls == [
        ["-m", "pip", "install", "--", "torch==2.13.0"],
        ["-m", "pip", "install", "-e", ".", own],
    ]


def test_a_copy_of_the_action_installs_acgate_by_its_name(tmp_path: Path) -> None:
    """In the project of somebody else the repository is not acgate's."""
    action = tmp_path / ".github" / "actions" / "acgate"
    action.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "theirs"\n', encoding="utf-8")
    assert installed(tmp_path, {}, action) == [["-m", "pip", "install", "acgate"]]


def test_a_given_version_is_installed(tmp_path: Path) -> None:
    """Whoever names one gets it."""
    assert installed(tmp_path, {"acgate": "acgate==0.1.0"}, ACTION.parent) == [
        ["-m", "pip", "install", "acgate==0.1.0"]
    ]


def test_a_failing_install_fails_the_step(tmp_path: Path) -> None:
    """Nothing runs with another acgate than was asked for."""
    done = run_step(
        "Install acgate", {"torch": "torch==0"}, tmp_path, "exit 9", ACTION_PATH=str(ACTION.parent)
    )
    assert done.returncode == 9


@pytest.mark.slow
def test_the_action_runs_the_gate(tmp_path: Path) -> None:
    """The real thing on a tiny target: green, told in the summary, with its reports."""
    done = run_step(
        "Run the gate",
        {"model": str(TINY), "arguments": "--tracks=none,block\n--dtypes=float32\n--steps=2"},
        tmp_path,
        f'exec "{sys.executable}" "$@"',
        PYTHONPATH=str(ROOT),
    )
    assert done.returncode == 0, done.stdout
    assert outputs(tmp_path)["exit-code"] == "0"
    assert Path(outputs(tmp_path)["verdict"]).is_file()
    assert "acgate: passed" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    token = re.search(r"^::stop-commands::(\w+)$", done.stdout, re.MULTILINE)
    assert token is not None
    assert done.stdout.rstrip().endswith(f"::{token[1]}::")
