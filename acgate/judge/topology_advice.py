"""What to try where a model does not bear how ranks share the work, by the words that torch uses."""

from __future__ import annotations

ONE_DEVICE = "single"

_SAYINGS = (
    (
        "expect_autograd_hooks_",
        "DDP with static_graph=True must reduce gradients in its first backward: call no no_sync() before"
        ' it, and set gradient_sync = "every" under [parallel], or leave static_graph out',
    ),
    (
        "Expected to have finished reduction in the prior iteration",
        "let every parameter reach the loss; or set find_unused_parameters = true under [parallel], or in"
        " parallelize where that makes DDP",
    ),
    (
        "mixed torch.Tensor and DTensor",
        "let the plan of tensor parallelism name every module whose weight meets a tensor that it splits",
    ),
)


def advice_for(topology: str, message: str) -> str:
    """Return what to try where a model raises without AC.

    Args:
        topology: Of the cell; one device has no other that it could be compared with.
        message: Of the exception.
    """
    if topology == ONE_DEVICE:
        return "try: make the model train without activation checkpointing first"
    if known := known_advice(message):
        return f"try: {known}"
    return (
        f"try: make the model train in {topology} first, also without activation checkpointing; where"
        f" --topologies {ONE_DEVICE} trains it, look at how the work is shared: at parallelize or the plan"
        " of the target where it has one, and at [parallel] in acgate.toml"
    )


def known_advice(message: str) -> str:
    """Return what helps against an exception of torch's topologies, empty where that is not known."""
    return next((advice for words, advice in _SAYINGS if words in message), "")
