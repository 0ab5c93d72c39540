"""What the gate knows about a target: model, batches, loss, and how AC reaches its blocks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from acgate.errors import NothingToDoError, TargetError
from acgate.targets.batch import Batch, is_batch, named_tensors
from acgate.targets.seeding import seeded

if TYPE_CHECKING:
    from pathlib import Path

    from acgate.evidence.records import Fact

Generator: TypeAlias = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
ApplyAc: TypeAlias = Callable[[nn.Module, str], nn.Module | None]
ContextFn: TypeAlias = Callable[[], Any]
SwitchAc: TypeAlias = Callable[[nn.Module, ContextFn | None], None]
Parallelize: TypeAlias = Callable[[nn.Module, Any, str], Any]
Plan: TypeAlias = Mapping[str, Any]
AppliesAc: TypeAlias = Literal["acgate", "target", "hugging-face"]

DEFAULT_SCHEDULES = ("plain", "accumulate")
KNOWN_SCHEDULES = (*DEFAULT_SCHEDULES, "two_forwards")


def default_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Call the model with the batch and return the `.loss` of its output.

    A mapping becomes keyword arguments, a tuple or list positional ones.

    Raises:
        TargetError: The output has no loss.
    """
    match batch:
        case Mapping():
            output = model(**batch)
        case tuple() | list():
            output = model(*batch)
        case _:
            output = model(batch)
    value = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if value is None:
        raise TargetError(
            f"the output of {type(model).__name__} ({type(output).__name__}) has no `.loss`;"
            " define loss(model, batch) in the target, or let the model return an object with a loss"
            " (Hugging Face models do when the batch holds `labels`)"
        )
    return value  # type: ignore[no-any-return]  # checked by Target.loss


def default_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW with one group over the trainable parameters and a learning rate of 1e-3."""
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)


def no_generators() -> Mapping[str, Generator]:
    """Return no generators: the target draws from torch, Python and NumPy only."""
    return {}


@dataclass(frozen=True, slots=True)
class Target:
    """What the user brought, validated; every track loads a new one.

    Attributes:
        label: Short name for reports: ASCII letters, digits, `_` and `-`.
        source: What the user wrote.
        digest: SHA-256 (32 hexadecimal digits) over the target's source or configuration.
        seed: Seeds `build_model` and `batches`, so that both are the same on every track.
        model_factory: The target's `build_model`.
        batch_source: The target's `batches`.
        loss_function: The target's `loss`, or the model's own.
        optimizer_factory: The target's `optimizer`, or AdamW.
        blocks: Globs over module names; None means that blocks are found.
        key_layers: Globs over module names; None means first and last block, embeddings, head.
        apply_ac: The target's own wiring: `apply_ac(model, track)` changes the model or returns another.
        switch_ac: The model library's switch: `switch_ac(model, context_fn)`, with None for block AC
            and a torch `context_fn` for selective AC. Set where `applies_ac` is `hugging-face`.
        schedules: Schedules that are judged, out of `plain`, `accumulate`, `two_forwards`.
        generator_source: Reads the target's `generators` when called.
        max_grad_norm: Clipping, after gradients were taken; None does not clip.
        parallelize: The target's own way to share the work of ranks: `parallelize(model, mesh, topology)`
            returns the model to train, or NotImplemented to leave that topology to acgate.
        tensor_parallel_plan: Globs over module names, each with a style of
            `torch.distributed.tensor.parallel` or its word, or a function from the model to such a mapping.
        reused: The target's modules could not be loaded afresh, so their globals may carry over.
        facts: What a report should say of how this target was made.
        files: What it was read from, where that is no Python code; absolute.
    """

    label: str
    source: str
    digest: str
    seed: int
    model_factory: Callable[[], nn.Module]
    batch_source: Callable[[str], Iterable[Batch]]
    loss_function: Callable[[nn.Module, Batch], Tensor] = default_loss
    optimizer_factory: Callable[[nn.Module], torch.optim.Optimizer] = default_optimizer
    blocks: tuple[str, ...] | None = None
    key_layers: tuple[str, ...] | None = None
    apply_ac: ApplyAc | None = None
    switch_ac: SwitchAc | None = None
    schedules: tuple[str, ...] = DEFAULT_SCHEDULES
    generator_source: Callable[[], Mapping[str, Generator]] = field(default=no_generators)
    max_grad_norm: float | None = None
    parallelize: Parallelize | None = None
    tensor_parallel_plan: Plan | Callable[[nn.Module], Plan] | None = None
    reused: bool = False
    facts: tuple[Fact, ...] = ()
    files: tuple[Path, ...] = ()

    @property
    def applies_ac(self) -> AppliesAc:
        """Who makes the regions: the target, its model library, or acgate with the policy."""
        if self.apply_ac is not None:
            return "target"
        return "acgate" if self.switch_ac is None else "hugging-face"

    @property
    def generators(self) -> Mapping[str, Generator]:
        """Random generators that nothing else knows, as they are now.

        They are read anew each time: `build_model` may create them.

        Raises:
            TargetError: The target's `generators` is not a mapping of names to generators.
        """
        return self.generator_source()

    def build_model(self) -> nn.Module:
        """Build the model afresh under the fixed seed, as the target leaves it (`none` wiring).

        The caller's random streams stay untouched.

        Raises:
            TargetError: `build_model` returned something that is no module.
        """
        with seeded(self.seed):
            model: object = self.model_factory()
        if not isinstance(model, nn.Module):
            raise TargetError(
                f"build_model of {self.source} returned {type(model).__name__};"
                " it must return a torch.nn.Module"
            )
        tensors: list[tuple[str, Any]] = [*model.named_parameters(), *model.named_buffers()]
        lazy = [name for name, tensor in tensors if is_lazy(tensor)]
        if lazy:
            raise TargetError(
                f"build_model of {self.source} returned a model with lazy parameters that have no shape yet"
                f" ({', '.join(lazy[:3])}{' and more' if len(lazy) > 3 else ''});"
                " run one forward in build_model, as torch asks for before an optimizer is made"
            )
        return model

    def batches(self, bucket: str, count: int) -> list[Batch]:
        """Return exactly `count` micro-batches of a bucket, made under the fixed seed.

        Further ones that the target offers are not asked for, so an endless stream is fine.

        Args:
            bucket: Sequence-length class, handed to the target.
            count: Micro-batches needed: optimizer steps times micro-steps.

        Raises:
            NothingToDoError: The target offers none.
            TargetError: It offers fewer than `count`, or one that is no container with tensors.
        """
        with seeded(self.seed):
            offered: object = self.batch_source(bucket)
            if not isinstance(offered, Iterable):
                raise TargetError(
                    f"batches({bucket!r}) of {self.source} returned {type(offered).__name__};"
                    " it must return an iterable of micro-batches"
                )
            taken = list(itertools.islice(offered, count))
        if not taken:
            raise NothingToDoError(
                f"batches({bucket!r}) of {self.source} is empty: without a batch nothing is compared"
            )
        if len(taken) < count:
            raise TargetError(
                f"batches({bucket!r}) of {self.source} gives {len(taken)} micro-batches, and {count} are"
                " needed (optimizer steps x micro-steps x replicas); offer more, or ask for fewer"
                " by --steps or --micro-steps"
            )
        for index, batch in enumerate(taken):
            self._check(batch, f"micro-batch {index} of batches({bucket!r}) of {self.source}")
        return taken

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss of one micro-batch, a tensor with one element.

        Raises:
            TargetError: There is no such loss.
        """
        value: object = self.loss_function(model, batch)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = (
                f"a tensor of shape {tuple(value.shape)}"
                if isinstance(value, Tensor)
                else type(value).__name__
            )
            raise TargetError(
                f"the loss of {self.source} is {got}; it must be a tensor with one element, such as a mean"
            )
        return value

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer of one track.

        Raises:
            TargetError: The target's `optimizer` returned something that does not step.
        """
        optimizer: Any = self.optimizer_factory(model)
        if not (hasattr(optimizer, "step") and hasattr(optimizer, "zero_grad")):
            raise TargetError(
                f"optimizer of {self.source} returned {type(optimizer).__name__};"
                " it must return a torch.optim.Optimizer"
            )
        return cast("torch.optim.Optimizer", optimizer)

    @staticmethod
    def _check(batch: object, where: str) -> None:
        if not is_batch(batch):
            raise TargetError(
                f"{where} is {type(batch).__name__};"
                " it must be a mapping, tuple, list or dataclass of tensors"
            )
        if next(named_tensors(batch), None) is None:
            raise TargetError(f"{where} holds no tensor")
