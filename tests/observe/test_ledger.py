"""Live memory is counted as it is, where storages grow and shrink too."""

from __future__ import annotations

import torch

from acgate.observe.ledger import Ledger


def test_an_empty_storage_may_grow_and_shrink() -> None:
    """What FSDP frees between uses counts only while it is there."""
    ledger = Ledger()
    gathered = torch.empty(100)
    storage = gathered.untyped_storage()
    storage.resize_(0)
    serial = ledger.serial(gathered)
    storage.resize_(400)
    assert ledger.serial(gathered) == serial
    assert ledger.peak == ledger.size([serial]) == 400
    storage.resize_(0)
    kept = [torch.empty(25)]
    ledger.serial(kept[0])
    assert ledger.peak == 400
    kept += [torch.empty(25) for _ in range(4)]
    for tensor in kept:
        ledger.serial(tensor)
    assert ledger.peak == 500


def test_what_dies_is_counted_no_more() -> None:
    """A storage that died leaves the total, also one that had grown."""
    ledger = Ledger()
    gathered = torch.empty(0)
    ledger.serial(gathered)
    gathered.untyped_storage().resize_(400)
    ledger.serial(gathered)
    del gathered
    assert not ledger.alive()
    other = torch.empty(50)
    ledger.serial(other)
    assert ledger.peak == 400
