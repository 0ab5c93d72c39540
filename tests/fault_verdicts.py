"""Fixtures of one device before the gate: in which precision by default, and each no more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acgate import gate
from acgate.spec.models import Allow, GateSpec
from fixtures import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from acgate.judge.verdict import Verdict
    from fixtures.expectation import Expectation

    Key = tuple[Path, str, int, bool]

FIXTURES: list[tuple[Path, Expectation]] = [
    (path, catalog.load(path).EXPECT) for path in catalog.paths_here()
]

# The long sweeps take all precisions, in the steps that the gate takes by default.
STEPS: int = GateSpec.model_fields["steps"].default

EXPLAINED = frozenset(
    {
        "adapters_reentrant",
        "attention_backend_forward_only",
        "call_counter_schedule",
        "dropout_rng_not_kept",
        "function_unpacks_twice",
        "keyword_changed_later",
        "late_bound_closure",
        "optimizer_groups_by_path",
        "recompute_path_drops_mask",
        "running_normaliser",
        "selective_matmul_then_add",
        "selective_saves_one_random",
    }
)
"""One fault of each kind of evidence, whose cause is graded by default too, in float32."""

DEFAULT_PRECISION: dict[Path, str] = {
    path: "float32" if path.stem in EXPLAINED else expect.precisions[number % len(expect.precisions)]
    for number, (path, expect) in enumerate(FIXTURES)
}
"""By default each fixture runs in one precision, by turns."""


class Verdicts:
    """Judges fixtures, and remembers: one run answers for the verdict and for its causes."""

    def __init__(self) -> None:
        self._known: dict[Key, Verdict] = {}

    def of(self, path: Path, precision: str, steps: int, out: Path) -> Verdict:
        """Return the verdict on a fixture, run in `out` where it is not known yet.

        What explains a fault comes after what judges it, changes no verdict, and is half the work: by default
        it is made for `EXPLAINED` only, and where nothing should be wrong, so that nothing is to be explained.
        """
        faulty = bool(catalog.load(path).EXPECT.faulty_tracks)
        explained = steps == STEPS or not faulty or path.stem in EXPLAINED
        key = (path, precision, steps, explained)
        if key not in self._known:
            with pytest.MonkeyPatch.context() as patch:
                if not explained:
                    patch.setattr("acgate.judge.needs.explanations", lambda *_: ())
                self._known[key] = judged(path, precision, steps, out)
        return self._known[key]


def judged(path: Path, precision: str, steps: int, out: Path, allow: Sequence[Allow] = ()) -> Verdict:
    """Put one fixture through the gate."""
    tracks = catalog.load(path).EXPECT.tracks_in(precision)
    spec = GateSpec(
        model=str(path),
        tracks=("none", *tracks),
        dtypes=(precision,),
        steps=steps,
        threads=1,
        allow=tuple(allow),
    )
    return gate.run(spec, out, resume=False, in_process=True, listeners=())
