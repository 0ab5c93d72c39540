"""One track of one cell: the target afresh, the track applied, the steps, the evidence."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from acgate.errors import IncompleteError
from acgate.evidence.records import TrackEvidence
from acgate.observe import memory, rng
from acgate.observe.content_hash import self_test, tampered
from acgate.run.attempt import Attempt
from acgate.run.determinism import controlled, is_missing_form
from acgate.run.ranks import Ended
from acgate.run.trail import Trail
from acgate.run.virtual import VirtualStepper
from acgate.run.world import ALONE

if TYPE_CHECKING:
    from acgate.evidence.paths import RunPaths
    from acgate.plan.job import Deterministic, TrackJob
    from acgate.run.interface import Progress
    from acgate.run.world import World


def run_track(
    job: TrackJob, paths: RunPaths, nonce: str, progress: Progress, world: World = ALONE
) -> TrackEvidence:
    """Run one track and return this rank's evidence; the target's exceptions are part of it.

    An operator without a deterministic form makes the run start again in warn-only mode. The
    reference starts again without NaN-filled memory where that fill is what made it not finite.
    Where there are several ranks, all of them start again or none.

    Raises:
        UsageError: The target or the policy is at fault.
        IncompleteError: The target changed functions that a verdict rests on.
    """
    started = time.perf_counter()
    # As shipped means the kernels of production, whatever a reference ended up with.
    mode: Deterministic = "off" if job.cell.as_shipped else job.deterministic
    fill = job.fill_memory and mode != "off"
    tries = _Tries(job, paths, progress, world)
    trail, missing, ended = tries.make(mode, fill=fill)
    if mode == "strict" and ended.lacks_form:
        mode = "warn"
        trail, missing, ended = tries.make(mode, fill=fill)
    if _is_scale(job) and not ended.raised and not ended.planted:
        trail, missing, ended = tries.make(mode, fill=fill, at_output=True)
    if job.name == "none" and fill and not ended.finite:
        again, missing_again, ended_again = tries.make(mode, fill=False)
        if ended_again.finite:
            trail, missing, fill = again, missing_again, False
    rank = trail.rank(world, job.spec.device)
    evidence = TrackEvidence(
        nonce=nonce,
        name=job.name,
        track=job.track,
        cell=job.cell,
        steps_wanted=job.steps,
        micro_steps=job.micro_steps,
        early_stop=job.early_stop,
        plant=job.plant,
        details=job.details,
        identity=trail.identity,
        structure=trail.structure,
        state_before=trail.state_before,
        steps=tuple(trail.steps),
        observation=trail.observer.observation() if trail.observer else None,
        measurements=trail.meter.finish() if trail.meter else (),
        facts=tuple(trail.facts),
        raised=trail.raised,
        two_forwards_raised=trail.two_forwards_raised,
        no_deterministic_form=tuple(missing),
        deterministic=mode,
        fill_memory=fill,
        planted=trail.planted(),
        peak_bytes_device=memory.device_peak(job.spec.device),
        virtual=job.virtual,
        offload=job.offload,
        layers=job.layers,
        explain=job.explain,
        only=job.only,
        ranks=(rank,) if rank else (),
        shared_by="target" if trail.topology and trail.topology.shared_by == "target" else "acgate",
        worker_seconds=time.perf_counter() - started,
    )
    return trail.stepper.merged(evidence) if isinstance(trail.stepper, VirtualStepper) else evidence


class _Tries:
    """The attempts at one job, each from a clean start."""

    def __init__(self, job: TrackJob, paths: RunPaths, progress: Progress, world: World) -> None:
        self._made = 0
        self._job, self._paths, self._progress, self._world = job, paths, progress, world

    def make(
        self, mode: Deterministic, *, fill: bool, at_output: bool = False
    ) -> tuple[Trail, list[str], Ended]:
        """Run the track once under one profile; put global state and RNG back afterwards."""
        self._made += 1
        job = self._job
        attempt = Attempt(job, self._paths, self._progress, self._world, self._made, at_output=at_output)
        trail = Trail()
        random_state = rng.capture()
        try:
            with controlled(mode, fill_memory=fill, threads=job.spec.threads) as missing:
                attempt.run(trail)
        finally:
            rng.restore(random_state)
        changed = tampered()
        if changed:
            raise IncompleteError(
                f"the target replaced {', '.join(changed)}, which a verdict rests on; "
                "undo the replacement before the gate measures"
            )
        self_test()
        if job.ranks > 1 and trail.raised is None:
            self._progress("gather", None)
        ended = Ended(
            lacks_form=_lacks_form(trail),
            raised=trail.raised is not None,
            planted=trail.planted(),
            finite=_finite(trail),
        )
        return trail, missing, ended.together(self._world, job.ranks, attempt.key)


def _is_scale(job: TrackJob) -> bool:
    return job.plant is not None and job.plant.kind in {"scale", "sign"}


def _lacks_form(trail: Trail) -> bool:
    raised = trail.raised
    return raised is not None and is_missing_form(RuntimeError(raised.message)) is not None


def _finite(trail: Trail) -> bool:
    return trail.raised is None and not any(
        micro.loss.nonfinite or any(g.nonfinite for g in micro.gradients.values() if g)
        for step in trail.steps
        for micro in step.micro
    )
