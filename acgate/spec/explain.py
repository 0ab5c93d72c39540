"""Turns what a validator found into a message: section, key, rule, nearest right spelling."""

from __future__ import annotations

import difflib
import typing
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]

_TYPES: dict[str, str] = {
    "bool_type": "must be true or false",
    "date_type": "must be a date, written without quotes: 2027-01-31",
    "dict_type": "must be a table",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "model_type": "must be a table",
    "string_too_short": "must not be empty",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}
_PATTERNS: dict[str, str] = {
    r"^(all|every-[1-9]\d*|last-[1-9]\d*)$": 'must be "all", "every-<n>" or "last-<k>"',
}
_LONGEST_VALUE = 60


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `word` most likely was meant to be, None where nothing is near."""
    folded = {choice.casefold().replace("-", "_"): choice for choice in choices}
    found = difflib.get_close_matches(word.casefold().replace("-", "_"), folded, n=1, cutoff=0.7)
    return folded[found[0]] if found else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return a clause such as `; did you mean "steps"?`, or the list of choices where nothing is near."""
    known = sorted(set(choices))
    near = nearest(word, known)
    if near is not None:
        return f'; did you mean "{near}"?'
    return f"; known: {', '.join(known)}" if known else ""


def shown(value: object) -> str:
    """Return a value as a person would write it in TOML, cut to one short line."""
    match value:
        case bool():
            text = str(value).lower()
        case str():
            text = '"' + value.encode("unicode_escape").decode() + '"'
        case list() | tuple():
            text = "[" + ", ".join(shown(item) for item in value) + "]"
        case dict():
            text = "a table"
        case _:
            text = str(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def explain(
    error: ValidationError, model: type[BaseModel], source: Callable[[Location], str] | str, section: str = ""
) -> str:
    """Word everything that is wrong, one problem a line.

    Args:
        error: What pydantic found.
        model: The model that was validated; its fields are the candidates for a misspelt key.
        source: What to name first: a file name, or a function from the location to one. A source
            that starts with `--` is an option and stands for section and key.
        section: Prefix of every section, such as `tool.acgate`.
    """
    lines = []
    for detail in error.errors(include_url=False):
        location = detail["loc"]
        origin = source if isinstance(source, str) else source(location)
        place = origin if origin.startswith("--") else f"{origin}: {place_of(location, section)}"
        lines.append(f"{place}: {_rule(detail, model)}")
    return "\n".join(lines)


def place_of(location: Location, section: str = "") -> str:
    """Return `[section] key`, `[[section]] entry n, key` or `key` for a location in a document."""
    *parents, last = location or ("",)
    if isinstance(last, int):
        return f"{place_of(tuple(parents), section)}, entry {last + 1}"
    names = [part for part in (section, *parents) if part != ""]
    entries = [part for part in names if isinstance(part, int)]
    name = ".".join(part for part in names if isinstance(part, str))
    if entries:
        return f"[[{name}]] entry {entries[-1] + 1}, {last}"
    return f"[{name}] {last}" if name else str(last)


def _rule(detail: ErrorDetails, model: type[BaseModel]) -> str:
    location, context = detail["loc"], detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown key{did_you_mean(str(location[-1]), key_names(_model_at(location[:-1], model)))}"
        case "missing":
            return "is missing, and there is no default"
        case "value_error":
            return str(context.get("error", detail["msg"]))
        case "literal_error":
            expected = context["expected"].replace("'", '"')
            return f"must be {expected}{_got(detail)}{_near(detail['input'], _choices_at(location, model))}"
        case kind:
            return _limit(kind, context, detail["msg"]) + _got(detail)


def _limit(kind: str, context: Mapping[str, Any], message: str) -> str:
    match kind:
        case "greater_than":
            rule = f"must be greater than {context['gt']:g}"
        case "greater_than_equal":
            rule = f"must be {context['ge']:g} or more"
        case "less_than_equal":
            rule = f"must be {context['le']:.12g} or less"
        case "string_pattern_mismatch":
            rule = _PATTERNS.get(context["pattern"], f"must match {context['pattern']}")
        case _:
            rule = _TYPES.get(kind, message[:1].lower() + message[1:])
    return rule


def _got(detail: ErrorDetails) -> str:
    return f", got {shown(detail['input'])}"


def _near(value: object, choices: Iterable[str]) -> str:
    near = nearest(value, choices) if isinstance(value, str) else None
    return f'; did you mean "{near}"?' if near else ""


def key_names(model: type[BaseModel] | None) -> tuple[str, ...]:
    """Return the keys of a model as they are written in a file."""
    if model is None:
        return ()
    return tuple(field.alias or name for name, field in model.model_fields.items())


def misnamed(value: Mapping[str, object], model: type[BaseModel], at: Location = ()) -> Location | None:
    """Find a key that is written as the Python attribute (`import_`) instead of the file's key (`import`).

    Pydantic accepts both names, a file has only one.
    """
    for name, field in model.model_fields.items():
        if field.alias not in (None, name) and name in value:
            return (*at, name)
        inner, child = value.get(field.alias or name), _model_of(field.annotation)
        if isinstance(inner, dict) and child is not None:
            found = misnamed(inner, child, (*at, field.alias or name))
            if found is not None:
                return found
    return None


def _model_at(location: Location, model: type[BaseModel]) -> type[BaseModel] | None:
    """Walk from `model` to the model that holds the keys at `location`."""
    current: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, int) or current is None:
            continue
        current = _model_of(_annotation(current, part))
    return current


def _annotation(model: type[BaseModel], key: str) -> object:
    return next((f.annotation for name, f in model.model_fields.items() if key in (name, f.alias)), None)


def _flatten(annotation: object) -> Iterable[object]:
    yield annotation
    for argument in typing.get_args(annotation):
        yield from _flatten(argument)


def _model_of(annotation: object) -> type[BaseModel] | None:
    candidates = (part for part in _flatten(annotation) if isinstance(part, type))
    return next((part for part in candidates if issubclass(part, BaseModel)), None)


def _choices_at(location: Location, model: type[BaseModel]) -> tuple[str, ...]:
    names = [part for part in location if isinstance(part, str)]
    owner = _model_at(tuple(names[:-1]), model)
    if owner is None:
        return ()
    parts = _flatten(_annotation(owner, names[-1]))
    literals = (part for part in parts if typing.get_origin(part) is Literal)
    return tuple(choice for part in literals for choice in typing.get_args(part) if isinstance(choice, str))
