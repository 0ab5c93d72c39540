"""Makes a cause of what was found, and one of several that are the same in many regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from acgate.judge import cause_wording as wording
from acgate.judge.verdict import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acgate.cause_kinds import CauseKind
    from acgate.evidence.trace_records import OperatorAt

Found = Literal["value", "state", "wiring", "forward", "bisection"]


def make_cause(
    kind: CauseKind,
    where: str,
    found: Found,
    evidence: Iterable[str] = (),
    *,
    at: OperatorAt | None = None,
    source: str = "",
    operator: str = "",
    module: str = "",
    by: str = "",
    advice: str = "",
    ranks: Sequence[int] = (),
) -> Cause:
    """Return a cause with the sentence and the advice of its kind.

    Args:
        kind: What is wrong.
        where: Region, or what else is at fault.
        found: How it was found.
        evidence: What was seen; empty sentences are left out, and the same one is said once.
        at: Operator that lied, with its module and source line.
        source: Source line, where it says more than that of the operator.
        operator: Name of an operator whose call is not known.
        module: Module, where no operator is known.
        by: By how much the first value differs.
        advice: What to try, where that is more than the advice of the kind.
        ranks: Ranks on which it was seen.
    """
    return Cause(
        kind=kind,
        where=where,
        operator=wording.call_of(at) or operator,
        module=(at.module if at else "") or module,
        source=source or (at.source if at else ""),
        by=by,
        evidence=tuple(dict.fromkeys(text for text in evidence if text)),
        sentence=kind.sentence,
        advice=advice or kind.advice,
        found=found,
        ranks=tuple(ranks),
    )


def grouped(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """Join causes of one kind, operator and source line into the first of them, with all its places.

    One line of code that is at fault in 32 blocks is one cause.
    """
    groups: dict[tuple[str, ...], list[Cause]] = {}
    for cause in causes:
        groups.setdefault((cause.kind, cause.found, _name(cause.operator), cause.source), []).append(cause)
    return tuple(_joined(group) for group in groups.values())


def _name(operator: str) -> str:
    return operator.partition(" (call ")[0]


def _joined(group: Sequence[Cause]) -> Cause:
    first = group[0]
    others = list(dict.fromkeys(one.where for one in group[1:] if one.where != first.where))
    ranks = tuple(sorted({rank for one in group for rank in one.ranks}))
    evidence = first.evidence
    if others:
        evidence = (*evidence, wording.also_in(others))
    return first.model_copy(update={"evidence": evidence, "ranks": ranks})
