"""Targets that are drafted from models of several kinds, loaded and used by acgate itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from sample_projects import FEATURES, IMAGES, NEEDS_ARGUMENTS, STRANGE_INPUTS, WITH_LOSS, WITH_TARGETS, WORDS

from acgate.errors import ExitCode
from acgate.scaffold import write_project
from acgate.spec.loading import load_spec
from acgate.targets.blocks import find_blocks
from acgate.targets.load import load_target

if TYPE_CHECKING:
    from acgate.targets.protocol import Target


def drafted(root: Path, model: str | None = None) -> Target:
    """Write what the project lacks and load the target that its settings name, as a run does."""
    write_project(root, model=model, github=False)
    loaded = load_spec({}, None, root)
    assert loaded.spec.model is not None
    return load_target(loaded.spec.model, seed=loaded.spec.seed)


def trained(target: Target) -> dict[str, torch.Tensor]:
    """Run one forward and backward; every parameter must get a gradient from a finite loss."""
    torch.manual_seed(0)
    model = target.build_model()
    (batch,) = target.batches("default", 1)
    loss = target.loss(model, batch)
    loss.backward()
    assert math.isfinite(loss.item())
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert all(g is not None and g.abs().sum() > 0 for g in gradients.values()), gradients
    assert isinstance(batch, dict)
    return batch


KINDS = {
    "words": (WORDS, {"tokens": (2, 16)}, 3),
    "targets": (WITH_TARGETS, {"idx": (2, 16), "targets": (2, 16)}, 2),
    "images": (IMAGES, {"image": (2, 3, 32, 32)}, 3),
    "features": (FEATURES, {"x": (2, 6)}, 2),
    "loss": (WITH_LOSS, {"input_ids": (2, 16), "labels": (2, 16)}, 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_with_defaults_trains_without_a_written_line(make_project, kind):
    """What goes into the first layer and where the loss comes from is read; nothing is left to fill in."""
    text, shapes, num_blocks = KINDS[kind]
    root = make_project({"model.py": text})
    target = drafted(root)
    assert {name: tuple(value.shape) for name, value in trained(target).items()} == shapes
    assert len(find_blocks(target.build_model(), target.blocks).names) == num_blocks
    assert "FILL IN" not in (root / "acgate_target.py").read_text()


PLACES = {
    "beside": "model.py",
    "a package": "shop/net/model.py",
    "below src": "src/shop/model.py",
    "in src itself": "src/words_of_mine.py",
    "a folder": "models/words.py",
    "a folder that is no Python name": "my-models/words.py",
}


@pytest.mark.parametrize("place", PLACES)
def test_the_target_imports_the_model_from_where_it_lies(make_project, place):
    """Packages, folders of scripts and the src layout: the drafted import works without an installation."""
    path = PLACES[place]
    packages = {f"{folder}/__init__.py": "" for folder in map(str, Path(path).parents) if "shop" in folder}
    root = make_project({path: WORDS, **packages})
    trained(drafted(root))


def test_what_lies_in_src_is_imported_by_its_own_name(make_project):
    """`src` is no package: an installed project has its modules without that prefix."""
    root = make_project({"src/words_of_mine.py": WORDS})
    write_project(root, model=None, github=False)
    assert "from words_of_mine import WordModel" in (root / "acgate_target.py").read_text()


def test_a_folder_of_scripts_that_import_each_other_works(make_project):
    """A model that imports the file beside it as a script does is imported from its own folder."""
    parts, _, model = WORDS.partition("class WordModel")
    head = "from layers_of_mine import Layer\nfrom torch import nn\n\nclass WordModel"
    root = make_project(
        {"scripts_of_mine/model.py": head + model, "scripts_of_mine/layers_of_mine.py": parts}
    )
    trained(drafted(root, "scripts_of_mine/model.py"))


def test_what_has_no_default_is_marked_and_then_works(make_project):
    """Required arguments are lines to fill in; once they are, the same target trains."""
    root = make_project({"model.py": NEEDS_ARGUMENTS})
    scaffold = write_project(root, model=None, github=False)
    marked = [line for _, _, line in scaffold.to_fill_in]
    assert marked == ['"config": ...,  # FILL IN: Config', '"depth": ...,  # FILL IN: int']
    path = root / "acgate_target.py"
    with pytest.raises(
        NotImplementedError, match=r"acgate_target.py is not filled in yet: give config, depth"
    ):
        load_target("acgate_target.py", seed=1).build_model()
    text = (
        path.read_text().replace('"config": ...', '"config": Config()').replace('"depth": ...', '"depth": 2')
    )
    path.write_text(text)
    trained(load_target("acgate_target.py", seed=1))


def test_inputs_that_reading_does_not_tell_are_marked(make_project, capsys):
    """A forward that says not what it takes leaves batches to a person: acgate says so and exits with 4."""
    from acgate.__main__ import main

    make_project({"model.py": STRANGE_INPUTS})
    assert main(["init"]) == ExitCode.PASS
    assert "FILL IN, and remove the lines that raise" in capsys.readouterr().out
    assert main(["plan", "--in-process"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "batches raised NotImplementedError: acgate_target.py is not filled in yet: write batches" in said
    assert "the arguments of Pair.forward" in said
    text = Path("acgate_target.py").read_text()
    assert 'yield {"left": ..., "right": ...}' in text  # "scale" has a default


def test_the_example_is_a_target_that_runs(make_project):
    """Where no model is found, what is written still is a model with blocks that trains."""
    target = drafted(make_project({"README.txt": "nothing"}))
    trained(target)
    assert len(find_blocks(target.build_model(), target.blocks).names) == 3


def test_a_function_can_give_the_model(make_project):
    """`--model FILE:function` makes that function the model's source, its own arguments included."""
    text = f"{WORDS}\n\ndef make(depth: int = 2, *, vocab):\n    return WordModel(vocab, depth=depth)\n"
    root = make_project({"model.py": text})
    write_project(root, model="model.py:make", github=False)
    written = (root / "acgate_target.py").read_text()
    assert "from model import make" in written
    assert '"vocab": ...,  # FILL IN' in written
    assert '"depth"' not in written
