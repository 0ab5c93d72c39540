"""What becomes of each tensor of a topology that differs from one device.

Another order of summation is a reason to differ, so what is inside the limit is a pass with a note.
Two kinds of tensors have rules of their own:

* *Tiny gradients* are noise: their error is measured against ten unit round-offs of the whole gradient.
* *Updates* magnify noise: the first step of AdamW is lr times the sign of the gradient, and a fused bias
  of queries, keys and values has a third of such elements. The gradient judges, and an update above
  its limit fails only where noise cannot be the reason: where every gradient of its tensor so far was
  equal bit for bit; or where the gradient is not tiny and the update is far off in length (`RATIO`) or
  direction (`GAP`), as where a topology does not update a tensor at all. A quarter of all elements stepping
  the other way changes no length and has 1 - cosine = 0.5. In narrow dtypes, weights move by whole ulps,
  so that an update of few moved elements (`FEW`) is no witness.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge.bands import outcome_of, within
from acgate.judge.rulings import Ground, Ruling, measure
from acgate.judge.tiny import SHARE, Scale, scale_of
from acgate.vocabulary import Band, Outcome, Quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acgate.evidence.records import Statistics, TrackEvidence
    from acgate.judge.across_floor import AcrossFloor
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise
    from acgate.judge.verdict import Difference
    from acgate.plan.job import TensorKey
    from acgate.spec.models import Unexplained

RATIO = 2.0
"""An update this many times longer or shorter than it must be is no matter of signs."""

GAP = 0.5
"""From this 1 - cosine on, an update points elsewhere."""

FEW = 16.0
"""Elements that must have moved, measured in squares of the largest step, before a narrow dtype counts."""

FLIPS_MOVE = 1e-2
"""Relative change of the loss that tokens routed by round-off do not exceed."""

NARROW = frozenset({"bfloat16", "float16"})


@dataclass(frozen=True, slots=True)
class AcrossRules:
    """Everything that ruling on one tensor needs.

    Attributes:
        statistics: All finite measurements, by tensor.
        unequal: Parameters by the first step in which their reduced gradient is not equal bit for bit.
        unused: Trainable parameters of which no gradient was compared, as one side has none.
        narrow: Parameters of a narrow dtype.
    """

    inputs: CellInputs
    noise: Noise
    floor: AcrossFloor
    statistics: Mapping[TensorKey, Statistics]
    scale: Scale
    unequal: Mapping[str, int]
    unused: frozenset[str]
    narrow: frozenset[str]

    @classmethod
    def made(
        cls,
        inputs: CellInputs,
        noise: Noise,
        floor: AcrossFloor,
        statistics: Mapping[TensorKey, Statistics],
    ) -> AcrossRules:
        """Gather what all rulings have in common."""
        unequal: dict[str, int] = {}
        for key, found in statistics.items():
            if key.quantity is Quantity.GRADIENT and (found.max_abs_diff != 0 or found.sum_sq_diff != 0):
                unequal[key.name] = min(key.step, unequal.get(key.name, key.step))
        reference = inputs.reference
        structure = reference.structure if reference else None
        parameters = structure.parameters if structure else {}
        return cls(
            inputs=inputs,
            noise=noise,
            floor=floor,
            statistics=statistics,
            scale=scale_of(inputs, statistics),
            unequal=unequal,
            unused=frozenset(inputs.survey.trainable)
            - {key.name for key in statistics if key.quantity is Quantity.GRADIENT},
            narrow=frozenset(name for name, record in parameters.items() if record.dtype in NARROW),
        )

    def rule(self, key: TensorKey) -> Ruling:
        """Rule on one tensor that differs."""
        floor = self.floor.floor(key)
        difference = measure(self.inputs, key, self.statistics[key], floor, "topology_vs_single")
        if self.noise.draws_freely:
            # Two runs of it do not compute the same either, so this comparison says nothing.
            return Ruling(key, Outcome.ERROR, Ground.DRAWS_FREELY, difference)
        if key.quantity is Quantity.UPDATE and self._steps_wrong(difference):
            return Ruling(key, Outcome.FAIL, Ground.STEPS_WRONG, difference)
        match difference.band:
            case Band.ABOVE_LIMIT if floor is None:
                return Ruling(key, Outcome.ERROR, Ground.NO_FLOOR, difference)
            case Band.ABOVE_LIMIT if key.quantity is Quantity.UPDATE:
                return Ruling(key, Outcome.WARN, Ground.STEPS_EITHER_WAY, difference)
            case Band.ABOVE_LIMIT if self.scale.is_tiny(key):
                return self._tiny(key, difference)
            case band:
                return Ruling(key, outcome_of(band, self._unexplained), Ground.MEASURED, difference)

    @property
    def _unexplained(self) -> Unexplained:
        return self.inputs.spec.unexplained or "warn"

    def _tiny(self, key: TensorKey, difference: Difference) -> Ruling:
        """Measure a gradient that is noise against the floor of all of them."""
        floor = self.scale.floor(key)
        found = self.statistics[key]
        err = max(found.sum_sq_diff**0.5, found.max_abs_diff) / floor
        limit = max(SHARE, difference.limit)
        ok = within(err, limit)
        band = Band.UNEXPLAINED if ok else Band.ABOVE_LIMIT
        update = {"rel_err": err, "limit": limit, "band": band, "limit_source": TINY_SOURCE}
        outcome = outcome_of(band, self._unexplained)
        return Ruling(key, outcome, Ground.TINY, difference.model_copy(update=update))

    def _steps_wrong(self, difference: Difference) -> bool:
        """Say whether an update is off by more than noise in its gradient can make of it."""
        d = difference
        if within(d.rel_err, d.limit):
            return False
        if d.key.name in self.unused:
            return False  # FSDP1 has zeros where one device has no gradient, and weights decay under them
        if d.key.step < self.unequal.get(d.key.name, d.key.step + 1):
            return True
        if self.scale.is_tiny(d.key) or (d.key.name in self.narrow and self._few(d.key)):
            return False
        return not (1 / RATIO <= d.norm_ratio <= RATIO) or not within(d.cosine_gap, GAP)

    def _few(self, key: TensorKey) -> bool:
        found = self.statistics[key]
        return not found.sum_sq_reference >= FEW * found.max_abs_reference**2


TINY_SOURCE = "of ten unit round-offs of the whole gradient"


def excused_by_choices(
    rulings: tuple[Ruling, ...], virtual: TrackEvidence, measured: TrackEvidence
) -> tuple[Ruling, ...]:
    """Take back failures of a model that compared numbers and may have chosen differently.

    Where its choices differ before or in the first step that exceeds a limit, nothing from there on was
    checked. Where they are equal in that step, they are not the reason. In a step whose choices were
    not observed, they may differ unseen, as its weights differ by round-off. A few tokens that go
    another way hardly move the loss: where it is far off, other choices are the consequence.
    """
    left, right = choices_of(virtual), choices_of(measured)
    failing = [ruling for ruling in rulings if ruling.outcome is Outcome.FAIL]
    if not failing or not (left or right):
        return rulings
    first = min(ruling.key.step for ruling in failing)
    if any(_loss_far_off(ruling) for ruling in rulings if ruling.key.step <= first):
        return rulings
    before = [step for step in {*left, *right} if step <= first]
    if any(left.get(step) != right.get(step) for step in before):
        ground = Ground.CHOSE_OTHERWISE
    elif first not in before:
        ground = Ground.MAY_HAVE_CHOSEN
    else:
        return rulings
    return tuple(
        dataclasses.replace(ruling, outcome=Outcome.SKIPPED, ground=ground)
        if ruling.outcome is Outcome.FAIL
        else ruling
        for ruling in rulings
    )


def _loss_far_off(ruling: Ruling) -> bool:
    difference = ruling.difference
    loss = ruling.key.quantity is Quantity.LOSS
    return loss and difference is not None and not within(difference.rel_err, FLIPS_MOVE)


def choices_of(run: TrackEvidence) -> dict[int, Counter[str]]:
    """Return the digests of what each forward of a step chose, whichever replica ran it, by step.

    They are written as `0:digest,digest 1:digest,digest`; what is not is of the first step.
    """
    found: dict[int, Counter[str]] = {}
    for text in run.observation.choices.split() if run.observation else ():
        step, _, digests = text.rpartition(":")
        found.setdefault(int(step) if step.isdecimal() else 0, Counter()).update(digests.split(","))
    return found
