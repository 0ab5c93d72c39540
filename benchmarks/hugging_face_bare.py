"""A bare training loop, with and without AC: what is equal, bit for bit, and what is not."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from acgate.targets.load import load_target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor, nn

STEPS = 2
_SAVED = frozenset(
    getattr(torch.ops.aten, name).default
    for name in (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "convolution",
        "_grouped_mm",
        "_scaled_dot_product_flash_attention_for_cpu",
    )
)


def compare(directory: Path, *, seed: int, switch: bool, blocks: Sequence[str]) -> dict[str, str]:
    """Train two steps in each way and say how tracks differ from no AC; empty where they do not.

    Args:
        directory: With the `config.json`; model, batches and loss are those that acgate would take.
        seed: Of the weights and of every random stream.
        switch: AC is put on by the library's own switch, else around `blocks`.
        blocks: Names of modules.

    Returns:
        Text by track: `again` (a second run without AC, which must be equal), `block` and `selective`.
    """
    train = partial(_train, directory, seed=seed, switch=switch, blocks=blocks)
    reference = train("none")
    found = {}
    for track in ("again", "block", "selective"):
        try:
            found[track] = _difference(reference, train(track))
        except Exception as error:  # noqa: BLE001 - whatever AC raises is what is told
            found[track] = f"raises {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return found


def _train(
    directory: Path, track: str, *, seed: int, switch: bool, blocks: Sequence[str]
) -> dict[str, Tensor]:
    target = load_target(str(directory), seed=seed)
    _seed(seed)
    model = target.build_model()
    if track in ("block", "selective"):
        _put_on(model, selective=track == "selective", switch=switch, blocks=blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    produced = {}
    for step, batch in enumerate(target.batches("short", STEPS)):
        _seed(seed + 1 + step)
        optimizer.zero_grad()
        loss = target.loss(model, batch)
        loss.backward()
        produced[f"loss {step}"] = loss.detach().clone()
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                produced[f"gradient {step} {name}"] = weight.grad.detach().clone()
        for name, buffer in model.named_buffers():
            produced[f"buffer {step} {name}"] = buffer.detach().clone()
        optimizer.step()
    return produced


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # with which transformers masks speech


def _put_on(model: nn.Module, *, selective: bool, switch: bool, blocks: Sequence[str]) -> None:
    options: dict[str, Any] = {"use_reentrant": False}
    if selective:
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    if switch:
        enable: Any = getattr(model, "activation_checkpointing_enable", None)
        if enable is not None:
            enable(activation_checkpointing_kwargs=options)
        else:
            model.gradient_checkpointing_enable(options)  # type: ignore[operator]
        return
    for name in blocks:
        block = model.get_submodule(name)
        block.forward = partial(checkpoint, block.forward, **options)


def _policy(_context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in _SAVED else CheckpointPolicy.PREFER_RECOMPUTE


def _difference(reference: dict[str, Tensor], other: dict[str, Tensor]) -> str:
    if reference.keys() != other.keys():
        return f"{len(reference.keys() ^ other.keys())} tensors are there only once"
    unlike = [name for name, value in reference.items() if not _equal(value, other[name])]
    if not unlike:
        return ""
    kinds = {kind: sum(name.startswith(kind) for name in unlike) for kind in ("loss", "gradient", "buffer")}
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
    return f"{told} of {len(reference)} tensors differ, first {unlike[0]}"


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())
