"""Annotations: workflow commands that mark what is wrong in the view of a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import ExitCode
from acgate.report.escape import one_line, visible
from acgate.report.github_digest import WORDS, Digest, digests
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.judge.verdict import Verdict
    from acgate.report.github_places import Places

MOST = 9
"""GitHub shows ten of a step and drops the others without a word; the tenth here says how many."""

_LONGEST_TITLE = 200
_LONGEST_TEXT = 4000
_LEVELS = {Outcome.FAIL: "error", Outcome.ERROR: "error", Outcome.WARN: "warning"}
_IN_TEXT = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY = _IN_TEXT | str.maketrans({":": "%3A", ",": "%2C"})


def annotation_commands(verdicts: Sequence[Verdict], places: Places) -> list[str]:
    """Return at most ten workflow commands, one for each track that is not well, errors first."""
    commands = [
        _annotation(digest, places)
        for outcome in _LEVELS
        for verdict in verdicts
        for digest in digests(verdict, outcome)
    ]
    errors = sum(one.startswith("::error ") for one in commands)
    left = len(commands) - MOST
    if left > 0:
        level = "error" if errors > MOST else "warning"
        commands[MOST:] = [command(level, f"acgate: {left:,} more", f"{left:,} more in the job summary")]
    return commands


def problem_annotation(message: str, exit_code: ExitCode) -> str:
    """Return the workflow command for a run that ended before there was a verdict."""
    title = f"acgate: {WORDS[Outcome.FAIL if exit_code is ExitCode.FAIL else Outcome.ERROR]}"
    return command("error", title, f"{message} (exit code {exit_code.value})")


def command(level: str, title: str, text: str, place: tuple[str, int] | None = None) -> str:
    """Return a workflow command that makes an annotation.

    Args:
        level: `error`, `warning` or `notice`.
        title: One line; the rest is cut.
        text: May have several lines.
        place: File, relative to the checkout, and line.
    """
    where = f"file={_property(place[0])},line={place[1]}," if place else ""
    title = _property(one_line(title, _LONGEST_TITLE) or "acgate")
    told = visible(text).strip() or "no message was given"
    told = told if len(told) <= _LONGEST_TEXT else told[:_LONGEST_TEXT] + "..."
    return f"::{level} {where}title={title}::{told.translate(_IN_TEXT)}"


def _property(text: str) -> str:
    return visible(text).translate(_IN_PROPERTY)


def _annotation(digest: Digest, places: Places) -> str:
    cause = digest.cause
    lines = [digest.headline]
    place = None
    if cause is not None:
        operator = f": {cause.operator}" if cause.operator else ""
        where = f" in {cause.where}" if cause.where else ""
        by = f", {cause.by}" if cause.by else ""
        source = f" at {cause.source}" if cause.source else ""
        lines = [f"{cause.kind}{where}{operator}{source}{by}", cause.sentence]
        place = places.of(cause.source, digest.verdict.source)
    lines += [text for text in (digest.figure,) if text]
    lines += [f"try: {digest.advice}"] if digest.advice else []
    title = f"acgate: {digest.place} {digest.word}"
    return command(_LEVELS[digest.outcome], title, "\n".join(lines), place)
