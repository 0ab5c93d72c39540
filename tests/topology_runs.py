"""Small targets, and what ranks do with them for the tests of topologies; everything returned is plain data."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from acgate.checkpointing import apply_policy
from acgate.evidence.names import canonical_map, naming
from acgate.plan.cell import Cell
from acgate.spec.models import BlockCoverage, Parallel, Policy, SelectivePolicy
from acgate.targets.protocol import Target
from acgate.topology.factory import make_topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from acgate.topology.interface import Shard, Topology

WIDTH, WORDS, LAYERS, MICRO_STEPS = 6, 5, 3, 2
BLOCKS = tuple(f"layers.{index}" for index in range(LAYERS))


class Block(nn.Module):
    """Seven features in the middle, so that nothing divides evenly by two."""

    def __init__(self, *, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, hidden)
        self.down = nn.Linear(hidden, WIDTH)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.down(F.gelu(self.up(self.norm(x)))))


class Net(nn.Module):
    """Five words whose embedding is the head as well, a frozen layer, a buffer."""

    def __init__(self, *, hidden: int = 7, dropout: float = 0.2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block(hidden=hidden, dropout=dropout) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)
        self.head.weight = self.embedding.weight
        self.layers[1].up.requires_grad_(requires_grad=False)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(x) * self.scale


def options_of(topology: str) -> dict[str, Any]:
    """Tensor parallelism splits evenly or not at all; three of six features lie in each of two groups."""
    return {"hidden": 6} if "tp" in topology else {}


PLAN = {"layers.*.up": "colwise", "layers.*.down": "rowwise"}


def target(**changes: Any) -> Target:
    """The target of `Net`; options of the model may be among the changes."""
    options = {name: changes.pop(name) for name in ("hidden", "dropout") if name in changes}

    def batches(bucket: str) -> Iterator[dict[str, Tensor]]:
        generator = torch.Generator().manual_seed(3)
        while True:
            yield {"words": torch.randint(WORDS, (2, 4), generator=generator)}

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch["words"]).flatten(0, 1).float(), batch["words"].roll(1).flatten())

    found = Target(
        label="net",
        source="net.py",
        digest="0" * 32,
        seed=1,
        model_factory=lambda: Net(**options),
        batch_source=batches,
        loss_function=loss,
        tensor_parallel_plan=PLAN,
    )
    return dataclasses.replace(found, **changes)


@dataclass(frozen=True)
class Held:
    """A `Shard` as plain data; `local` is None where there is no tensor."""

    local: np.ndarray | None
    part: int = 0
    shape: tuple[int, ...] = ()
    box: tuple[tuple[int, int], ...] | None = None
    flat: tuple[int, int] | None = None
    own: bool = False
    dtype: str = ""

    @classmethod
    def of(cls, shard: Shard) -> Held:
        box = None if shard.box is None else tuple((part.start, part.stop) for part in shard.box)
        local = shard.local.detach().float().numpy().copy()
        dtype = str(shard.local.dtype)
        return cls(local, shard.part, shard.shape, box, shard.flat, shard.own, dtype)


@dataclass(frozen=True)
class Told:
    """What one rank tells of one step of two micro-steps."""

    shared_by: str
    replicates: bool
    replica: int
    num_replicas: int
    reduced: tuple[bool, ...]
    weights: dict[str, Held]
    gradients: tuple[dict[str, Held], ...]
    clipped: dict[str, Held]
    losses: tuple[Held, ...]
    updated: dict[str, Held]


def parameters_of(model: nn.Module) -> dict[str, nn.Parameter]:
    own = dict(model.named_parameters())
    return {name: own[original] for name, original in canonical_map(own, naming(model)).items()}


def _step(topology: Topology, model: nn.Module, found: Target, max_norm: float) -> Told:
    parameters = parameters_of(model)

    def weights() -> dict[str, Held]:
        return {name: Held.of(topology.shard(name, p)) for name, p in parameters.items()}

    def gradients(*, reduced: bool) -> dict[str, Held]:
        held = {}
        for name, parameter in parameters.items():
            gradient = topology.gradient(name, parameter, reduced=reduced)
            shard = None if gradient is None else topology.shard(name, gradient, reduced=reduced)
            held[name] = Held(None) if shard is None else Held.of(shard)
        return held

    before = weights()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batches = topology.share(found.batches("default", MICRO_STEPS * topology.num_replicas))
    torch.manual_seed(topology.seed(11))
    reductions, seen, losses = [], [], []
    for micro, batch in enumerate(batches):
        with topology.accumulating(model, last=micro == MICRO_STEPS - 1) as reduced:
            loss = found.loss(model, batch)
            (loss / MICRO_STEPS).backward()
        reductions.append(reduced)
        losses.append(Held.of(topology.own(loss)))
        seen.append(gradients(reduced=reduced))
    topology.clip(parameters.values(), max_norm)
    clipped = gradients(reduced=True)
    optimizer.step()
    return Told(
        shared_by=topology.shared_by,
        replicates=topology.replicates,
        replica=topology.replica,
        num_replicas=topology.num_replicas,
        reduced=tuple(reductions),
        weights=before,
        gradients=tuple(seen),
        clipped=clipped,
        losses=tuple(losses),
        updated=weights(),
    )


POLICY = Policy(block=BlockCoverage(), selective=SelectivePolicy(save=("matmul",)))


def step(
    rank: int,
    world_size: int,
    topology: str,
    track: str = "none",
    precision: str = "float32",
    parallel: Parallel | None = None,
    max_norm: float = 1e9,
    target_name: str = "target",
    **changes: Any,
) -> Told:
    """Train one step inside the process group, as a cell of the gate would."""
    cell = Cell(topology=topology, precision=precision, world_size=world_size)
    found = OWN_TARGETS[target_name](**options_of(topology), **changes)
    made = make_topology(cell, rank, "cpu", parallel or Parallel(), found)
    model = made.before_ac(found.build_model())
    apply_policy(model, track, POLICY, BLOCKS)
    return _step(made, made.after_ac(model, BLOCKS), found, max_norm)


def _by_hand(**changes: Any) -> Target:
    """Shares the work by a hook that nobody knows."""

    def parallelize(model: nn.Module, mesh: Any, topology: str) -> nn.Module:
        import torch.distributed as dist

        def reduce(parameter: Tensor) -> None:
            dist.all_reduce(parameter.grad)

        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(reduce)
        return model

    return target(parallelize=parallelize, **changes)


def _ddp_of_the_target(*, static_graph: bool = False, **changes: Any) -> Target:
    def parallelize(model: nn.Module, mesh: Any, topology: str) -> nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        if topology != "ddp":
            return NotImplemented
        return DistributedDataParallel(model, process_group=mesh.get_group(), static_graph=static_graph)

    return target(parallelize=parallelize, **changes)


def _static_ddp_of_the_target(**changes: Any) -> Target:
    return _ddp_of_the_target(static_graph=True, **changes)


def _hybrid(**changes: Any) -> Target:
    """Replicates over pairs of ranks and shards inside of each."""

    def parallelize(model: nn.Module, mesh: Any, topology: str) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner")))
        return model

    return target(parallelize=parallelize, **changes)


def _returns_nothing(**changes: Any) -> Target:
    return target(parallelize=lambda model, mesh, topology: None, **changes)


def _frozen(**changes: Any) -> Target:
    return target(model_factory=lambda: Net().requires_grad_(requires_grad=False), **changes)


OWN_TARGETS = {
    "target": target,
    "by_hand": _by_hand,
    "ddp_of_the_target": _ddp_of_the_target,
    "static_ddp_of_the_target": _static_ddp_of_the_target,
    "hybrid": _hybrid,
    "returns_nothing": _returns_nothing,
    "frozen": _frozen,
}


def asked(rank: int, world_size: int, topology: str) -> str:
    """Return as JSON with which meshes and topologies `parallelize` was called."""
    calls: list[Any] = []

    def parallelize(model: nn.Module, mesh: Any, name: str) -> Any:
        calls.append((name, mesh.mesh_dim_names, mesh.size()))
        return NotImplemented

    cell = Cell(topology=topology, precision="float32", world_size=world_size)
    found = target(parallelize=parallelize, **options_of(topology))
    made = make_topology(cell, rank, "cpu", Parallel(), found)
    made.after_ac(made.before_ac(found.build_model()), BLOCKS)
    return json.dumps(calls)


def unreduced(
    rank: int, world_size: int, topology: str, precision: str, replica: int | None
) -> list[dict[str, Held]]:
    """Accumulate three micro-steps of a replica without reducing; one rank may play a replica of two."""
    cell = Cell(topology=topology, precision=precision, world_size=world_size)
    found = target()
    made = make_topology(cell, rank, "cpu", Parallel(), found)
    model = made.after_ac(made.before_ac(found.build_model()), BLOCKS)
    played = rank if replica is None else replica
    torch.manual_seed(11 + played)
    seen = []
    for batch in found.batches("default", 6)[played::2]:
        with made.accumulating(model, last=False) as reduced:
            found.loss(model, batch).backward()
        gradients = {
            name: made.gradient(name, parameter, reduced=reduced)
            for name, parameter in parameters_of(model).items()
        }
        seen.append(
            {
                name: Held.of(made.shard(name, g, reduced=reduced))
                for name, g in gradients.items()
                if g is not None
            }
        )
    return seen


class HeadNorm(nn.Module):
    """Heads that are normalised before they meet, as queries and keys are in recent models."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 8, bias=False)
        self.norm = nn.LayerNorm(2)
        self.down = nn.Linear(8, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.norm(self.up(x).unflatten(-1, (-1, 2)))
        return self.down(heads.tanh().flatten(-2))


def head_norm(rank: int, world_size: int, topology: str) -> tuple[dict[str, Held], dict[str, Held]]:
    """Return the gradients after the first and the second backward of `HeadNorm`; every replica has the same."""
    cell = Cell(topology=topology, precision="float32", world_size=world_size)
    plan = {"up": "colwise", "norm": "replicated_with_grad_allreduce", "down": "rowwise"}
    found = target(model_factory=HeadNorm, tensor_parallel_plan=plan)
    made = make_topology(cell, rank, "cpu", Parallel(), found)
    model = made.after_ac(made.before_ac(found.build_model()), ())
    seen = []
    for micro in range(2):
        with made.accumulating(model, last=micro == 1) as reduced:
            head_norm_backward(model, micro)
        held = {}
        for name, parameter in model.named_parameters():
            gradient = made.gradient(name, parameter, reduced=reduced)
            assert gradient is not None
            held[name] = Held.of(made.shard(name, gradient, reduced=reduced))
        seen.append(held)
    return seen[0], seen[1]


def head_norm_backward(model: nn.Module, micro: int) -> None:
    """The second time inside of a region."""
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(5 + micro))
    y = checkpoint(model, x, use_reentrant=False) if micro else model(x)
    y.square().mean().backward()
