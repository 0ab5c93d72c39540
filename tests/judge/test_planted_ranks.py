"""Faults are planted on the rank whose region was chosen: stages count their regions apart."""

from __future__ import annotations

from acgate.judge.inputs import CellInputs
from acgate.judge.noise import measure_noise
from acgate.judge.planted import plants


def test_a_pipeline_s_fault_names_rank_and_region(world):
    """The scaled replay goes to the first stage that replays, other numbers to the last region of the last."""

    def stages(job, evidence):
        seen = evidence.observation
        if seen is None:
            return evidence
        # The second stage holds a region inside another, under the indices of the first stage's.
        around = [region.model_copy(update={"rank": 1}) for region in seen.regions]
        inner = [region.model_copy(update={"parent": 0}) for region in around[1:]]
        regions = (*seen.regions, *around[:1], *inner)
        return evidence.model_copy(update={"observation": seen.model_copy(update={"regions": regions})})

    world.change = stages
    world.play()
    inputs = CellInputs(*world.arguments)
    found = plants(inputs, measure_noise(inputs, inputs.reference))
    places = {plant.kind: (plant.rank, plant.region) for plant in found.values()}
    assert places == {"scale": (0, 0), "rng": (1, 1)}
