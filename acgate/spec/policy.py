"""Reads `policy.toml`: how acgate applies each AC track."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from acgate.errors import PolicyError
from acgate.spec.document import anchored, frozen, read_toml
from acgate.spec.explain import did_you_mean, explain, key_names, misnamed, place_of
from acgate.spec.models import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def load_policy(path: Path) -> Policy:
    """Read and validate a policy file.

    A `function` of the form `file.py:name` is looked for beside the policy file first.

    Raises:
        PolicyError: The file cannot be read, is not TOML, or says something that is not a policy.
    """
    return parse_policy(read_toml(path, PolicyError), source=path.name, directory=path.resolve().parent)


def parse_policy(table: Mapping[str, object], *, source: str, directory: Path, section: str = "") -> Policy:
    """Validate a policy that was read already.

    Args:
        table: `[block]` and `[selective]`.
        source: File name for messages.
        directory: Where relative files that the policy names lie.
        section: Section of the file that holds the policy, for messages.

    Raises:
        PolicyError: It says something that is not a policy.
    """
    wrong = misnamed(table, Policy)
    if wrong is not None:
        hint = did_you_mean(str(wrong[-1]), key_names(Policy))
        raise PolicyError(f"{source}: {place_of(wrong, section)}: unknown key{hint}")
    try:
        policy = Policy.model_validate(frozen(table), strict=True)
    except ValidationError as error:
        raise PolicyError(explain(error, Policy, source, section)) from None
    function = policy.selective.function
    if function is None:
        return policy
    selective = policy.selective.model_copy(update={"function": anchored(function, directory)})
    return policy.model_copy(update={"selective": selective})
