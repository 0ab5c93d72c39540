"""What is wrong with a policy can often be seen before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch._ops import OpOverload

from acgate.checkpointing.operators import (
    NAMED_LISTS,
    Operator,
    PacketError,
    communicates,
    may_draw,
    mutates,
    operator_name,
    resolve,
)
from acgate.checkpointing.selective import load_function
from acgate.finding_kinds import FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.spec.models import Policy, SelectivePolicy


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One thing that a policy should not say.

    Attributes:
        kind: What it is; the kind carries severity, sentence and advice.
        where: Place in the policy, such as `selective.save: aten.mm`.
        detail: What was found there.
    """

    kind: FindingKind
    where: str
    detail: str


def lint_policy(policy: Policy) -> tuple[LintFinding, ...]:
    """Look at a policy without running anything.

    What a user's own function decides is not seen here; that it can be loaded is checked.

    Raises:
        PolicyError: A name does not resolve, or the function cannot be loaded.
    """
    return tuple(_lint_selective(policy.selective))


def _lint_selective(policy: SelectivePolicy) -> Iterator[LintFinding]:
    if policy.function is not None:
        load_function(policy.function)
        return
    saves_something = policy.every_second_matmul
    for name in policy.save:
        where = f"selective.save: {name}"
        try:
            operators = resolve([name]).operators
        except PacketError as error:
            yield LintFinding(FindingKind.POLICY_PACKET, where, str(error))
            continue
        saves_something = saves_something or bool(operators)
        yield from _lint_operators(sorted(operators, key=operator_name), where, named=name in NAMED_LISTS)
    if not saves_something:
        yield LintFinding(
            FindingKind.POLICY_SAVES_NOTHING,
            "selective.save",
            "nothing is listed" if not policy.save else "no name stands for an operator on this torch",
        )


def _lint_operators(operators: Sequence[Operator], where: str, *, named: bool) -> Iterator[LintFinding]:
    """Look at what one name stands for; each kind is reported once."""
    if mutating := [operator_name(operator) for operator in operators if mutates(operator)]:
        detail = f"writes to an argument: {', '.join(mutating)}"
        yield LintFinding(FindingKind.POLICY_SAVES_MUTATING, where, detail)
    # Named lists never save a call that draws.
    drawing = [operator_name(operator) for operator in operators if not named and _always_draws(operator)]
    if drawing:
        yield LintFinding(
            FindingKind.POLICY_SAVES_RANDOM, where, f"draws random numbers: {', '.join(drawing)}"
        )
    if communicating := [operator_name(operator) for operator in operators if communicates(operator)]:
        detail = f"communicates between ranks: {', '.join(communicating)}"
        yield LintFinding(FindingKind.POLICY_SAVES_COLLECTIVE, where, detail)


def _always_draws(operator: Operator) -> bool:
    """Say whether every call draws; fused attention draws where its dropout is on, which only a run shows."""
    if not may_draw(operator):
        return False
    assert isinstance(operator, OpOverload)
    return all(argument.name != "dropout_p" for argument in operator._schema.arguments)
