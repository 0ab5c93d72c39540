"""The forms of the setting `model`: a Python file, a module or a directory, perhaps with an attribute."""

from __future__ import annotations

import re

from acgate.errors import TargetError

FORMS = "give PATH.py[:attribute], package.module[:attribute], or a directory with a config.json"

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_dotted(text: str) -> bool:
    """Say whether a text is a name that Python can import, or several joined by dots."""
    return _DOTTED.fullmatch(text) is not None


def split_attribute(model: str) -> tuple[str, str | None]:
    """Split off `:attribute`; a colon elsewhere (a Windows drive) belongs to the path.

    Raises:
        TargetError: Nothing follows the colon.
    """
    place, colon, attribute = model.rpartition(":")
    if not colon or len(place) <= 1 or (attribute and not is_dotted(attribute)):
        return model, None
    if not attribute:
        raise TargetError(f"{model!r} ends in a colon; name an attribute after it, or leave it out")
    return place, attribute
