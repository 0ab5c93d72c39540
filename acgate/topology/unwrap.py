"""The model inside what shares it: whatever wrapped it, its parameters have the names of one device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.parallel import DistributedDataParallel

from acgate.errors import TargetError
from acgate.evidence.names import naming

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

_SHOWN = 3


def parameter_names(model: nn.Module) -> frozenset[str]:
    """Return the canonical names of all parameters."""
    name_of = naming(model)
    return frozenset(name_of(name) for name, _ in model.named_parameters())


def core_of(model: nn.Module, names: frozenset[str]) -> nn.Module:
    """Return the model whose parameters have the names that they have on one device.

    DDP holds the model as `module`, a name that models use too, so it is recognised by its class. FSDP2
    leaves names alone, and FSDP1 inserts one that `canonical` takes out. A target may put all of that into
    a module of its own, such as an engine, and give it any name: names tell where the model begins.

    Args:
        model: As it is called, after it was shared.
        names: Of its parameters before that, canonical.

    Raises:
        TargetError: There is no module in it whose parameters have those names.
    """
    for module in _inward(model):
        if not isinstance(module, DistributedDataParallel) and names <= parameter_names(module):
            return module
    missing = sorted(names - parameter_names(model))
    shown = ", ".join(missing[:_SHOWN]) + (f" and {len(missing) - _SHOWN} more" if missing[_SHOWN:] else "")
    raise TargetError(
        f"parallelize returned {type(model).__name__}, in which parameters of the model that it got are not"
        f" to be found by name ({shown}), so nothing could be compared; return that model itself, wrapped as"
        " a whole (as by DistributedDataParallel or fully_shard), or a module that holds the whole wrapped"
        " model and no parameters beside it"
    )


def _inward(model: nn.Module) -> Iterator[nn.Module]:
    """Yield a model, and as long as one child holds all of its parameters that child."""
    current: nn.Module | None = model
    while current is not None:
        yield current
        everything = {id(parameter) for parameter in current.parameters()}
        inside = (c for c in current.children() if {id(p) for p in c.parameters()} == everything)
        current = next(inside, None) if everything else None
