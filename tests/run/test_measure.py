from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from acgate.errors import EvidenceError, OutputError
from acgate.plan.job import Details, TensorKey
from acgate.run.measure import Meter
from acgate.vocabulary import Quantity

if TYPE_CHECKING:
    from pathlib import Path

KEY = TensorKey(step=0, micro=0, quantity=Quantity.GRADIENT, name="w")
WRITES = Details(keys=(KEY,), spill=True)
READS = Details(keys=(KEY,), reference="none.details")


def spilled(path: Path) -> Path:
    meter = Meter(WRITES, path)
    meter.offer(0, 0, Quantity.GRADIENT, [("w", torch.arange(4.0))])
    meter.finish()
    return path


def test_a_candidate_is_measured_against_what_the_reference_wrote(tmp_path: Path) -> None:
    """The numbers are those of the two tensors."""
    meter = Meter(READS, spilled(tmp_path / "s.safetensors"))
    meter.offer(0, 0, Quantity.GRADIENT, [("w", torch.arange(4.0) + 1)])
    (measured,) = meter.finish()
    assert measured.key == KEY
    assert measured.statistics.max_abs_diff == 1.0


@pytest.mark.parametrize("keep", [None, 0, 4, 20, -4])
def test_tensors_that_cannot_be_read_are_damaged_evidence(tmp_path: Path, keep: int | None) -> None:
    """Half a file is never blamed on the target, nor taken for acgate's own fault."""
    path = spilled(tmp_path / "s.safetensors")
    if keep is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:keep])
    meter = Meter(READS, path)
    with pytest.raises(EvidenceError, match="cannot be read"):
        meter.offer(0, 0, Quantity.GRADIENT, [("w", torch.arange(4.0))])


def test_tensors_that_cannot_be_written_are_an_output_error(tmp_path: Path) -> None:
    """Whatever the library that writes them makes of it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        spilled(tmp_path / "file" / "s.safetensors")
    (tmp_path / "s.safetensors").mkdir()
    (tmp_path / ".s.safetensors.part").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        spilled(tmp_path / "s.safetensors")
