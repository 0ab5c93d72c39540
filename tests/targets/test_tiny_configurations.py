"""The sweep over transformers: tiny configurations are models of the same make, and verdicts are counted apart."""

from __future__ import annotations

import json

import pytest
import torch

from acgate.targets.load import load_target

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

from benchmarks import hugging_face, sweep_rows  # noqa: E402
from benchmarks import hugging_face_judging as judging  # noqa: E402
from benchmarks.tiny_configurations import merged, shrink  # noqa: E402

KNOWN = judging.load_known()
BY_NAME = {arch.name: arch for arch in judging.architectures()}
COMMON = ["bert", "gpt2", "llama", "mixtral", "t5", "vit", "resnet"]


@pytest.mark.parametrize("name", COMMON)
def test_tiny_configuration_gives_a_model_that_trains(name, tmp_path):
    """A common architecture has at least two blocks after shrinking, few weights, and a finite loss."""
    judging.write_directory(BY_NAME[name], KNOWN, tmp_path)
    target = load_target(str(tmp_path), seed=0)
    model = target.build_model()
    loss = target.loss(model, next(iter(target.batches("short", 1))))
    loss.backward()
    assert torch.isfinite(loss)
    assert sum(weight.numel() for weight in model.parameters()) < 1_000_000
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    assert max(len(blocks) for blocks in lists) >= 2


def test_one_layer_of_each_kind_stays():
    """Layers that differ are thinned out to one of each kind, in all lists that describe them alike."""
    tiny = shrink(
        {
            "num_hidden_layers": 6,
            "layer_types": ["sliding", "sliding", "full", "sliding", "sliding", "full"],
            "no_rope": [1, 1, 0, 1, 1, 0],
            "moe_layers": [1, 2, 4],
            "per_layer_config": {"02": {"hidden_size": 4096}, "05": {"hidden_size": 4096}},
        }
    )
    assert tiny["num_hidden_layers"] == 2
    assert tiny["layer_types"] == ["sliding", "full"]
    assert tiny["no_rope"] == [1, 0]
    assert tiny["moe_layers"] == [1]
    assert list(tiny["per_layer_config"]) == ["1"]


def test_special_tokens_stay_different_and_inside_the_vocabulary():
    """Special tokens of all parts move into the small vocabulary: equal ones together, different ones apart."""
    tiny = shrink(
        {
            "vocab_size": 50_000,
            "bos_token_id": 1,
            "image_token_id": 49_000,
            "text_config": {"pad_token_id": 49_001, "eos_token_id": [49_000, 2]},
        }
    )
    text = tiny["text_config"]
    assert tiny["bos_token_id"] == 1
    assert tiny["image_token_id"] == text["eos_token_id"][0] != text["pad_token_id"]
    assert max(tiny["image_token_id"], text["pad_token_id"]) < tiny["vocab_size"]


def test_dropout_is_on():
    """Dropout that is off by default is switched on, what is on stays, and other zeros are left alone."""
    tiny = shrink({"attention_dropout": 0.0, "layerdrop": 0.05, "router_jitter_noise": 0.0})
    assert tiny == {"attention_dropout": 0.1, "layerdrop": 0.05, "router_jitter_noise": 0.0}


def test_changes_reach_into_parts():
    """What is known about an architecture is merged at any depth, and DROP leaves an attribute out."""
    raw = {"a": 1, "b": {"c": 2, "d": 3}}
    assert merged(raw, {"a": "DROP", "b": {"d": 4}}) == {"b": {"c": 2, "d": 4}}


def test_every_name_that_is_known_exists():
    """A remark about an architecture that transformers no longer has would never be noticed."""
    known = {*KNOWN.changes, *KNOWN.skipped, *KNOWN.examined}
    assert known <= set(BY_NAME)
    assert all((KNOWN.changes, KNOWN.skipped, KNOWN.examined)), "a part of hugging_face.toml was lost"
    assert len(BY_NAME) >= hugging_face.AT_LEAST


def row(name, outcome, reason=""):
    return judging.Result(name, "Head", outcome, reason, transformers="0").as_dict()


def test_a_fail_that_nobody_examined_fails_the_sweep(capsys):
    """Every fail needs a reason that somebody found; the table names those without."""
    rows = [row(f"model{number}", "passed") for number in range(hugging_face.AT_LEAST)]
    known = judging.Known({}, {}, {"batchy": "BatchNorm in its blocks"})
    judged = [*rows, row("batchy", "failed", "6 of 6 differ")]
    assert hugging_face._print_tables(judged, known, left=0, everything=True) == 0
    assert "BatchNorm in its blocks" in capsys.readouterr().out
    judged.append(row("new", "failed", "1 of 6 differs"))
    assert hugging_face._print_tables(judged, known, left=0, everything=True) == 1
    assert "failed and not examined: new" in capsys.readouterr().out


def test_too_many_that_could_not_be_checked_fail_the_sweep(capsys):
    """Skips and errors count together, apart from the fails, and are at most 15 % of those tried."""
    known = judging.Known({}, {}, {})
    passed = [row(f"model{number}", "passed") for number in range(170)]
    unchecked = [row(f"odd{number}", ("error", "skipped")[number % 2], "why") for number in range(30)]
    assert hugging_face._print_tables([*passed, *unchecked], known, left=0, everything=True) == 0
    assert "15.0% of those tried" in capsys.readouterr().out
    more = [*passed, *unchecked, row("one", "error", "why")]
    assert hugging_face._print_tables(more, known, left=0, everything=True) == 1
    assert hugging_face._print_tables(passed[:50], known, left=0, everything=True) == 1, "too few"


def test_results_are_read_back_without_the_line_that_was_cut_short(tmp_path):
    """A sweep goes on where it was interrupted, in the middle of a line too."""
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(row("a", "passed")) + "\n" + json.dumps(row("b", "passed"))[:20])
    assert list(sweep_rows.read(path)) == ["a"]


def test_rows_are_written_as_they_come(tmp_path, capsys):
    """What was done before an interruption is in the file, and the later of two rows counts."""

    def found():
        yield row("a", "error", "first")
        yield row("a", "passed")
        raise KeyboardInterrupt

    path, done = tmp_path / "results.jsonl", {}
    with pytest.raises(KeyboardInterrupt):
        sweep_rows.take(found(), 3, path, done, lambda one: one["outcome"])
    assert sweep_rows.read(path) == done == {"a": row("a", "passed")}
    assert "[2/3, 0 min left] a: passed" in capsys.readouterr().out


def test_an_escape_fails_the_sweep(capsys):
    """A pass that a bare training loop contradicts is named and fails the sweep; one that it confirms does not."""
    known = judging.Known({}, {}, {})
    judged = [row(f"model{number}", "passed") for number in range(hugging_face.AT_LEAST)]
    equal = {"again": "", "block": "", "selective": ""}
    tracks = {"block": "pass", "selective": "pass"}
    judged[0] |= {"bare": equal, "tracks": tracks}
    assert hugging_face._print_tables(judged, known, left=0, everything=True) == 0
    judged[1] |= {"bare": equal | {"selective": "1 loss differs"}, "tracks": tracks, "escaped": True}
    assert hugging_face._print_tables(judged, known, left=0, everything=True) == 1
    told = capsys.readouterr().out
    assert "ESCAPED:\n  model1" in told
    assert "1 of 2 differ under AC, 1 of them passed the gate" in told


@pytest.mark.slow
def test_sound_architecture_passes():
    """A Llama as transformers makes it passes with its own switch, block and selective."""
    result = judging.judge(BY_NAME["llama"], KNOWN)
    assert (result.outcome, result.tracks) == ("passed", {"block": "pass", "selective": "pass"}), result
    assert result.applies_ac == "hugging-face"
    assert result.bare == {"again": "", "block": "", "selective": ""}


@pytest.mark.slow
def test_batch_norm_in_a_block_fails():
    """Canary's conformer has a BatchNorm in its blocks, whose statistics a replay updates a second time."""
    result = judging.judge(BY_NAME["canary"], KNOWN)
    assert result.outcome == "failed", result
    assert "block: fail buffers" in result.flagged
    assert "buffer" in result.bare["block"]
    assert not result.escaped
    assert "canary" in KNOWN.examined
