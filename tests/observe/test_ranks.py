"""Ranks that share the work are observed without changing a bit or a message of what they do."""

from __future__ import annotations

import contextlib
import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy as P
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from acgate.evidence.agreement import Agreement, disagreements
from acgate.evidence.whereabouts import read_whereabouts
from acgate.observe import module_state, rng
from acgate.observe.calls import CallCounter
from acgate.observe.content_hash import content_hash, describe
from acgate.observe.gradients import GradientHooks
from acgate.observe.observer import Observer
from acgate.observe.outside_state import OutsideState
from acgate.plan.job import Plant

if TYPE_CHECKING:
    from rank_pool import RankPool

D = 16
PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(F.gelu(self.up(self.ln(x)))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp, self.layers, self.head = (
            nn.Linear(D, D),
            nn.ModuleList(Block() for _ in range(2)),
            nn.Linear(D, D),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class ReduceForward(torch.autograd.Function):
    """All-reduces in forward and not in backward, as hand-written tensor parallelism does."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


class OwnCollective(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(ReduceForward.apply(x))


def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> P:
    return P.MUST_SAVE if op in PRODUCTS else P.PREFER_RECOMPUTE


def apply(model: Net, track: str, rank: int) -> Net:
    """Apply a track; `by-rank` gives each rank a policy of its own, `by-count` one that drifts by rank."""
    calls = 0

    def counting(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> P:
        nonlocal calls
        calls += op in PRODUCTS
        return P.MUST_SAVE if op in PRODUCTS and (calls + STATE["rank"]) % 2 else P.PREFER_RECOMPUTE

    STATE["rank"] = rank
    saved: dict[str, Any] = {"selective": policy, "by-count": counting, "by-rank": list(PRODUCTS[: rank + 1])}
    if track == "none" or (track == "rank-0-only" and rank):
        return model
    kwargs = {}
    if track in saved:
        kwargs["context_fn"] = functools.partial(create_selective_checkpoint_contexts, saved[track])
    for index, layer in enumerate(model.layers):
        model.layers[index] = checkpoint_wrapper(layer, **kwargs)
    return model


STATE: dict[str, int] = {}


def share(model: Net, topology: str, track: str, rank: int, world_size: int) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("all",))
    if topology == "fsdp+tp":
        mesh = init_device_mesh("cpu", (world_size // 2, 2), mesh_dim_names=("dp", "tp"))
    if "tp" in topology:
        for layer in model.layers:
            inner = mesh["tp"] if topology == "fsdp+tp" else mesh
            parallelize_module(layer, inner, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    model = apply(model, track, rank)
    if topology == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if topology == "fsdp1":
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )
    if topology.startswith("fsdp"):
        outer = mesh["dp"] if topology == "fsdp+tp" else mesh
        for layer in (*model.layers, model):
            fully_shard(layer, mesh=outer)
    return model


def replica_of(topology: str, rank: int) -> int:
    return {"tp": 0, "fsdp+tp": rank // 2}.get(topology, rank)


def batch(step: int, micro: int, replica: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + 10 * micro + replica)
    return torch.randn(4, 3, D, generator=generator)


def train(
    rank: int,
    world_size: int,
    topology: str,
    track: str,
    *,
    observed: bool,
    block: type[Block] = Block,
    plant: Plant | None = None,
    unreduced: bool = False,
    file: str | None = None,
) -> dict[str, Any]:
    """Train two steps of two micro-steps; the second step is observed."""
    torch.manual_seed(0)
    model = Net()
    model.layers = nn.ModuleList(block() for _ in model.layers)
    model = share(model, topology, track, rank, world_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    replica = replica_of(topology, rank)
    torch.manual_seed(7 + replica)
    group: Any = dist.group.WORLD
    bits: list[Any] = []
    agreements: list[str] = []
    with contextlib.ExitStack() as stack:
        observer = None
        if observed:
            observer = stack.enter_context(
                Observer(
                    model,
                    optimizer=optimizer,
                    ranks=world_size,
                    rank=rank,
                    plant=plant,
                    whereabouts=Path(file) if file else None,
                )
            )
            calls, hooks = stack.enter_context(CallCounter(model)), stack.enter_context(GradientHooks(model))
            outside = OutsideState(model)
        begun = group._get_sequence_number_for_group()
        for step in range(2):
            optimizer.zero_grad(set_to_none=True)
            if observer:
                observer.begin_step(step, observe=step == 1)
            for micro in range(2):
                x = batch(step, micro, replica)
                with model.no_sync() if unreduced and micro == 0 else contextlib.nullcontext():
                    loss = model(x).square().mean()
                    if observer:
                        if micro == 0:
                            told = observer.agreement(
                                rank=rank, stage=0, replica=replica, target="t", seed=3, batch=[("x", x)]
                            )
                            agreements.append(told.model_dump_json())
                        observer.before_backward(loss)
                    loss.backward()
                if observer:
                    observer.end_micro()
                    records = [describe(p.grad) for p in model.parameters() if p.grad is not None]
                    assert all(record.nonfinite == 0 for record in records)
            bits += [loss.item(), *(content_hash(p.grad) for p in model.parameters() if p.grad is not None)]
            if observer:
                observer.before_optimizer()
            optimizer.step()
            if observer:
                observer.end_step()
                state = module_state.snapshot(model)
                outside.changes()
                rng.digests({}, model)
            bits += [*(describe(p).hash for p in model.parameters()), content_hash(torch.get_rng_state())]
        result = {"bits": bits, "messages": group._get_sequence_number_for_group() - begun}
        if observer:
            result |= {
                "observation": observer.observation(),
                "planted": observer.planted(),
                "agreements": agreements,
                "names": [set(state), set(calls.forward()), set(hooks.counts())],
            }
        return result


def both(rank: int, world_size: int, topology: str, track: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return tuple(train(rank, world_size, topology, track, observed=observed) for observed in (False, True))


def phases(result: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(c.phase, c.operator.split(".")[1], c.region) for c in result["observation"].collectives}


@pytest.mark.parametrize(
    ("topology", "track"),
    [
        ("ddp", "none"),
        ("ddp", "selective"),
        ("fsdp", "block"),
        ("fsdp", "selective"),
        ("fsdp1", "block"),
        ("tp", "block"),
        ("tp", "selective"),
    ],
)
def test_looking_changes_no_bit_and_sends_no_message(ranks: RankPool, topology: str, track: str) -> None:
    """Losses, gradients, weights, random streams and the number of collectives are those of unobserved steps."""
    for plain, observed in ranks.run(2, both, topology, track):
        assert plain["bits"] == observed["bits"]
        assert plain["messages"] == observed["messages"] > 0
        assert observed["observation"].collectives


def test_a_mesh_of_two_axes_is_observed_as_well(ranks: RankPool) -> None:
    """FSDP around tensor parallelism: the groups of both are told apart."""
    results = ranks.run(4, both, "fsdp+tp", "block")
    for plain, observed in results:
        assert plain["bits"] == observed["bits"]
        assert plain["messages"] == observed["messages"]
    groups = [{c.group for c in observed["observation"].collectives} for _, observed in results]
    assert groups == [{"0,1", "0,2"}, {"0,1", "1,3"}, {"2,3", "0,2"}, {"2,3", "1,3"}]


def observe(rank: int, world_size: int, topology: str, track: str, **kwargs: Any) -> dict[str, Any]:
    return train(rank, world_size, topology, track, observed=True, **kwargs)


def test_names_do_not_depend_on_the_topology(ranks: RankPool) -> None:
    """State, calls, gradients and regions have the names that they have on one device, in every wrapper."""
    results = {t: ranks.run(2, observe, t, "block")[0] for t in ("ddp", "fsdp", "fsdp1", "tp")}
    for topology, result in results.items():
        assert result["names"] == results["ddp"]["names"], topology
        regions = [(r.name, r.class_name) for r in result["observation"].regions]
        assert regions == [("layers.0", "Block"), ("layers.1", "Block")], topology
        assert result["observation"].replay_order == ("layers.1", "layers.0") * 2, topology
    assert "layers.0.up.weight" in results["ddp"]["names"][2]


def test_what_checkpointing_frees_does_not_depend_on_the_topology(ranks: RankPool) -> None:
    """Parameters that FSDP gathers are neither activations nor alive when they were freed."""
    ddp, fsdp, fsdp1 = (ranks.run(2, observe, t, "block")[0]["observation"] for t in ("ddp", "fsdp", "fsdp1"))
    for other in (fsdp, fsdp1):
        assert other.held_bytes == ddp.held_bytes
        assert [r.freed_bytes for r in other.regions] == [r.freed_bytes for r in ddp.regions]
        assert [r.unexplained_bytes for r in other.regions] == [0, 0]
        assert other.peak_bytes < ddp.peak_bytes


def test_each_topology_shows_its_collectives(ranks: RankPool) -> None:
    """Libraries communicate without a line of the target; tensor parallelism does so in replays too."""
    ddp, fsdp, tp = (ranks.run(2, observe, t, "block")[0] for t in ("ddp", "fsdp", "tp"))
    assert phases(ddp) == {("backward", "allreduce_", "")}
    assert {(phase, name) for phase, name, _ in phases(fsdp)} == {
        ("forward", "_allgather_base_"),
        ("backward", "_allgather_base_"),
        ("backward", "_reduce_scatter_base_"),
    }
    layers = {"layers.0", "layers.1"}
    assert {(phase, region) for phase, _, region in phases(tp)} == {
        *(("forward", layer) for layer in layers),
        *(("replay", layer) for layer in layers),
        ("backward", ""),
    }
    for result in (ddp, fsdp, tp):
        assert {c.where for c in result["observation"].collectives} == {""}
        assert {c.group for c in result["observation"].collectives} == {"0,1"}
    assert all(c.shapes[0].startswith("float32[") for c in ddp["observation"].collectives)


def observe_unreduced(rank: int, world_size: int) -> dict[str, Any]:
    return train(rank, world_size, "ddp", "block", observed=True, unreduced=True)


def test_collectives_of_the_last_micro_step_are_recorded(ranks: RankPool) -> None:
    """Where gradients are reduced in the last micro-step alone, the reduction is seen all the same."""
    (every, _), (last, _) = ranks.run(2, observe, "ddp", "block"), ranks.run(2, observe_unreduced)
    reductions = [
        [c.phase for c in r["observation"].collectives if "allreduce" in c.operator] for r in (every, last)
    ]
    assert reductions == [["backward"] * 2, ["backward"]]


def observe_own(rank: int, world_size: int) -> dict[str, Any]:
    return train(rank, world_size, "single", "block", observed=True, block=OwnCollective)


def test_a_collective_of_the_target_names_its_line(ranks: RankPool) -> None:
    """What the target's own code communicates in a region is told with file and line, in replays too."""
    calls = ranks.run(2, observe_own)[0]["observation"].collectives
    line = ReduceForward.forward.__code__.co_firstlineno + 3
    assert {c.where for c in calls} == {f"test_ranks.py:{line}"}
    assert {(c.phase, c.region) for c in calls} == {
        (phase, layer) for phase in ("forward", "replay") for layer in ("layers.0", "layers.1")
    }


def implicit(rank: int, world_size: int) -> list[str]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world_size,))
    weight = nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]))
    holder = nn.Module()
    holder.register_parameter("weight", weight)
    with Observer(holder, ranks=world_size, rank=rank) as observer:
        observer.begin_step(0, observe=True)
        loss = (weight @ weight).sum().full_tensor()
        observer.before_backward(loss)
        loss.backward()
        observer.end_micro()
        observer.before_optimizer()
        weight.norm().full_tensor()
        observer.end_step()
        observation = observer.observation()
    assert observation is not None
    assert observation.forward_flops == 2 * 2 * 4 * 4  # this rank's half of the rows
    return [f"{c.phase} {c.operator.split('.')[1]}" for c in observation.collectives]


def test_collectives_inside_of_dtensor_operators_are_seen(ranks: RankPool) -> None:
    """An operator on DTensors that must gather first shows its collective, and the work of this rank alone."""
    seen = ranks.run(2, implicit)[0]
    assert seen[0] == "forward all_gather_into_tensor"
    assert any(call.startswith("backward") for call in seen)
    assert seen[-1].startswith("optimizer")


def test_ranks_with_different_policies_disagree(ranks: RankPool) -> None:
    """The policy is named where it differs; no replay has run by then."""
    facts = agreed(ranks.run(2, observe, "ddp", "by-rank"))
    assert [f.where for f in facts] == ["rank 1 region layers.0"]
    assert "policy" in facts[0].detail


def test_ranks_of_a_tensor_parallel_group_must_decide_alike(ranks: RankPool) -> None:
    """One policy that decides otherwise by rank: the first operator is named, in steps that are not observed too."""
    facts = agreed(ranks.run(2, observe, "tp", "by-count"), step=0)
    assert [f.where for f in facts] == ["rank 1 region layers.0"]
    assert "decided" in facts[0].detail
    assert "aten.addmm.default at its call 0" in facts[0].detail
    assert agreed(ranks.run(2, observe, "ddp", "by-count"), step=0) == ()


def test_a_rank_without_regions_disagrees(ranks: RankPool) -> None:
    """Checkpointing on one rank alone is told before the replay that would hang."""
    facts = agreed(ranks.run(2, observe, "ddp", "rank-0-only"))
    assert [(f.where, f.detail) for f in facts] == [
        ("rank 1 region layers.0", "ran it without checkpointing where rank 0 checkpointed it")
    ]


@pytest.mark.parametrize("topology", ["ddp", "fsdp", "fsdp1", "tp"])
def test_equal_ranks_agree(ranks: RankPool, topology: str) -> None:
    """Ranks that do the same agree, whatever shares the work."""
    assert agreed(ranks.run(2, observe, topology, "selective")) == ()


def agreed(results: list[dict[str, Any]], step: int = 1) -> tuple[Any, ...]:
    told = [Agreement.model_validate_json(result["agreements"][step]) for result in results]
    return disagreements(dict(enumerate(told)))


def planted(rank: int, world_size: int, topology: str, plant: dict[str, Any] | None) -> dict[str, Any]:
    fault = Plant(**plant) if plant else None
    return train(rank, world_size, topology, "block", observed=True, plant=fault)


@pytest.mark.parametrize("topology", ["ddp", "fsdp", "fsdp1", "tp"])
@pytest.mark.parametrize("kind", ["scale", "rng"])
def test_a_fault_is_planted_on_one_rank(ranks: RankPool, topology: str, kind: str) -> None:
    """Only that rank plants it, both see wrong gradients, and no collective is added or lost."""
    clean = ranks.run(2, planted, topology, None)
    faulty = ranks.run(2, planted, topology, {"kind": kind, "rank": 1, "step": 1, "region": 1, "factor": 1.5})
    assert [r["planted"] for r in faulty] == [False, True]
    for before, after in zip(clean, faulty, strict=True):
        assert before["messages"] == after["messages"]
        assert before["observation"].collectives == after["observation"].collectives
    changed = [before["bits"] != after["bits"] for before, after in zip(clean, faulty, strict=True)]
    assert changed == ([True, True] if topology != "tp" else [changed[0], True])


def wait_for_the_other(rank: int, world_size: int, file: str) -> dict[str, str]:
    """Rank 0 waits in a collective; rank 1 joins it when the file of rank 0 says so."""
    path = Path(f"{file}.{rank}")
    model = nn.Linear(D, D)
    with Observer(model, ranks=world_size, rank=rank, whereabouts=path) as observer:
        observer.begin_step(0)
        if rank == 0:
            dist.all_reduce(torch.ones(3))
            return {}
        found: dict[str, str] = {}
        while "collective" not in found:
            time.sleep(0.01)
            found = read_whereabouts(Path(f"{file}.0"))
        dist.all_reduce(torch.ones(3))
        return found


def test_a_rank_that_waits_can_be_asked_where_it_is(ranks: RankPool, tmp_path: Path) -> None:
    """The file of a rank that is stuck in a collective names it, its tensor and its group."""
    found = ranks.run(2, wait_for_the_other, str(tmp_path / "rank"))[1]
    assert found["operator"] == "c10d.allreduce_.default"
    assert found["collective"] == "c10d.allreduce_ float32[3] ranks 0,1"
