"""Which tensor storage is alive, how much at most, and who made it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    StorageReference = weakref.ref[torch.UntypedStorage]


def inner_tensors(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in an operator's arguments or results: nested tuples, lists, dicts."""
    match value:
        case torch.Tensor():
            yield value
        case tuple() | list():
            for item in value:
                yield from inner_tensors(item)
        case dict():
            for item in value.values():
                yield from inner_tensors(item)
        case _:
            return


class Ledger:
    """Follows storages from when they are first seen until they die.

    Each storage has a serial number that is never used again. Storages are watched by weak
    references, so that following them keeps none alive. One that is empty when it is first seen may
    grow and shrink, as FSDP lets it: it is measured again at each look and before each new peak.
    """

    def __init__(self) -> None:
        self._living: dict[int, tuple[int, StorageReference]] = {}
        self._elastic: dict[int, StorageReference] = {}
        self._bytes: dict[int, int] = {}
        self._alive: set[int] = set()
        self._total = 0
        self._next = 0
        self.peak = 0

    def serial(self, tensor: torch.Tensor) -> int:
        """Return the serial number of the storage under `tensor`; a new one is entered."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._living.get(key)
        if known is None:
            return self._enter(key, storage)
        serial = known[0]
        if serial in self._elastic:
            self._resize(serial, storage.nbytes())
        return serial

    def is_new(self, tensor: torch.Tensor) -> bool:
        """Say whether the storage under `tensor` was never seen."""
        return tensor.untyped_storage()._cdata not in self._living

    def enter_all(self, tensors: Iterable[torch.Tensor]) -> frozenset[int]:
        """Enter the storages of `tensors`, return their serial numbers."""
        return frozenset(self.serial(tensor) for tensor in tensors)

    def _enter(self, key: int, storage: torch.UntypedStorage) -> int:
        serial = self._next
        self._next += 1
        size = storage.nbytes()
        reference = weakref.ref(storage, self._burial(key, serial))
        self._living[key] = (serial, reference)
        self._bytes[serial] = 0
        self._alive.add(serial)
        if size == 0:
            self._elastic[serial] = reference
        self._resize(serial, size)
        return serial

    def _resize(self, serial: int, size: int) -> None:
        self._total += size - self._bytes[serial]
        self._bytes[serial] = size
        if self._total <= self.peak:
            return
        for other, reference in list(self._elastic.items()):
            storage = reference()
            if storage is not None and other != serial:
                now = storage.nbytes()
                self._total += now - self._bytes[other]
                self._bytes[other] = now
        self.peak = max(self.peak, self._total)

    def _burial(self, key: int, serial: int) -> Callable[[StorageReference], None]:
        def bury(_: StorageReference) -> None:
            self._total -= self._bytes[serial]
            self._alive.discard(serial)
            self._elastic.pop(serial, None)
            known = self._living.get(key)
            if known is not None and known[0] == serial:
                del self._living[key]

        return bury

    def alive(self) -> frozenset[int]:
        """Return the serial numbers of all storages that live now."""
        return frozenset(self._alive)

    def size(self, serials: Iterable[int]) -> int:
        """Return the bytes of storages, living or dead."""
        return sum(self._bytes[serial] for serial in serials)
