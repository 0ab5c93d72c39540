"""The switch by which transformers turns on AC, in each of its generations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acgate.errors import TargetError, message_of

if TYPE_CHECKING:
    from torch import nn

    from acgate.targets.protocol import ContextFn


def switch_ac(model: nn.Module, context_fn: ContextFn | None = None) -> None:
    """Turn on AC with the library's own switch, always non-reentrant.

    Nothing else is turned on with it: whether inputs need gradients is up to the library, as in training.

    Args:
        model: A `PreTrainedModel`, or a `PeftModel` around one, in training mode if AC is to happen.
        context_fn: For selective AC, what `torch.utils.checkpoint.checkpoint` takes; None for block AC.

    Raises:
        TargetError: The model has no such switch, or has none that works.
    """
    inner: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    name = type(inner).__name__
    if not getattr(inner, "supports_gradient_checkpointing", False):
        raise TargetError(f"{name} does not support activation checkpointing in this version of transformers")
    options: dict[str, Any] = {"use_reentrant": False}
    if context_fn is not None:
        options["context_fn"] = context_fn
    try:
        # `gradient_checkpointing_enable` is deprecated since 5.24 and gone in 6.
        enable = getattr(inner, "activation_checkpointing_enable", None)
        if enable is not None:
            enable(activation_checkpointing_kwargs=options)
        else:
            inner.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    except ValueError as error:
        raise TargetError(
            f"{name} says that it supports activation checkpointing, and the switch of transformers refuses"
            f" it: {message_of(error)}"
        ) from error
