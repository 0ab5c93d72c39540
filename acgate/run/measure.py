"""Numbers on demand: a reference spills tensors, a candidate is measured against them."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from acgate.errors import EvidenceError, OutputError
from acgate.evidence.records import Measurement
from acgate.observe.statistics import statistics
from acgate.plan.job import Details, TensorKey
from acgate.vocabulary import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from acgate.topology.interface import Shard


_PER_REPLICA = frozenset({Quantity.LOSS, Quantity.INPUT_GRADIENT, Quantity.BUFFER})
"""What a whole reference holds once per replica."""


class Meter:
    """Takes each tensor as it comes by and keeps, or compares, those that were asked for."""

    def __init__(self, details: Details | None, spill: Path | None, replica: int = 0) -> None:
        """Prepare for `details`.

        Args:
            details: What is asked for.
            spill: Names the files that are written or read, one per step.
            replica: Whose tensors come by; one device that plays several changes it.
        """
        self._details = details or Details()
        self._folder = spill
        self.replica = replica
        self._wanted = {(key.step, key.micro, key.quantity, key.name): key for key in self._details.keys}
        self._moments = {(key.step, key.micro, key.quantity) for key in self._details.keys}
        self._kept: dict[str, torch.Tensor] = {}
        self._measured: list[Measurement] = []
        self._stored: dict[int, Any] = {}

    def wants(self, step: int, micro: int, quantity: Quantity, name: str) -> bool:
        """Say whether a tensor is needed."""
        return self._details.everything or (step, micro, quantity, name) in self._wanted

    def offer(
        self, step: int, micro: int, quantity: Quantity, shards: Iterable[tuple[str, Shard | None]]
    ) -> None:
        """Keep or measure the wanted ones among tensors, as far as they lie here."""
        if not self._details.everything and (step, micro, quantity) not in self._moments:
            return
        for name, shard in shards:
            if shard is not None and self.wants(step, micro, quantity, name):
                key = self._wanted.get((step, micro, quantity, name))
                self._take(key or TensorKey(step=step, micro=micro, quantity=quantity, name=name), shard)

    def _take(self, key: TensorKey, shard: Shard) -> None:
        whole = self._details.whole
        if whole and shard.own and key.quantity not in _PER_REPLICA:
            return  # a gradient before the reduction, or state: equal or not is seen by its hash
        tensor = shard.local.detach()
        if tensor.layout is not torch.strided:
            # No file format holds sparse tensors, and positions may differ between two of them.
            tensor = tensor.to_dense()
        if self._details.spill:
            self._kept[self._label(key, shard)] = tensor.to("cpu", copy=True).contiguous()
            return
        reference = self._read(key, shard if whole else None, self._label(key, shard))
        if reference is not None and reference.shape == tensor.shape:
            measured = statistics(reference, tensor.to("cpu"))
            self._measured.append(Measurement(key=key, statistics=measured))

    def _label(self, key: TensorKey, shard: Shard) -> str:
        """Name a tensor in the file; a whole reference holds one per replica where each has its own."""
        label = f"{key.step}.{key.micro}.{key.quantity}.{key.name}"
        return f"{label}@{self.replica}" if shard.own and self._details.whole else label

    def _read(self, key: TensorKey, shard: Shard | None, label: str) -> torch.Tensor | None:
        path = self._path(key.step)
        if key.step not in self._stored:
            self._stored[key.step] = _open(path)
        stored = self._stored[key.step]
        if label not in stored.keys():  # noqa: SIM118 - not a mapping
            return None
        try:
            return read_part(stored, label, shard)
        except SafetensorError as error:
            raise _unreadable(path, error) from error

    def _path(self, step: int) -> Path:
        if self._folder is None:
            raise EvidenceError("a comparison was asked for without a reference")
        return self._folder.with_name(f"{self._folder.stem}.step-{step}{self._folder.suffix}")

    def end_step(self, step: int) -> None:
        """Write what was kept of a step: a file per step, so that no more than one waits in memory."""
        if self._details.spill and self._kept:
            _write(self._path(step), self._kept)
            self._kept = {}

    def finish(self) -> tuple[Measurement, ...]:
        """Return what was measured."""
        self._stored = {}
        return tuple(self._measured)


def read_part(stored: Any, label: str, shard: Shard | None) -> torch.Tensor:
    """Read what a rank holds of a stored tensor, and no more; None reads all of it."""
    if shard is None or (shard.box is None and shard.flat is None):
        tensor: torch.Tensor = stored.get_tensor(label)
        return tensor
    view = stored.get_slice(label)
    if shard.box is not None:
        box: torch.Tensor = view[shard.box] if shard.box else stored.get_tensor(label)
        return box
    assert shard.flat is not None
    first, end = shard.flat
    shape = view.get_shape()
    row = math.prod(shape[1:])
    if not shape or not row:
        return stored.get_tensor(label).reshape(-1)[first:end]  # type: ignore[no-any-return]
    rows: torch.Tensor = view[first // row : -(-end // row)]
    start = first - first // row * row
    return rows.reshape(-1)[start : start + end - first]


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, ValueError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> EvidenceError:
    return EvidenceError(f"reference tensors cannot be read: {path}: {error}; run again without --resume")


def _write(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary)
        temporary.replace(path)
    except (OSError, SafetensorError) as error:  # the library has no OSError for a full disk
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OutputError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error
