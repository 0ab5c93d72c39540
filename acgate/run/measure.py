"""Numbers on demand: a reference spills tensors, a candidate is measured against them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from acgate.errors import EvidenceError, OutputError
from acgate.evidence.records import Measurement
from acgate.observe.statistics import statistics

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from acgate.plan.job import Details, TensorKey
    from acgate.vocabulary import Quantity


def _label(key: TensorKey) -> str:
    return f"{key.step}.{key.micro}.{key.quantity}.{key.name}"


class Meter:
    """Takes each tensor as it comes by and keeps, or compares, those that were asked for."""

    def __init__(self, details: Details | None, spill: Path | None) -> None:
        """Prepare for `details`; `spill` is the file that is written or read."""
        self._spilling = details is not None and details.spill
        self._path = spill
        self._wanted: dict[tuple[int, int, Quantity], dict[str, TensorKey]] = {}
        self._kept: dict[str, torch.Tensor] = {}
        self._measured: list[Measurement] = []
        self._stored: Any = None
        for key in details.keys if details else ():
            self._wanted.setdefault((key.step, key.micro, key.quantity), {})[key.name] = key

    def wants(self, step: int, micro: int, quantity: Quantity) -> frozenset[str]:
        """Return the names of tensors that are needed at this moment."""
        return frozenset(self._wanted.get((step, micro, quantity), ()))

    def offer(
        self, step: int, micro: int, quantity: Quantity, tensors: Iterable[tuple[str, torch.Tensor | None]]
    ) -> None:
        """Keep or measure the wanted ones among `tensors`."""
        wanted = self._wanted.get((step, micro, quantity))
        if not wanted:
            return
        for name, tensor in tensors:
            if tensor is not None and name in wanted:
                self._take(wanted[name], tensor.detach())

    def _take(self, key: TensorKey, tensor: torch.Tensor) -> None:
        if tensor.layout is not torch.strided:
            # No file format holds sparse tensors, and positions may differ between two of them.
            tensor = tensor.to_dense()
        if self._spilling:
            self._kept[_label(key)] = tensor.to("cpu", copy=True).contiguous()
            return
        reference = self._read(key)
        if reference is not None and reference.shape == tensor.shape:
            measured = statistics(reference, tensor.to("cpu"))
            self._measured.append(Measurement(key=key, statistics=measured))

    def _read(self, key: TensorKey) -> torch.Tensor | None:
        if self._stored is None:
            self._stored = _open(self._path)
        label = _label(key)
        if label not in self._stored.keys():  # noqa: SIM118 - not a mapping
            return None
        try:
            tensor: torch.Tensor = self._stored.get_tensor(label)
        except SafetensorError as error:
            raise _unreadable(self._path, error) from error
        return tensor

    def finish(self) -> tuple[Measurement, ...]:
        """Write what was kept, return what was measured."""
        self._stored = None
        if self._spilling and self._path is not None:
            _write(self._path, self._kept)
        return tuple(self._measured)


def _open(path: Path | None) -> Any:
    if path is None:
        raise EvidenceError("a comparison was asked for without a reference")
    try:
        return safe_open(path, framework="pt")
    except (OSError, ValueError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path | None, error: Exception) -> EvidenceError:
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
