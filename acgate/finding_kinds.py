"""Findings about the wiring of activation checkpointing: each kind with its sentence and what to try."""

from __future__ import annotations

import enum


class Severity(enum.StrEnum):
    """What a finding does to the verdict."""

    FAIL = "fail"
    ERROR = "error"
    WARN = "warn"
    NOTE = "note"


class FindingKind(enum.StrEnum):
    """Facts about the wiring of activation checkpointing that a gate must not wave through."""

    severity: Severity
    sentence: str
    advice: str

    def __new__(cls, value: str, severity: Severity, sentence: str, advice: str) -> FindingKind:
        """Build a member that carries its severity, its sentence and what to try."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.severity = severity
        member.sentence = sentence
        member.advice = advice
        return member

    REENTRANT = (
        "reentrant",
        Severity.FAIL,
        "the region uses the reentrant checkpoint, or does not say which one it uses",
        "pass use_reentrant=False",
    )
    RNG_NOT_PRESERVED = (
        "rng-not-preserved",
        Severity.FAIL,
        "the region runs random operators with preserve_rng_state=False, so its replay draws other numbers",
        "drop preserve_rng_state=False; an allow entry accepts the flag, never gradients that differ",
    )
    NOT_ENGAGED = (
        "not-engaged",
        Severity.ERROR,
        "no recomputation happened on this track, so nothing about AC was checked",
        "see that the switch reaches the blocks, the model is in training mode and gradients are enabled",
    )
    ENGAGED_PARTLY = (
        "engaged-partly",
        Severity.FAIL,
        "blocks trained without activation checkpointing in some micro-steps and with it in others",
        "see what turns AC off on the way: a counter, a flag or a mode that the forward changes",
    )
    REFERENCE_HAS_AC = (
        "reference-has-ac",
        Severity.ERROR,
        "the reference track recomputes, and AC compared with AC always agrees",
        "let build_model return the model without AC; acgate applies it per track",
    )
    REFERENCE_OFFLOADED = (
        "reference-offloaded",
        Severity.NOTE,
        "the reference did not fit, so its activations waited on the CPU: only its time and memory differ",
        "compare times with a smaller batch, or take the figures of the AC tracks alone",
    )
    REFERENCE_KEEPS_REGIONS = (
        "reference-keeps-regions",
        Severity.NOTE,
        "the model checkpoints a part of a region by itself, on the reference too: faults inside that part"
        " are on both sides and do not show",
        "let build_model switch it off to have that part checked as well",
    )
    WRAPPED_TWICE = (
        "wrapped-twice",
        Severity.FAIL,
        "the same module is checkpointed inside its own region, so its forward runs twice more",
        "apply AC in one place only: the library's switch or the wrapper, not both",
    )
    MEMORY_KEPT = (
        "memory-kept",
        Severity.FAIL,
        "the region keeps activations alive that checkpointing is meant to free",
        "save tensors with ctx.save_for_backward, drop attributes and closures that hold activations,"
        " or save fewer operators",
    )
    POLICY_SAVES_NOTHING = (
        "policy-saves-nothing",
        Severity.FAIL,
        "the selective policy saved no operator, so this is full recomputation under another name",
        "name overloads (torch.ops.aten.mm.default), and those that this device really dispatches",
    )
    POLICY_UNMATCHED = (
        "policy-unmatched",
        Severity.WARN,
        "an operator that the policy names never ran inside a region",
        "remove it, or name the overload that runs here",
    )
    POLICY_PACKET = (
        "policy-packet",
        Severity.FAIL,
        "the policy names an operator packet, and packets never equal the overload that runs",
        "write the overload, such as torch.ops.aten.mm.default",
    )
    POLICY_SAVES_MUTATING = (
        "policy-saves-mutating",
        Severity.FAIL,
        "the policy saves an operator that changes its input, and the replay skips that change",
        "recompute operators that mutate",
    )
    POLICY_SAVES_RANDOM = (
        "policy-saves-random",
        Severity.FAIL,
        "the policy saves one random operator while another in the region is replayed:"
        " the replay starts the stream one draw early",
        "save every random operator of the region or none",
    )
    POLICY_SAVES_COLLECTIVE = (
        "policy-saves-collective",
        Severity.WARN,
        "the policy saves the output of a collective, and the replay does not communicate again",
        "be sure that its output is complete when it is saved (wait_tensor), on every rank alike",
    )
    CACHE_MUTATION_ALLOWED = (
        "cache-mutation-allowed",
        Severity.FAIL,
        "allow_cache_entry_mutation=True switches off the only check against changed saved outputs",
        "remove the flag",
    )
    SAVED_OUTPUT_CHANGED = (
        "saved-output-changed",
        Severity.WARN,
        "the output of a saved operator is changed in place afterwards, and the replay changes it again:"
        " right only where a second change alters nothing, as with ReLU",
        "write the operation out of place, or recompute that operator",
    )
    OFFLOAD_RECOMPUTES = (
        "offload-recomputes",
        Severity.WARN,
        "a CPU-offload policy behaves as recompute in eager mode",
        "use MUST_SAVE, or torch.autograd.graph.save_on_cpu",
    )
    DETERMINISM_CHECK_OFF = (
        "determinism-check-off",
        Severity.FAIL,
        'determinism_check="none" switches off torch\'s own comparison of saved tensors',
        'leave determinism_check at "default"',
    )
    POLICY_DRIFT = (
        "policy-drift",
        Severity.FAIL,
        "regions of one class with one policy decided differently: the policy carries state across layers",
        "reset the policy's state per region (use a fresh context_fn), or declare by_layer = true",
    )
    EARLY_STOP_ONLY = (
        "early-stop-only",
        Severity.WARN,
        "the result is right only because early stop cuts the replay short",
        "move the side effect out of the region",
    )
    TWO_FORWARDS = (
        "two-forwards",
        Severity.WARN,
        "with two forwards before one backward this track differs from the reference",
        'add "two_forwards" to the target\'s schedules to have this judged, or make state per call',
    )
    RANKS_DISAGREE = (
        "ranks-disagree",
        Severity.FAIL,
        "ranks that must do the same are set up differently: their replays do not belong together",
        "derive regions and policies from the model alone, never from a rank or from free memory",
    )
    REPLICAS_DIFFER = (
        "replicas-differ",
        Severity.FAIL,
        "ranks hold different contents of a tensor that they must have in common",
        "see that every rank reduces its gradients and draws the same numbers where it must",
    )
    COLLECTIVES_DIFFER = (
        "collectives-differ",
        Severity.FAIL,
        "ranks issued different sequences of collectives: calls that do not belong together meet, or hang",
        "let every rank of a group run the same forward, and the same replays in the same order",
    )
    REPLAY_ORDER_DIFFERS = (
        "replay-order-differs",
        Severity.FAIL,
        "ranks replayed regions that communicate in different orders, so the wrong collectives meet",
        "start backward from the losses in the same order on every rank",
    )
    NO_COLLECTIVES = (
        "no-collectives",
        Severity.ERROR,
        "no rank communicated in the observed step, so the ranks trained apart and the topology was not used",
        "see that parallelize wraps the model that loss calls",
    )
    COLLECTIVE_REPLAYED = (
        "collective-replayed",
        Severity.WARN,
        "the target's own code communicates inside a region, so every replay communicates again",
        "save its output with a selective policy, or move it out of the region",
    )
    REPLAY_LOGS = (
        "replay-logs",
        Severity.WARN,
        "a replay writes log records, so that every step logs them twice",
        "log outside of the region, or only where no replay runs (torch._C._current_graph_task_id() == -1)",
    )
    REPLAY_WARNS = (
        "replay-warns",
        Severity.NOTE,
        "a replay gives a warning",
        "see whether its forward gives the same one; if not, the replay runs other code",
    )
    REPLAY_PRINTS = (
        "replay-prints",
        Severity.WARN,
        "a replay prints, so that every step prints twice",
        "print outside of the region",
    )
    REPLAY_OPENS_FILES = (
        "replay-opens-files",
        Severity.WARN,
        "a replay opens files: what it writes is written twice, what it reads may have changed",
        "read and write outside of the region, and pass in what was read",
    )
    REPLAY_USES_SOCKETS = (
        "replay-uses-sockets",
        Severity.WARN,
        "a replay talks to other processes or machines, which see every request twice",
        "ask outside of the region, and pass the answer in",
    )
    REPLAY_STARTS_PROCESSES = (
        "replay-starts-processes",
        Severity.WARN,
        "a replay starts processes, so that every step starts them twice",
        "start processes outside of the region",
    )
    RNG_NOT_EXERCISED = (
        "rng-not-exercised",
        Severity.NOTE,
        "the model drew no random numbers, so RNG replay was not checked",
        "turn dropout on to have it checked",
    )
    STATE_REPORTED = (
        "state-reported",
        Severity.NOTE,
        "a container grew differently from the reference, as logs of hooks do",
        "nothing, if it only logs",
    )
    VALUE_DIFFERS = (
        "value-differs",
        Severity.NOTE,
        "a replay recomputed a saved tensor with another value than its forward had",
        "look at the operator that produced it",
    )
    NO_DETERMINISTIC_FORM = (
        "no-deterministic-form",
        Severity.WARN,
        "an operator has no deterministic form here, so its noise was measured instead",
        "nothing; or replace that operator",
    )
    TARGET_REUSED = (
        "target-reused",
        Severity.NOTE,
        "the target's modules could not be loaded afresh for each track, so globals may carry over",
        "make the target importable twice in one process",
    )
