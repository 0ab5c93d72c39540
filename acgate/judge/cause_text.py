"""Puts causes into the message of a failing case, the first at its top and what to try at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge import cause_wording as wording
from acgate.judge.cause_evidence import inside
from acgate.vocabulary import Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.judge.verdict import Case, Cause

_APART = frozenset({Check.PLANTED, Check.RESOURCES})
"""Checks whose failures have nothing to do with what is wrong with a track."""


def with_causes(case: Case, causes: Sequence[Cause]) -> Case:
    """Return a failing case whose text begins with its cause and ends with what to try."""
    if case.outcome is not Outcome.FAIL or case.check in _APART or not causes:
        return case
    cause = cause_of(case, causes)
    first, *rest = (case.text or case.headline).split("\n")
    lines = [first, *cause_lines(cause), *rest]
    advice = advice_line(cause)
    if advice not in (line.strip() for line in rest):
        lines.append(advice)
    return case.model_copy(update={"text": "\n".join(lines)})


def without_causes(text: str, causes: Sequence[Cause]) -> str:
    """Return the text of a case without what `with_causes` put in, for a report that says causes apart."""
    for cause in causes:
        told = "\n".join(cause_lines(cause))
        if f"\n{told}" in text:
            return text.replace(f"\n{told}", "", 1).removesuffix(f"\n{advice_line(cause)}")
    return text


def cause_lines(cause: Cause) -> list[str]:
    """Return a cause in lines: what, where and by how much first, then the evidence."""
    return [wording.headline(cause), f"  {cause.sentence}", *(f"  {text}" for text in cause.evidence)]


def advice_line(cause: Cause) -> str:
    """Return what to try."""
    return f"try: {cause.advice}"


def cause_of(case: Case, causes: Sequence[Cause]) -> Cause:
    """Return the cause that a case is told of: one found by value in its own block, else the first."""
    first = causes[0]
    if case.place is None or first.found != "value" or inside(first.where, case.place):
        return first
    return next((one for one in causes if one.found == "value" and inside(one.where, case.place)), first)
