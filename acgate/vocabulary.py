"""The words of the field that acgate uses, as enums whose members carry their sentences."""

from __future__ import annotations

import enum


class Outcome(enum.StrEnum):
    """What became of a check; *passed*, *failed* and *could not be checked* are three things."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"
    SKIPPED = "skipped"


class Band(enum.StrEnum):
    """Where a comparison landed, from best to worst."""

    IDENTICAL = "identical"
    NOISE = "noise"
    UNEXPLAINED = "unexplained"
    ABOVE_LIMIT = "above-limit"
    STRUCTURE = "structure"


class Check(enum.StrEnum):
    """The closed list of JUnit case names; `name[place]` where a check has places."""

    STRUCTURE = "structure"
    LOSS = "loss"
    GRADIENT = "gradient"
    INPUT_GRADIENT = "input_gradient"
    UPDATE = "update"
    BUFFERS = "buffers"
    RNG = "rng"
    STATE = "state"
    COUNTS = "counts"
    ENGAGEMENT = "engagement"
    WIRING = "wiring"
    PLANTED = "planted"
    AGREEMENT = "agreement"
    RESOURCES = "resources"


class Quantity(enum.StrEnum):
    """What a tensor record describes."""

    LOSS = "loss"
    GRADIENT = "gradient"
    INPUT_GRADIENT = "input_gradient"
    WEIGHT = "weight"
    UPDATE = "update"
    BUFFER = "buffer"
    STATE = "state"


class Schedule(enum.StrEnum):
    """In which order forwards and backwards of one optimizer step run."""

    ACCUMULATE = "accumulate"
    TWO_FORWARDS = "two_forwards"


class Implementation(enum.StrEnum):
    """Which checkpoint implementation made a region."""

    NON_REENTRANT = "non-reentrant"
    REENTRANT = "reentrant"
    HOME_MADE = "home-made"
