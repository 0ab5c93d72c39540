"""What a trace says: where a replay first was not the forward that it repeats, and what it did besides."""

from __future__ import annotations

from typing import Literal

from acgate.spec.models import Frozen


class OperatorAt(Frozen):
    """One call of an operator, with its place.

    Attributes:
        index: Order among the operators of its region's call; -1 outside of regions.
        operator: Such as `aten.mm.default`.
        call: How often that operator had run in the region before (0-based).
        module: Canonical name of the innermost module that was being called; empty for none.
        source: Source line of the target's (or a model library's) code, such as `model.py:31 in forward`.
        results: Dtype and shape of each result, such as `float32[2, 16]`.
    """

    index: int = -1
    operator: str
    call: int = 0
    module: str = ""
    source: str = ""
    results: tuple[str, ...] = ()


class Read(Frozen):
    """Something an operator read that its region had not made, and that the replay found changed.

    Attributes:
        kind: `input` and `keyword` are arguments of the region, `attribute` a tensor that a module
            holds beside parameters and buffers, `other` what a closure, a global or a container gave.
        name: Canonical name, or position of an input, or keyword; empty where nobody knows.
        tensor: Its dtype and shape, such as `float32[16]`.
        same_tensor: False where the replay read another tensor than the forward (a name that is
            bound anew), True where it read the same one with another content.
        instead: Name of what the replay read where that is another tensor: `name` again where the same
            thing has other memory by then, as a parameter whose data is exchanged.
        changed_by: The operator that last wrote to it between forward and replay, where one did.
    """

    kind: Literal["input", "keyword", "parameter", "buffer", "attribute", "other"]
    name: str = ""
    tensor: str = ""
    same_tensor: bool = True
    instead: str = ""
    changed_by: OperatorAt | None = None


class Divergence(Frozen):
    """The first operator of a region whose replay is not its forward.

    Attributes:
        what: `operator`: another operator ran, or ran at another place (control flow);
            `context`: the same one in another context (autocast, gradient mode, attention backends, ...);
            `arguments`: with other numbers; `reads`: on other contents from outside the region;
            `result`: on equal inputs it gave another result; `cached`: the output that a selective
            policy kept is not what the forward made; `missing`: the replay ended early or never ran it.
        forward: The operator in the forward; None where only the replay ran one.
        replay: The operator in the replay; None where only the forward ran one.
        arguments: Numbers and settings it was called with, in the forward and in the replay.
        reads: For every `what`: outside contents that differ at this operator.
        context: What of the context differs, as (forward, replay).
        random: The operator draws random numbers.
        generator: Which generator it drew from: empty for torch's default, else its name or `own`.
        chooses: It compares numbers to choose (top-k, sort, argmax).
        uninitialised: It allocates memory without writing to it (`empty` and the like).
        swapped_with: The forward's operator of the same kind whose result the replay gave here instead.
        first_value: Where operators differ: the first later one that both ran, with another result.
        max_abs_err: max|replay-forward| of the first differing result; None where it was not measured.
        scale: max|forward| of that result.
        rel_err: ||replay-forward|| / ||forward||.
    """

    what: Literal["operator", "context", "arguments", "reads", "result", "cached", "missing"]
    forward: OperatorAt | None = None
    replay: OperatorAt | None = None
    arguments: tuple[str, str] | None = None
    reads: tuple[Read, ...] = ()
    context: dict[str, tuple[str, str]] = {}
    random: bool = False
    generator: str = ""
    chooses: bool = False
    uninitialised: bool = False
    swapped_with: OperatorAt | None = None
    first_value: OperatorAt | None = None
    max_abs_err: float | None = None
    scale: float | None = None
    rel_err: float | None = None


class GeneratorUse(Frozen):
    """What a region did with one random generator.

    Attributes:
        name: `torch cpu`, `torch cuda:0`, `python random`, `numpy`, or the name of a generator of the
            target's (`generators.noise`, `layers.0.generator`).
        drawn: The forward changed its state.
        restored: The replay began with the state that the forward began with.
        left_changed: The replay left it in another state than it found it in.
        source: Where the forward first drew from it, as far as that is known.
    """

    name: str
    drawn: bool
    restored: bool
    left_changed: bool = False
    source: str = ""


EffectKind = Literal[
    "buffer",
    "parameter",
    "attribute",
    "global",
    "setting",
    "generator",
    "log",
    "warning",
    "output",
    "file",
    "socket",
    "process",
    "collective",
    "argument",
    "function",
    "hook",
]


class Effect(Frozen):
    """Something outside of a region that its replay changed or did.

    Attributes:
        kind: `attribute` is Python state of a module, `global` of the target's files, `function` of the
            class or the closure of a custom autograd Function, `hook` how many hooks a parameter has,
            `setting` a switch of torch or of the process, `output` what is printed.
        name: What was changed, or who was told: `layers.0.norm.running_mean`, a logger's name, a path.
        operator: The operator that wrote, where one did.
        module: Innermost module that was being called.
        source: Source line, as far as it is known.
        detail: From what to what, or what was said; shortened.
        only_grew: A list that only got further entries, as logs of hooks do.
    """

    kind: EffectKind
    name: str
    operator: str = ""
    module: str = ""
    source: str = ""
    detail: str = ""
    only_grew: bool = False


class Moved(Frozen):
    """Something outside of a region that its replay finds otherwise than its forward found it.

    Attributes:
        kind: As of an `Effect`; `argument` is one that torch hands to forward and replay alike.
        name: What it is, such as `layers.0.strength`, `global SETTINGS`, `input 1`.
        module: The module that has it; empty for none.
        before: What the forward found when it began, where that is short.
        after: What the replay finds when it begins.
        read_at: Lines that name it, in functions that the replay calls.
        stored_at: Lines of the target's code that store to it, the likeliest first.
        by_forward: The forward itself had changed it when it was over; not looked at for arguments.
    """

    kind: EffectKind
    name: str
    module: str = ""
    before: str = ""
    after: str = ""
    read_at: tuple[str, ...] = ()
    stored_at: tuple[str, ...] = ()
    by_forward: bool = False


class RegionTrace(Frozen):
    """What the trace of one region says about its first replay.

    Attributes:
        compared: Operators of forward and replay that were put beside each other.
        divergence: The first difference that matters; None where the replay was its forward.
        harmless: The first difference after which every value was equal again, such as a guarded counter.
        saved: Tensors that the forward and the replay saved for backward.
        generators: Generators that the forward drew from, or that the replay changed.
        effects: What the replay changed or did outside.
        between: What the replay found otherwise than the forward did, and that its code names.
        hooks: Calls of hooks on the region's modules in forward and replay, by hook, where they differ.
        devices: Device types of the region's tensors.
        saved_by: Function by which the code around the region packs tensors that are saved for backward;
            it sees nothing of what is saved in the region. Empty for none.
    """

    compared: int = 0
    divergence: Divergence | None = None
    harmless: Divergence | None = None
    saved: tuple[int, int] = (0, 0)
    generators: tuple[GeneratorUse, ...] = ()
    effects: tuple[Effect, ...] = ()
    between: tuple[Moved, ...] = ()
    hooks: dict[str, tuple[int, int]] = {}
    devices: tuple[str, ...] = ()
    saved_by: str = ""


class ModuleOutput(Frozen):
    """What one call of a module returned in the first forward of a traced step.

    Attributes:
        call: How often it had been called before.
        outputs: Content hash of each tensor in its result, in order.
        training: Whether it was in training mode.
    """

    module: str
    call: int
    outputs: tuple[str, ...]
    training: bool = True
