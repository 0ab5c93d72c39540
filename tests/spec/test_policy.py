from __future__ import annotations

from pathlib import Path

import pytest

from acgate.errors import PolicyError
from acgate.spec.models import Policy
from acgate.spec.policy import load_policy


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return path


def test_an_empty_policy_is_the_default(tmp_path: Path) -> None:
    """Nothing has to be said."""
    assert load_policy(written(tmp_path, "")) == Policy()


def test_both_sections_are_read(tmp_path: Path) -> None:
    """Block and selective settings arrive as written."""
    policy = load_policy(
        written(
            tmp_path,
            "schema = 1\n[block]\ninclude = ['layers.*']\nregion_size = 4\n"
            "[selective]\nsave = ['aten.mm.default']\nevery_second_matmul = true\nby_layer = true\n",
        )
    )
    assert (policy.block.include, policy.block.region_size) == (("layers.*",), 4)
    assert policy.selective.save == ("aten.mm.default",)
    assert (policy.selective.every_second_matmul, policy.selective.by_layer) == (True, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[selective]\nsaev = []", 'policy.toml: [selective] saev: unknown key; did you mean "save"?'),
        ("[blocks]", 'policy.toml: blocks: unknown key; did you mean "block"?'),
        ("schema = 2", "policy.toml: schema: must be 1, got 2"),
        ("schema_ = 1", 'policy.toml: schema_: unknown key; did you mean "schema"?'),
        ("[block]\nregion_size = 3", "policy.toml: [block] region_size: must be 1, 2, 4 or 8, got 3"),
        ("[selective]\nsave = 'mm'", 'policy.toml: [selective] save: must be a list, got "mm"'),
        ("[selective]\nsave = [1]", "policy.toml: [selective] save, entry 1: must be text, got 1"),
        ("[selective]\nby_layer = 1", "policy.toml: [selective] by_layer: must be true or false, got 1"),
    ],
)
def test_a_mistake_in_a_policy_is_named(tmp_path: Path, text: str, message: str) -> None:
    """Section, key, rule, spelling."""
    with pytest.raises(PolicyError) as caught:
        load_policy(written(tmp_path, text))
    assert str(caught.value) == message


def test_a_missing_policy_is_a_policy_error(tmp_path: Path) -> None:
    """Also where the name is that of a directory."""
    with pytest.raises(PolicyError, match="no such file"):
        load_policy(tmp_path / "none.toml")
    with pytest.raises(PolicyError, match="is a directory"):
        load_policy(tmp_path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no device without an end here")
def test_a_file_without_an_end_is_refused() -> None:
    """Reading a device never fills the memory."""
    with pytest.raises(PolicyError, match="larger than 16 MiB"):
        load_policy(Path("/dev/zero"))
