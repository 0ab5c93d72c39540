"""Which of several outcomes wins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

RED = frozenset({Outcome.FAIL, Outcome.ERROR})
"""What keeps a release back: it is wrong, or could not be checked."""

STRENGTH = (Outcome.FAIL, Outcome.ERROR, Outcome.WARN, Outcome.PASS, Outcome.SKIPPED)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome that wins: fail, error, warn, pass, skipped; skipped for none."""
    found = set(outcomes)
    return next((outcome for outcome in STRENGTH if outcome in found), Outcome.SKIPPED)
