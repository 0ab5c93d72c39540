"""Targets in a Hugging Face directory: `config.json`, with or without safetensors weights."""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from acgate.errors import TargetError
from acgate.spec.explain import did_you_mean
from acgate.targets.fresh import digest_of
from acgate.targets.hugging_face_inputs import Task, input_stream
from acgate.targets.hugging_face_plan import tensor_parallel_plan
from acgate.targets.labels import safe_label
from acgate.targets.protocol import Target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from torch import nn

    from acgate.targets.protocol import ContextFn

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
# In the order in which a head is chosen where the configuration names none: BERT has a causal head too.
_HEADS = {
    Task.SEQ_TO_SEQ: "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    Task.MASKED_LM: "MODEL_FOR_MASKED_LM_MAPPING",
    Task.IMAGE_CLASSIFICATION: "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
    Task.CAUSAL_LM: "MODEL_FOR_CAUSAL_LM_MAPPING",
    Task.SEQUENCE_CLASSIFICATION: "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    Task.TOKEN_CLASSIFICATION: "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
}


def load_directory(directory: Path, source: str, seed: int) -> Target:
    """Make a target of a directory with a `config.json`.

    Weights come from `model.safetensors` (or its shards) where there are any, else they are drawn
    under the seed. The model is built in float32 and in training mode, because Hugging Face
    checkpoints in training mode only; one without a switch of its own leaves AC to acgate. Nothing
    is downloaded and no code of the directory runs.

    Raises:
        TargetError: transformers is missing, or the configuration cannot be used.
    """
    text = (directory / "config.json").read_bytes()
    raw = _parse(text, source)
    _refuse_unusable(raw, directory, source)
    transformers = _import_transformers(source)
    try:
        config = transformers.AutoConfig.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise TargetError(
            f"{source}: transformers {transformers.__version__} cannot read this config.json: {error}"
        ) from error
    model_class, task = _model_class(transformers, config, source)
    return Target(
        label=safe_label(directory.resolve().name),
        source=source,
        digest=digest_of([text, *_weight_headers(directory)]),
        seed=seed,
        model_factory=partial(_build, model_class, config, directory),
        batch_source=partial(input_stream, config, task, seed),
        switch_ac=switch_ac if getattr(model_class, "supports_gradient_checkpointing", False) else None,
        tensor_parallel_plan=tensor_parallel_plan,
    )


def switch_ac(model: nn.Module, context_fn: ContextFn | None = None) -> None:
    """Turn on AC with the library's own switch, always non-reentrant.

    Args:
        model: A `PreTrainedModel`, in training mode if AC is to happen.
        context_fn: For selective AC, what `torch.utils.checkpoint.checkpoint` takes; None for block AC.

    Raises:
        TargetError: The model has no such switch, or does not support it.
    """
    options: dict[str, Any] = {"use_reentrant": False}
    if context_fn is not None:
        options["context_fn"] = context_fn
    if not getattr(model, "supports_gradient_checkpointing", False):
        raise TargetError(
            f"{type(model).__name__} does not support activation checkpointing"
            " in this version of transformers"
        )
    # `gradient_checkpointing_enable` is deprecated since 5.24 and gone in 6.
    enable = getattr(model, "activation_checkpointing_enable", None)
    if enable is not None:
        enable(activation_checkpointing_kwargs=options)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)  # type: ignore[operator]


def _build(model_class: Any, shared_config: Any, directory: Path) -> nn.Module:
    config = copy.deepcopy(shared_config)
    for part in _with_sub_configurations(config):
        # Caches of keys and values serve generation; and the reference must have no AC.
        for name in ("use_cache", "gradient_checkpointing"):
            if hasattr(part, name):
                setattr(part, name, False)
    if any((directory / name).is_file() for name in _WEIGHTS):
        model = model_class.from_pretrained(
            directory, config=config, local_files_only=True, use_safetensors=True
        )
    else:
        model = model_class(config)
    # The gate sets the precision of each cell itself, from float32 weights.
    return model.float().train()  # type: ignore[no-any-return]


def _with_sub_configurations(config: Any) -> Iterator[Any]:
    yield config
    for value in vars(config).values():
        if hasattr(value, "model_type") and hasattr(value, "to_dict"):
            yield from _with_sub_configurations(value)


def _parse(text: bytes, source: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise TargetError(f"{source}: config.json is not JSON: {error}") from error
    if not isinstance(raw, dict) or not raw.get("model_type"):
        raise TargetError(
            f"{source}: config.json has no model_type, so it does not describe a transformers model"
        )
    return raw


def _refuse_unusable(raw: dict[str, Any], directory: Path, source: str) -> None:
    if "auto_map" in raw:
        raise TargetError(
            f"{source}: config.json has an auto_map, so this model needs code of its own directory,"
            " which acgate does not run (trust_remote_code is off);"
            " load the model in a Python file and give that as target"
        )
    if "quantization_config" in raw:
        raise TargetError(
            f"{source}: config.json has a quantization_config; remove it to check the unquantised model,"
            " or load the model in a Python file and give that as target"
        )
    pickled = next((name for name in _PICKLED if (directory / name).is_file()), None)
    if pickled is not None and not any((directory / name).is_file() for name in _WEIGHTS):
        raise TargetError(
            f"{source}: the weights in {pickled} are pickled, which acgate does not load; convert them to"
            " model.safetensors, or move them away to check the model with random weights"
        )


def _import_transformers(source: str) -> ModuleType:
    if importlib.util.find_spec("transformers") is None:
        raise TargetError(
            f"{source} is a Hugging Face directory, and transformers is not installed:"
            " pip install 'acgate[hf]'"
        )
    try:
        with _offline():
            return importlib.import_module("transformers")
    except ImportError as error:
        raise TargetError(f"{source}: the installed transformers cannot be imported: {error}") from error


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Keep huggingface_hub offline: it reads this setting once, when it is imported."""
    earlier = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        yield
    finally:
        if earlier is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = earlier


def _model_class(transformers: ModuleType, config: Any, source: str) -> tuple[Any, Task]:
    """Return the class that the configuration names, or its model type's usual head, and the task."""
    heads = {task: _classes(transformers, mapping, config) for task, mapping in _HEADS.items()}
    for name in config.architectures or ():
        for task, classes in heads.items():
            for candidate in classes:
                if candidate.__name__ == name:
                    return candidate, task
    named = (config.architectures or (None,))[0]
    if named is None or named.endswith("Model"):  # a bare model, whose output has no loss
        for task, classes in heads.items():
            if classes:
                return classes[0], task
    known = [candidate.__name__ for classes in heads.values() for candidate in classes]
    raise TargetError(
        f"{source}: acgate has no inputs for {named or config.model_type}"
        f"{did_you_mean(named or config.model_type, known)};"
        " load the model in a Python file with its own batches and give that as target"
    )


def _classes(transformers: ModuleType, mapping: str, config: Any) -> tuple[Any, ...]:
    found = getattr(transformers, mapping).get(type(config), ())
    return tuple(found) if isinstance(found, list | tuple) else (found,)


def _weight_headers(directory: Path) -> Iterator[bytes]:
    """Yield name, size and header of each weight file; their content is in the hash of the initial state."""
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            yield f"{path.name} {path.stat().st_size} ".encode() + file.read(min(length, 1 << 24))
