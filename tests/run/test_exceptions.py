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


@pytest.mark.parametrize(
    ("text", "left_alone"),
    [
        ("[pair.cc:553] Connection closed by peer [127.0.0.1]:9617. This is typically caused by", True),
        ("[unbound_buffer.cc:81] Timed out waiting 10000ms for recv operation to complete", True),
        ("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)", False),
        ("Expected to mark a variable ready only once.", False),
    ],
)
def test_what_follows_from_a_missing_partner_is_told_from_a_fault(text: str, left_alone: bool) -> None:
    """A rank that is left alone in a collective has done nothing wrong."""
    try:
        raise RuntimeError(text)
    except RuntimeError as error:
        raised = raised_by(error, Position(phase="backward"))
    assert raised.consequence is left_alone
    assert raised.at > 0
