from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from acgate.errors import EvidenceError, OutputError
from acgate.plan.job import Details, TensorKey
from acgate.run.measure import Meter
from acgate.topology.interface import Shard
from acgate.vocabulary import Quantity

if TYPE_CHECKING:
    from pathlib import Path

KEY = TensorKey(step=0, micro=0, quantity=Quantity.GRADIENT, name="w")
WRITES = Details(keys=(KEY,), spill=True)
READS = Details(keys=(KEY,), reference="none.details")


def spilled(path: Path) -> Path:
    meter = Meter(WRITES, path)
    meter.offer(0, 0, Quantity.GRADIENT, [("w", Shard(torch.arange(4.0)))])
    meter.end_step(0)
    return path


def test_a_candidate_is_measured_against_what_the_reference_wrote(tmp_path: Path) -> None:
    """The numbers are those of the two tensors."""
    meter = Meter(READS, spilled(tmp_path / "s.safetensors"))
    meter.offer(0, 0, Quantity.GRADIENT, [("w", Shard(torch.arange(4.0) + 1))])
    (measured,) = meter.finish()
    assert measured.key == KEY
    assert measured.statistics.max_abs_diff == 1.0


WHOLE = torch.arange(40.0).reshape(10, 4)
PARTS = [
    Shard(WHOLE[3:7], part=1, shape=(10, 4), box=(slice(3, 7), slice(0, 4))),
    Shard(WHOLE[:, 1:3], part=1, shape=(10, 4), box=(slice(0, 10), slice(1, 3))),
    Shard(WHOLE[0:0], part=3, shape=(10, 4), box=(slice(0, 0), slice(0, 4))),
    Shard(WHOLE.reshape(-1)[6:23], part=1, shape=(10, 4), flat=(6, 23)),
    Shard(WHOLE.reshape(-1)[0:40], shape=(10, 4), flat=(0, 40)),
    Shard(WHOLE.reshape(-1)[8:8], part=1, shape=(10, 4), flat=(8, 8)),
    Shard(WHOLE, shape=(10, 4)),
]


@pytest.mark.parametrize("shard", PARTS)
def test_a_rank_is_measured_against_its_part_of_a_whole_tensor(tmp_path: Path, shard: Shard) -> None:
    """Rows, columns, pieces across rows, and nothing at all: each meets its own elements."""
    path = tmp_path / "s.safetensors"
    meter = Meter(Details(everything=True, spill=True, whole=True), path)
    meter.offer(0, 0, Quantity.GRADIENT, [("w", Shard(WHOLE, shape=(10, 4)))])
    meter.end_step(0)
    meter = Meter(Details(everything=True, whole=True, reference="reference-single"), path)
    meter.offer(0, 0, Quantity.GRADIENT, [("w", shard)])
    off = replace(shard, local=shard.local + 1)
    meter.offer(0, 0, Quantity.GRADIENT, [("w", off)])
    same, other = (measured.statistics for measured in meter.finish())
    assert same.elements == other.elements == shard.local.numel()
    assert same.max_abs_diff == 0
    assert other.max_abs_diff == (1.0 if shard.local.numel() else 0.0)


def test_what_each_replica_has_for_itself_meets_its_own(tmp_path: Path) -> None:
    """A whole reference holds a loss per replica, and no gradient from before the reduction."""
    path = tmp_path / "s.safetensors"
    writes = Meter(Details(everything=True, spill=True, whole=True), path)
    losses = [(f"loss@{replica}", Shard(torch.tensor(float(replica)))) for replica in range(2)]
    writes.offer(0, 0, Quantity.LOSS, losses)
    writes.end_step(0)
    reads = Meter(Details(everything=True, whole=True, reference="reference-single"), path, replica=1)
    reads.offer(0, 0, Quantity.LOSS, [("loss", Shard(torch.tensor(1.0), part=1, own=True))])
    reads.offer(0, 0, Quantity.GRADIENT, [("w", Shard(torch.ones(3), part=1, own=True))])
    (measured,) = reads.finish()
    assert measured.key.name == "loss"
    assert measured.statistics.max_abs_diff == 0


@pytest.mark.parametrize("keep", [None, 0, 4, 20, -4])
def test_tensors_that_cannot_be_read_are_damaged_evidence(tmp_path: Path, keep: int | None) -> None:
    """Half a file is never blamed on the target, nor taken for acgate's own fault."""
    path = spilled(tmp_path / "s.safetensors")
    written = tmp_path / "s.step-0.safetensors"
    if keep is None:
        written.unlink()
    else:
        written.write_bytes(written.read_bytes()[:keep])
    meter = Meter(READS, path)
    with pytest.raises(EvidenceError, match="cannot be read"):
        meter.offer(0, 0, Quantity.GRADIENT, [("w", Shard(torch.arange(4.0)))])


def test_tensors_that_cannot_be_written_are_an_output_error(tmp_path: Path) -> None:
    """Whatever the library that writes them makes of it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        spilled(tmp_path / "file" / "s.safetensors")
    (tmp_path / "s.step-0.safetensors").mkdir()
    (tmp_path / ".s.step-0.safetensors.part").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        spilled(tmp_path / "s.safetensors")
