"""Regions of several consecutive blocks: one checkpoint around a group of a proved chain.

The first block of a group runs all of them under one checkpoint; when the model then calls the others, each
hands out the output that it already has. Every block returns its own output, so intermediate hidden states
stay what they are, and each call is checked against the chain: a model that does something else between two
blocks is stopped, never computed wrongly.

Instances keep their place and their names; only their class becomes a subclass of the same name. Hooks of a
block fire inside the region, as they do around `checkpoint_wrapper`'s module.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, noop_context_fn

from acgate.checkpointing.chain import CallStamp, Chain, hidden_state
from acgate.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.checkpointing.selective import ContextFn


def group_blocks(covered: Sequence[str], chain: Chain, region_size: int) -> tuple[tuple[str, ...], ...]:
    """Split covered blocks into groups of `region_size` neighbours; the last group of a run may be smaller.

    Raises:
        PolicyError: A covered block is not in the chain.
    """
    position = {name: index for index, name in enumerate(chain.names)}
    groups: list[list[str]] = []
    for name in covered:
        if name not in position:
            raise PolicyError(
                f"region_size = {region_size}: the block {name!r} is not part of the proved chain"
                f" of {len(chain.names)} blocks"
            )
        follows = bool(groups) and position[name] == position[groups[-1][-1]] + 1
        if follows and len(groups[-1]) < region_size:
            groups[-1].append(name)
        else:
            groups.append([name])
    return tuple(map(tuple, groups))


class BlockGroup:
    """Consecutive blocks that share one region.

    Attributes:
        names: Names of the blocks.
        modules: The blocks.
    """

    def __init__(self, names: Sequence[str], modules: Sequence[ChainedBlock], context_fn: ContextFn | None):
        self.names = tuple(names)
        self.modules = tuple(modules)
        self._context_fn = noop_context_fn if context_fn is None else context_fn
        self._ready: deque[object] = deque()
        self._expected: CallStamp | None = None

    def run(self, *args: Any, **kwargs: Any) -> tuple[object, ...]:
        """Run all blocks, hooks included, and return the output of each; this is what is checkpointed."""
        if not args:
            raise PolicyError(f"{self.names[0]!r}: the hidden state is not its first positional argument")
        outputs: list[object] = []
        hidden, *others = args
        for name, module in zip(self.names, self.modules, strict=True):
            outputs.append(module.acgate_call(hidden, *others, **kwargs))
            hidden = hidden_state(outputs[-1])
            if hidden is None:
                raise PolicyError(
                    f"the block {name!r} returned {type(outputs[-1]).__name__}; in a region of several blocks"
                    " it must be a tensor, or a tuple or list that starts with one; use region_size = 1"
                )
        return tuple(outputs)

    def call(self, module: ChainedBlock, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Answer the model's call of one block.

        Raises:
            PolicyError: The call does not continue the chain.
        """
        index = self.modules.index(module)
        if index == 0:
            self._begin(args, kwargs)
        else:
            self._check(index, args, kwargs)
        output = self._ready.popleft()
        # What is kept of a call is let go with the last block, so that nothing outlives the forward.
        self._expected = CallStamp.of(hidden_state(output), args, kwargs) if self._ready else None
        return output

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        left_over, self._expected = len(self._ready), None
        self._ready.clear()
        if left_over:
            raise PolicyError(
                f"the blocks {', '.join(self.names[-left_over:])} were not called after {self.names[0]!r},"
                f" though they share its region; use region_size = 1, or, if an exception cut the last"
                " forward short, go on"
            )
        # determinism_check, early stop and preserve_rng_state are torch's defaults.
        self._ready.extend(
            checkpoint(self.run, *args, use_reentrant=False, context_fn=self._context_fn, **kwargs)
        )

    def _check(self, index: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        expected, ready = self._expected, len(self._ready)
        if expected is None or index != len(self.modules) - ready:
            reason = "it was called out of order"
        else:
            reason = expected.differs(args, kwargs) or ""
        if reason:
            self._ready.clear()
            self._expected = None
            raise PolicyError(
                f"the block {self.names[index]!r} does not continue the chain of its region"
                f" ({', '.join(self.names)}): {reason}; use region_size = 1"
            )


class ChainedBlock(nn.Module):
    """Mixed into the class of a block that shares a region."""

    acgate_group: BlockGroup

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Let the group answer; without gradients there is nothing to checkpoint."""
        if not torch.is_grad_enabled():
            return self.acgate_call(*args, **kwargs)
        return self.acgate_group.call(self, args, kwargs)

    def acgate_call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the block itself, with its hooks."""
        return super().__call__(*args, **kwargs)


def chain_blocks(names: Sequence[str], blocks: Sequence[nn.Module], context_fn: ContextFn | None) -> None:
    """Make consecutive blocks of a proved chain one region, in place."""
    for block in blocks:
        cls = type(block)
        block.__class__ = type(
            cls.__name__,
            (ChainedBlock, cls),
            {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__},
        )
    chained = [block for block in blocks if isinstance(block, ChainedBlock)]
    group = BlockGroup(names, chained, context_fn)
    for block in chained:
        block.acgate_group = group
