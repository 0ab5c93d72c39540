"""What replays do besides: each kind of effect found in a faulty region, and nothing in a clean one."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import pathlib
import socket
import subprocess
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from acgate.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.evidence.trace_records import Effect

D = 4
WAYS = (False, True)
both_ways = pytest.mark.parametrize("reentrant", WAYS)


class Block(nn.Module):
    """Does something besides, in its forward."""

    def __init__(self, besides: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)
        self.besides = besides

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.besides()
        return torch.tanh(self.linear(x))


def replayed(*blocks: nn.Module, reentrant: bool = False, steps: int = 1) -> list[tuple[Effect, ...]]:
    """Return the effects of the region of each block in an ordinary observed step."""
    torch.manual_seed(0)
    model = nn.Sequential(*blocks)
    with Observer(model) as observer:
        for step in range(steps):
            observer.begin_step(step, observe=step == steps - 1)
            x = torch.randn(3, D, requires_grad=True)
            for block in model:
                x = checkpoint(block, x, use_reentrant=reentrant)
            observer.before_backward()
            x.sum().backward()
            observer.end_micro()
            observer.end_step()
        observation = observer.observation()
    assert observation is not None
    return [region.effects for region in observation.regions]


def only(effects: list[tuple[Effect, ...]]) -> Effect:
    (of_region,) = effects
    (effect,) = of_region
    return effect


def warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("norms are odd", stacklevel=1)


def say(*words: str, stream: str = "stdout") -> None:
    print(*words, file=getattr(sys, stream))


# -- each kind ----------------------------------------------------------------------------------


@both_ways
def test_log_records_are_told(reentrant: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A record made in a replay is an effect, with logger, text, module and line; it is logged all the same."""
    log = logging.getLogger("mine.blocks")
    effect = only(replayed(Block(lambda: log.warning("norm %s is %.1f", "a", 2.0)), reentrant=reentrant))
    assert (effect.kind, effect.name, effect.module) == ("log", "mine.blocks", "0")
    assert effect.detail == "WARNING: norm a is 2.0"
    assert effect.source.startswith("test_effects.py:")
    assert effect.source.endswith("in <lambda>")
    assert len(caplog.records) == 2


def test_what_no_logger_wants_is_no_effect() -> None:
    """A call below the logger's level makes no record."""
    log = logging.getLogger("mine.quiet")
    log.setLevel(logging.ERROR)
    assert replayed(Block(lambda: log.info("nobody hears it"))) == [()]


def test_log_arguments_are_not_printed() -> None:
    """A tensor among the arguments is not turned into text: that would run operators inside the replay."""

    class Odd:
        def __str__(self) -> str:
            raise AssertionError("printed")

    log = logging.getLogger("mine.odd")
    log.propagate = False
    log.addHandler(logging.NullHandler())
    assert only(replayed(Block(lambda: log.error("got %s", Odd())))).detail == "ERROR: got %s"


@both_ways
def test_warnings_are_told(reentrant: bool) -> None:
    """A warning that is shown again is an effect."""
    with pytest.warns(UserWarning, match="odd"):
        effect = only(replayed(Block(warn), reentrant=reentrant))
    assert (effect.kind, effect.name, effect.detail) == ("warning", "UserWarning", "norms are odd")
    assert effect.source.endswith("in warn")


@both_ways
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_is_told_and_passed_on(
    stream: str, reentrant: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed is an effect, one per line of code, and arrives unchanged."""
    effect = only(replayed(Block(lambda: say("loss", "is odd", stream=stream)), reentrant=reentrant))
    assert (effect.kind, effect.name, effect.detail) == ("output", stream, "loss is odd")
    assert getattr(capsys.readouterr(), "out" if stream == "stdout" else "err") == "loss is odd\n" * 2


def test_a_log_handler_that_prints_is_one_effect(capsys: pytest.CaptureFixture[str]) -> None:
    """Writing a record to a stream or a file is the handler's doing."""
    log = logging.getLogger("mine.printed")
    handler = logging.StreamHandler(sys.stdout)
    log.addHandler(handler)
    log.propagate = False
    try:
        assert only(replayed(Block(lambda: log.error("once")))).kind == "log"
    finally:
        log.removeHandler(handler)
    assert capsys.readouterr().out == "once\n" * 2


@both_ways
def test_files_are_told(reentrant: bool, tmp_path: pathlib.Path) -> None:
    """Files that are opened, made, renamed and removed are effects, each with its path."""
    path, other = tmp_path / "trace.txt", tmp_path / "old.txt"

    def besides() -> None:
        with path.open("a") as file:
            file.write("x")
        path.rename(other)
        (tmp_path / "folder").mkdir(exist_ok=True)
        other.read_text()
        other.unlink()

    (effects,) = replayed(Block(besides), reentrant=reentrant)
    assert {effect.kind for effect in effects} == {"file"}
    assert [(pathlib.Path(effect.name).name, effect.detail.split(" to ")[0]) for effect in effects] == [
        ("trace.txt", "opened for writing with mode 'a'"),
        ("trace.txt", "renamed"),
        ("folder", "made"),
        ("old.txt", "opened for reading with mode 'r'"),
        ("old.txt", "removed"),
    ]
    assert all("in besides" in effect.source and effect.module == "0" for effect in effects)


@both_ways
def test_sockets_are_told(reentrant: bool) -> None:
    """A connection that is made again is an effect."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ":".join(map(str, server.getsockname()))

        def besides() -> None:
            socket.create_connection(server.getsockname()).close()

        (effects,) = replayed(Block(besides), reentrant=reentrant)
    connected = next(effect for effect in effects if effect.detail == "connected to")
    assert (connected.kind, connected.name) == ("socket", address)
    assert connected.source.endswith("in besides")


@both_ways
def test_processes_are_told(reentrant: bool) -> None:
    """A process that is started again is an effect."""
    (effects,) = replayed(
        Block(lambda: subprocess.run([sys.executable, "-c", ""], check=True)), reentrant=reentrant
    )
    (effect,) = (effect for effect in effects if effect.kind == "process" and effect.detail == "started")
    assert effect.name == sys.executable
    assert effect.source.endswith("in <lambda>")


@both_ways
def test_environment_is_told_without_values(reentrant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is set is an effect; what it is set to may be a secret."""
    monkeypatch.setenv("MY_REQUEST", "")
    effect = only(
        replayed(Block(lambda: os.environ.__setitem__("MY_REQUEST", "secret")), reentrant=reentrant)
    )
    assert (effect.kind, effect.name) == ("setting", "environment variable MY_REQUEST")
    assert "secret" not in effect.model_dump_json()


class Counting(nn.Module):
    """Counts in a buffer, unless it is told to leave replays out."""

    def __init__(self, guarded: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)
        self.register_buffer("count", torch.zeros(()))
        self.guarded = guarded

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (self.guarded and torch._C._current_graph_task_id() != -1):
            self.count += 1
        return F.relu(self.linear(x).mul_(2), inplace=True)


@both_ways
def test_written_buffers_are_told(reentrant: bool) -> None:
    """An operator that writes to a buffer in a replay is an effect; one that writes to its own result is none."""
    effect = only(replayed(Counting(), reentrant=reentrant))
    assert (effect.kind, effect.name, effect.module) == ("buffer", "0.count", "0")
    assert effect.operator == "aten.add_.Tensor"
    assert effect.source.endswith("in forward")
    assert replayed(Counting(guarded=True), reentrant=reentrant) == [()]


@both_ways
def test_written_parameters_are_told(reentrant: bool) -> None:
    """A parameter that the region writes to is named."""
    block = Block()

    def besides() -> None:
        with torch.no_grad():
            block.linear.bias.mul_(1.0)

    block.besides = besides
    effect = only(replayed(block, reentrant=reentrant))
    assert (effect.kind, effect.name, effect.operator) == ("parameter", "0.linear.bias", "aten.mul_.Tensor")


def test_batch_norm_counts_twice() -> None:
    """The counter of a batch norm in training is written in the replay; in evaluation nothing is."""
    effect = only(replayed(nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D))))
    assert (effect.name, effect.module) == ("0.1.num_batches_tracked", "0.1")
    assert replayed(nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D)).eval()) == [()]


def test_each_region_has_its_own() -> None:
    """Effects belong to the region whose replay had them, and those of a nested one to that."""
    log = logging.getLogger("mine.several")
    noisy, calm = Block(lambda: log.error("noisy")), Block()
    assert [len(effects) for effects in replayed(calm, noisy, calm)] == [0, 1, 0]

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Block(lambda: log.error("inner"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            log.error("outer")
            return checkpoint(self.inner, x, use_reentrant=False)

    outer, _ = replayed(Outer())
    assert "ERROR: outer" in {effect.detail for effect in outer}


def test_a_loop_is_one_effect(capsys: pytest.CaptureFixture[str]) -> None:
    """A line that has its effect many times is told once; many lines are told up to a bound."""
    assert len(replayed(Block(lambda: [say(str(n)) for n in range(300)]))[0]) == 1
    assert len(capsys.readouterr().out.split()) == 600
    many = "\n".join(f"print({number})" for number in range(80))
    code = compile(many, "many_lines.py", "exec")
    (effects,) = replayed(Block(lambda: exec(code, {})))
    assert len(effects) == 50


# -- clean --------------------------------------------------------------------------------------


def test_what_happens_outside_of_replays_is_no_effect(tmp_path: pathlib.Path) -> None:
    """Forwards, hooks of backward outside of regions and other threads do what they like."""
    log = logging.getLogger("mine.outside")
    stop, ready = threading.Event(), threading.Event()

    def noise() -> None:
        while not stop.is_set():
            log.error("from another thread")
            (tmp_path / "other.txt").write_text("x")
            ready.set()

    class Loud(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ready.wait()
            return self.inner(x)

    log.propagate = False
    log.addHandler(logging.NullHandler())
    thread = threading.Thread(target=noise)
    thread.start()
    try:
        assert replayed(Loud()) == [()]
    finally:
        stop.set()
        thread.join()


def test_imports_and_source_lines_are_no_files(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lazy import reads files, and a warning its source line; neither is the region's doing."""
    (tmp_path / "imported_late.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def besides() -> None:
        sys.modules.pop("imported_late", None)
        import imported_late  # type: ignore[import-not-found]

        assert imported_late.VALUE == 1

    assert replayed(Block(besides)) == [()]


def test_devices_are_no_files() -> None:
    """Opening the null device or a view of the kernel leaves nothing behind."""

    def besides() -> None:
        for path in ("/dev/null", "/proc/self/status"):
            pathlib.Path(path).read_text()

    assert replayed(Block(besides)) == [()]


def test_what_torch_does_of_itself_is_no_effect() -> None:
    """Warnings of torch's own kernels and records of its own loggers are not the target's."""

    def besides() -> None:
        with torch.autograd.graph.save_on_cpu():
            torch.ones(2, requires_grad=True).sum()

    assert replayed(Block(besides)) == [()]


class Lazy(nn.Module):
    """Builds a constant at first use."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(D, D), nn.BatchNorm1d(D).eval()
        self.mask: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mask is None:
            logging.getLogger("mine.lazy").error("built")
            self.mask = torch.ones(D).cumsum(0)
        return F.dropout(self.norm(self.linear(x)) * self.mask, 0.5)


@both_ways
def test_clean_regions_have_no_effects(reentrant: bool) -> None:
    """Dropout, batch norm in evaluation, operators in place, and a cache that is built once."""
    assert replayed(Lazy(), Lazy(), Block(), reentrant=reentrant) == [(), (), ()]


# -- nothing stays ------------------------------------------------------------------------------


def installed() -> tuple[Any, ...]:
    return (
        logging.getLogRecordFactory(),
        warnings.showwarning,
        sys.stdout,
        "write" in vars(sys.stdout),
        "write" in vars(sys.stderr),
        sys.gettrace(),
        sys.getprofile(),
    )


@both_ways
@pytest.mark.parametrize("explain", [False, True])
def test_everything_is_taken_away(explain: bool, reentrant: bool) -> None:
    """After a step, also one in which forward or replay raised, everything is as it was."""
    before = installed()
    for raises in ("never", "forward", "replay"):
        calls: list[int] = []
        inside: list[tuple[Any, ...]] = []

        def besides(raises: str = raises, calls: list[int] = calls, inside: list[Any] = inside) -> None:
            calls.append(1)
            inside.append(installed())
            if raises == ("forward" if len(calls) == 1 else "replay"):
                raise ValueError(raises)

        model = nn.Sequential(Block(besides))
        with contextlib.suppress(ValueError), Observer(model, explain=explain) as observer:
            observer.begin_step(0, observe=True)
            x = checkpoint(model[0], torch.randn(3, D, requires_grad=True), use_reentrant=reentrant)
            observer.before_backward()
            x.sum().backward()
            observer.end_micro()
            observer.end_step()
        assert installed() == before, raises
        if raises != "forward":
            assert inside[1][:2] != before[:2]
            assert inside[1][2] is before[2], "the stream itself is never replaced"


def test_what_others_chain_stays() -> None:
    """A factory that the target installs in a replay stays, and what it was chained to does nothing more."""
    before = logging.getLogRecordFactory()
    made: list[str] = []

    def besides() -> None:
        inner = logging.getLogRecordFactory()

        def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
            made.append("record")
            return inner(*args, **kwargs)

        logging.setLogRecordFactory(factory)

    try:
        replayed(Block(besides))
        assert logging.getLogRecordFactory() is not before
        logging.getLogger("mine.after").error("still works")
        assert made
    finally:
        logging.setLogRecordFactory(before)


def test_a_stream_without_attributes_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of a class with slots cannot be listened to, and is used as it is."""

    class Slotted:
        __slots__ = ("text",)

        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None:
            pass

    stream = Slotted()
    monkeypatch.setattr(sys, "stdout", stream)
    assert replayed(Block(functools.partial(say, "x"))) == [()]
    assert stream.text == "x\n" * 2


def test_text_in_memory_is_no_output() -> None:
    """Printing into a buffer of one's own is no output of the process."""
    buffer = io.StringIO()
    assert replayed(Block(lambda: print("x", file=buffer))) == [()]
