from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acgate.errors import UsageError
from acgate.spec.combinations import check_in_process
from acgate.spec.loading import load_spec
from acgate.spec.models import GateSpec

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["world_size", "reference_layers"])
def test_an_option_without_effect_is_refused(tmp_path: Path, name: str) -> None:
    """Who asks for four ranks and gets one must hear of it before the verdict."""
    option = "--" + name.replace("_", "-")
    with pytest.raises(UsageError, match=rf"^{option}: has no effect .* --topologies ddp,fsdp$"):
        load_spec({name: 4}, None, tmp_path)
    loaded = load_spec({name: 4, "topologies": ("single", "ddp")}, None, tmp_path)
    assert getattr(loaded.spec, name) == 4


def test_a_file_may_serve_runs_of_one_rank_and_of_several(tmp_path: Path) -> None:
    """What a file says of ranks waits for the run that has some."""
    (tmp_path / "acgate.toml").write_text("world_size = 4\nreference_layers = 2\n")
    assert load_spec({}, None, tmp_path).spec.world_size == 4


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("dtypes = ['bfloat16.mixed']", r"^acgate\.toml: dtypes: "),
        ("[tool.acgate]\ndtypes = ['bfloat16.mixed']", r"^pyproject\.toml: \[tool\.acgate\] dtypes: "),
    ],
)
def test_the_mixed_precision_of_fsdp_needs_fsdp(tmp_path: Path, text: str, place: str) -> None:
    """The message names the two ways out, where it was said."""
    name = "pyproject.toml" if "tool" in text else "acgate.toml"
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=place + r"bfloat16\.mixed is .* add fsdp, or use bfloat16"):
        load_spec({"topologies": ("single", "ddp", "tp")}, None, tmp_path)
    for topology in ("fsdp", "fsdp1", "fsdp+tp"):
        assert load_spec({"topologies": ("single", topology)}, None, tmp_path).spec.dtypes


def test_one_process_is_one_rank() -> None:
    """--in-process and several ranks exclude each other, and the message says what to do."""
    check_in_process(GateSpec())
    with pytest.raises(UsageError, match=r"runs one rank, and ddp, pp needs? several; leave it out, or use"):
        check_in_process(GateSpec(topologies=("single", "ddp", "pp")))
