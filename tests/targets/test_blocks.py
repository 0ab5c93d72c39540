"""Finding blocks and key layers."""

from __future__ import annotations

import pytest
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from acgate.errors import TargetError
from acgate.spec.globs import glob_matches
from acgate.targets.blocks import find_blocks, key_layers


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Linear(4, 4)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.dropouts = nn.ModuleList(nn.Dropout() for _ in range(9))
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 8)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("layers.*", "layers.0", True),
        ("layers.*", "layers.0.attention", False),
        ("layers.*.att*", "layers.11.attention", True),
        ("**.attention", "model.layers.0.attention", True),
        ("**.attention", "attention", True),
        ("layers.[02]", "layers.1", False),
        ("head", "lm.head", False),
    ],
)
def test_a_star_stays_within_one_part(pattern: str, name: str, matches: bool) -> None:
    """`layers.*` means the layers, not everything below them; `**` crosses dots."""
    assert glob_matches(pattern, name) is matches


def test_declared_globs_choose_blocks_in_the_order_of_the_model() -> None:
    """The target's globs decide, whatever their order."""
    blocks = find_blocks(Model(), ["layers.2", "layers.[01]"])
    assert blocks.names == ("layers.0", "layers.1", "layers.2")
    assert blocks.class_name == "Block"
    assert blocks.source == "declared: layers.2, layers.[01]"


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("layer.*", r"did you mean 'layers\.\*'\?"),
        ("attention", r"did you mean 'layers\.\*\.attention'"),
        ("zzz", "embed, layers"),
    ],
)
def test_a_glob_without_match_is_an_error_with_a_suggestion(pattern: str, hint: str) -> None:
    """A misspelt glob never leads to fewer blocks in silence."""
    with pytest.raises(TargetError, match=f"matches no module.*{hint}"):
        find_blocks(Model(), ["layers.*", pattern])


def test_blocks_may_not_lie_in_each_other() -> None:
    """Globs that match a block and a part of it are refused."""
    with pytest.raises(TargetError, match=r"'layers.0.attention' lies inside 'layers.0'"):
        find_blocks(Model(), ["layers.*", "layers.*.attention"])


def test_without_globs_the_largest_list_is_taken() -> None:
    """The layers are found, not the experts inside them nor a list without parameters."""
    blocks = find_blocks(Model(), None)
    assert blocks.names == ("layers.0", "layers.1", "layers.2")
    assert blocks.source == "children of layers"


def test_what_the_library_will_not_split_goes_first() -> None:
    """Hugging Face's _no_split_modules decide, leaving out single modules such as embeddings."""
    model = Model()
    model._no_split_modules = ["Embedding", "Linear"]
    blocks = find_blocks(model, None)
    assert blocks.names == tuple(
        f"layers.{layer}.experts.{expert}" for layer in range(3) for expert in range(3)
    )
    assert blocks.class_name == "Linear"


def test_lists_of_one_class_count_together() -> None:
    """Encoder and decoder of the same class are both blocks; stages nested in blocks are not."""
    model = nn.ModuleDict(
        {
            "encoder": nn.ModuleList(Block() for _ in range(2)),
            "decoder": nn.ModuleDict({"a": Block(), "b": Block()}),
        }
    )
    assert find_blocks(model, None).names == ("encoder.0", "encoder.1", "decoder.a", "decoder.b")


def test_a_sequential_of_one_class_is_a_stack_and_a_mixed_one_is_not() -> None:
    """Only a Sequential whose children are alike is taken for blocks."""
    assert find_blocks(nn.Sequential(Block(), Block()), None).names == ("0", "1")
    with pytest.raises(TargetError, match="no blocks"):
        find_blocks(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), None)


def test_a_list_of_lists_is_no_stack_but_the_lists_in_it_are() -> None:
    """Stages that are lists themselves are never called, so they cannot be blocks; what they hold can."""
    model = nn.Module()
    model.stages = nn.ModuleList(nn.ModuleList(Block() for _ in range(2)) for _ in range(2))
    assert find_blocks(model, None).names == ("stages.0.0", "stages.0.1", "stages.1.0", "stages.1.1")


def test_a_sequential_may_hold_more_than_its_blocks() -> None:
    """A stem and a head beside blocks of one class of the user's own do not hide those blocks."""
    model = nn.Sequential(nn.Linear(4, 4), Block(), Block(), nn.Linear(4, 8))
    assert find_blocks(model, None).names == ("1", "2")
    ambiguous = nn.Sequential(Block(), Block(), Model(), Model())
    assert find_blocks(ambiguous, None).names != ("0", "1", "2", "3")


def test_no_blocks_says_how_to_name_them() -> None:
    """A model without a stack ends in an error that shows the attribute to write, unless none are needed."""
    model = nn.ModuleDict({"only": nn.Linear(2, 2)})
    with pytest.raises(TargetError, match=r"no blocks found in ModuleDict \(only\).*blocks = \[\"layers"):
        find_blocks(model, None)
    assert find_blocks(model, None, required=False).names == ()


def test_wrappers_do_not_change_names() -> None:
    """A model whose blocks are wrapped has the same blocks."""
    model = Model()
    plain = find_blocks(model, ["layers.*"]).names
    for index, block in enumerate(model.layers):
        model.layers[index] = checkpoint_wrapper(block)
    assert find_blocks(model, ["layers.*"]).names == plain
    assert find_blocks(model, ["layers.*.attention"]).names == tuple(f"{name}.attention" for name in plain)


def test_key_layers_by_default_are_ends_embeddings_and_head() -> None:
    """First and last block, embeddings and head get a line of their own."""
    model = Model()
    names = find_blocks(model, None).names
    assert key_layers(model, names, None) == ("embed", "layers.0", "layers.2", "head")


def test_declared_key_layers_must_exist() -> None:
    """A key layer that the model does not have is an error, with the nearest name."""
    model = Model()
    assert key_layers(model, ("layers.0",), ["head", "layers.*.attention"])[-1] == "head"
    with pytest.raises(TargetError, match="key_layers: 'heads' matches no module; did you mean 'head'"):
        key_layers(model, ("layers.0",), ["heads"])


def test_a_list_of_one_layer_serves_where_there_is_no_stack() -> None:
    """A model of one layer, or one that applies its only layer many times, has that layer as its block."""
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(2, 2)]), "head": nn.Linear(2, 2)})
    assert find_blocks(model, None).names == ("layers.0",)
