"""Which blocks lie on which stage is asked of the target, without other processes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch import nn

from acgate.errors import TargetError
from acgate.targets.attributes import Origin, read_target
from acgate.topology.stages import StageMesh, check_split, stages_of


class Net(nn.Module):
    def __init__(self, count=5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(count))


def split(model, mesh, topology):
    """Give the first stage one block, whatever there is."""
    assert topology == "pp"
    first = mesh.get_local_rank() == 0
    kept = range(1) if first else range(1, len(model.layers))
    stage = nn.Module()
    stage.layers = nn.ModuleDict({str(i): model.layers[i] for i in kept})
    return stage


def target(parallelize=split):
    fields = {"build_model": Net, "batches": lambda bucket: [], "blocks": ["layers.*"]}
    fields |= {} if parallelize is None else {"parallelize": parallelize}
    return read_target(SimpleNamespace(**fields), Origin("t", "target.py", "0"), 0)


def test_the_split_is_that_of_the_target():
    """An uneven split is found as it is."""
    found = stages_of(target(), Net, 2)
    assert found == (("layers.0",), ("layers.1", "layers.2", "layers.3", "layers.4"))


@pytest.mark.parametrize(
    ("parallelize", "message"),
    [
        (None, r"cannot be trained in a pipeline; define parallelize\(model, mesh, topology\)"),
        (lambda model, mesh, topology: NotImplemented, "returned NotImplemented"),
        (lambda model, mesh, topology: None, "returned NoneType"),
        (lambda model, mesh, topology: model, "'layers.0' lies on several stages"),
        (lambda model, mesh, topology: nn.Linear(1, 1), "'layers.0' lies on no stage"),
        (lambda model, mesh, topology: mesh.get_group(), "asks the mesh for 'get_group'"),
    ],
)
def test_what_is_no_split_is_refused(parallelize, message):
    """The message says what is wrong with the stages, or what to define."""
    with pytest.raises(TargetError, match=message):
        stages_of(target(parallelize), Net, 2)


def test_fewer_blocks_than_stages_are_refused():
    """A stage without a block has nothing to checkpoint."""
    with pytest.raises(TargetError, match="3 stages needs as many blocks, and the model has 2"):
        stages_of(target(), lambda: Net(2), 3)


def test_stages_follow_one_another():
    """The order of the blocks is that of the stages."""
    check_split("t", ["a", "b", "c"], [["a"], ["b", "c"]])
    with pytest.raises(TargetError, match="do not follow one another"):
        check_split("t", ["a", "b"], [["b"], ["a"]])


def test_the_mesh_without_processes_knows_its_place():
    """What a target needs to know is there in the usual spellings."""
    mesh = StageMesh(1, 4)
    assert (mesh.size(), mesh.get_local_rank(), mesh["pp"].get_local_rank("pp"), mesh.shape) == (
        4,
        1,
        1,
        (4,),
    )
