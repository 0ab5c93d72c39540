"""Adapters (LoRA) of peft around a model of transformers, which stays frozen."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file

from acgate.errors import TargetError, message_of
from acgate.targets.hugging_face_directory import ADAPTER, CONFIG, read_json

if TYPE_CHECKING:
    from types import ModuleType

    from torch import nn

_WEIGHTS = "adapter_model.safetensors"
_PICKLED = "adapter_model.bin"
_SHOWN = 3


def base_directory(directory: Path, source: str) -> Path:
    """Return where the model lies that an adapter is for: the same directory, or the one it names.

    Raises:
        TargetError: It is not on this machine; nothing is downloaded.
    """
    if (directory / CONFIG).is_file():
        return directory
    named = read_json(directory / ADAPTER, source)[1].get("base_model_name_or_path")
    place = Path(str(named)).expanduser() if named else None
    for candidate in (place, directory / place) if place else ():
        if (candidate / CONFIG).is_file():
            return candidate
    raise TargetError(
        f"{source}: {ADAPTER} names the base model {named!r}, which is no directory with a {CONFIG}, neither"
        f" from here nor from {directory}; acgate downloads nothing: put the {CONFIG} of the base model (and"
        f" model.safetensors, or it is drawn from the seed) beside {ADAPTER}, or name a local directory"
    )


def refuse_without_peft(directory: Path, source: str) -> None:
    """Refuse an adapter that cannot be loaded here.

    Raises:
        TargetError: peft is missing, or the adapter's weights are pickled.
    """
    if importlib.util.find_spec("peft") is None:
        raise TargetError(
            f"{source} holds an adapter ({ADAPTER}), and peft is not installed: pip install 'acgate[lora]'"
        )
    if (directory / _PICKLED).is_file() and not (directory / _WEIGHTS).is_file():
        raise TargetError(
            f"{source}: the weights in {_PICKLED} are pickled, which acgate does not load; convert them to"
            f" {_WEIGHTS}, or move them away to draw the adapter from the seed"
        )


def with_adapter(base: nn.Module, directory: Path, source: str) -> nn.Module:
    """Return the model with its adapter, ready to train: the base is frozen, the adapter is not.

    Without weights of its own the adapter is initialised by peft, from torch's random stream.

    Raises:
        TargetError: peft cannot make the adapter, or its weights are those of another one.
    """
    peft = importlib.import_module("peft")
    try:
        config = peft.PeftConfig.from_pretrained(str(directory))
        config.inference_mode = False  # adapters are saved for inference, which freezes them too
        model = peft.get_peft_model(base, config)
    except (ValueError, TypeError, KeyError, ImportError) as error:
        raise TargetError(
            f"{source}: peft {peft.__version__} cannot make the adapter of {ADAPTER} in"
            f" {type(base).__name__}: {message_of(error)}"
        ) from error
    if (directory / _WEIGHTS).is_file():
        _load(peft, model, load_file(directory / _WEIGHTS), source)
    return model  # type: ignore[no-any-return]


def _load(peft: ModuleType, model: Any, weights: dict[str, Any], source: str) -> None:
    # Embeddings that peft saves beside the adapter by its own judgement are no part of it.
    wanted = set(peft.get_peft_model_state_dict(model, save_embedding_layers=False))
    missing = sorted(wanted - set(weights))
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise TargetError(
            f"{source}: {_WEIGHTS} lacks {', '.join(missing[:_SHOWN])}{more}, which {ADAPTER} asks for:"
            " the two are of different adapters"
        )
    peft.set_peft_model_state_dict(model, weights)
