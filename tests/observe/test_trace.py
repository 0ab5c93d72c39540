"""A trace names the operator, the line and the reason of a replay that is not its forward."""

from __future__ import annotations

import functools
import inspect
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hand_made import ByHand
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from acgate.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Divergence, RegionTrace

WIDTH = 8
PRODUCTS = frozenset({torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default})


def keep_products(ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE


SELECTIVE = {"context_fn": functools.partial(create_selective_checkpoint_contexts, keep_products)}
FORMS: dict[str, dict[str, Any]] = {"block": {}, "selective": SELECTIVE}


def observe(
    model: nn.Module,
    run: Callable[[], Tensor],
    *,
    early_stop: bool = True,
    before_backward: Callable[[], None] = lambda: None,
) -> tuple[tuple[RegionRecord, ...], BaseException | None]:
    """Trace one step; return its regions, and what backward raised."""
    error: BaseException | None = None
    with Observer(model, explain=True, early_stop=early_stop) as observer:
        observer.begin_step(0, observe=True)
        loss = run().float().square().mean()
        observer.before_backward()
        before_backward()
        try:
            loss.backward()
        except Exception as raised:  # noqa: BLE001 - whatever it is, it is looked at below
            error = raised
        observer.end_micro()
        observer.end_step()
    seen = observer.observation()
    assert seen is not None
    return seen.regions, error


class Blocks(nn.Module):
    """Two blocks, each in a region."""

    def __init__(self, kind: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(kind() for _ in range(2))
        self.options = {"use_reentrant": False, **options}

    def forward(self, x: Tensor, **keywords: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = checkpoint(layer, x, **self.options, **keywords)
        return x


def traced(kind: type[nn.Module], *, early_stop: bool = True, **options: Any) -> list[RegionTrace]:
    torch.manual_seed(0)
    model = Blocks(kind, **options)
    x = torch.randn(3, 4, WIDTH)
    regions, _ = observe(model, lambda: model(x), early_stop=early_stop)
    traces = [region.trace for region in regions]
    assert all(traces)
    return traces  # type: ignore[return-value]


def divergence(kind: type[nn.Module], *, early_stop: bool = True, **options: Any) -> Divergence:
    """Return the divergence of the first block, which the second must have too."""
    first, second = (trace.divergence for trace in traced(kind, early_stop=early_stop, **options))
    assert first is not None
    assert second is not None
    assert (first.what, place(first)) == (second.what, place(second))
    return first


def place(found: Divergence) -> str:
    at = found.forward or found.replay
    assert at is not None
    return at.source


def line(function: Callable[..., Any], mark: str) -> str:
    """Return the place of the line of a function that contains a text."""
    lines, start = inspect.getsourcelines(function)
    number = next(number for number, text in enumerate(lines) if mark in text)
    return f"test_trace.py:{start + number} in {function.__name__}"


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x).sin())


class PythonRandom(Plain):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        hidden = hidden * random.random()
        return x + self.down(hidden.sin())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("early_stop", [True, False])
def test_a_python_number_is_told_with_its_line(form: str, early_stop: bool) -> None:
    """A factor from Python's `random` is named where it enters, with both numbers and its size."""
    found = divergence(PythonRandom, early_stop=early_stop, **FORMS[form])
    assert found.what == "arguments"
    assert place(found) == line(PythonRandom.forward, "random.random")
    assert found.forward is not None
    assert found.forward.operator == "aten.mul.Tensor"
    assert found.forward.module == "layers.0"
    assert found.forward.results == ("float32[3, 4, 8]",)
    assert found.arguments is not None
    one, other = (float(text.split(", ")[1]) for text in found.arguments)
    assert found.rel_err == pytest.approx(abs(other - one) / one, rel=1e-4)
    assert found.max_abs_err is not None
    assert found.scale is not None
    assert found.max_abs_err == pytest.approx(found.scale * abs(other - one) / one, rel=1e-4)


class Counter(Plain):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        scale = 1.0 / self.calls
        return x + self.down(self.up(x).sin() * torch.tensor(scale))


def test_a_counter_that_becomes_a_tensor_is_a_number_still() -> None:
    """`torch.tensor(number)` shows the number, not a tensor from outside."""
    found = divergence(Counter)
    assert found.what == "arguments"
    assert found.arguments == ("1.0", "0.5")
    assert place(found) == line(Counter.forward, "torch.tensor")


class RunningMean(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.mean: Tensor

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(hidden.mean((0, 1)), alpha=0.1)
        return x + self.down((hidden - self.mean).sin())


@pytest.mark.parametrize("form", FORMS)
def test_a_buffer_that_the_forward_changes_is_read_changed(form: str) -> None:
    """The first read of a moving average is named, and which operator had written to it."""
    found = divergence(RunningMean, **FORMS[form])
    assert found.what == "reads"
    (read,) = found.reads
    assert (read.kind, read.name, read.same_tensor) == ("buffer", "layers.0.mean", True)
    assert place(found) == line(RunningMean.forward, "mul_(0.9)")
    assert read.changed_by is not None
    assert read.changed_by.operator == "aten.add_.Tensor"
    assert read.changed_by.source == line(RunningMean.forward, "mul_(0.9)")


class ReboundBuffer(RunningMean):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        self.mean = 0.9 * self.mean + 0.1 * hidden.detach().mean((0, 1))
        return x + self.down((hidden - self.mean).sin())


def test_a_buffer_that_is_bound_anew_is_another_tensor() -> None:
    """A buffer that the forward replaces is read under its name, and is not the same tensor."""
    found = divergence(ReboundBuffer)
    assert found.what == "reads"
    assert (found.reads[0].kind, found.reads[0].name) == ("buffer", "layers.0.mean")
    assert not found.reads[0].same_tensor
    assert place(found) == line(ReboundBuffer.forward, "0.9 *")


class BatchNorm(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.norm(self.up(x)).sin())


def test_statistics_that_a_kernel_moves_are_seen() -> None:
    """Batch norm does not declare that it writes to its statistics; it is named all the same."""
    found = divergence(BatchNorm)
    assert found.what == "reads"
    assert {read.name for read in found.reads} == {"layers.0.norm.running_mean", "layers.0.norm.running_var"}
    assert place(found) == line(BatchNorm.forward, "self.norm(")
    assert found.forward is not None
    assert found.forward.module == "layers.0.norm"
    assert found.reads[0].changed_by is not None
    assert "batch_norm" in found.reads[0].changed_by.operator


class ScaledByKeyword(Plain):
    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        assert scale is not None
        return x + self.down(self.up(x) * scale)


def test_a_keyword_changed_in_place_is_named_with_who_changed_it() -> None:
    """The keyword, the operator that reads it, and the line outside of all regions that wrote to it."""
    model = Blocks(ScaledByKeyword)
    scale = torch.rand(WIDTH)

    def change() -> None:
        scale.mul_(2)

    regions, _ = observe(model, lambda: model(torch.randn(3, 4, WIDTH), scale=scale), before_backward=change)
    for region in regions:
        assert region.trace is not None
        found = region.trace.divergence
        assert found is not None
        assert found.what == "reads"
        (read,) = found.reads
        assert (read.kind, read.name, read.same_tensor) == ("keyword", "scale", True)
        assert place(found) == line(ScaledByKeyword.forward, "* scale")
        assert read.changed_by is not None
        assert read.changed_by.source == line(change, "mul_")
        assert read.changed_by.index == -1


def test_a_parameter_changed_before_backward_is_named() -> None:
    """A step of weights between forward and backward: the parameter, and who wrote to it."""
    model = Blocks(Plain)

    def change() -> None:
        with torch.no_grad():
            model.layers[1].down.weight.mul_(1.01)

    regions, _ = observe(model, lambda: model(torch.randn(3, 4, WIDTH)), before_backward=change)
    assert regions[0].trace is not None
    assert regions[0].trace.divergence is None
    assert regions[1].trace is not None
    found = regions[1].trace.divergence
    assert found is not None
    assert found.what == "reads"
    assert (found.reads[0].kind, found.reads[0].name) == ("parameter", "layers.1.down.weight")
    assert found.reads[0].changed_by is not None
    assert found.reads[0].changed_by.source == line(change, "mul_")
    assert place(found) == line(Plain.forward, "self.down")


class LateBound(Blocks):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(lambda h: layer(h), x, **self.options)  # noqa: B023, PLW0108
        return x


@pytest.mark.parametrize("form", FORMS)
def test_a_late_bound_closure_reads_another_tensor(form: str) -> None:
    """The weights of the loop's last layer are read instead: not the same tensor."""
    model = LateBound(Plain, **FORMS[form])
    regions, _ = observe(model, lambda: model(torch.randn(3, 4, WIDTH, requires_grad=True)))
    assert regions[0].trace is not None
    found = regions[0].trace.divergence
    assert found is not None
    assert found.what == "reads"
    assert (found.reads[0].kind, found.reads[0].name) == ("parameter", "layers.0.up.weight")
    assert not found.reads[0].same_tensor
    assert place(found) == line(Plain.forward, "self.up")
    assert regions[1].trace is not None
    assert regions[1].trace.divergence is None


class ProductThenAdd(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.linspace(0.2, 0.9, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.matmul(x, x.transpose(1, 2)) * 0.1
        mixed = torch.matmul(scores.softmax(-1), x)
        mixed += self.offset
        return x + self.down(mixed.sin())


def test_a_kept_output_that_changed_names_the_operator_and_who_wrote() -> None:
    """Behind `_unsafe_view` torch does not see that a kept product is added to; the trace does."""
    found = divergence(ProductThenAdd, **SELECTIVE)
    assert found.what == "cached"
    assert found.forward is not None
    assert found.forward.operator == "aten.bmm.default"
    assert found.forward.call == 1
    assert place(found) == line(ProductThenAdd.forward, "softmax")
    (read,) = found.reads
    assert read.changed_by is not None
    assert read.changed_by.operator == "aten.add_.Tensor"
    assert read.changed_by.source == line(ProductThenAdd.forward, "+= self.offset")
    assert found.max_abs_err == pytest.approx(0.9, rel=1e-3)  # the largest of what was added
    assert all(trace.divergence is None for trace in traced(ProductThenAdd))


class Swapped(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.order = ["up", "down"]

    def forward(self, x: Tensor) -> Tensor:
        first, second = (torch.tanh(getattr(self, name)(x)) for name in self.order)
        self.order.reverse()
        return x + first * second


@pytest.mark.parametrize("form", FORMS)
def test_calls_that_changed_places_name_each_other(form: str) -> None:
    """The operator that got the other call's weight is named, and the call that it took the place of."""
    found = divergence(Swapped, **FORMS[form])
    assert found.what == "reads"
    assert found.forward is not None
    assert found.swapped_with is not None
    assert found.swapped_with.operator == found.forward.operator
    assert found.swapped_with.call != found.forward.call
    assert (found.reads[0].name, found.reads[0].same_tensor) == ("layers.0.up.weight", False)


class SwappedProducts(Plain):
    """Reads its weights by the very operator that a policy keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.order = ["up", "down"]

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        first, second = (torch.tanh(rows.mm(getattr(self, name).weight)) for name in self.order)
        self.order.reverse()
        return x + (first * second).view_as(x)


@pytest.mark.parametrize("form", FORMS)
def test_kept_calls_that_changed_places_name_each_other(form: str) -> None:
    """A policy hands out what was kept by number, and what the calls read tells that they changed places."""
    found = divergence(SwappedProducts, **FORMS[form])
    assert found.what == "reads"
    assert found.swapped_with is not None
    assert found.swapped_with.operator == "aten.mm.default"


class OneMore(Plain):
    """Measures once by a product that the replay leaves out."""

    cold = True

    def forward(self, x: Tensor) -> Tensor:
        if self.cold:
            self.cold = False
            with torch.no_grad():
                self.down(x * 3)
        return x + self.down(self.up(x).sin())


def test_a_kept_output_of_another_call_names_that_call() -> None:
    """A call fewer in the replay shifts what a policy hands out, though nothing has changed what it keeps."""
    found = divergence(OneMore, **SELECTIVE)
    assert found.what == "cached"
    assert found.forward is not None
    assert found.swapped_with is not None
    assert found.swapped_with.operator == found.forward.operator
    assert found.swapped_with.call != found.forward.call


class ComputedOnce(Plain):
    """Computes what it uses twice once in the forward, and each time in the replay, as a cache left open does."""

    caching = True

    def forward(self, x: Tensor) -> Tensor:
        gain = self.up.weight.tanh()
        hidden = x @ (gain if self.caching else self.up.weight.tanh())
        hidden = hidden @ (gain if self.caching else self.up.weight.tanh())
        return self.down(hidden.sin()).cos().sin()


def test_an_operator_more_that_shifts_what_is_saved_is_named() -> None:
    """Saved tensors that are right by themselves and stand elsewhere blame the operator that came between."""
    model = Blocks(ComputedOnce)

    def replays_compute_each() -> None:
        for layer in model.layers:
            layer.caching = False  # type: ignore[assignment]

    regions, _ = observe(model, lambda: model(torch.randn(3, 4, WIDTH)), before_backward=replays_compute_each)
    trace = regions[-1].trace
    assert trace is not None
    found = trace.divergence
    assert found is not None
    assert found.what == "operator"
    assert found.replay is not None
    assert found.replay.operator == "aten.tanh.default"


class SecondTime(Plain):
    """Changes a weight behind each forward but the first."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).sin())


@pytest.mark.parametrize("micro", [0, 1, 2])
def test_another_micro_step_than_the_first_can_be_looked_at(micro: int) -> None:
    """What goes wrong in the second micro-step is seen there, and is not seen in the others."""
    model = Blocks(SecondTime)
    with Observer(model, explain=True, micro=micro) as observer:
        observer.begin_step(0, observe=True)
        for number in range(3):
            if number:
                observer.begin_micro(number)
            loss = model(torch.randn(3, 4, WIDTH)).square().mean()
            observer.before_backward()
            if number == 1:
                with torch.no_grad():
                    model.layers[0].up.weight.mul_(2)  # type: ignore[union-attr, operator]
            loss.backward()
            observer.end_micro()
        observer.end_step()
    seen = observer.observation()
    assert seen is not None
    assert [region.name for region in seen.regions] == ["layers.0", "layers.1"]
    found = [region.trace.divergence for region in seen.regions if region.trace is not None]
    assert len(found) == 2
    assert found[1] is None
    assert (found[0] is not None) is (micro == 1)


def test_hooks_on_saved_tensors_of_the_caller_are_told() -> None:
    """They see nothing of what is saved in a region; those of checkpointing around an inner region are none."""

    def pack(value: Tensor) -> Tensor:
        return value

    model = Blocks(Plain)

    def run() -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
            return model(torch.randn(3, 4, WIDTH))

    regions, _ = observe(model, run)
    told = [region.trace.saved_by for region in regions if region.trace is not None]
    assert len(told) == 2
    assert all("pack (test_trace.py:" in text for text in told)
    assert [trace.saved_by for trace in traced(Plain)] == ["", ""]


class Attention(Plain):
    def forward(self, x: Tensor) -> Tensor:
        q = self.up(x).unsqueeze(1)
        return x + self.down(F.scaled_dot_product_attention(q, q, q).squeeze(1))


def test_another_attention_backend_is_a_context() -> None:
    """Attention that runs with other kernels in the replay names what was switched."""
    model = Blocks(Attention)

    def run() -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return model(torch.randn(3, 4, WIDTH))

    regions, error = observe(model, run)
    assert error is not None  # the other kernel saves other tensors; backward begins with the last region
    assert regions[-1].trace is not None
    found = regions[-1].trace.divergence
    assert found is not None
    assert found.what == "context"
    assert place(found) == line(Attention.forward, "scaled_dot_product")
    assert found.context["attention backends"][0] == "math"


class GradModeBranch(Plain):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        hidden = hidden.relu() if torch.is_grad_enabled() else hidden.sin()
        return x + self.down(hidden)


def test_a_branch_on_gradients_is_another_operator_in_the_reentrant_form() -> None:
    """Both operators stand against each other, with the mode that chose between them."""
    model = Blocks(GradModeBranch, use_reentrant=True)
    regions, _ = observe(model, lambda: model(torch.randn(3, 4, WIDTH)))
    for region in regions:
        assert region.trace is not None
        found = region.trace.divergence
        assert found is not None
        assert found.what == "operator"
        assert found.forward is not None
        assert found.replay is not None
        assert (found.forward.operator, found.replay.operator) == ("aten.sin.default", "aten.relu.default")
        assert found.context == {"grad mode": ("off", "on")}
        assert found.first_value is not None
        assert found.first_value.operator == "aten.addmm.default"
        assert place(found) == line(GradModeBranch.forward, "is_grad_enabled")


class Dropped(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.dropout(self.up(x), 0.5))


def test_dropout_without_its_state_is_a_random_operator() -> None:
    """The operator that draws is named as random, from torch's own generator."""
    found = divergence(Dropped, preserve_rng_state=False)
    assert found.what == "result"
    assert found.random
    assert found.generator == ""
    assert place(found) == line(Dropped.forward, "dropout")


class OwnGenerator(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.source = torch.Generator().manual_seed(3)

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.rand(x.shape, generator=self.source)
        return x + self.down(self.up(x) * noise)


def test_a_generator_of_ones_own_is_named() -> None:
    """The module's attribute that holds the generator is told."""
    found = divergence(OwnGenerator)
    assert (found.what, found.random, found.generator) == ("result", True, "layers.0.source")
    assert place(found) == line(OwnGenerator.forward, "torch.rand")


class Unwritten(Plain):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        scratch = torch.empty_like(hidden)
        return x + self.down(hidden * torch.nan_to_num(scratch).clamp(0.1, 1.0))


def test_memory_that_nobody_wrote_is_named_by_who_allocated_it() -> None:
    """The operator that handed out memory is named, not the one that read it."""
    kept = [torch.rand(3, 4, WIDTH) for _ in range(64)]  # so that what is freed holds other numbers
    del kept
    found = next((trace.divergence for trace in traced(Unwritten) if trace.divergence), None)
    if found is None:
        pytest.skip("the allocator handed out memory with equal content")
    assert found.uninitialised
    assert found.forward is not None
    assert found.forward.operator == "aten.empty_like.default"
    assert place(found) == line(Unwritten.forward, "empty_like")


class Noisy(nn.Module):
    """Ends in RReLU, whose noise torch saves before it is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return F.rrelu(self.mix(x), lower=0.2, upper=0.8, training=True)


def test_noise_that_was_saved_before_it_was_drawn_is_named() -> None:
    """With early stop the replay ends before the operator that draws: it is missing there."""
    found = traced(Noisy)[1].divergence
    assert found is not None
    assert found.what == "missing"
    assert found.uninitialised
    assert found.forward is not None
    assert "rrelu" in found.forward.operator
    assert place(found) == line(Noisy.forward, "F.rrelu")


class Ties(Plain):
    turn = torch.Generator()

    def forward(self, x: Tensor) -> Tensor:
        scores = self.up(x).detach().round() + torch.randperm(WIDTH, generator=self.turn) * 1e-3
        chosen = scores.topk(2).indices
        return x + self.down(self.up(x).gather(-1, chosen).sum(-1, keepdim=True) * x)


def test_the_first_operator_is_named_where_a_choice_follows() -> None:
    """What broke the tie comes first; the choice follows from it."""
    found = divergence(Ties)
    assert found.what == "result"
    assert found.random
    assert found.forward is not None
    assert found.forward.operator == "aten.randperm.generator"


class Branch(Plain):
    seen = False

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        if self.seen:
            hidden = hidden.cos()
        self.seen = True
        return x + self.down(hidden.sin())


@pytest.mark.parametrize("form", FORMS)
def test_an_operator_more_that_torch_raises_for_is_in_the_trace(form: str) -> None:
    """Torch raises, and the trace is there with the operator that only the replay ran."""
    model = Blocks(Branch, **FORMS[form])
    regions, error = observe(model, lambda: model(torch.randn(3, 4, WIDTH)), early_stop=False)
    assert error is not None
    trace = regions[1].trace
    assert trace is not None
    assert trace.divergence is not None
    assert trace.divergence.what == "operator"
    assert trace.divergence.replay is not None
    assert trace.divergence.replay.operator == "aten.cos.default"
    assert trace.divergence.replay.source == line(Branch.forward, "cos()")


class Raises(Plain):
    seen = False

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        if self.seen:
            raise LookupError("the cache is gone")
        self.seen = True
        return x + self.down(hidden.sin())


def test_a_replay_that_raises_is_missing_from_there() -> None:
    """Whatever a replay raises: what it did not come to is named."""
    model = Blocks(Raises)
    regions, error = observe(model, lambda: model(torch.randn(3, 4, WIDTH)))
    assert isinstance(error, LookupError)
    trace = regions[1].trace
    assert trace is not None
    assert trace.divergence is not None
    assert trace.divergence.what == "missing"
    assert trace.divergence.forward is not None
    assert trace.divergence.forward.operator == "aten.sin.default"


class ByHandBlocks(Blocks):
    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).float()
        for layer in self.layers:
            x = ByHand.apply(x, layer)
        return x


def test_a_checkpoint_made_by_hand_that_loses_autocast_is_a_context() -> None:
    """The replay in another dtype is seen without any of torch's own checkpointing."""
    model = ByHandBlocks(Plain)

    def run() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(torch.randn(3, 4, WIDTH))

    regions, error = observe(model, run)
    assert error is None
    assert len(regions) == 2
    for region in regions:
        assert region.trace is not None
        found = region.trace.divergence
        assert found is not None
        assert found.what == "context"
        assert found.context["autocast cpu"] == ("bfloat16", "off")
        assert place(found) == line(Plain.forward, "self.up")


def test_a_clean_checkpoint_made_by_hand_has_no_divergence() -> None:
    """Without autocast it repeats its forward."""
    model = ByHandBlocks(Plain)
    regions, _ = observe(model, lambda: model(torch.randn(3, 4, WIDTH)))
    assert len(regions) == 2
    for region in regions:
        assert region.trace is not None
        assert region.trace.compared >= 4
        assert region.trace.divergence is None


def test_calls_of_one_module_made_by_hand_are_compared_with_their_own_forwards() -> None:
    """Backward replays the last call first; neither is taken for the other."""
    layer = Plain()

    def run() -> Tensor:
        x = ByHand.apply(torch.randn(3, 4, WIDTH, requires_grad=True), layer)
        return ByHand.apply(x.cos(), layer)

    regions, _ = observe(nn.ModuleList([layer]), run)
    assert len(regions) == 2
    for region in regions:
        assert region.trace is not None
        assert region.trace.divergence is None
        assert region.trace.harmless is None


# -- clean --------------------------------------------------------------------------------------


class Constant(Plain):
    table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.arange(WIDTH, dtype=torch.float32).mul(0.1)
        return x + self.down(self.up(x).sin() * self.table)


class Guarded(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if torch._C._current_graph_task_id() == -1:
            self.calls += 1
        return x + self.down(self.up(x).sin())


class Counted(Guarded):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.down(self.up(x).sin())


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.cell(x)[0]


class Relu(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.relu(self.up(x), inplace=True))


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [Plain, Dropped, Attention, Constant, Guarded, Counted, Relu])
def test_what_repeats_its_forward_has_no_divergence(
    kind: type[nn.Module], form: str, early_stop: bool
) -> None:
    """Dropout, attention, lazily built constants and counts that nobody reads are no divergence."""
    if kind is Relu and form == "selective":
        pytest.skip("torch refuses it")
    for trace in traced(kind, early_stop=early_stop, **FORMS[form]):
        assert trace.divergence is None
        assert trace.compared >= 4
        assert (trace.harmless is not None) == (kind in (Constant, Guarded, Counted))


def test_recurrent_layers_have_no_divergence() -> None:
    """A recurrent layer under block AC repeats itself."""
    assert [trace.divergence for trace in traced(Recurrent)] == [None, None]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cached", [True, False])
def test_autocast_has_no_divergence(form: str, cached: bool) -> None:
    """Casts of parameters that autocast cached in the forward are no difference."""
    model = Blocks(Plain, **FORMS[form])

    def run() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cached):
            return model(torch.randn(3, 4, WIDTH))

    regions, error = observe(model, run)
    assert error is None
    for region in regions:
        assert region.trace is not None
        assert region.trace.divergence is None
        assert region.trace.harmless is None


@pytest.mark.parametrize("early_stop", [True, False])
def test_nested_regions_have_no_divergence(early_stop: bool) -> None:
    """Inner and outer region are each compared with their own forward."""
    model = nn.ModuleDict({"a": Plain(), "b": Plain()})

    def outer(x: Tensor) -> Tensor:
        x = checkpoint(model["a"], x + 1, use_reentrant=False)
        return model["b"](x).sin()

    def run() -> Tensor:
        return checkpoint(outer, torch.randn(3, WIDTH, requires_grad=True), use_reentrant=False)

    regions, _ = observe(model, run, early_stop=early_stop)
    assert len(regions) == 2
    for region in regions:
        assert region.trace is not None
        assert region.trace.divergence is None
        assert region.trace.harmless is None
    assert regions[0].trace.compared > regions[1].trace.compared


def test_a_lie_in_an_inner_region_is_seen_in_it() -> None:
    """The inner region names the operator, as the outer does that contains it."""
    model = nn.ModuleDict({"a": PythonRandom(), "b": Plain()})

    def outer(x: Tensor) -> Tensor:
        return model["b"](checkpoint(model["a"], x + 1, use_reentrant=False)).sin()

    regions, _ = observe(
        model, lambda: checkpoint(outer, torch.randn(3, WIDTH, requires_grad=True), use_reentrant=False)
    )
    for region in regions:
        assert region.trace is not None
        assert region.trace.divergence is not None
        assert place(region.trace.divergence) == line(PythonRandom.forward, "random.random")


def test_the_harmless_difference_does_not_hide_the_one_that_matters() -> None:
    """A guarded counter comes first; what is named is the number that comes later."""

    class Both(Guarded):
        def forward(self, x: Tensor) -> Tensor:
            if torch._C._current_graph_task_id() == -1:
                self.calls += 1
            return x + self.down(self.up(x).sin() * random.random())

    found = divergence(Both)
    assert found.what == "arguments"
    assert place(found) == line(Both.forward, "random.random")


def test_partial_and_wrapper_are_regions_like_others() -> None:
    """`functools.partial` and the library's wrapper are traced as a module is."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = nn.Sequential(checkpoint_wrapper(PythonRandom()), Plain())
    x = torch.randn(3, WIDTH, requires_grad=True)

    def scaled(by: Tensor, x: Tensor) -> Tensor:
        return (x * by).sin()

    by = torch.rand(WIDTH)
    regions, _ = observe(
        model,
        lambda: checkpoint(functools.partial(scaled, by), model(x), use_reentrant=False),
        before_backward=functools.partial(by.mul_, 2),
    )
    assert next(region.name for region in regions) == "0"
    first, second = (region.trace.divergence for region in regions if region.trace)
    assert first is not None
    assert place(first) == line(PythonRandom.forward, "random.random")
    assert second is not None
    assert (second.reads[0].kind, second.reads[0].name) == ("input", "bound")
