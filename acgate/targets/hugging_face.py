"""Targets in a Hugging Face directory: `config.json`, with or without safetensors weights or an adapter."""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from acgate.errors import TargetError
from acgate.evidence.fact_kinds import AC_BY_ACGATE, LOSS_OF_ACGATE, MODEL_CLASS
from acgate.evidence.records import Fact
from acgate.targets.fresh import digest_of
from acgate.targets.hugging_face_adapter import base_directory, refuse_without_peft, with_adapter
from acgate.targets.hugging_face_directory import (
    ADAPTER,
    CONFIG,
    files_of,
    has_weights,
    read_json,
    read_processor,
    refuse_unusable,
    weight_headers,
)
from acgate.targets.hugging_face_draws import configurations
from acgate.targets.hugging_face_heads import Head, Task, choose_head, configuration_of
from acgate.targets.hugging_face_inputs import input_stream
from acgate.targets.hugging_face_loss import output_loss
from acgate.targets.hugging_face_plan import tensor_parallel_plan
from acgate.targets.hugging_face_switch import switch_ac
from acgate.targets.labels import safe_label
from acgate.targets.protocol import Target, default_loss

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from torch import nn


def load_directory(directory: Path, source: str, seed: int) -> Target:
    """Make a target of a directory with a `config.json`, an `adapter_config.json`, or both.

    Weights come from `model.safetensors` (or its shards) where there are any, else they are drawn
    under the seed; those of an adapter likewise. The model is built in float32 and in training mode,
    because Hugging Face checkpoints in training mode only; one without a switch of its own leaves AC
    to acgate. Nothing is downloaded and no code of the directory runs.

    Raises:
        TargetError: transformers or peft is missing, or the configuration cannot be used.
    """
    adapter = directory if (directory / ADAPTER).is_file() else None
    if adapter is not None:
        refuse_without_peft(directory, source)
    base = directory if adapter is None else base_directory(directory, source)
    text, raw = read_json(base / CONFIG, source)
    refuse_unusable(raw, base, source)
    transformers = _import_transformers(source)
    try:
        config = transformers.AutoConfig.from_pretrained(base, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise TargetError(
            f"{source}: transformers {transformers.__version__} cannot read this config.json: {error}"
        ) from error
    head = choose_head(transformers, config, source)
    config = configuration_of(head, config)
    processor_text, processor = read_processor(base, source)
    parts = [text, processor_text, *weight_headers(base)]
    if adapter is not None:
        parts += [read_json(adapter / ADAPTER, source)[0], *weight_headers(adapter)]
    recipe = _Recipe(head, config, base, adapter, source)
    switches = getattr(head.model_class, "supports_gradient_checkpointing", False)
    return Target(
        label=safe_label(directory.resolve().name),
        source=source,
        digest=digest_of(parts),
        seed=seed,
        model_factory=recipe.build,
        batch_source=partial(input_stream, config, head, seed, processor=processor),
        loss_function=output_loss if head.task is Task.OUTPUTS else default_loss,
        switch_ac=switch_ac if switches else None,
        tensor_parallel_plan=tensor_parallel_plan,
        files=files_of(directory, base),
        facts=tuple(_facts(head, recipe, transformers.__version__, switches=switches)),
    )


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What a model is built from, anew for every track."""

    head: Head
    config: Any
    directory: Path
    adapter: Path | None
    source: str

    def build(self) -> nn.Module:
        """Return the model in float32 and training mode, without AC and without a cache."""
        config = copy.deepcopy(self.config)
        for part in configurations(config):
            # Caches of keys and values serve generation; and the reference must have no AC.
            for name in ("use_cache", "gradient_checkpointing"):
                if hasattr(part, name):
                    setattr(part, name, False)
        if has_weights(self.directory):
            model = self.head.model_class.from_pretrained(
                self.directory, config=config, local_files_only=True, use_safetensors=True
            )
        else:
            model = self.head.model_class(config)
        if self.adapter is not None:
            model = with_adapter(model, self.adapter, self.source)
        # The gate sets the precision of each cell itself, from float32 weights.
        return model.float().train()  # type: ignore[no-any-return]


def _facts(head: Head, recipe: _Recipe, version: str, *, switches: bool) -> Iterator[Fact]:
    weights = "from safetensors" if has_weights(recipe.directory) else "drawn from the seed"
    adapted = "" if recipe.adapter is None else ", frozen, with an adapter of peft"
    yield Fact(kind=MODEL_CLASS, where=head.name, detail=f"{head.task.value}; weights {weights}{adapted}")
    if head.task is Task.OUTPUTS:
        yield Fact(
            kind=LOSS_OF_ACGATE,
            where=head.name,
            detail="acgate compares how its outputs differ from a fixed pattern, unless it returns a loss",
        )
    if not switches:
        yield Fact(
            kind=AC_BY_ACGATE,
            where=head.name,
            detail=f"transformers {version} has no activation checkpointing for it"
            " (supports_gradient_checkpointing is False), so acgate's own policy is applied to its blocks",
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
