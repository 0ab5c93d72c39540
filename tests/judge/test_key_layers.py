"""What the user marked is reported by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.vocabulary import Outcome, Quantity

if TYPE_CHECKING:
    from conftest import World


def test_a_marked_layer_tells_its_own_gradient_and_update(world: World) -> None:
    """One line per quantity, with how many differ and the worst of them; its neighbour stays equal."""
    world.key_layers = ("layers.0", "layers.1", "nothing")
    world.error = lambda job, key: (
        0.5 * (job.track == "block" and key.quantity is Quantity.GRADIENT and key.name == "layers.0.weight")
    )
    found = {(one.name, one.quantity): one for one in world.play().tracks[0].key_layers}
    assert {name for name, _ in found} == {"layers.0", "layers.1"}
    wrong = found["layers.0", Quantity.GRADIENT]
    assert (wrong.outcome, wrong.differing) == (Outcome.FAIL, wrong.compared // 2)
    assert wrong.worst is not None
    assert wrong.worst.key.name == "layers.0.weight"
    assert found["layers.0", Quantity.UPDATE].outcome is Outcome.PASS
    assert found["layers.1", Quantity.GRADIENT].differing == 0
