"""What the tracks of a cell must have in common: structure, initial state, batches, seeds."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from acgate.evidence.names import naming
from acgate.evidence.records import Identity, ParameterRecord, Structure
from acgate.observe import rng
from acgate.observe.content_hash import content_hash
from acgate.run.batches import batch_digest
from acgate.run.determinism import global_digest
from acgate.run.names import by_canonical_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from acgate.plan.job import TrackJob
    from acgate.targets.protocol import Target


def tied_groups(model: nn.Module) -> tuple[tuple[str, ...], ...]:
    """Return the canonical names of parameters that share one tensor, group by group."""
    groups: dict[int, set[str]] = {}
    name_of = naming(model)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), set()).add(name_of(name))
    return tuple(sorted(tuple(sorted(names)) for names in groups.values() if len(names) > 1))


def structure_of(model: nn.Module, saved: tuple[str, ...]) -> Structure:
    """Describe what the model is made of after a track was applied.

    Args:
        model: As this rank trains it.
        saved: Sorted keys of its `state_dict`.
    """
    return Structure(
        parameters={
            name: ParameterRecord(shape=tuple(p.shape), dtype=_dtype(p), trainable=p.requires_grad)
            for name, p in by_canonical_name(model.named_parameters(), naming(model)).items()
        },
        buffers={
            name: ParameterRecord(shape=tuple(b.shape), dtype=_dtype(b))
            for name, b in by_canonical_name(model.named_buffers(), naming(model)).items()
        },
        tied=tied_groups(model),
        state_dict=saved,
    )


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def identity_of(job: TrackJob, target: Target, model: nn.Module, batches: Sequence[object]) -> Identity:
    """Digest everything that must be equal between tracks before the first step."""
    state = hashlib.blake2b(digest_size=8)
    for source in (model.named_parameters(), model.named_buffers()):
        for name, tensor in sorted(by_canonical_name(source, naming(model)).items()):
            state.update(f"{name} {content_hash(tensor)}\n".encode())
    spec = job.spec
    configuration = f"{job.cell.identifier} {spec.seed} {job.micro_steps} {spec.threads} {spec.device}"
    return Identity(
        target=target.digest,
        configuration=hashlib.blake2b(configuration.encode(), digest_size=8).hexdigest(),
        initial_state=state.hexdigest(),
        batches=tuple(batch_digest(batch) for batch in batches),
        rng=rng.digests(target.generators, model),
        global_state=global_digest(),
        torch=torch.__version__,
        device=spec.device if spec.device == "cpu" else torch.cuda.get_device_name(),
    )
