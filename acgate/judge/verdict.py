"""What judging returns: cases with an outcome, and the differences behind them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from acgate.errors import ExitCode
from acgate.evidence.records import Fact, Raised, RankRecord
from acgate.evidence.step_records import Seconds
from acgate.plan.job import TensorKey
from acgate.spec.models import Frozen
from acgate.vocabulary import Band, Check, Outcome, Quantity


class Difference(Frozen):
    """One tensor that is not equal, measured; no figure is NaN.

    Attributes:
        max_abs_err: max|r-c|, beside its scale max|r|.
        rel_err: ||r-c|| / ||r||; infinite where the reference is zero and the candidate is not.
        cosine_gap: 1 - cosine, exactly 0 for equal inputs.
        norm_ratio: ||c|| / ||r||.
        limit: The limit of the tolerance file for `rel_err`.
        floor: The measured noise floor for `rel_err`, 0.0 where the reference repeats bit by bit.
        ranks: On which of `num_ranks` it differs; empty where that is not known.
    """

    key: TensorKey
    band: Band
    max_abs_err: float
    scale: float
    rel_err: float
    cosine_gap: float
    norm_ratio: float
    limit: float
    limit_source: str
    floor: float = 0.0
    nonfinite_reference: int = 0
    nonfinite_candidate: int = 0
    ranks: tuple[int, ...] = ()
    num_ranks: int = 0


class Finding(Frozen):
    """A fact about the wiring with what it does to the verdict.

    Attributes:
        allowed: Reason of the entry that allows it, None where nothing does.
        expired: True where an entry matched but its date has passed.
    """

    kind: str
    where: str
    detail: str
    severity: str
    sentence: str
    advice: str
    allowed: str | None = None
    expired: bool = False


class Cause(Frozen):
    """Why a track is not its reference: kind, place, evidence, advice.

    Attributes:
        kind: A `CauseKind`.
        where: Region, or what else is at fault (a policy, `optimizer`, `model`).
        operator: The operator that lied, as `aten.mul.Tensor (call 3)`; empty where none did.
        module: Innermost module that called it.
        source: Source line of the target's code.
        by: By how much the first value differs; empty where that was not measured.
        evidence: Sentences that say what was seen, by how much.
        found: How: by `value` of operators, by `state` that replays change, by `wiring`, by the track's own
            `forward`, or by `bisection` over blocks.
        blocks: The smallest set of blocks whose AC is enough for the fault, where it was looked for.
        ranks: Ranks on which it was seen, where there are several.
    """

    kind: str
    where: str
    operator: str = ""
    module: str = ""
    source: str = ""
    by: str = ""
    evidence: tuple[str, ...] = ()
    sentence: str
    advice: str
    found: Literal["value", "state", "wiring", "forward", "bisection"]
    blocks: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()


def case_name(check: Check, place: str | None = None) -> str:
    """Return `check` or `check[place]`."""
    return check.value if place is None else f"{check.value}[{place}]"


class Case(Frozen):
    """One JUnit case and, later, one pytest item.

    Attributes:
        headline: One sentence.
        text: The whole message; never empty for `fail` and `error`.
        compared: Tensors (or values) compared.
    """

    check: Check
    place: str | None = None
    outcome: Outcome
    headline: str
    text: str = ""
    compared: int = 0
    differences: tuple[Difference, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """`check` or `check[place]`."""
        return case_name(self.check, self.place)


class KeyLayer(Frozen):
    """One quantity of a layer that the user marked.

    Attributes:
        compared: Tensors compared over all steps.
        differing: Those of them that are not equal bit for bit.
        worst: The largest measured difference, None where nothing differs or nothing was measured.
    """

    name: str
    quantity: Quantity
    outcome: Outcome
    compared: int
    differing: int = 0
    worst: Difference | None = None


class TrackVerdict(Frozen):
    """All cases of one track of one cell: an AC track, or `none` where it is judged across topologies.

    Attributes:
        key_layers: A line for each layer that the user marked, and each of its quantities.
        ranks: What the track cost on each rank; empty where one device ran it.
        causes: Why it fails, the most likely first; empty where it passes or nobody looked.
    """

    track: str
    outcome: Outcome
    cases: tuple[Case, ...]
    key_layers: tuple[KeyLayer, ...] = ()
    seconds: Seconds = Seconds()
    peak_bytes: int | None = None
    held_bytes: int | None = None
    worker_seconds: float = 0.0
    ranks: tuple[RankRecord, ...] = ()
    causes: tuple[Cause, ...] = ()


class CellVerdict(Frozen):
    """One cell: its tracks, how many comparisons were expected and made.

    Attributes:
        reference_ranks: What `none` cost on each rank; empty where one device ran it.
    """

    cell: str
    outcome: Outcome
    tracks: tuple[TrackVerdict, ...]
    reference_seconds: Seconds = Seconds()
    reference_peak_bytes: int | None = None
    reference_held_bytes: int | None = None
    reference_ranks: tuple[RankRecord, ...] = ()
    expected: int = 0
    compared: int = 0
    repeatable: bool | None = None
    facts: tuple[Fact, ...] = ()
    raised: Raised | None = None


class Verdict(Frozen):
    """The run: pass only if every required comparison of the plan passed."""

    schema_: int = Field(default=1, alias="schema")
    target: str
    source: str
    outcome: Outcome
    exit_code: ExitCode
    headline: str
    cells: tuple[CellVerdict, ...]
    versions: dict[str, str] = {}
    dropped: dict[str, str] = {}

    model_config = Frozen.model_config | {"populate_by_name": True}
