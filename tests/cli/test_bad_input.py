"""Bad input: one test each for the message and the exit code, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from acgate.__main__ import main

ROOT = Path(__file__).parents[2]

GOOD = """
import torch, torch.nn.functional as F
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
    def forward(self, x):
        return x + F.dropout(F.gelu(self.a(x)), 0.1, self.training)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def build_model():
    return Net()

def batches(bucket):
    g = torch.Generator().manual_seed(0)
    return [{"x": torch.randn(2, 4, 8, generator=g)} for _ in range(16)]

def loss(model, batch):
    return model(batch["x"]).pow(2).mean()
"""


@pytest.fixture
def gate(tmp_path, capsys, monkeypatch):
    """Run acgate in this process on a target's text; return exit code, stderr and the JUnit root."""
    monkeypatch.chdir(tmp_path)

    def run(text: str | None, *arguments: str, config: str = "") -> tuple[int, str, ET.Element | None]:
        if text is not None:
            (tmp_path / "target.py").write_text(textwrap.dedent(text))
        if config:
            (tmp_path / "acgate.toml").write_text(textwrap.dedent(config))
        base = ["run", "--in-process", "--dtypes", "float32", "--junitxml", "junit.xml"]
        if text is not None:
            base += ["--model", "target.py"]
        code = main([*base, *arguments])
        junit = tmp_path / "junit.xml"
        root = ET.fromstring(junit.read_text()) if junit.exists() else None
        return code, " ".join(capsys.readouterr().err.split()), root

    return run


def counts(root: ET.Element | None) -> tuple[int, int]:
    assert root is not None
    return int(root.get("failures", "0")), int(root.get("errors", "0"))


def test_a_missing_file_names_the_nearest_one(gate):
    """A path that is not there: 4, with what lies near it."""
    code, err, root = gate(GOOD, "--model", "targte.py")
    assert (code, counts(root)) == (4, (0, 1))
    assert "targte.py" in err
    assert "target.py" in err.replace("targte.py", "")


def test_a_target_without_build_model(gate):
    """No build_model: 4."""
    code, err, _ = gate("x = 1")
    assert code == 4
    assert "build_model" in err


def test_an_import_error_in_the_target_names_the_line(gate):
    """An import that fails: 4, with file and line."""
    code, err, _ = gate("import torch\nimport no_such_module_anywhere\n" + GOOD)
    assert code == 4
    assert "no_such_module_anywhere" in err
    assert "target.py:2" in err.replace('", line ', ":").replace(", line ", ":")


def test_empty_batches_are_nothing_to_do(gate):
    """No batch at all: 5."""
    code, err, root = gate(GOOD + "\ndef batches(bucket):\n    return []\n")
    assert (code, counts(root)) == (5, (0, 1))
    assert "empty" in err


def test_too_few_batches_say_how_many_are_needed(gate):
    """Fewer batches than steps x micro-steps: 4."""
    code, err, _ = gate(GOOD + "\n_all = batches\ndef batches(bucket):\n    return _all(bucket)[:5]\n")
    assert code == 4
    assert "5" in err
    assert "6" in err


def test_zero_steps_are_refused(gate):
    """--steps 0 would compare nothing: 4."""
    code, err, _ = gate(GOOD, "--steps", "0")
    assert code == 4
    assert "steps" in err


def test_no_blocks_says_how_to_name_them(gate):
    """A model without repeated blocks: 4."""
    text = GOOD.replace("return Net()", "return nn.Sequential(nn.Linear(8, 8), nn.Tanh())")
    code, err, _ = gate(text)
    assert code == 4
    assert "blocks" in err


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("stepps = 3", ("stepps", "steps")),
        ("[floor]\nrepeat = 3", ("repeat", "repeats")),
        ("[deadlines]\nstep = nan", ("deadlines", "step")),
        ("[deadlines]\nstep = inf", ("deadlines", "step")),
        ("[[allow]]\nkind = 'reentrent'\nreason = 'x'", ("reentrent", "reentrant")),
    ],
)
def test_a_wrong_key_or_value_in_the_configuration(gate, config, words):
    """Unknown keys and impossible numbers: 4, with section, key and the nearest spelling."""
    code, err, _ = gate(GOOD, config=config)
    assert code == 4
    assert all(word in err for word in words)


@pytest.mark.parametrize("value", ["nan", "inf", "-1.0", '"much"', "true"])
def test_a_limit_that_is_no_limit(gate, tmp_path, value):
    """NaN, infinite, negative and non-numeric limits: 4, naming file, section and key."""
    folder = tmp_path / "limits"
    folder.mkdir()
    text = (ROOT / "tolerances" / "float32.toml").read_text()
    lines = text.splitlines()
    index = next(i for i, line in enumerate(lines) if line.startswith("rel_err"))
    lines[index] = f'rel_err = {{ limit = {value}, why = "x", source = "provisional" }}'
    (folder / "float32.toml").write_text("\n".join(lines))
    code, err, _ = gate(GOOD, "--tolerances", str(folder))
    assert code == 4
    assert "float32.toml" in err
    assert "rel_err" in err


def test_a_missing_tolerance_file_names_it(gate, tmp_path):
    """No file for a dtype is never replaced by another's: 4."""
    (tmp_path / "empty").mkdir()
    code, err, _ = gate(GOOD, "--tolerances", "empty")
    assert code == 4
    assert "float32.toml" in err


def test_an_output_that_is_a_file(gate, tmp_path):
    """--out FILE: 4 before any work, and the file stays as it is."""
    (tmp_path / "file").write_text("mine")
    code, err, _ = gate(GOOD, "--out", "file")
    assert code == 4
    assert "file" in err
    assert (tmp_path / "file").read_text() == "mine"


def test_an_output_below_a_file(gate, tmp_path):
    """An output directory that cannot be made: 4."""
    (tmp_path / "file").write_text("")
    code, _, _ = gate(GOOD, "--out", "file/below")
    assert code == 4


def test_no_gradient_could_not_be_checked(gate):
    """A loss that depends on no parameter: 7, not a pass."""
    code, out, root = gate(
        GOOD.replace("return model(batch", "with torch.no_grad():\n        return model(batch")
    )
    assert code == 7, out
    assert counts(root)[1] > 0


def test_a_loss_that_is_not_finite_could_not_be_checked(gate):
    """NaN in the reference: 7, never a pass."""
    code, out, root = gate(GOOD.replace(".mean()", ".mean() * float('nan')"), "--steps", "1")
    assert code == 7, out
    assert counts(root)[1] > 0


@pytest.mark.parametrize("place", ["import", "build", "loss"])
def test_a_target_that_exits_by_itself(gate, place):
    """sys.exit(0) in import, build or loss: 7, whatever code it asked for."""
    code, err, root = gate(exiting(place, "sys.exit(0)"))
    assert code == 7, err
    assert counts(root)[1] > 0


def exiting(place: str, call: str) -> str:
    text = "import os, sys\n" + GOOD
    match place:
        case "import":
            return text + f"\n{call}\n"
        case "build":
            return text.replace("    return Net()", f"    {call}")
        case _:
            return text.replace("    return model(batch", f"    {call}\n    return model(batch")


# In one place by default: it ends the survey. A track that ends its process is in test_gate.py.
@pytest.mark.parametrize(
    "place",
    ["build", *(pytest.param(place, marks=pytest.mark.slow) for place in ("import", "loss"))],
)
def test_a_target_that_ends_the_process(tmp_path, place):
    """os._exit(0) in a worker is no end mark: 7, and the message says who ended and where."""
    (tmp_path / "target.py").write_text(exiting(place, "os._exit(0)"))
    done = subprocess.run(
        [sys.executable, "-m", "acgate", "run", "--model", "target.py", "--dtypes", "float32",
         "--tracks", "none,block", "--junitxml", "junit.xml"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 7, done.stdout + done.stderr
    assert "exited with code 0" in done.stdout + done.stderr
    root = ET.fromstring((tmp_path / "junit.xml").read_text())
    assert counts(root)[1] > 0


WRAP = """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
def wrap(model):
    for i, layer in enumerate(model.layers):
        model.layers[i] = checkpoint_wrapper(layer)
    return model
"""


def test_build_model_that_already_turned_ac_on(gate):
    """AC against AC always agrees, so a reference that recomputes is an error: 7 (or 4 from the policy)."""
    text = WRAP + GOOD.replace("return Net()", "return wrap(Net())") + "\ndef apply_ac(model, track): pass\n"
    code, err, root = gate(text, "--steps", "1")
    assert code == 7, err
    assert any("reference" in (e.text or "") for e in root.iter("error"))


def test_the_policy_refuses_a_model_that_checkpoints_already(gate):
    """Where acgate applies AC itself, wrapping twice is refused before any step: 4."""
    code, err, _ = gate(WRAP + GOOD.replace("return Net()", "return wrap(Net())"))
    assert code == 4
    assert "already" in err


def test_apply_ac_that_does_nothing(gate):
    """No recomputation on an AC track: 7, not a pass."""
    code, err, root = gate(GOOD + "\ndef apply_ac(model, track):\n    return model\n", "--steps", "1")
    assert code == 7, err
    errors = [case.get("name") for case in root.iter("testcase") if case.find("error") is not None]
    assert "engagement" in errors


def test_a_target_that_replaces_what_a_verdict_rests_on(gate, monkeypatch):
    """A patched torch.equal is named: 7."""
    import torch

    monkeypatch.setattr(torch, "equal", torch.equal)  # put back whatever the target does
    code, err, root = gate(GOOD + "\ntorch.equal = lambda a, b: True\n")
    assert code == 7, err
    assert "torch.equal" in ET.tostring(root, encoding="unicode")


def test_an_unknown_track_says_who_must_apply_it(gate):
    """A track that nobody knows: 4."""
    code, err, _ = gate(GOOD, "--tracks", "none,offload")
    assert code == 4
    assert "apply_ac" in err


def test_apply_ac_that_raises_is_a_failure(gate):
    """An AC track that raises where the reference does not was checked and is wrong: 1."""
    code, _, root = gate(GOOD + "\ndef apply_ac(model, track):\n    raise RuntimeError('no AC today')\n")
    assert code == 1
    assert "no AC today" in ET.tostring(root, encoding="unicode")


def test_a_stale_report_does_not_survive(gate, tmp_path):
    """A run that fails early never leaves the report of an earlier run."""
    assert gate(GOOD, "--steps", "1", "--tracks", "none,block")[0] == 0
    code, _, root = gate("x = 1")
    assert code == 4
    assert counts(root) == (0, 1)


def test_several_ranks_in_one_process_are_refused_with_a_report(gate):
    """`--in-process` is one rank: 4, before anything is loaded, and CI sees why."""
    code, err, root = gate("raise SystemExit", "--topologies", "single,fsdp")
    assert (code, counts(root)) == (4, (0, 1))
    assert "--in-process runs one rank, and fsdp needs several" in err


def test_a_topology_without_its_ranks_is_refused(gate):
    """Ranks that nothing would use are a mistake, not a setting to be ignored: 4."""
    code, err, root = gate(GOOD, "--world-size", "4")
    assert (code, counts(root)) == (4, (0, 1))
    assert "--world-size: has no effect" in err


@pytest.mark.parametrize("command", ["plan", "run", "judge", "init"])
def test_a_working_directory_that_is_gone_is_told(tmp_path, monkeypatch, capsys, command):
    """A shell may stand in a directory that a build has removed; nothing can be found from there."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert main([command, *([str(tmp_path)] if command == "judge" else [])]) == 4
    assert "the working directory is gone" in capsys.readouterr().err
