"""Which kind of target `--model` names, and loading it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import TargetError
from acgate.spec.model_setting import FORMS, is_dotted, split_attribute
from acgate.spec.resources import data_directory
from acgate.targets.attributes import Origin, read_target, select, suggestion
from acgate.targets.labels import safe_label
from acgate.targets.module import load_module
from acgate.targets.python_file import load_file

if TYPE_CHECKING:
    from acgate.targets.fresh import Loaded
    from acgate.targets.protocol import Target

BUILT_IN = "llama_like.py"
_HUGGING_FACE = ("config.json", "adapter_config.json")


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
        return _from_file(data_directory("targets") / BUILT_IN, None, "the built-in target", seed)
    place, attribute = split_attribute(model)
    if place.endswith(".py"):
        return _from_file(Path(place).expanduser(), attribute, model, seed)
    path = Path(place).expanduser()
    if path.is_dir() and any((path / name).is_file() for name in _HUGGING_FACE):
        if attribute is not None:
            raise TargetError(
                f"{model}: a Hugging Face directory has no attributes; leave out ':{attribute}'"
            )
        # Imported here: transformers is optional.
        from acgate.targets.hugging_face import load_directory  # noqa: PLC0415

        return load_directory(path, model, seed)
    if not is_dotted(place) or (attribute is None and path.is_dir()):
        raise TargetError(_unusable(model, path))
    loaded = load_module(place, model)
    return _read(loaded, place.rpartition(".")[2], attribute, model, seed)


def _from_file(path: Path, attribute: str | None, source: str, seed: int) -> Target:
    return _read(load_file(path, source), path.stem, attribute, source, seed)


def _read(loaded: Loaded, stem: str, attribute: str | None, source: str, seed: int) -> Target:
    label = safe_label(stem if attribute is None else f"{stem}-{attribute}")
    origin = Origin(label, source, loaded.digest, loaded.reused)
    return read_target(select(loaded.module, attribute, source), origin, seed)


def _unusable(model: str, path: Path) -> str:
    if path.is_dir():
        hint = suggestion("config.json", (file.name for file in path.iterdir()))
        return f"the directory {model} has no config.json{hint}; {FORMS}"
    if path.is_file():
        if path.name in _HUGGING_FACE:
            return f"{model} is a file; give its directory {path.parent}"
        return f"{model} is no Python file; {FORMS}"
    names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = suggestion(path.name, names)
    return f"there is no {model}{hint}; {FORMS} (acgate works offline: download a model first)"
