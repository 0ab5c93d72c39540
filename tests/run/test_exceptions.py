from __future__ import annotations

import pytest

from acgate.errors import message_of
from acgate.run.exceptions import raised_by
from acgate.run.step import Position


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_an_exception_whose_message_raises_is_still_the_targets() -> None:
    """It is evidence like any other, and acgate does not fail over it."""
    try:
        raise SpeechlessError
    except SpeechlessError as error:
        raised = raised_by(error, Position(phase="forward"))
    assert raised.type == "SpeechlessError"
    assert "__str__ raised ValueError" in raised.message
    assert raised.where is not None
    assert raised.where.startswith("test_exceptions.py:")


@pytest.mark.parametrize(
    ("text", "stored"), [("plain", "plain"), ("\ud800<", "\\ud800<"), ("\U0001f600", "\U0001f600")]
)
def test_messages_can_be_stored(text: str, stored: str) -> None:
    """What UTF-8 has no bytes for is written out, everything else is kept."""
    assert message_of(RuntimeError(text)) == stored
