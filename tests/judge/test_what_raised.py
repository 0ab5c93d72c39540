"""An exception comes with what is likely to be its reason, and with what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acgate.evidence.records import Fact, Raised
from acgate.finding_kinds import FindingKind
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import World

    from acgate.judge.verdict import Case, CellVerdict

    FindCase = Callable[[CellVerdict, str, str], Case]

TWICE = "Expected to mark a variable ready only once."
STATIC = (
    'expect_autograd_hooks_ INTERNAL ASSERT FAILED at "reducer.cpp":1732, please report a bug to PyTorch.'
)
UNUSED = "Expected to have finished reduction in the prior iteration before starting a new one."


def raised(message: str, kind: str = "RuntimeError") -> Raised:
    return Raised(type=kind, message=message, traceback="the traceback", phase="backward", step=0, micro=0)


def reentrant(*names: str) -> tuple[Fact, ...]:
    return tuple(
        Fact(kind=FindingKind.REENTRANT, where=name, detail="runs the reentrant checkpoint") for name in names
    )


def test_the_reentrant_form_is_found_where_no_step_could_be_observed(world: World, case: FindCase) -> None:
    """A track that raises in its first step says in which form its regions ran, and what to change."""
    world.raised = lambda job: raised(TWICE) if job.track == "block" else None
    world.facts = lambda job: reentrant("layers.0", "layers.1") if job.track == "block" else ()
    found = case(world.play(), "block", "wiring")
    assert found.outcome is Outcome.FAIL
    assert [one.where for one in found.findings if one.kind == "reentrant"] == ["layers.0", "layers.1"]
    assert TWICE in found.text.splitlines()[0]
    assert "reentrant at layers.0, layers.1" in found.text
    assert "try: pass use_reentrant=False" in found.text


def test_words_of_torch_that_name_their_cause_come_with_advice(world: World, case: FindCase) -> None:
    """A static graph without its first reduction dies with any form of AC, and torch calls it a bug of its own."""
    world.raised = lambda job: raised(STATIC) if job.track == "block" else None
    lines = case(world.play(), "block", "wiring").text.splitlines()
    said = "try: DDP with static_graph=True must reduce gradients in its first backward"
    assert [line for line in lines if line.startswith(said)]


@pytest.mark.parametrize(
    ("topology", "message", "advice"),
    [
        ("single", TWICE, "try: make the model train without activation checkpointing first"),
        (
            "ddp",
            TWICE,
            "try: make the model train in ddp first, also without activation checkpointing; where",
        ),
        ("ddp", UNUSED, "try: let every parameter reach the loss; or set find_unused_parameters = true"),
        ("ddp", STATIC, "try: DDP with static_graph=True must reduce"),
    ],
)
def test_what_only_a_topology_refuses_is_said_of_the_topology(
    world: World, case: FindCase, topology: str, message: str, advice: str
) -> None:
    """A model that trains on one device is not told to train without AC."""
    world.topology = topology
    world.raised = lambda job: raised(message) if job.name == "none" else None
    lines = case(world.play(), "block", "structure").text.splitlines()
    assert lines[1].startswith(advice)
