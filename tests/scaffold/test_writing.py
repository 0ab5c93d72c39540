"""What `acgate init` writes, keeps and refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sample_projects import WORDS, contents

from acgate.__main__ import main
from acgate.errors import ExitCode, OutputError, UsageError
from acgate.scaffold import describe, write_project
from acgate.scaffold.project_files import write_new
from acgate.spec.document import read_toml
from acgate.spec.loading import load_spec

TARGET = "import torch\ndef build_model(): ...\ndef batches(bucket): ...\n"


def test_a_second_time_everything_is_kept(make_project, capsys):
    """Files that are there stay as they are, byte by byte, and that is said; the exit code is 0."""
    root = make_project({"model.py": WORDS})
    assert main(["init", "--github"]) == ExitCode.PASS
    capsys.readouterr()
    (root / "acgate_target.py").write_text("# mine now\n" + (root / "acgate_target.py").read_text())
    before = contents(root)
    assert main(["init", "--github"]) == ExitCode.PASS
    assert contents(root) == before
    said = capsys.readouterr().out
    assert "kept   acgate.toml, as it was" in said
    assert "kept   .github/workflows/acgate.yml, as it was" in said
    assert "wrote" not in said


def test_the_settings_that_are_written_are_settings(make_project):
    """acgate reads its own file back, with the model and every other value at its default."""
    root = make_project({"model.py": WORDS})
    write_project(root, model=None, github=False)
    loaded = load_spec({}, None, root)
    assert loaded.spec.model == "acgate_target.py"
    assert [name for name, origin in loaded.origin.items() if origin != "default"] == ["model"]
    uncommented = [line.removeprefix("# ") for line in (root / "acgate.toml").read_text().splitlines()]
    (root / "acgate.toml").write_text("\n".join(line for line in uncommented if " = " in line))
    (root / "policy.toml").write_text("")
    commented = load_spec({}, None, root).spec
    assert commented.model_copy(update={"policy": loaded.spec.policy}) == loaded.spec


def test_settings_that_are_there_stay(make_project):
    """With settings that name a target nothing is written, with none the line to add is said."""
    root = make_project({"acgate.toml": 'model = "mine.py"\n', "mine.py": TARGET, "model.py": WORDS})
    scaffold = write_project(root, model=None, github=False)
    assert [(str(item.path), item.kept) for item in scaffold.files] == [("acgate.toml", True)]
    (root / "acgate.toml").write_text("steps = 4\n")
    said = describe(write_project(root, model=None, github=False))
    assert "acgate.toml names no model" in said
    assert 'change it there to\n    model = "mine.py"' in said
    assert read_toml(root / "acgate.toml") == {"steps": 4}


def test_a_target_that_settings_name_is_written_where_they_say(make_project):
    """Settings first, target later: it gets the name that they give it."""
    root = make_project({"acgate.toml": 'model = "gate/target.py"\n', "model.py": WORDS})
    write_project(root, model=None, github=False)
    assert "from model import WordModel" in (root / "gate/target.py").read_text()
    assert not (root / "acgate_target.py").exists()


def test_a_target_elsewhere_imports_the_model_all_the_same(make_project):
    """The import of a target in a folder of its own finds the model of the project."""
    from acgate.targets.load import load_target

    root = make_project({"acgate.toml": 'model = "gate/target.py"\n', "model.py": WORDS})
    write_project(root, model=None, github=False)
    load_target("gate/target.py", seed=1).build_model()


def test_settings_in_pyproject_count(make_project):
    """[tool.acgate] is a configuration, so no acgate.toml is written beside it."""
    text = '[tool.acgate]\nmodel = "mine.py"\n[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'
    root = make_project({"pyproject.toml": text, "mine.py": TARGET})
    scaffold = write_project(root, model=None, github=False)
    assert not (root / "acgate.toml").exists()
    assert scaffold.config == "pyproject.toml"
    said = describe(scaffold)
    assert 'testpaths = ["tests", "pyproject.toml"]' in said
    assert "python -m pytest pyproject.toml" in said


def test_named_models_are_found(make_project, tmp_path):
    """`--model` takes what `acgate run --model` takes; a mere model gets a target."""
    root = make_project(
        {
            "pkg/__init__.py": "from pkg.gate import build_model as build\n",
            "pkg/gate.py": TARGET,
            "net.py": WORDS,
            "hf/config.json": '{"model_type": "bert"}',
            "lora/adapter_config.json": "{}",
        }
    )
    (tmp_path / "outside.py").write_text(TARGET)
    for given, setting in {
        "pkg/gate.py": "pkg/gate.py",
        "pkg.gate": "pkg.gate",
        "pkg.gate:build_model": "pkg.gate:build_model",
        "pkg:build": "pkg:build",
        "hf": "hf",
        "lora": "lora",
        "../outside.py": "../outside.py",
        str(tmp_path / "outside.py"): "../outside.py",
        "net.py": "acgate_target.py",
        "net.py:WordModel": "acgate_target.py",
        "net:WordModel": "acgate_target.py",
        "torch.nn": "torch.nn",
    }.items():
        write_project(root, model=given, github=False)
        assert read_toml(root / "acgate.toml") == {"model": setting}, given
        (root / "acgate.toml").unlink()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nothing.py", "there is no nothing.py"),
        ("no_such_package.x", "neither in .* nor among installed packages"),
        ("empty", "has no config.json with a model_type"),
        ("notes.txt", "notes.txt is no Python file"),
        ("net.py:", "ends in a colon"),
        ("net.py:WordModle", 'did you mean "WordModel"'),
        ("plain.py", "is no target"),
        ("other.py", "cannot be read as Python"),
    ],
)
def test_named_models_that_are_none_are_refused(make_project, given, message):
    """A wrong name is an error that says what is wrong; nothing is written."""
    root = make_project(
        {
            "net.py": WORDS,
            "plain.py": "import torch\n",
            "other.py": "no python",
            "empty/x": "",
            "notes.txt": "",
        }
    )
    before = contents(root)
    with pytest.raises(UsageError, match=message):
        write_project(root, model=given, github=False)
    assert contents(root) == before


def test_a_directory_that_is_none_is_refused(make_project, capsys):
    """A project that does not exist or is a file: exit code 4, and what to change."""
    make_project({"file": ""})
    assert main(["init", "nowhere"]) == ExitCode.USAGE
    assert "there is no directory nowhere; make it first" in capsys.readouterr().err
    assert main(["init", "file"]) == ExitCode.USAGE
    assert "file is no directory; name that of the project" in capsys.readouterr().err


def test_settings_that_cannot_be_read_are_refused(make_project, capsys):
    """Broken settings are told with their place; nothing is written beside them."""
    root = make_project({"acgate.toml": "model = \n", "model.py": WORDS})
    before = contents(root)
    assert main(["init"]) == ExitCode.USAGE
    assert "acgate.toml: is not valid TOML" in capsys.readouterr().err
    assert contents(root) == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda root: (root / ".github").write_text("a file"),
        lambda root: (root / "acgate.toml").mkdir(),
        lambda root: (root / "acgate_target.py").symlink_to("nowhere"),
        lambda root: (root / "acgate-gpu.toml").mkdir(),
    ],
)
def test_all_or_nothing(make_project, spoil):
    """What one file cannot have, no file gets: the check comes first, and says what is in the way."""
    root = make_project({"model.py": WORDS})
    spoil(root)
    before = contents(root)
    with pytest.raises(OutputError, match=r"(move it away|no ordinary file)"):
        write_project(root, model=None, github=True)
    assert contents(root) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_refused(make_project):
    """A read-only project is told as such."""
    root = make_project({"model.py": WORDS})
    root.chmod(0o500)
    with pytest.raises(OutputError, match="no permission to write"):
        write_project(root, model=None, github=False)
    root.chmod(0o700)


def test_what_fails_half_way_is_taken_back(tmp_path):
    """A file that only the disk refuses takes the ones before it away again, folders included."""
    texts = {Path("new/deep/a.toml"): "a", Path("b" * 300): "b"}
    with pytest.raises(OutputError, match="nothing was written"):
        write_new(tmp_path, texts)
    assert list(tmp_path.iterdir()) == []


def test_quiet_says_only_what_has_to_be_done(make_project, capsys):
    """With -q a complete target is silent, an incomplete one names its lines."""
    root = make_project({"model.py": WORDS})
    assert main(["init", "-q"]) == ExitCode.PASS
    assert capsys.readouterr().out == ""
    for name in ("acgate.toml", "acgate_target.py"):
        (root / name).unlink()
    make_project({"model.py": WORDS.replace("vocab: int = 50", "vocab: int")})
    assert main(["init", "-q"]) == ExitCode.PASS
    assert 'acgate_target.py:15: "vocab": ...,  # FILL IN: int' in capsys.readouterr().out


def test_torch_is_not_imported(make_project):
    """`acgate init` answers at once, also where torch is not installed yet."""
    root = make_project({"model.py": WORDS})
    code = (
        "import sys; from acgate.__main__ import main; code = main(['init', '--github']);"
        " print([name for name in ('torch', 'transformers', 'numpy') if name in sys.modules], code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[] 0"


@pytest.mark.slow
def test_from_nothing_to_a_verdict(make_project):
    """A model file is all that a project needs: init, then a plan and a pass, in processes of their own."""
    root = make_project({"src/shop/__init__.py": "", "src/shop/net.py": WORDS})
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for arguments in (
        ["init", "project"],
        ["plan", "-q"],
        ["run", "--dtypes=float32", "--tracks=none,block"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "acgate", *arguments],
            cwd=root.parent if arguments[0] == "init" else root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if arguments[0] == "init":
            assert "next:\n  cd project\n  python -m acgate plan " in done.stdout
    assert "PASS" in done.stdout


def test_a_project_that_was_seen_in_part_says_so(make_project):
    """More source code than is read in a few seconds: what lies deep may be missed, and that is said."""
    filler = "import torch\nclass Filler: pass\n# " + "long " * 200_000
    root = make_project({"model.py": WORDS} | {f"deep/filler_{n}.py": filler for n in range(4)})
    scaffold = write_project(root, model=None, github=False)
    assert "class WordModel" in scaffold.why
    assert any("only what lies near its root" in said for said in scaffold.advice)
