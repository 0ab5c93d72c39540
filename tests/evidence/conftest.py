"""Made-up evidence of ranks, small enough to say what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acgate.evidence.records import (
    Identity,
    ParameterRecord,
    RankRecord,
    Structure,
    TrackEvidence,
)
from acgate.evidence.region_records import Observation
from acgate.evidence.step_records import MicroRecord, StepRecord, TensorRecord
from acgate.plan.cell import Cell

if TYPE_CHECKING:
    from collections.abc import Sequence


class Made:
    """Records with everything filled in that a test does not care about."""

    @staticmethod
    def tensor(content: str = "a", part: int = 0, **more) -> TensorRecord:
        return TensorRecord(
            **{"hash": content, "shape": (4,), "dtype": "float32", "norm": 1.0, "part": part} | more
        )

    def micro(self, micro: int = 0, rank: int = 0, **more) -> MicroRecord:
        return MicroRecord(
            **{"micro": micro, "loss": self.tensor(f"loss{rank}", part=rank), "gradients": {}} | more
        )

    def step(self, step: int = 0, rank: int = 0, **more) -> StepRecord:
        return StepRecord(
            **{"step": step, "schedule": "accumulate", "micro": (self.micro(rank=rank),)} | more
        )

    @staticmethod
    def observation(**more) -> Observation:
        return Observation(
            **{
                "step": 0,
                "peak_bytes": 10,
                "held_bytes": 5,
                "forward_flops": 3,
                "backward_flops": 6,
                "random_drawn": False,
            }
            | more
        )

    def part(self, rank: int = 0, size: int = 2, *, stage: int = 0, replica=None, **more) -> TrackEvidence:
        """Evidence of one rank; ranks are data-parallel replicas unless a stage or replica is given."""
        record = RankRecord(
            rank=rank, stage=stage, replica=rank if replica is None else replica, **more.pop("record", {})
        )
        defaults = {
            "nonce": "n",
            "name": "block",
            "track": "block",
            "cell": Cell(topology="ddp", precision="float32", world_size=size),
            "steps_wanted": 1,
            "micro_steps": 1,
            "ranks": (record,),
            "identity": Identity(
                target="t",
                configuration="c",
                initial_state="s",
                batches=("b",),
                rng={"torch.cpu": "r"},
                global_state="g",
                torch="2",
                device="cpu",
            ),
            "structure": Structure(
                parameters={"w": ParameterRecord(shape=(4,), dtype="float32", trainable=True)},
                buffers={},
                state_dict=("w",),
            ),
            "steps": (self.step(rank=rank),),
        }
        return TrackEvidence(**defaults | more)

    def parts(self, mores: Sequence[dict]) -> list[TrackEvidence]:
        """One part per rank, from what is special about each."""
        return [self.part(rank, len(mores), **more) for rank, more in enumerate(mores)]


@pytest.fixture(scope="session")
def made() -> Made:
    """Make records and parts of ranks."""
    return Made()
