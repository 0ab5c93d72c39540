from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acgate.report.github_places import Places

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with two files of one name, one that is alone, and an environment."""
    for name in ("a/model.py", "b/model.py", "a/alone.py", ".venv/lib/hidden.py", "a/site-packages/lib.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one\ntwo\nthree\n", encoding="utf-8")
    return tmp_path


def test_the_file_of_the_target_comes_first(checkout: Path) -> None:
    """Its name is given without a directory, and there may be several of that name."""
    places = Places(checkout, checkout / "b")
    assert places.of("model.py:3 in forward", "model.py") == ("b/model.py", 3)
    assert places.of("model.py:1", str(checkout / "a" / "model.py")) == ("a/model.py", 1)


def test_another_file_is_named_only_where_it_is_the_only_one(checkout: Path) -> None:
    """A wrong line would be worse than none."""
    places = Places(checkout, checkout)
    assert places.of("alone.py:2 in forward", "package.module:Model") == ("a/alone.py", 2)
    assert places.of("model.py:2 in forward", "package.module:Model") is None


@pytest.mark.parametrize(
    "text",
    ["", "layers.3", "alone.py", "alone.py:0", "alone.py:4", "hidden.py:1", "lib.py:1", "../alone.py:1"],
)
def test_what_names_no_line_of_the_checkout_has_no_place(checkout: Path, text: str) -> None:
    """No line that is not there, nothing of what is installed."""
    assert Places(checkout, checkout).of(text, "tiny.py") is None


def test_a_target_outside_of_the_checkout_has_no_place(checkout: Path) -> None:
    """GitHub can only mark what is in the repository."""
    assert Places(checkout / "b", checkout).of("alone.py:1", str(checkout / "a" / "alone.py")) is None
    assert Places(None, checkout).of("alone.py:1", "a/alone.py") is None


@pytest.mark.parametrize("target", ["a\0b", "\ud800", "a" * 5000])
def test_a_target_that_names_no_file_is_no_hindrance(checkout: Path, target: str) -> None:
    """What a target is called is any text; the file of a cause is then looked for as always."""
    assert Places(checkout, checkout).of("alone.py:1", target) == ("a/alone.py", 1)
