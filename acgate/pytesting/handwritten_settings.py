"""Arguments of `acgate.check` as a specification, and what is wrong with them in the words of the call."""

from __future__ import annotations

import re
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from acgate.errors import UsageError
from acgate.spec.configuration import working_directory
from acgate.spec.explain import explain
from acgate.spec.loading import load_spec
from acgate.spec.models import Allow, Policy
from acgate.spec.policy import load_policy, parse_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from acgate.spec.models import GateSpec

_OPTION_WITH_LIST = re.compile(r"--([a-z]+(?:-[a-z]+)*) ([a-z0-9_.+]+(?:,[a-z0-9_.+]+)*)")
_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_LISTS = ("tracks", "topologies", "dtypes", "key_layers")


def specification(
    settings: Mapping[str, object], *, policy: object, allow: object, beside: Path, empty: Path
) -> GateSpec:
    """Validate the settings of one check.

    Args:
        settings: By the names of `acgate.toml`; None means the default.
        policy: A file, a table as in `policy.toml`, a `Policy`, or None.
        allow: Entries as in `[[allow]]`, as dicts or `Allow`.
        beside: Directory that relative paths are relative to.
        empty: Directory without a configuration: that of a project is for `acgate run`.

    Raises:
        UsageError: Anything that is wrong, all problems in one message, one a line.
    """
    working_directory()
    values = {name: _plain(name, value, beside) for name, value in settings.items()}
    values |= {"policy": _policy(policy, beside), "allow": _allowed(allow)}
    try:
        return load_spec(values, None, empty).spec
    except UsageError as error:
        raise UsageError(in_words_of_the_call(str(error))) from None


def in_words_of_the_call(text: str) -> str:
    """Return a message about command-line options as one about keyword arguments."""

    def listing(match: re.Match[str]) -> str:
        items = ", ".join(f'"{item}"' for item in match[2].split(","))
        return f"{match[1].replace('-', '_')}=({items},)"

    text = _OPTION_WITH_LIST.sub(listing, text)
    return _OPTION.sub(lambda match: match[1].replace("-", "_"), text)


def _plain(name: str, value: object, beside: Path) -> object:
    if name in _LISTS and isinstance(value, str):
        raise UsageError(f'{name} is the text "{value}"; give a tuple or list: {name}=("{value}",)')
    if name == "tolerances" and isinstance(value, PathLike | str):
        return str(beside / fspath(value))
    return tuple(value) if isinstance(value, list) else value


def _policy(policy: object, beside: Path) -> Policy | None:
    match policy:
        case None | Policy():
            return policy
        case dict():
            return parse_policy(policy, source="policy", directory=beside)
        case str() | PathLike():
            return load_policy(beside / fspath(policy))
        case _:
            raise UsageError(
                f"policy is {type(policy).__name__}; give the path of a policy.toml, or its content as a dict"
            )


def _allowed(allow: object) -> tuple[Allow, ...]:
    if isinstance(allow, Allow | dict | str):
        raise UsageError("allow holds one entry by itself; give a list of entries")
    entries: Iterable[Any] = allow if isinstance(allow, list | tuple) else tuple(_iterated(allow))
    found = []
    for index, entry in enumerate(entries):
        try:
            found.append(entry if isinstance(entry, Allow) else Allow.model_validate(entry, strict=True))
        except ValidationError as error:
            raise UsageError(explain(error, Allow, f"allow[{index}]")) from None
    return tuple(found)


def _iterated(allow: object) -> Iterable[Any]:
    try:
        return iter(allow)  # type: ignore[call-overload, no-any-return]  # it may be anything
    except TypeError:
        raise UsageError(f"allow is {type(allow).__name__}; give a list of entries") from None
