"""The fixture `acgate`: a gate over objects that a test written by hand holds."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from acgate.errors import AcgateError, ExitCode, UsageError
from acgate.pytesting.handwritten_figures import figures
from acgate.pytesting.handwritten_report import Reporter
from acgate.pytesting.handwritten_result import Result
from acgate.pytesting.handwritten_settings import specification
from acgate.pytesting.handwritten_turns import Turns
from acgate.pytesting.names import inert
from acgate.report.files import ReportFiles
from acgate.report.summary import summary
from acgate.spec.explain import did_you_mean
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from acgate.judge.verdict import Verdict
    from acgate.pytesting.handwritten_target import Objects
    from acgate.spec.models import Allow, GateSpec, Policy

_LONGEST_NAME = 40
_RED = pytest.StashKey[dict[tuple[str, int], Result]]()


class Door:
    """What the fixture `acgate` is; `check` is its only use.

    A check that was red once in a session stays red: where a plugin runs a test again, the earlier
    result is given back and nothing is run.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        """Take the test that asks, and a directory factory that lives as long as `tmp_path` does."""
        self.results: list[Result] = []
        self.turns = Turns(request.node.name)
        self._node = request.node
        self._file = Path(request.node.path)
        root = request.config.rootpath
        self._root = root if self._file.is_relative_to(root) else self._file.parent
        self._factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        self._red_before = request.config.stash.setdefault(_RED, {})
        self._name = re.sub(r"\W+", "_", self._node.name).strip("_")[:_LONGEST_NAME] or "test"

    def check(
        self,
        build_model: Callable[[], Any],
        batches: Callable[[str], Iterable[Any]] | Iterable[Any],
        loss: Callable[[Any, Any], Any] | None = None,
        blocks: Sequence[str] | None = None,
        topologies: Sequence[str] = ("single",),
        *,
        tracks: Sequence[str] | None = None,
        dtypes: Sequence[str] = ("float32",),
        steps: int | None = None,
        micro_steps: int | None = None,
        world_size: int | None = None,
        optimizer: Callable[[Any], Any] | None = None,
        apply_ac: Callable[[Any, str], Any] | None = None,
        parallelize: Callable[[Any, Any, str], Any] | None = None,
        tensor_parallel_plan: Mapping[str, Any] | Callable[[Any], Any] | None = None,
        key_layers: Sequence[str] | None = None,
        schedules: Sequence[str] | None = None,
        generators: Mapping[str, Any] | None = None,
        max_grad_norm: float | None = None,
        policy: str | PathLike[str] | Mapping[str, Any] | Policy | None = None,
        tolerances: str | PathLike[str] | None = None,
        allow: Sequence[Mapping[str, Any] | Allow] = (),
        seed: int | None = None,
        bucket: str | None = None,
        threads: int | None = None,
        device: str | None = None,
        as_shipped: bool | None = None,
        explain: bool | None = None,
        **unknown: object,
    ) -> Result:
        """Train with and without activation checkpointing, compare everything, and say what came out.

        With one device all of it runs in this process, so closures and lambdas are fine. What it changes
        (random streams, settings of torch, environment, globals, closures, generators) is put back before
        each track and at the end; so make one check at a time. Topologies of several ranks run in processes
        of their own, which import what is given: then every function must lie at module level of the test
        file, and what the test has changed before (by `monkeypatch`, say) is as in the file for them.

        Args:
            build_model: Returns a `torch.nn.Module`, new at each call and without AC; seeded before.
            batches: Micro-batches, `steps * micro_steps` of them (for several ranks, times their
                number), each a tensor, dict, tuple, list or dataclass of tensors; or a function of the
                bucket that returns them. What is given is copied, never written to.
            loss: `loss(model, batch)` returns a tensor with one element; default `model(**batch).loss`.
            blocks: Globs over module names, such as `["layers.*"]`; default: found.
            topologies: Out of `single`, `ddp`, `fsdp`, `fsdp1`, `tp`, `fsdp+tp`, `pp`.
            tracks: AC treatments; default `none`, `block`, `selective`.
            dtypes: Precisions; default only `float32`.
            steps: Optimizer steps for each track; default 3.
            micro_steps: Forward and backward passes for each step; default 2.
            world_size: Ranks of every topology but `single`; default 2.
            optimizer: `optimizer(model)`; default AdamW.
            apply_ac: `apply_ac(model, track)` applies AC as training does; default: acgate by the policy.
            parallelize: `parallelize(model, mesh, topology)`; default: acgate.
            tensor_parallel_plan: Globs and styles, such as `{"layers.*.up": "colwise"}`.
            key_layers: Globs of layers with a line of their own in the message.
            schedules: `accumulate` (default), and `two_forwards` where training does that.
            generators: Random generators that only the model knows, by name; on one device only.
            max_grad_norm: Clips after gradients were taken.
            policy: File or content of a `policy.toml`; a path is relative to the test file.
            tolerances: Directory of tolerance files, relative to the test file.
            allow: Findings that are accepted, as in `[[allow]]`: `kind`, `where`, `reason`, `until`.
            seed: Of models, batches and random streams.
            bucket: Sequence-length class for `batches`.
            threads: Of torch inside operators; default: as they are.
            device: `cpu` (default) or `cuda`.
            as_shipped: Judge the kernels of production instead of deterministic ones.
            explain: Trace the operators also where nothing failed.
            **unknown: Whatever else is given is refused by name.

        Returns:
            A result that is true where it passed. `result.message` is the whole text; a failed test shows it.

        Raises:
            UsageError: An argument is wrong, or what it gives cannot be used; says what to change.
            BaseException: What `build_model` raises.
        """
        __tracebackhide__ = True
        for name in unknown:
            known = [*inspect.signature(Door.check).parameters]
            raise UsageError(f"acgate.check takes no argument {name!r}{did_you_mean(name, known)}")
        settings = {
            "tracks": tracks,
            "topologies": topologies,
            "dtypes": dtypes,
            "steps": steps,
            "micro_steps": micro_steps,
            "world_size": world_size,
            "seed": seed,
            "bucket": bucket,
            "threads": threads,
            "device": device,
            "as_shipped": as_shipped,
            "explain": explain,
            "tolerances": tolerances,
        }
        attributes = {
            "build_model": build_model,
            "batches": batches,
            "loss": loss,
            "blocks": blocks,
            "optimizer": optimizer,
            "apply_ac": apply_ac,
            "parallelize": parallelize,
            "tensor_parallel_plan": tensor_parallel_plan,
            "key_layers": key_layers,
            "schedules": schedules,
            "generators": generators,
            "max_grad_norm": max_grad_norm,
        }
        given = {name: value for name, value in attributes.items() if value is not None}
        problem: UsageError | None = None
        try:
            with self.turns.one():
                return self._checked(given, settings, policy, allow)
        except UsageError as error:
            # Raised anew: how acgate came to it says nothing about the test.
            problem = type(error)(inert(str(error)))
        raise problem

    def __repr__(self) -> str:
        return "<fixture acgate>"

    def _checked(
        self, given: Mapping[str, Any], settings: Mapping[str, object], policy: object, allow: object
    ) -> Result:
        __tracebackhide__ = True
        earlier = self._red_before.get(self._key())
        if earlier is not None:
            self.results.append(earlier.again())
            return self.results[-1]
        place = self._factory.mktemp(f"acgate-{self._name}", numbered=True)
        spec = specification(settings, policy=policy, allow=allow, beside=self._file.parent, empty=place)
        # Imported here, and torch with it: a test that only asks for the fixture needs none.
        from acgate.pytesting.handwritten_target import Objects, outside_inference  # noqa: PLC0415

        with outside_inference():
            objects = Objects.of(given, spec, self._label(), self._file, self._root)
            result = self._run(objects, spec, place)
        self.results.append(result)
        if result.red:
            self._red_before[self._key()] = result
        return result

    def _key(self) -> tuple[str, int]:
        return self._node.nodeid, self.turns.calls

    def _run(self, objects: Objects, spec: GateSpec, place: Path) -> Result:
        __tracebackhide__ = True
        from acgate import gate  # noqa: PLC0415 - slow to import

        evidence = place / "run"
        files = ReportFiles(evidence, None, None)
        try:
            with files.open(), objects.as_target(spec, place) as (model, in_process):
                wanted = spec.model_copy(update={"model": model})
                verdict = gate.run(wanted, evidence, resume=False, in_process=in_process, listeners=())
                files.write(verdict)
        except UsageError:
            raise
        except AcgateError as error:
            return self._unchecked(error, evidence)
        self._tell(verdict)
        return Result(
            exit_code=verdict.exit_code,
            outcome=_outcome(verdict),
            headline=verdict.headline,
            message=inert(f"{summary(verdict)}evidence: {evidence}\n"),
            evidence=evidence,
            verdict=verdict,
        )

    def _unchecked(self, error: AcgateError, evidence: Path) -> Result:
        told = inert(str(error))
        text = f"ERROR  could not be checked: {told}  (exit code {error.exit_code.value})"
        self._property("outcome", Outcome.ERROR.value)
        self._property("exit_code", error.exit_code.value)
        return Result(
            exit_code=error.exit_code,
            outcome=Outcome.ERROR,
            headline=f"could not be checked: {told}",
            message=f"{text}\nevidence: {evidence}\n",
            evidence=evidence,
            verdict=None,
        )

    def _tell(self, verdict: Verdict) -> None:
        for name, value in figures(verdict):
            self._property(name, value)

    def _property(self, name: str, value: float | str) -> None:
        number = f".{self.turns.calls}" if self.turns.calls > 1 else ""
        self._node.user_properties.append((f"acgate{number}.{name}", value))

    def _label(self) -> str:
        """Return a name for the target that no module has."""
        name = self._name if self._name.isidentifier() else f"test_{self._name}"
        label = f"{name}__check_{self.turns.calls}"
        while label in sys.modules:
            label += "_"
        return label


def _outcome(verdict: Verdict) -> Outcome:
    """Return what came out in one word that never says more than the exit code."""
    match verdict.exit_code:
        case ExitCode.PASS:
            return verdict.outcome
        case ExitCode.FAIL:
            return Outcome.FAIL
        case _:
            return Outcome.ERROR


@contextlib.contextmanager
def opened(request: pytest.FixtureRequest) -> Iterator[Door]:
    """Give a test its door, and see to the end of the test that nothing red goes unnoticed.

    Args:
        request: Of a fixture with function scope.
    """
    door = Door(request)
    reporter = Reporter(request.node, door)
    manager = request.config.pluginmanager
    manager.register(reporter)
    try:
        yield door
    finally:
        manager.unregister(reporter)
        door.turns.is_over = True
    reporter.at_teardown()
