"""The random streams of a pipeline's stages on one device: each stage's layers draw from their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.observe import rng
from acgate.run.determinism import seed_everything
from acgate.run.put_back import generator_back
from acgate.targets.blocks import modules_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import nn
    from torch.utils.hooks import RemovableHandle


@dataclass(frozen=True, slots=True)
class _Stream:
    """Where the generators of one stage are."""

    default: rng.RandomState
    others: tuple[Callable[[], object], ...]


class StageStreams:
    """Switches generators when the first block of a stage is called; a context manager around all steps.

    What draws before the first block belongs to the first stage, what draws after the last block to the
    last one. Backward draws nothing as long as nothing is recomputed, so forwards are all that matters.
    """

    def __init__(
        self,
        model: nn.Module,
        stages: Sequence[Sequence[str]],
        generators: Callable[[], Mapping[str, object]],
        seeds: Sequence[int],
    ) -> None:
        """Start the stream of every stage; afterwards the generators are those of the first one.

        Args:
            model: The whole model.
            stages: Names of the blocks of each stage.
            generators: Returns the generators that the target names; each stage has them for itself.
            seeds: Of each stage.
        """
        self._model = model
        self._generators = generators
        modules = modules_by_name(model)
        self._blocks = [(modules[name], stage) for stage, names in enumerate(stages) for name in names]
        self._handles: list[RemovableHandle] = []
        self._streams: list[_Stream] = []
        for seed in seeds:
            seed_everything(seed)
            self._streams.append(self._here())
        self._stage = len(seeds) - 1
        self.switch(0)

    def __enter__(self) -> StageStreams:
        for module, stage in self._blocks:
            handle = module.register_forward_pre_hook(self._hook(stage), prepend=True)
            self._handles.append(handle)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def switch(self, stage: int) -> None:
        """Let the layers of a stage draw; every forward begins with the first stage."""
        if stage == self._stage:
            return
        self._streams[self._stage] = self._here()
        stream = self._streams[stage]
        for put_back in stream.others:
            put_back()
        rng.restore(stream.default)
        self._stage = stage

    def _hook(self, stage: int) -> Callable[[nn.Module, object], None]:
        def enter(module: nn.Module, arguments: object) -> None:
            self.switch(stage)

        return enter

    def _here(self) -> _Stream:
        return _Stream(rng.capture(), tuple(generator_back(generator) for generator in self._others()))

    def _others(self) -> Iterator[object]:
        """Yield generators of the target and of modules, each once."""
        known: set[int] = set()
        held = (value for module in self._model.modules() for value in vars(module).values())
        for value in (*self._generators().values(), *held):
            if rng.is_generator(value) and id(value) not in known:
                known.add(id(value))
                yield value
