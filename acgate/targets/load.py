"""Which kind of target `--model` names, and loading it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from acgate.spec.model_place import HUGGING_FACE, check_place
from acgate.spec.model_setting import split_attribute
from acgate.spec.resources import BUILT_IN_SOURCE, data_directory
from acgate.targets.attributes import Origin, read_target, select
from acgate.targets.labels import safe_label
from acgate.targets.module import load_module
from acgate.targets.python_file import load_file

if TYPE_CHECKING:
    from acgate.targets.fresh import Loaded
    from acgate.targets.protocol import Target

BUILT_IN = "llama_like.py"


def load_target(model: str | None, *, seed: int) -> Target:
    """Load a target, its own code anew at every call.

    The target loaded before is put away: one target is in use at a time, and its directory stays
    on `sys.path` meanwhile, so that its functions can import lazily.

    Args:
        model: `PATH.py[:attribute]`, `package.module[:attribute]`, a Hugging Face directory, or
            None for the built-in target.
        seed: Seeds `build_model` and `batches`.

    Raises:
        TargetError: It cannot be loaded, or lacks something.
        SystemExit: The target's code asked to exit while it was imported.
    """
    if model is None:
        return _from_file(data_directory("targets") / BUILT_IN, None, BUILT_IN_SOURCE, seed)
    check_place(model)
    place, attribute = split_attribute(model)
    path = Path(place).expanduser()
    if place.endswith(".py"):
        return _from_file(path, attribute, model, seed)
    if path.is_dir() and any((path / name).is_file() for name in HUGGING_FACE):
        # Imported here: transformers is optional.
        from acgate.targets.hugging_face import load_directory  # noqa: PLC0415

        return load_directory(path, model, seed)
    loaded = load_module(place, model)
    return _read(loaded, place.rpartition(".")[2], attribute, model, seed)


def _from_file(path: Path, attribute: str | None, source: str, seed: int) -> Target:
    return _read(load_file(path, source), path.stem, attribute, source, seed)


def _read(loaded: Loaded, stem: str, attribute: str | None, source: str, seed: int) -> Target:
    label = safe_label(stem if attribute is None else f"{stem}-{attribute}")
    origin = Origin(label, source, loaded.digest, loaded.reused)
    return read_target(select(loaded.module, attribute, source), origin, seed)
