"""Fixtures of one device before the gate: in which precision by default, and each no more than once."""

from __future__ import annotations

import contextlib
import gc
import io
import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from acgate import gate
from acgate.run.in_process import real_perform
from acgate.spec.models import Allow, GateSpec
from fixtures import catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future

    from acgate.judge.verdict import Verdict
    from fixtures.expectation import Expectation

    Turn = tuple[Path, str, int]

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
    """Judges fixtures in as many processes as there are processors, and each once.

    Args:
        turns: Path, precision and steps of everything that will be asked for, in that order.
    """

    def __init__(self, turns: Iterable[Turn]) -> None:
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(min(processors, 4), context, settle)
        self._begun: dict[Turn, Future[Verdict]] = {
            turn: self._pool.submit(judged_alone, *turn) for turn in dict.fromkeys(turns)
        }

    def of(self, path: Path, precision: str, steps: int) -> Verdict:
        """Return what the gate says of a fixture: one run answers for the verdict and for its causes."""
        return self._begun[path, precision, steps].result()

    def close(self) -> None:
        """End the processes; what has not begun is left."""
        self._pool.shutdown(cancel_futures=True)


def settle() -> None:
    """Import what does jobs, and leave what imports made to the end: no collection need walk through it."""
    real_perform()
    gc.collect()
    gc.freeze()


def judged_alone(path: Path, precision: str, steps: int) -> Verdict:
    """Put one fixture through the gate in a process that does nothing else, and leave no trace.

    What explains a fault comes after what judges it, changes no verdict, and is half the work: by default
    it is made for `EXPLAINED` only, and where nothing should be wrong, so that nothing is to be explained.
    """
    torch.set_float32_matmul_precision("highest")  # a fixture before may have changed it
    faulty = bool(catalog.load(path).EXPECT.faulty_tracks)
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        if faulty and steps != STEPS and path.stem not in EXPLAINED:
            patch.setattr("acgate.judge.needs.explanations", lambda *_: ())
        return judged(path, precision, steps, Path(folder) / "run")


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
