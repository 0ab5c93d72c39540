"""What can be wrong with a replay, each kind with its sentence and what to try."""

from __future__ import annotations

import enum


class CauseKind(enum.StrEnum):
    """Why a track under AC is not the track without it."""

    sentence: str
    advice: str

    def __new__(cls, value: str, sentence: str, advice: str) -> CauseKind:
        """Build a member that carries its sentence and what to try."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        member.advice = advice
        return member

    RNG_NOT_RESTORED = (
        "rng-not-restored",
        "the replay drew other random numbers than its forward, from a generator that checkpointing"
        " did not restore",
        "draw from torch's default generator with preserve_rng_state=True, or draw before the region"
        " and pass the numbers in",
    )
    RANDOM_SAVED = (
        "one-random-operator-saved",
        "the policy saves one random operator and replays another, which then draws from a stream"
        " that is one draw behind",
        "save every random operator of the region or none",
    )
    BUFFER_CHANGED = (
        "buffer-changed",
        "the forward changes a buffer, and the replay finds it changed or changes it again",
        "update the buffer outside of the region (in the training loop, say, or around the checkpointed"
        " block), or only where no replay runs (torch._C._current_graph_task_id() == -1)",
    )
    ATTRIBUTE_CHANGED = (
        "attribute-changed",
        "Python state that the region reads (an attribute, a cache, a counter, a global) is not in the"
        " replay what it was in the forward",
        "pass the value into the region as an argument, and change the state outside of it: once per"
        " step, before the forward or after backward",
    )
    PARAMETER_CHANGED = (
        "parameter-changed",
        "a parameter changed between the forward and its replay, which plain autograd would have refused",
        "update weights after backward only",
    )
    INPUT_CHANGED = (
        "input-changed",
        "an input of the region was changed in place between the forward and its replay",
        "write the change out of place, or pass a copy into the region; only positional arguments are"
        " checked by torch",
    )
    LATE_BOUND = (
        "late-bound",
        "the replay reads something else than its forward did under the same name: a variable or"
        " attribute that was bound anew, or an iterator that has moved on",
        "pass what is read into the region as an argument; bind loop variables by default arguments or"
        " functools.partial, and take items of an iterator outside of the region",
    )
    SAVED_OUTPUT_CHANGED = (
        "saved-output-changed",
        "an output that the selective policy keeps is changed in place afterwards, and the replay"
        " changes it again",
        "write the operation out of place (x = x + y), or recompute that operator",
    )
    CALLS_SWAPPED = (
        "calls-swapped",
        "the replay calls one operator in another order than its forward, so that saved outputs are"
        " handed to the wrong call",
        "let the forward call operators in a fixed order (sort what you iterate over)",
    )
    AUTOCAST_NOT_REPLAYED = (
        "autocast-not-replayed",
        "the replay runs without the autocast of its forward, or with another one",
        "use torch.utils.checkpoint with use_reentrant=False, which restores autocast, or enter"
        " autocast inside the region",
    )
    ATTENTION_BACKEND = (
        "attention-backend-not-replayed",
        "the replay runs attention with another backend than its forward",
        "enter sdpa_kernel inside the region, or around forward and backward",
    )
    CONTEXT_NOT_REPLAYED = (
        "context-not-replayed",
        "a context, switch or variable of the process that the forward ran under is not the same in its"
        " replay",
        "set it inside the region, or around forward and backward alike",
    )
    CONTROL_FLOW = (
        "other-control-flow",
        "the replay takes another way through the code than its forward",
        "let no branch inside the region depend on what changes in between: counters, time,"
        " environment, mode, random numbers of Python",
    )
    MODE_CHANGED = (
        "mode-changed",
        "the module was in another mode (training or evaluation) in the replay than in its forward",
        "call train() and eval() before the forward or after backward, never in between",
    )
    OTHER_NUMBER = (
        "other-number",
        "the replay calls an operator with another number than its forward did: a counter, a"
        " schedule, a clock, a random number",
        "compute the number outside of the region and pass it in",
    )
    SAVES_OTHERWISE = (
        "saves-otherwise",
        "the replay saves another number of tensors for backward than its forward",
        "look for branches, caches and graph-breaking calls (detach, no_grad) that differ in the replay",
    )
    UNINITIALISED = (
        "uninitialised-memory",
        "an operator saves or returns memory that it never wrote, which the replay cannot repeat",
        "initialise it (torch.zeros instead of torch.empty); where a kernel of torch does it, keep"
        " that operator out of the region",
    )
    HOOKS_TWICE = (
        "hooks-twice",
        "a hook runs again in the replay and changes what it sees or counts twice",
        "register hooks outside of the region, or let them do nothing in a replay",
    )
    FUNCTION_STATE = (
        "function-state",
        "a custom autograd.Function keeps or reads its tensors, or what its backward goes by, otherwise than"
        " by ctx.save_for_backward",
        "save tensors with ctx.save_for_backward and read ctx.saved_tensors once; keep numbers on ctx, never"
        " on a class or in a closure",
    )
    UNSTABLE_CHOICE = (
        "unstable-choice",
        "an operator that chooses by comparing numbers (top-k, sort, argmax) chose otherwise in the replay",
        "break ties in a fixed way, or choose outside of the region and pass the choice in",
    )
    SCALING_HISTORY = (
        "scaling-history",
        "a scaling history (as of FP8) moves on in every forward, so the replay scales by another value",
        "update the history once per step outside of the region",
    )
    NOISY_OPERATOR = (
        "noisy-operator",
        "an operator gave another result on equal inputs: it does not repeat itself bit for bit",
        "run the gate with deterministic algorithms, or replace the operator",
    )
    OTHER_DEVICE = (
        "other-device",
        "the region uses a device whose generators checkpointing did not save",
        "use every device of the region in one of its tensor arguments, or split the region",
    )
    REENTRANT_ONLY = (
        "reentrant-only",
        "only the reentrant checkpoint does this: it detaches inputs, runs backward inside backward,"
        " and sees no gradients but those of its positional tensors",
        "pass use_reentrant=False",
    )
    FORWARD_DIFFERS = (
        "forward-differs",
        "the track's own forward is not that of the reference: under AC another computation runs",
        "compare the code paths with and without AC; pass every argument (masks, flags) through both",
    )
    OPTIMIZER_WIRING = (
        "optimizer-wiring",
        "gradients are equal and weights are not: AC changed what the optimizer is given",
        "group parameters by canonical names, and build the optimizer alike with and without AC",
    )
    STATE_BESIDE = (
        "side-effect",
        "what the replay does besides is done twice, while every gradient is right",
        "move the side effect out of the region, or guard it so that the replay does not do it again",
    )
    SECOND_BACKWARD = (
        "second-backward",
        "backward runs twice through one region, and what the first run used up is gone for the second",
        "add the losses and go backward once; block AC replays again, selective AC cannot",
    )
    POLICY_STATE = (
        "policy-state",
        "the selective policy carries state from one region to the next, so that regions save by turns",
        "make the policy anew for each region (a fresh context_fn), or declare by_layer = true",
    )
    STRUCTURE_CHANGED = (
        "structure-changed",
        "applying AC changed the model itself: names, shapes, ties or what is trained",
        "apply AC without renaming, adding, copying or freezing parameters",
    )
    RANKS_DIFFER = (
        "ranks-differ",
        "ranks that belong together do not do the same",
        "derive regions and policies from the model alone, never from a rank or from free memory",
    )
    WIRING = (
        "wiring",
        "how AC is set up is at fault by itself, whatever the numbers say",
        "see the finding",
    )
    RECOMPUTATION_LOST = (
        "recomputation-lost",
        "checkpointing does not do its work: regions keep memory, save nothing, or never run",
        "see the finding above",
    )
    UNKNOWN = (
        "unknown",
        "no replay differs from its forward by value, so the cause is outside of what was traced",
        "look at the blocks named here, and at what the forward reads beside its arguments",
    )
