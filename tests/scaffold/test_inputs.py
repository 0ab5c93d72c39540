"""What a forward takes, as far as reading it shows."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from acgate.scaffold.calling import calling_of
from acgate.scaffold.inputs import Input, input_of
from acgate.scaffold.modules import ModuleClass, find_modules
from acgate.scaffold.source import parse_source

LAYERS = """
self.embed = nn.Embedding(9, 4)
self.fc = torch.nn.Linear(4, 4)
self.conv = nn.Conv2d(3, 4, 3)
self.stack = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
self.named = nn.ModuleDict({"first": nn.Embedding(9, 4)})
self.inner = Inner()
self.drop = nn.Dropout()
"""
TEMPLATE = """
import torch
from torch import nn

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, mask, value):
        return self.norm(value)

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
{layers}
    def forward(self, x, **rest):
{body}
"""


def outer(body: str) -> ModuleClass:
    """Return a class with such a forward."""
    layers, said = (indent(dedent(text).strip("\n"), " " * 8) for text in (LAYERS, body))
    source = parse_source(Path("m.py"), TEMPLATE.format(layers=layers, body=said).encode())
    assert source is not None
    return find_modules([source])["Outer"]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("return self.embed(x)", Input("tokens", "model.embed.num_embeddings")),
        ("x = x.long()\nreturn self.embed(x)", Input("tokens", "model.embed.num_embeddings")),
        ("return self.named.first(x)", Input("tokens", "model.named.first.num_embeddings")),
        ("return self.fc(x)", Input("features", "model.fc.in_features")),
        ("return self.fc(self.stack(x))", Input("features", "model.stack[0].in_features")),
        (
            "for block in self.blocks:\n    x = block(x)\nreturn x",
            Input("features", "model.blocks[0].in_features"),
        ),
        ("if True:\n    y = self.conv(x)\nreturn y", Input("image", "model.conv.in_channels")),
        ("return self.inner(None, x)", Input("features", "model.inner.norm.normalized_shape[-1]")),
        ("return self.inner(value=x, mask=1)", Input("features", "model.inner.norm.normalized_shape[-1]")),
        ("n = len(x)\nprint(x)\nreturn self.fc(x)", Input("features", "model.fc.in_features")),
    ],
)
def test_the_first_layer_says_what_goes_in(body, wanted):
    """However a parameter gets there, the layer that it reaches unchanged decides."""
    assert input_of(outer(body), "x") == wanted


@pytest.mark.parametrize(
    "body",
    [
        "x = x.flatten(1)\nreturn self.fc(x)",
        "x = x[:, 0]\nreturn self.fc(x)",
        "x += 1\nx = torch.cat([x, x])\nreturn self.fc(x)",
        "return self.fc(x.flatten(1))",
        "return self.drop(x)",
        "return self.inner(x, None)",
        "return torch.relu(x)",
        "return self.unknown(x)",
        "return self.blocks[0](x)",
    ],
)
def test_what_reaches_no_layer_unchanged_is_not_guessed(body):
    """A reshaped input, a layer that takes anything, an unknown one: then a person has to say it."""
    assert input_of(outer(body), "x") is None


def test_a_class_that_makes_itself_comes_to_an_end():
    """Recursion in the project's code is none in this one."""
    text = (
        "from torch import nn\nclass Loop(nn.Module):\n    def __init__(self):\n        self.inner = Loop()\n"
        "    def forward(self, x):\n        return self.inner(x)\n"
    )
    source = parse_source(Path("m.py"), text.encode())
    assert source is not None
    assert input_of(find_modules([source])["Loop"], "x") is None


@pytest.mark.parametrize(
    ("body", "loss"),
    [
        ("return self.fc(x)", ("output", 0)),
        ("loss = self.fc(x).mean()\nreturn loss", ("whole", 0)),
        ("return self.fc(x), total_loss", ("element", 1)),
        ("return self.fc(x), None", ("first", 0)),
        ('return {"loss": 1, "logits": 2}', ("attribute", 0)),
        ("return Output(loss=1)", ("attribute", 0)),
        ("if x is None:\n    return None, loss\nreturn self.fc(x)", ("output", 0)),
    ],
)
def test_the_last_return_says_where_the_loss_is(body, loss):
    """A loss of the model's own is used; without one the target makes one."""
    calling = calling_of(outer(body))
    assert (calling.loss, calling.element) == loss


def test_features_of_models_with_attention_come_in_sequences():
    """Attention needs a dimension of positions; a plain layer does not."""
    assert not calling_of(outer("return self.fc(x)")).sequences
    assert calling_of(outer("return nn.functional.scaled_dot_product_attention(self.fc(x), x, x)")).sequences


def test_a_model_of_transformers_takes_its_configuration():
    """A class without a constructor of its own has that of transformers, whose argument is required."""
    text = "from transformers import LlamaForCausalLM\nclass Mine(LlamaForCausalLM):\n    pass\n"
    source = parse_source(Path("m.py"), text.encode())
    assert source is not None
    module = find_modules([source])["Mine"]
    assert [(each.name, each.required) for each in module.arguments] == [("config", True)]
    assert not calling_of(module).known
