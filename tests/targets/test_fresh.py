"""Nothing of the target's own code survives from one load to the next."""

from __future__ import annotations

import dataclasses
import os
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acgate.errors import TargetError
from acgate.targets.fresh import forget
from acgate.targets.load import load_target

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTING = """
calls = 0
def count():
    global calls
    calls += 1
    return calls
"""
COUNTED = "import counting\nplain = batches\ndef batches(bucket):\n    return [{'x': torch.tensor([counting.count()])}]\n"


def first(model: str) -> int:
    return int(load_target(model, seed=1).batches("default", 1)[0]["x"])


def test_globals_of_the_file_start_anew(write: Callable[..., str]) -> None:
    """A counter in the target's file begins at one for every load, also for a target loaded by attribute."""
    path = write(add=f"{COUNTING}\ndef batches(bucket):\n    return [{{'x': torch.tensor([count()])}}]")
    assert [first(path), first(path), first(f"{path}:build_model")] == [1, 1, 1]


def test_globals_of_its_own_modules_start_anew(write: Callable[..., str]) -> None:
    """So do those of modules beside it, while installed packages stay as they are."""
    write(text=COUNTING, name="counting.py")
    path = write(add=COUNTED)
    torch_module = sys.modules["torch"]
    assert [first(path), first(path)] == [1, 1]
    assert sys.modules["torch"] is torch_module


def test_modules_that_are_imported_while_it_trains_start_anew(write: Callable[..., str]) -> None:
    """A lazy import inside a function works after loading, and is fresh at the next load too."""
    write(text=COUNTING, name="counting.py")
    path = write(
        add=COUNTED.replace("import counting\n", "").replace("    return", "    import counting\n    return")
    )
    assert [first(path), first(path)] == [1, 1]


def test_a_package_starts_anew(write: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A target in a package is imported again with its siblings, however they are imported."""
    path = Path(write(text=COUNTING, name="counted_package/counting.py"))
    write(
        add=COUNTED.replace("import counting", "from counted_package import counting"),
        name="counted_package/target.py",
    )
    monkeypatch.chdir(path.parents[1])
    assert [first("counted_package.target"), first("counted_package.target")] == [1, 1]


def test_targets_with_siblings_of_one_name_do_not_mix(write: Callable[..., str]) -> None:
    """Two targets may each have a `layers.py`; each gets its own."""
    for place in ("one", "two"):
        write(text=f"NAME = {place!r}", name=f"{place}/layers.py")
    paths = [
        write(
            add="import layers\nmax_grad_norm = len(layers.NAME + layers.NAME[0] * (layers.NAME == 'two'))",
            name=f"{place}/target.py",
        )
        for place in ("one", "two")
    ]
    assert [load_target(path, seed=1).max_grad_norm for path in paths] == [3.0, 4.0]
    assert sum(entry in {str(Path(path).parent) for path in paths} for entry in sys.path) == 1


def test_two_loads_of_one_source_have_one_digest(write: Callable[..., str]) -> None:
    """The digest follows the source, that of the target's own modules included, and nothing else."""
    sibling = Path(write(text=COUNTING, name="counting.py"))
    path = write(add=COUNTED)
    digests = [load_target(path, seed=seed).digest for seed in (1, 2)]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 32
    sibling.write_text(COUNTING + "# changed")
    assert load_target(path, seed=1).digest != digests[0]


def test_an_installed_module_under_another_name_is_not_the_targets_own(write: Callable[..., str]) -> None:
    """A name with a dot says nothing about where a file lies: pytest calls one of its modules `py.error`."""
    file = write(text=COUNTING, name="site-packages/inner/error.py")
    alias = f"""
import importlib.util, sys
if "aliased_by_test.error" not in sys.modules:
    spec = importlib.util.spec_from_file_location("aliased_by_test.error", {file!r})
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
"""
    path = write(add=alias)
    digests = [load_target(path, seed=1).digest for _ in range(2)]
    assert sys.modules.pop("aliased_by_test.error")
    assert digests[0] == digests[1]


def test_an_edit_is_seen_at_once(write: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes within a second and keeps its size is read again, not taken from a bytecode cache."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    values = []
    for value in (1, 2, 3):
        path = write(add=f"max_grad_norm = {value}")
        os.utime(path, (1_700_000_000, 1_700_000_000))
        values.append(load_target(path, seed=1).max_grad_norm)
    assert values == [1.0, 2.0, 3.0]


ONLY_ONCE = """
import logging
if hasattr(logging, "acgate_test_registry"):
    raise ValueError("already registered")
logging.acgate_test_registry = True
"""


@pytest.fixture
def registry() -> object:
    """A process-wide registry that refuses a second registration."""
    import logging

    yield logging
    if hasattr(logging, "acgate_test_registry"):
        del logging.acgate_test_registry


@pytest.mark.usefixtures("registry")
def test_code_that_refuses_a_second_load_is_reused_and_says_so(write: Callable[..., str]) -> None:
    """Where a registry refuses a name twice, the first module serves again and the target is marked."""
    write(text=COUNTING, name="counting.py")
    path = write(add=ONLY_ONCE + COUNTED)
    again = [load_target(path, seed=1) for _ in range(3)]
    assert [target.reused for target in again] == [False, True, True]
    assert len({target.digest for target in again}) == 1
    assert [int(target.batches("default", 1)[0]["x"]) for target in again] == [1, 2, 3]
    assert "counting" in sys.modules


@pytest.mark.usefixtures("registry")
def test_changed_code_is_not_replaced_by_an_earlier_load(write: Callable[..., str]) -> None:
    """A target that was edited and fails now is an error, not the module from before the edit."""
    path = write()
    load_target(path, seed=1)
    write(add="raise RuntimeError('edited')")
    with pytest.raises(TargetError, match="edited"):
        load_target(path, seed=1)


def test_a_module_that_others_imported_is_marked_as_reused(
    write: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What acgate did not import itself it does not take away; then globals may carry over, and it says so."""
    path = Path(write(name="imported_by_others.py"))
    monkeypatch.chdir(path.parent)
    monkeypatch.syspath_prepend(str(path.parent))
    module = __import__("imported_by_others")
    assert load_target("imported_by_others", seed=1).reused
    assert sys.modules["imported_by_others"] is module
    del sys.modules["imported_by_others"]


def test_classes_of_the_target_can_be_found_by_name(write: Callable[..., str]) -> None:
    """Dataclasses and pickle look a class's module up, so the private name is a real module."""
    extra = """
from __future__ import annotations
import dataclasses
@dataclasses.dataclass
class Config:
    size: int = 4
def batches(bucket):
    return [(Config(), torch.zeros(1))]
"""
    target = load_target(
        write(
            text="from __future__ import annotations\n",
            add=extra.replace("from __future__ import annotations", "import torch\ndef build_model(): ..."),
        ),
        seed=1,
    )
    config = target.batches("default", 1)[0][0]
    assert dataclasses.asdict(pickle.loads(pickle.dumps(config))) == {"size": 4}


def test_an_equal_entry_of_the_path_that_was_there_before_stays(
    write: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m pytest` puts the working directory on the path: what others put there is not taken away."""
    path = Path(write())
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    before = list(sys.path)
    load_target(str(path), seed=1)
    sys.path[:] = before  # as what runs a job in this process does afterwards
    load_target(str(path), seed=1)
    forget("nobody")
    assert sys.path == before
