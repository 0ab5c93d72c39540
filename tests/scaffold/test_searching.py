"""What is found in projects of several kinds, without running their code."""

from __future__ import annotations

import json

import pytest
from sample_projects import FEATURES, WITH_LOSS, WORDS, contents

from acgate.errors import UsageError
from acgate.scaffold import write_project
from acgate.scaffold.project import Project
from acgate.scaffold.searching import search
from acgate.scaffold.walk import list_project
from acgate.spec.document import read_toml

TARGET = "import torch\ndef build_model(): ...\ndef batches(bucket): ...\n"
LLAMA = json.dumps({"model_type": "llama"})


def found(root) -> str:
    """Return what the settings of a project would name."""
    return search(Project(root)).setting


def test_a_target_comes_before_everything(make_project):
    """A file with build_model and batches at top level is gated as it is, however its names come there."""
    imported = "from torch_models import build_model\nbatches = range\n"
    root = make_project({"b/gate.py": imported, "tiny/config.json": LLAMA, "model.py": WORDS})
    assert found(root) == "b/gate.py"
    scaffold = write_project(root, model=None, github=False)
    assert read_toml(root / "acgate.toml") == {"model": "b/gate.py"}
    assert [str(item.path) for item in scaffold.files] == ["acgate.toml"]


def test_what_only_a_script_defines_makes_no_target(make_project):
    """Names below `if __name__ == "__main__"` are not there when acgate imports the file."""
    script = 'def build_model(): ...\nif __name__ == "__main__":\n    batches = []\n'
    root = make_project({"gate.py": script, "model.py": WORDS})
    assert found(root) == "acgate_target.py"
    make_project({"gate.py": script.replace('__name__ == "__main__"', "True")})
    assert found(root) == "gate.py"


def test_of_several_targets_the_plainest_is_taken_and_the_others_are_named(make_project):
    """The target of an earlier `acgate init` first, then those near the root, those of tests last."""
    files = {"tests/aa.py": TARGET, "x/deep.py": TARGET, "zz.py": TARGET}
    root = make_project(files)
    choice = search(Project(root))
    assert choice.setting == "zz.py"
    assert "others that --model could name: x/deep.py, tests/aa.py" in choice.why
    make_project({"x/acgate_target.py": TARGET})
    assert found(root) == "x/acgate_target.py"


def test_a_hugging_face_directory_is_a_target(make_project):
    """A config.json with a model_type is enough; any other config.json is not."""
    root = make_project({"app/config.json": '{"name": "x"}', "models/b/config.json": LLAMA, "m.py": WORDS})
    assert found(root) == "models/b"
    make_project({"config.json": LLAMA})
    assert found(root) == "."


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"tiny/config.json": json.dumps({"model_type": "x", "auto_map": {}})}, "auto_map"),
        ({"tiny/config.json": json.dumps({"model_type": "x", "quantization_config": {}})}, "quantization"),
        ({"tiny/config.json": LLAMA, "tiny/pytorch_model.bin": ""}, "pickled"),
    ],
)
def test_a_hugging_face_directory_that_acgate_refuses_is_none(make_project, files, why):
    """What a run would refuse is not chosen, and refused in the words of a run where it is named."""
    root = make_project(files | {"m.py": WORDS})
    assert found(root) == "acgate_target.py"
    with pytest.raises(UsageError, match=rf"--model: tiny: .*{why}"):
        write_project(root, model="tiny", github=False)
    make_project({"fine/config.json": LLAMA})
    assert any(why in note for note in search(Project(root)).notes)


def test_a_hugging_face_directory_of_tests_comes_after_the_model(make_project):
    """The tiny model of a test suite is not what the project trains, unless there is nothing else."""
    root = make_project({"tests/tiny/config.json": LLAMA, "m.py": WORDS})
    assert found(root) == "acgate_target.py"
    (root / "m.py").unlink()
    assert found(root) == "tests/tiny"


def test_the_model_is_the_class_that_is_no_part_of_another(make_project):
    """Layers and encoders are parts; a wrapper in a test, a script or with a private name is no model."""
    root = make_project(
        {
            "a/parts.py": FEATURES,
            "b/whole.py": WITH_LOSS,
            "tests/test_it.py": WORDS.replace("WordModel", "TestModel"),
            "train.py": WORDS.replace("WordModel", "ScriptModel") + "\nfor step in range(3):\n    pass\n",
            "c.py": WORDS.replace("WordModel", "_HiddenModel"),
        }
    )
    choice = search(Project(root))
    assert "class Classifier (b/whole.py:" in choice.why
    assert "ScriptModel" in choice.why
    assert "TestModel" not in choice.why


def test_a_script_that_trains_when_imported_is_named(make_project):
    """acgate imports the model for every track, so work at top level is worth a word."""
    root = make_project({"train.py": f"{WORDS}\ndef main(): ...\nmain()\n"})
    choice = search(Project(root))
    assert "importing train.py runs code" in choice.notes[0]
    make_project({"train.py": f'{WORDS}\ndef main(): ...\nif __name__ == "__main__":\n    main()\n'})
    assert search(Project(root)).notes == ()


@pytest.mark.parametrize(
    ("bases", "head"),
    [
        ("nn.Module", "from torch import nn"),
        ("torch.nn.Module", "import torch"),
        ("Base", "from torch.nn import Module as Base"),
        ("tnn.Module", "import torch.nn as tnn"),
        ("PreTrainedModel", "from transformers import PreTrainedModel"),
        ("LlamaForCausalLM", "from transformers.models.llama import LlamaForCausalLM"),
        ("Mine[int]", "from torch import nn\nclass Mine(nn.Module): ..."),
    ],
)
def test_modules_are_known_by_their_bases(make_project, bases, head):
    """However torch.nn.Module is spelt, and through classes of the project and of transformers."""
    root = make_project({"m.py": f"{head}\nclass It({bases}):\n    def forward(self, x): return x\n"})
    assert "class It (m.py" in search(Project(root)).why


@pytest.mark.parametrize(
    ("bases", "head"),
    [
        ("Module", "from ast_tools import Module  # torch"),
        ("object", "import torch"),
        ("Trainer", "from transformers import Trainer"),
    ],
)
def test_other_classes_are_no_models(make_project, bases, head):
    """A class that derives from something else of the same name is none."""
    root = make_project({"m.py": f"{head}\nclass It({bases}):\n    def forward(self, x): return x\n"})
    assert "found no model" in search(Project(root)).why


def test_environments_builds_and_hidden_folders_are_not_looked_into(make_project):
    """What others wrote is not this project's model, nor what a link leads to."""
    root = make_project(
        {
            "env/pyvenv.cfg": "",
            "env/model.py": WORDS,
            ".cache/model.py": WORDS,
            "node_modules/x/model.py": WORDS,
            "lib/site-packages/model.py": WORDS,
            "build/lib/model.py": WORDS,
            "own/model.py": WORDS,
        }
    )
    (root / "again").symlink_to(root, target_is_directory=True)
    assert [path.as_posix() for path in list_project(root).python] == ["own/model.py"]


def test_files_that_are_no_python_stop_nothing(make_project):
    """Syntax errors, other encodings, NUL bytes, warnings about escapes: the search goes on."""
    root = make_project(
        {"broken.py": "import torch\nclass (", "escape.py": 'import torch\nx = "\\d"\n', "m.py": WORDS}
    )
    (root / "latin.py").write_bytes(b"import torch # \xe9\n")
    (root / "nul.py").write_bytes(b"import torch\0")
    (root / "deep.py").write_text("import torch\nx = " + "(" * 3000)
    assert "class WordModel" in search(Project(root)).why


def test_a_large_project_is_looked_at_in_part_and_said_so(make_project, monkeypatch):
    """The search is bounded; what lies near the root is seen first."""
    root = make_project({f"a{n}/deep.py": "" for n in range(30)} | {"m.py": WORDS})
    listing = list_project(root, most=40)
    assert not listing.complete
    assert listing.python[0].as_posix() == "m.py"
    assert list_project(root).complete


def test_nothing_of_the_project_runs(make_project):
    """The project is read, not imported: no file of it leaves a trace."""
    trace = "from pathlib import Path\nPath('trace').touch()\nimport torch\n"
    root = make_project({"model.py": trace + WORDS, "conftest.py": trace, "setup.py": trace})
    before = contents(root)
    write_project(root, model=None, github=True)
    after = contents(root)
    assert "trace" not in after
    assert {name: after[name] for name in before} == before
