"""Tensors of a model under the names that do not depend on its wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.names import canonical, canonical_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch


def by_canonical_name(
    named: Iterable[tuple[str, torch.Tensor]], name_of: Callable[[str], str] = canonical
) -> dict[str, torch.Tensor]:
    """Return tensors by canonical name, in the model's order."""
    own = dict(named)
    return {name: own[original] for name, original in canonical_map(own, name_of).items()}
