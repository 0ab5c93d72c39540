"""Every way to stop, with its exit code.

AcgateError                        3  internal error
├── UsageError                     4  bad arguments or configuration
│   ├── ToleranceError             4  bad tolerance file
│   ├── PolicyError                4  bad policy file or policy that cannot be applied
│   ├── TargetError                4  the target cannot be loaded or lacks something
│   └── OutputError                4  the output cannot be written
├── NothingToDoError               5  nothing selected, nothing compared, empty batches
├── IncompleteError                7  a required check could not be made
│   ├── WorkerDiedError            7  a worker process ended before its end mark
│   ├── DeadlineError              7  a phase took longer than its deadline
│   └── RankRaisedError            7  one rank raised, and the others waited for it
└── EvidenceError                  7  evidence is missing, damaged or of another run
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What the process returns; the gate is this number, reports are for reading."""

    PASS = 0
    FAIL = 1
    INTERRUPTED = 2
    INTERNAL = 3
    USAGE = 4
    NOTHING = 5
    INCOMPLETE = 7

    @property
    def sentence(self) -> str:
        """What it says, in `--help` and in the documentation."""
        return _SENTENCES[self]


_SENTENCES = {
    ExitCode.PASS: "pass",
    ExitCode.FAIL: "something was checked and is wrong",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.INTERNAL: "internal error",
    ExitCode.USAGE: "bad arguments, configuration, tolerance file or target",
    ExitCode.NOTHING: "nothing selected, nothing compared",
    ExitCode.INCOMPLETE: "incomplete: a required check could not be made",
}


PRECEDENCE = (
    ExitCode.INTERRUPTED,
    ExitCode.INTERNAL,
    ExitCode.USAGE,
    ExitCode.FAIL,
    ExitCode.INCOMPLETE,
    ExitCode.NOTHING,
)


def strongest(codes: list[ExitCode]) -> ExitCode:
    """Return the code that wins where several apply (2, 3, 4, 1, 7, 5); PASS for none."""
    return next((code for code in PRECEDENCE if code in codes), ExitCode.PASS)


class AcgateError(Exception):
    """Base of all errors that acgate raises on purpose; on its own an internal error."""

    exit_code = ExitCode.INTERNAL


def message_of(error: BaseException) -> str:
    """Return the message of an exception of anybody's code as text that can be stored and shown.

    Its `__str__` may itself raise, and its text may hold what UTF-8 has no bytes for.
    """
    try:
        text = str(error)
    except Exception as further:  # noqa: BLE001 - whatever it is, the first exception is what counts
        return f"(no message: {type(error).__name__}.__str__ raised {type(further).__name__})"
    return storable(text)


def storable(text: str) -> str:
    """Return `text` with everything that UTF-8 has no bytes for written out."""
    return text.encode("utf-8", "backslashreplace").decode()


class UsageError(AcgateError):
    """Arguments or configuration are wrong; the message says what to change."""

    exit_code = ExitCode.USAGE


class ToleranceError(UsageError):
    """A tolerance file is missing or invalid."""


class PolicyError(UsageError):
    """A policy file is invalid, or the policy cannot be applied to this model."""


class TargetError(UsageError):
    """The target cannot be loaded, or lacks something the gate needs."""


class OutputError(UsageError):
    """The output directory or a report cannot be written."""


class NothingToDoError(AcgateError):
    """Nothing is selected or nothing would be compared."""

    exit_code = ExitCode.NOTHING


class IncompleteError(AcgateError):
    """A required check could not be made."""

    exit_code = ExitCode.INCOMPLETE


class WorkerDiedError(IncompleteError):
    """A worker process ended before it wrote its end mark."""


class DeadlineError(IncompleteError):
    """A phase took longer than its deadline."""


class RankRaisedError(IncompleteError):
    """The target raised on one rank, and the others did not come to an end without it."""


class EvidenceError(IncompleteError):
    """Evidence is missing, damaged, or belongs to another run."""
