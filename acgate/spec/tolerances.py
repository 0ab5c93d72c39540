"""Tolerance files: which limits there are, and how strictly a file that states them is read."""

from __future__ import annotations

import difflib
import fnmatch
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

from acgate.errors import ToleranceError
from acgate.vocabulary import Quantity

if TYPE_CHECKING:
    from pathlib import Path

Comparison = Literal["ac_vs_none", "topology_vs_single"]
Metric = Literal["rel_err", "cosine"]

COMPARISONS: tuple[Comparison, ...] = get_args(Comparison)
METRICS: tuple[Metric, ...] = get_args(Metric)
QUANTITIES = (
    Quantity.LOSS,
    Quantity.GRADIENT,
    Quantity.INPUT_GRADIENT,
    Quantity.UPDATE,
    Quantity.BUFFER,
    Quantity.STATE,
)
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
SCHEMA = 1
COSINE_GAP_MOST = 2.0  # 1 - cosine of opposite vectors


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit with its reason.

    Attributes:
        limit: For `rel_err` the largest ||r-c|| / ||r||; for `cosine` the largest 1 - cosine.
        why: The reasoning behind the number.
        source: Where it comes from: `provisional`, or what measured it.
    """

    limit: float
    why: str
    source: str


@dataclass(frozen=True, slots=True)
class Override:
    """Limits that replace the general ones where both globs match."""

    fqn: str
    topology: str
    limits: Mapping[tuple[Comparison, Quantity, Metric], Limit]

    def matches(self, fqn: str, topology: str) -> bool:
        """Say whether a tensor of a topology is meant."""
        return fnmatch.fnmatchcase(fqn, self.fqn) and fnmatch.fnmatchcase(topology, self.topology)


@dataclass(frozen=True, slots=True)
class Tolerances:
    """One tolerance file, validated.

    Attributes:
        path: The file, for messages.
        dtype: The compute dtype that the limits are for.
        unit_roundoff: Half the distance between 1 and the next number of that dtype.
    """

    path: str
    dtype: str
    unit_roundoff: float
    limits: Mapping[tuple[Comparison, Quantity, Metric], Limit]
    overrides: tuple[Override, ...] = ()

    def limit(
        self, comparison: Comparison, quantity: Quantity, metric: Metric, fqn: str, topology: str
    ) -> Limit:
        """Return the limit that holds for one tensor; of several overrides the last one wins.

        Raises:
            ValueError: The quantity has no limits (weights are judged by their update).
        """
        key = (comparison, quantity, metric)
        if key not in self.limits:
            raise ValueError(f"there is no limit for {quantity} {metric} in {comparison}")
        for override in reversed(self.overrides):
            if key in override.limits and override.matches(fqn, topology):
                return override.limits[key]
        return self.limits[key]


def load_tolerances(directory: Path, precision: str) -> Tolerances:
    """Read the tolerance file of a precision; `bfloat16.pure` and `bfloat16.mixed` use that of `bfloat16`.

    Args:
        directory: Where the files lie, one `<dtype>.toml` per dtype.
        precision: As the specification names it.

    Raises:
        ToleranceError: The file is missing or breaks a rule; names file, section, key and rule.
    """
    dtype = precision.partition(".")[0]
    path = directory / f"{dtype}.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ToleranceError(
            f"{path}: there is no tolerance file for {precision}, and no other dtype's limits are used"
            f" instead; write {dtype}.toml (copy a neighbour and state your reasons), or drop {precision}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ToleranceError(f"{path}: the tolerance file cannot be read: {error}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # tomllib refuses a key that is given twice, so duplicates end here as well
        raise ToleranceError(f"{path}: not valid TOML: {error}") from error
    return _Reader(str(path)).document(document, dtype)


class _Reader:
    """Walks one parsed file; every complaint carries the file, the section, the key and the rule."""

    def __init__(self, path: str) -> None:
        self._path = path

    def document(self, table: Mapping[str, object], dtype: str) -> Tolerances:
        """Validate a whole file."""
        self._only(table, ("schema", "dtype", "unit_roundoff", *COMPARISONS, "override"), "")
        if (schema := self._need(table, "schema", "")) != SCHEMA or isinstance(schema, bool):
            self._refuse("", "schema", f"must be {SCHEMA}, not {schema!r}")
        if (found := self._need(table, "dtype", "")) != dtype:
            self._refuse("", "dtype", f'must be "{dtype}" as the file name says, not {found!r}')
        roundoff = self._number(self._need(table, "unit_roundoff", ""), "", "unit_roundoff")
        known = UNIT_ROUNDOFF.get(dtype, roundoff)
        if not math.isclose(roundoff, known, rel_tol=1e-6) or roundoff == 0:
            self._refuse("", "unit_roundoff", f"of {dtype} is {known!r}, not {roundoff!r}")
        limits: dict[tuple[Comparison, Quantity, Metric], Limit] = {}
        for comparison in COMPARISONS:
            section = self._table(self._need(table, comparison, ""), comparison)
            limits |= self._comparison(section, comparison, comparison, complete=True)
        return Tolerances(self._path, dtype, roundoff, limits, self._overrides(table.get("override", [])))

    def _comparison(
        self, table: Mapping[str, object], comparison: Comparison, section: str, *, complete: bool
    ) -> dict[tuple[Comparison, Quantity, Metric], Limit]:
        self._only(table, QUANTITIES, section)
        limits: dict[tuple[Comparison, Quantity, Metric], Limit] = {}
        for quantity in QUANTITIES:
            if quantity not in table and not complete:
                continue
            place = f"{section}.{quantity}"
            metrics = self._table(self._need(table, quantity, section), place)
            self._only(metrics, METRICS, place)
            for metric in METRICS:
                if metric in metrics or complete:
                    value = self._need(metrics, metric, place)
                    limits[comparison, quantity, metric] = self._limit(value, metric, place)
        return limits

    def _limit(self, value: object, metric: Metric, section: str) -> Limit:
        place = f"{section}.{metric}"
        table = self._table(value, place)
        self._only(table, ("limit", "why", "source"), place)
        limit = self._number(self._need(table, "limit", place), place, "limit")
        if metric == "cosine" and not limit <= COSINE_GAP_MOST:
            self._refuse(place, "limit", f"is the largest 1 - cosine, so at most 2, not {limit!r}")
        return Limit(limit, self._sentence(table, "why", place), self._sentence(table, "source", place))

    def _overrides(self, value: object) -> tuple[Override, ...]:
        if not isinstance(value, list):
            self._refuse("", "override", "must be an array of tables: write [[override]]")
        overrides: list[Override] = []
        seen: set[tuple[str, str, Comparison, Quantity, Metric]] = set()
        for number, entry in enumerate(value, start=1):
            section = f"override {number}"
            table = self._table(entry, section)
            self._only(table, ("select", *COMPARISONS), section)
            select = self._table(self._need(table, "select", section), f"{section}.select")
            self._only(select, ("fqn", "topology"), f"{section}.select")
            if not select:
                self._refuse(
                    section, "select", 'must name fqn, topology or both, such as { fqn = "*.norm.weight" }'
                )
            globs = {name: self._sentence(select, name, f"{section}.select") for name in select}
            fqn, topology = globs.get("fqn", "*"), globs.get("topology", "*")
            limits: dict[tuple[Comparison, Quantity, Metric], Limit] = {}
            for comparison in COMPARISONS:
                if comparison in table:
                    place = f"{section}.{comparison}"
                    inner = self._table(table[comparison], place)
                    limits |= self._comparison(inner, comparison, place, complete=False)
            if not limits:
                self._refuse(
                    section, "", "overrides nothing: add a table such as [override.ac_vs_none.gradient]"
                )
            for comparison, quantity, metric in limits:
                if (fqn, topology, comparison, quantity, metric) in seen:
                    self._refuse(
                        section,
                        f"{comparison}.{quantity}.{metric}",
                        "is a duplicate: same select, same limit",
                    )
                seen.add((fqn, topology, comparison, quantity, metric))
            overrides.append(Override(fqn, topology, limits))
        return tuple(overrides)

    def _only(self, table: Mapping[str, object], allowed: tuple[str, ...], section: str) -> None:
        for key in table:
            if key not in allowed:
                near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.5)
                hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(allowed)}"
                self._refuse(section, key, f"is unknown; {hint}")

    def _need(self, table: Mapping[str, object], key: str, section: str) -> object:
        if key not in table:
            self._refuse(section, key, "is missing")
        return table[key]

    def _table(self, value: object, section: str) -> Mapping[str, object]:
        if not isinstance(value, Mapping):
            self._refuse(section, "", f"must be a table, not {type(value).__name__}")
        return value

    def _number(self, value: object, section: str, key: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(section, key, f"must be a number, not {type(value).__name__} {value!r}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self._refuse(section, key, f"must be finite: a limit of {number!r} would let everything pass")
        if not number >= 0:
            self._refuse(section, key, f"must not be negative, but is {number!r}")
        return number

    def _sentence(self, table: Mapping[str, object], key: str, section: str) -> str:
        value = self._need(table, key, section)
        if not isinstance(value, str) or not value.strip():
            self._refuse(section, key, f"must be a text that is not empty, not {value!r}")
        return value

    def _refuse(self, section: str, key: str, rule: str) -> NoReturn:
        where = f"[{section}]" if section else "top level"
        raise ToleranceError(f"{self._path}: {where}{f', {key}' if key else ''}: {rule}")
