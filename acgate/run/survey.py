"""The survey: load the target, build it once, and write down what only the model knows."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from acgate.checkpointing import lint_policy
from acgate.errors import AcgateError, IncompleteError, TargetError, UsageError, message_of
from acgate.evidence.names import canonical
from acgate.evidence.records import Fact, Survey
from acgate.observe import rng
from acgate.run.apply import apply_by_policy, who_applies
from acgate.run.determinism import controlled, seed_everything
from acgate.run.identity import tied_groups
from acgate.targets.batch import named_tensors
from acgate.targets.blocks import find_blocks, key_layers
from acgate.targets.load import load_target
from acgate.targets.sources import source_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn

    from acgate.plan.job import SurveyJob
    from acgate.run.interface import Progress
    from acgate.spec.models import GateSpec
    from acgate.targets.protocol import Target

_SCHEDULES_WITHOUT_ACCUMULATION = 1


def take_survey(job: SurveyJob, nonce: str, progress: Progress) -> Survey:
    """Load the target and describe it.

    Raises:
        TargetError: The target is at fault; the message says where and what to change.
        IncompleteError: The target ended the process by itself.
    """
    spec = job.spec
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f'device = "cuda", but torch {torch.__version__} finds no CUDA device here;'
            ' set device = "cpu", or run where there is one'
        )
    random_state = rng.capture()
    try:
        with controlled("off", fill_memory=False, threads=spec.threads):
            progress("import", None)
            target = _of_target("import", lambda: load_target(spec.model, seed=spec.seed))
            progress("build", None)
            model = _build(target, spec)
            return _describe(target, model, spec, nonce)
    finally:
        rng.restore(random_state)


def _build(target: Target, spec: GateSpec) -> nn.Module:
    seed_everything(spec.seed)
    model: nn.Module = _of_target("build_model", target.build_model)
    return model


def _describe(target: Target, model: nn.Module, spec: GateSpec, nonce: str) -> Survey:
    micro_steps = spec.micro_steps if "accumulate" in target.schedules else _SCHEDULES_WITHOUT_ACCUMULATION
    applier = who_applies(target, spec)
    blocks = find_blocks(model, target.blocks, required=applier == "acgate")
    wanted = spec.steps * micro_steps * _replicas(spec)
    batches = _of_target("batches", lambda: target.batches(spec.bucket, wanted))
    parameters = {canonical(name): p for name, p in model.named_parameters()}
    trainable = tuple(name for name, p in parameters.items() if p.requires_grad)
    if not trainable:
        raise TargetError("the model has no trainable parameter: nothing would be compared")
    regions = _regions(target, spec) if applier == "acgate" else {}
    return Survey(
        nonce=nonce,
        target=target.digest,
        label=target.label,
        source=target.source,
        blocks=blocks.names,
        blocks_source=blocks.source,
        key_layers=key_layers(model, blocks.names, _marked(target, spec)),
        trainable=trainable,
        frozen=tuple(name for name, p in parameters.items() if not p.requires_grad),
        buffers=tuple(canonical(name) for name, _ in model.named_buffers()),
        tied=tied_groups(model),
        num_parameters=sum(p.numel() for p in parameters.values()),
        applies_ac=applier,
        regions_expected=regions,
        judged_schedules=tuple(target.schedules),
        micro_steps=micro_steps,
        batches=len(batches),
        input_gradients=_trained_inputs(batches),
        sources=tuple(map(str, (*source_files(target), *_policy_files(spec)))),
        facts=_facts(target, spec),
        torch=torch.__version__,
        device=spec.device,
    )


def _trained_inputs(batches: Iterable[object]) -> tuple[str, ...]:
    """Return the paths of batch tensors whose gradients are recorded."""
    found = (name for batch in batches for name, t in named_tensors(batch) if t.requires_grad)
    return tuple(dict.fromkeys(found))


def _policy_files(spec: GateSpec) -> tuple[Path, ...]:
    """Return the file of the policy's own function; empty where there is none, or nobody has loaded it."""
    place = (spec.policy.selective.function or "").rpartition(":")[0]
    file = place if place.endswith(".py") else getattr(sys.modules.get(place), "__file__", None)
    return (Path(file).resolve(),) if file else ()


def _replicas(spec: GateSpec) -> int:
    """Return the shares of the data of the widest topology, so that too few batches are told now."""
    shares = {"fsdp+tp": spec.world_size // spec.parallel.tensor_parallel_size}
    wide = {"ddp": spec.world_size, "fsdp": spec.world_size, "fsdp1": spec.world_size} | shares
    if spec.select:  # not all of them may run
        return 1
    return max(1, *(wide.get(topology, 1) for topology in spec.topologies))


def _marked(target: Target, spec: GateSpec) -> tuple[str, ...] | None:
    """Return the key layers that the target or the configuration names; None where neither does."""
    marked = (*(target.key_layers or ()), *spec.key_layers)
    return marked or None


def _regions(target: Target, spec: GateSpec) -> dict[str, tuple[str, ...]]:
    """Apply the policy of each AC track to a model of its own, so that a misfit shows now."""
    regions = {}
    for track in spec.tracks:
        if track != "none":
            regions[track] = apply_by_policy(_build(target, spec), track, target, spec).regions
    return regions


def _facts(target: Target, spec: GateSpec) -> tuple[Fact, ...]:
    facts = [*target.facts]
    if target.applies_ac != "target" and "selective" in spec.tracks:
        facts += [
            Fact(kind=str(item.kind), where=item.where, detail=item.detail)
            for item in lint_policy(spec.policy)
        ]
    if spec.policy.selective.by_layer:
        facts.append(Fact(kind="policy-by-layer", where="selective", detail="declared in the policy"))
    return tuple(facts)


def _of_target(what: str, work: Callable[[], Any]) -> Any:
    """Call the target; turn what it raises into an error that says what to change."""
    try:
        return work()
    except AcgateError:
        raise
    except SystemExit as error:
        raise IncompleteError(
            f"the target ended the process by itself in {what} (sys.exit({error.code})); remove that call"
        ) from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if not f.filename.startswith(str(Path(__file__).parents[1]))]
        where = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
        raise TargetError(f"{what} raised {type(error).__name__}: {message_of(error)}{where}") from error
