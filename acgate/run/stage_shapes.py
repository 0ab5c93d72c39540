"""What goes from stage to stage of a pipeline: found out by one forward through all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from acgate.errors import TargetError, message_of
from acgate.run.precision import forward_context
from acgate.run.stage_loss import call_of, joined, loss_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from acgate.spec.models import Precision
    from acgate.targets.protocol import Target
    from acgate.topology.interface import Topology


@dataclass(frozen=True, slots=True)
class Trial:
    """One forward of a micro-batch through all stages, without the schedule.

    Torch's own inference of shapes runs the module too, and leaves its traces in buffers and state: here
    the caller can put them back.
    """

    model: nn.Module
    target: Target
    topology: Topology
    precision: Precision
    device: str

    def run(self, batches: Sequence[object]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return examples of what goes into this stage and out of it. Collective.

        Args:
            batches: Micro-batches of one step, the same on every rank.

        Raises:
            TargetError: The loss or the batches do not fit a pipeline; on every rank alike.
        """
        calls = [call_of(self.target, self.model, batch) for batch in batches]
        joined(self.target.source, calls)
        call = calls[0]
        inputs: tuple[Any, ...] = call.args
        here: tuple[Any, ...] = ()
        output: object = None
        for stage in range(self.topology.num_stages):
            given: tuple[Tensor, ...] = ()
            if stage == self.topology.stage:
                here = inputs
                with forward_context(self.precision, self.device):
                    output = self.model(*inputs, **(call.kwargs if stage == 0 else {}))
                given = self._tensors(output)
            if stage < self.topology.num_stages - 1:
                inputs = self._handed_on(stage, given)
        self._check_loss(batches[0], output)
        return tuple(t for t in here if isinstance(t, torch.Tensor)), self._tensors(output)

    def _tensors(self, output: object) -> tuple[Tensor, ...]:
        values = tuple(output) if isinstance(output, tuple | list) else (output,)
        for value in values:
            if not isinstance(value, torch.Tensor):
                raise TargetError(
                    f"stage {self.topology.stage} of {self.target.source} returns {type(value).__name__};"
                    " a stage returns a tensor, or a tuple of tensors"
                )
        return values

    def _handed_on(self, stage: int, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Hand the tensors of one stage to the others."""
        mine = stage == self.topology.stage
        about: list[Any] = [[(tuple(t.shape), t.dtype, t.requires_grad) for t in given] if mine else None]
        dist.broadcast_object_list(about, src=stage)
        received = []
        for index, (shape, dtype, needs) in enumerate(about[0]):
            if mine:
                tensor = given[index].detach().contiguous()
            else:
                tensor = torch.zeros(shape, dtype=dtype, device=self.device)
            dist.broadcast(tensor, src=stage)
            received.append(tensor if mine else tensor.requires_grad_(needs))
        return tuple(received)

    def _check_loss(self, batch: object, output: object) -> None:
        """Compute the loss once on the last stage; every rank raises what it finds wrong with it."""
        last = self.topology.num_stages - 1
        problem = [""]
        if self.topology.stage == last:
            try:
                with forward_context(self.precision, self.device):
                    loss_of(self.target, self.model, batch, output)
            except TargetError as error:
                problem = [message_of(error)]
            except AttributeError as error:
                if error.obj is not output:
                    raise
                problem = [
                    f"loss of {self.target.source} asks what the model returns for .{error.name}, and in a"
                    f" pipeline that is the {type(output).__name__} of the last stage; compute the loss in"
                    " loss(model, batch), as in F.cross_entropy(model(batch['x']), batch['y'])"
                ]
        dist.broadcast_object_list(problem, src=last)
        if problem[0]:
            raise TargetError(problem[0])
