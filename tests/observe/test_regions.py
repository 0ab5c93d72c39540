"""What is seen of checkpointed regions: every detector red on a fault, green on its clean twin."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy as P
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from acgate.observe.observer import Observer
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.evidence.region_records import Observation, RegionRecord

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
D = 8
aten = torch.ops.aten


class Block(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
        self.dropout = dropout

    def forward(self, x: torch.Tensor, scale: Any = None) -> torch.Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        x = x + F.dropout(self.down(hidden), self.dropout) if self.dropout else x + self.down(hidden)
        return x if scale is None else x * scale


class Net(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.first, self.layers, self.head = nn.Linear(D, D), nn.ModuleList(blocks), nn.Linear(D, D)
        self.call: Callable[..., torch.Tensor] = lambda block, x: block(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.layers:
            x = self.call(block, x)
        return self.head(x)


def observe(model: nn.Module, *, early_stop: bool = True, steps: int = 1, loss: Any = None) -> Observation:
    torch.manual_seed(1)
    x = torch.randn(2, 3, D)
    with Observer(model, early_stop=early_stop) as observer:
        for step in range(steps):
            observer.begin_step(step, observe=step == 0)
            value = loss(model, x) if loss else model(x).square().mean()
            observer.before_backward()
            if value is not None:
                value.backward()
            observer.end_micro()
            observer.end_step()
        observation = observer.observation()
    assert observation is not None
    return observation


def net(call: Callable[..., torch.Tensor], *blocks: nn.Module) -> Net:
    torch.manual_seed(0)
    model = Net(*(blocks or (Block(), Block())))
    model.call = call
    return model


def block_ac(block: nn.Module, x: torch.Tensor, **options: Any) -> torch.Tensor:
    return checkpoint(block, x, use_reentrant=False, **options)


def sac(policy: Any, **options: Any) -> Callable[..., torch.Tensor]:
    return functools.partial(
        block_ac, context_fn=functools.partial(create_selective_checkpoint_contexts, policy, **options)
    )


def save(*operators: Any) -> Callable[..., P]:
    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> P:
        return P.MUST_SAVE if op in operators else P.PREFER_RECOMPUTE

    return policy


MATMUL = (aten.mm.default, aten.addmm.default)


def clean(region: RegionRecord) -> bool:
    return (
        region.replays == region.graph_tasks == 1
        and not (region.mismatches or region.changed_saved or region.unexplained_bytes)
        and region.implementation is Implementation.NON_REENTRANT
        and region.preserve_rng_state
        and region.determinism_check
    )


def test_no_ac_has_no_regions_but_operators_and_memory() -> None:
    """Without AC there is no region, and memory and operations are measured all the same."""
    seen = observe(net(lambda block, x: block(x)))
    assert seen.regions == ()
    assert seen.forward_flops > 0
    assert seen.backward_flops == pytest.approx(2 * seen.forward_flops, rel=0.2)
    assert seen.peak_bytes > seen.held_bytes > 0
    assert not seen.random_drawn


def test_block_ac_is_described() -> None:
    """A block region has name, class, operators, operations and the memory that it frees."""
    seen = observe(net(block_ac, Block(0.5), Block(0.5)))
    assert [r.name for r in seen.regions] == ["layers.0", "layers.1"]
    region = seen.regions[0]
    assert all(clean(r) for r in seen.regions)
    assert (region.index, region.parent, region.class_name, region.selective) == (0, None, "Block", False)
    assert region.operators["aten.addmm.default"] == 2
    assert region.random_drawn != ()
    # 2·m·k·n for both layers; early stop leaves the last one out of the replay
    assert region.forward_flops == 2 * (2 * 6 * D * 4 * D)
    assert region.replay_flops == region.forward_flops
    # both inner activations, the normalised input, the mask, and mean and deviation of six rows
    assert region.freed_bytes == 4 * (2 * 6 * 4 * D + 2 * 6 * D + 2 * 6)
    assert seen.random_drawn


def test_memory_and_operations_show_what_ac_does() -> None:
    """AC holds less and computes more than none; selective AC lies between."""
    none, block, some = (
        observe(net(call, Block(), Block(), Block()))
        for call in (lambda b, x: b(x), block_ac, sac(save(*MATMUL)))
    )
    assert block.held_bytes < some.held_bytes < none.held_bytes
    assert none.backward_flops == some.backward_flops < block.backward_flops


@pytest.mark.parametrize(
    "call",
    [
        block_ac,
        lambda b, x: checkpoint(b.forward, x, use_reentrant=False),
        lambda b, x: checkpoint(functools.partial(b.__call__), x, use_reentrant=False),
        lambda b, x: checkpoint(
            functools.partial(type(b).forward, b, scale=torch.ones(D)), x, use_reentrant=False
        ),
    ],
    ids=["module", "method", "partial-call", "partial-unbound"],
)
def test_names_whatever_is_checkpointed(call: Any) -> None:
    """A module is named however it is handed to checkpoint."""
    regions = observe(net(call)).regions
    assert [(r.name, r.class_name) for r in regions] == [("layers.0", "Block"), ("layers.1", "Block")]
    assert all(clean(r) for r in regions)


def test_wrappers_and_functions_have_names() -> None:
    """`checkpoint_wrapper` leaves no trace in the name; a function has its qualified name."""
    wrapped = net(lambda b, x: b(x), checkpoint_wrapper(Block()))
    assert [r.name for r in observe(wrapped).regions] == ["layers.0"]
    function = observe(net(lambda b, x: checkpoint(lambda y: b(y) * 1, x, use_reentrant=False))).regions[0]
    assert "<lambda>" in function.name
    assert function.class_name == "function"


def test_random_state_that_is_not_kept() -> None:
    """preserve_rng_state=False shows as flag, with what drew and which values differ."""
    region = observe(net(functools.partial(block_ac, preserve_rng_state=False), Block(0.5), Block())).regions[
        0
    ]
    assert not region.preserve_rng_state
    assert region.random_drawn != ()
    quiet = observe(net(functools.partial(block_ac, preserve_rng_state=False))).regions[0]
    assert quiet.random_drawn == () == quiet.mismatches


def test_value_mismatch_names_the_producer() -> None:
    """The first value that a replay gets wrong is named by operator and call."""

    class Drifting(Block):
        calls = 0

        def forward(self, x: torch.Tensor, scale: Any = None) -> torch.Tensor:
            self.calls += 1
            return super().forward(x.tanh() * self.calls)

    region = observe(net(block_ac, Drifting(), Block())).regions[0]
    first = region.mismatches[0]
    assert (first.producer, first.call, first.shape) == ("aten.mul.Tensor", 0, (2, 3, D))
    assert observe(net(block_ac)).regions[0].mismatches == ()


def test_determinism_check_off_is_a_fact_and_values_are_compared_all_the_same() -> None:
    """determinism_check="none" keeps torch silent but not acgate."""

    class Shifting(Block):
        shift = 0.0

        def forward(self, x: torch.Tensor, scale: Any = None) -> torch.Tensor:
            self.shift += 1
            return super().forward(x + self.shift).sin()

    region = observe(net(functools.partial(block_ac, determinism_check="none"), Shifting())).regions[0]
    assert not region.determinism_check
    assert region.mismatches


def test_metadata_check_of_torch_still_raises() -> None:
    """A replay that saves other shapes raises as torch does, observed or not."""

    class Growing(Block):
        size = 1

        def forward(self, x: torch.Tensor, scale: Any = None) -> torch.Tensor:
            self.size += 1
            return super().forward(x) * torch.ones(self.size, requires_grad=True).exp().sum()

    with pytest.raises(torch.utils.checkpoint.CheckpointError, match="different metadata"):
        observe(net(block_ac, Growing()))


def test_selective_policy_is_described() -> None:
    """What a policy saves is counted with its bytes; regions with one policy share an identity."""
    first, second = observe(net(sac(save(*MATMUL)))).regions
    assert clean(first)
    assert first.selective
    assert first.saved == {"aten.addmm.default": 2}
    assert first.saved_bytes == 6 * D * 4 + 6 * 4 * D * 4
    assert first.policy_identity == second.policy_identity
    assert first.decisions == second.decisions is not None
    assert first.replay_flops == 0
    other = observe(net(sac(save(aten.gelu.default)))).regions[0]
    assert other.policy_identity != first.policy_identity
    assert other.decisions != first.decisions


def test_policy_that_saves_nothing() -> None:
    """A packet in a policy saves nothing, which is seen."""
    region = observe(net(sac(save(aten.addmm)))).regions[0]
    assert region.selective
    assert region.saved == {}
    assert region.saved_bytes == 0


def test_list_of_operators_is_its_own_policy() -> None:
    """A list is known by its operators, not by torch's closure around it."""
    a, b = (observe(net(sac(list(ops)))).regions[0] for ops in (MATMUL, MATMUL[::-1]))
    assert a.policy == "list of operators"
    assert a.policy_identity == b.policy_identity
    assert a.policy_identity != observe(net(sac([aten.gelu.default]))).regions[0].policy_identity


def test_contexts_out_of_reach_are_linked_all_the_same() -> None:
    """A context function that wraps torch's contexts does not hide what its policy decides."""

    def contexts() -> Any:
        forward, recompute = create_selective_checkpoint_contexts(save(*MATMUL))
        return forward, _Nested(recompute)

    class _Nested:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __enter__(self) -> Any:
            return self.inner.__enter__()

        def __exit__(self, *error: object) -> Any:
            return self.inner.__exit__(*error)

    region = observe(net(functools.partial(block_ac, context_fn=contexts))).regions[0]
    assert region.selective
    assert region.saved == {"aten.addmm.default": 2}


def test_changed_saved_output() -> None:
    """A product changed in place behind a view is found; its out-of-place twin is clean."""

    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(D, D))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.matmul(x, self.weight)
            y += 1
            return y.sin()

    class OutOfPlace(InPlace):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (torch.matmul(x, self.weight) + 1).sin()

    assert observe(net(sac(save(*MATMUL)), InPlace())).regions[0].changed_saved == ("aten.mm.default",)
    assert clean(observe(net(sac(save(*MATMUL)), OutOfPlace())).regions[0])


def test_flags_and_kinds_of_saved_operators() -> None:
    """Saved random and mutating operators, offload, and the switched-off mutation check are seen."""

    class Masks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * torch.bernoulli(torch.full_like(x, 0.5))
            return F.dropout(x, 0.5).tanh()

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> P:
        if op is aten.tanh.default:
            return P.MUST_CPU_OFFLOAD
        return P.MUST_SAVE if op in (aten.bernoulli.default, aten.div_.Scalar) else P.PREFER_RECOMPUTE

    region = observe(net(sac(policy, allow_cache_entry_mutation=True), Masks())).regions[0]
    assert region.random_saved == ("aten.bernoulli.default",)
    assert set(region.random_drawn) > {"aten.bernoulli.default"}
    assert region.mutating_saved == ("aten.div_.Scalar",)
    assert region.offloaded == ("aten.tanh.default",)
    assert region.allow_cache_entry_mutation


def test_policy_that_counts_across_layers_keeps_its_identity() -> None:
    """State of a policy is not its identity, so that its drift shows in the decisions."""
    seen = {"products": 0}

    def every_second(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> P:
        if op is aten.addmm.default:
            seen["products"] += 1
            return P.MUST_SAVE if seen["products"] % 3 == 1 else P.PREFER_RECOMPUTE
        return P.PREFER_RECOMPUTE

    first, second = observe(net(sac(every_second))).regions
    assert first.policy_identity == second.policy_identity
    assert first.decisions != second.decisions
    assert first.decided == second.decided is not None


def test_regions_that_run_the_same_operators_in_another_order_are_told_apart() -> None:
    """What a policy is asked about in another order it may decide otherwise: that is no drift."""
    first, second = observe(
        net(
            sac(save(*MATMUL)), nn.Sequential(nn.Tanh(), nn.Sigmoid()), nn.Sequential(nn.Sigmoid(), nn.Tanh())
        )
    ).regions
    assert first.operators == second.operators
    assert first.decided != second.decided


def test_memory_that_stays() -> None:
    """An activation kept on a ctx attribute is unexplained; save_for_backward is not."""

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.kept = x
            return x.square()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return 2 * ctx.kept * g

    class Save(Keep):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.square()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return 2 * ctx.saved_tensors[0] * g

    class Squares(Block):
        function: type[torch.autograd.Function] = Keep

        def forward(self, x: torch.Tensor, scale: Any = None) -> torch.Tensor:
            return x + self.down(self.function.apply(self.up(x)))

    class Right(Squares):
        function = Save

    size = 6 * 4 * D * 4
    assert observe(net(block_ac, Squares())).regions[0].unexplained_bytes == size
    assert observe(net(block_ac, Right())).regions[0].unexplained_bytes == 0


def test_memory_with_a_reason_is_explained() -> None:
    """Attributes of modules, values used by later layers, and cycles are no leaks."""

    class Remembers(Block):
        def forward(self, x: torch.Tensor, scale: Any = None) -> torch.Tensor:
            hidden = self.up(x)
            self.seen = {"hidden": [hidden.detach()]}
            cycle: list[Any] = [hidden.detach().clone()]
            cycle.append(cycle)
            return x + self.down(F.gelu(hidden))

    assert [r.unexplained_bytes for r in observe(net(block_ac, Remembers(), Block())).regions] == [0, 0]


def test_autocast_keeps_no_secret() -> None:
    """Copies of weights in the autocast cache are not the region's memory, nor are values wrong."""

    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().square().mean()

    for call in (block_ac, sac(save(*MATMUL))):
        assert all(clean(r) for r in observe(net(call), loss=loss).regions)


@pytest.mark.parametrize("early_stop", [True, False])
def test_nested_regions(early_stop: bool) -> None:
    """A region inside a region has a parent; both are replayed once, and clean."""
    model = net(lambda b, x: checkpoint(lambda y: block_ac(b, y * 2).tanh(), x, use_reentrant=False))
    regions = observe(model, early_stop=early_stop).regions
    assert [r.parent for r in regions] == [None, 0, None, 2]
    assert {r.early_stop for r in regions} == {early_stop}
    assert all(clean(r) for r in regions)
    assert [r.name for r in regions[1::2]] == ["layers.0", "layers.1"]


def test_wrapped_twice() -> None:
    """A module checkpointed inside its own region shows as two regions of one name."""
    wrapped = net(block_ac, checkpoint_wrapper(Block()))
    assert [(r.name, r.parent) for r in observe(wrapped).regions] == [("layers.0", None), ("layers.0", 0)]


def test_second_and_split_backward() -> None:
    """Two backward passes over one region are two replays in two graph tasks."""

    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        value = model(x).square().mean()
        torch.autograd.backward(value, retain_graph=True)
        return value

    region = observe(net(block_ac), loss=loss).regions[0]
    assert (region.replays, region.graph_tasks) == (2, 2)


def test_backward_inside_the_region() -> None:
    """A gradient taken inside a region is no mismatch."""

    def energy(b: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (force,) = torch.autograd.grad(b(x).square().sum(), x, create_graph=True)
        return b(x) + force

    for early_stop in (True, False):
        model = net(lambda b, x: checkpoint(energy, b, x, use_reentrant=False))
        assert all(not r.mismatches for r in observe(model, early_stop=early_stop).regions)


def test_reentrant_regions() -> None:
    """The reentrant form is recognised, with its replays, whoever imported it."""
    from torch.utils.checkpoint import checkpoint as alias

    regions = observe(net(lambda b, x: alias(b, x, use_reentrant=True))).regions
    assert [(r.name, r.implementation, r.replays) for r in regions] == [
        ("layers.0", Implementation.REENTRANT, 1),
        ("layers.1", Implementation.REENTRANT, 1),
    ]


def test_non_reentrant_inside_reentrant() -> None:
    """A region that ran without gradients in the forward appears when the outer one is replayed."""
    regions = observe(
        net(lambda b, x: checkpoint(lambda y: block_ac(b, y * 2), x, use_reentrant=True), Block())
    ).regions
    assert [(r.implementation, r.parent, r.replays) for r in regions] == [
        (Implementation.REENTRANT, None, 1),
        (Implementation.NON_REENTRANT, 0, 1),
    ]


class HomeMade(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        ctx.module = module
        ctx.save_for_backward(x)
        with torch.no_grad():
            return module(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.module(x)
        torch.autograd.backward(y, g)
        return None, x.grad


def test_home_made_checkpoints() -> None:
    """A module that an autograd function runs again in backward is a region, counted on every step."""
    model = net(HomeMade.apply)
    regions = observe(model).regions
    assert [(r.name, r.implementation, r.replays) for r in regions] == [
        ("layers.1", Implementation.HOME_MADE, 1),
        ("layers.0", Implementation.HOME_MADE, 1),
    ]
    with Observer(model) as observer:
        observer.begin_step(0)
        model(torch.randn(2, 3, D)).sum().backward()
        observer.end_step()
        assert observer.step_counts() == (2, 2)


def test_counts_without_observation() -> None:
    """Regions and replays are counted on steps that are not observed; inference counts nothing."""
    model = net(block_ac)
    with Observer(model) as observer:
        for step in range(2):
            observer.begin_step(step)
            for _ in range(3):
                model(torch.randn(2, 3, D)).sum().backward()
                observer.end_micro()
            observer.end_step()
            assert observer.step_counts() == (6, 6)
        observer.begin_step(2)
        with torch.no_grad():
            model(torch.randn(2, 3, D))
        observer.end_step()
        assert observer.step_counts() == (0, 0)
        assert observer.observation() is None


def test_only_the_first_micro_step_is_observed() -> None:
    """Further micro-steps of the observed step are counted, not recorded."""
    model = net(block_ac)
    with Observer(model) as observer:
        observer.begin_step(0, observe=True)
        for _ in range(2):
            loss = model(torch.randn(2, 3, D)).sum()
            observer.before_backward()
            loss.backward()
            observer.end_micro()
        observer.end_step()
        assert observer.step_counts() == (4, 4)
        observation = observer.observation()
        assert observation is not None
        assert len(observation.regions) == 2


def test_a_forward_that_raises_leaves_nothing_behind() -> None:
    """After an exception inside a region the next step counts as if nothing had been."""
    model = net(block_ac)
    with Observer(model) as observer:
        observer.begin_step(0, observe=True)
        with pytest.raises(RuntimeError):
            model(torch.randn(2, 3, D + 1))
        observer.begin_step(1, observe=True)
        loss = model(torch.randn(2, 3, D)).sum()
        observer.before_backward()
        loss.backward()
        observer.end_step()
        assert observer.step_counts() == (2, 2)
        observation = observer.observation()
        assert observation is not None
        assert [r.parent for r in observation.regions] == [None, None]


def test_regions_are_freed_without_the_collector() -> None:
    """Watching makes no cycle: inputs of regions die with the graph."""
    import gc
    import weakref

    model = net(block_ac)
    gc.disable()
    try:
        with Observer(model) as observer:
            observer.begin_step(0, observe=True)
            x = torch.randn(2, 3, D, requires_grad=True)
            alive = weakref.ref((x * 1).untyped_storage())
            hidden = x * 1
            alive = weakref.ref(hidden.untyped_storage())
            loss = checkpoint(model.layers[0], hidden, use_reentrant=False).sum()
            del hidden
            observer.before_backward()
            loss.backward()
            del loss
            observer.end_step()
            assert alive() is None
    finally:
        gc.enable()
