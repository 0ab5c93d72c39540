"""Makes any text safe to show: no character that XML forbids or that a terminal would obey."""

from __future__ import annotations

import re

# Kept: tab, newline, printable characters. Replaced: control characters (a terminal obeys them),
# lone surrogates and U+FFFE/U+FFFF (XML forbids them), other non-characters, and the marks
# that change the direction of text (they make a report show another order than it has).
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    + "".join(chr((plane << 16) | 0xFFFE) + chr((plane << 16) | 0xFFFF) for plane in range(1, 17))
    + "]"
)


def visible(text: str) -> str:
    r"""Return `text` with unsafe characters written out, such as `\x1b`, and newlines as `\n`."""
    return _UNSAFE.sub(_written_out, text.replace("\r\n", "\n"))


def one_line(text: str, longest: int = 300) -> str:
    """Return `visible` text as one line, cut where it is longer than `longest`."""
    line = " ".join(visible(text).split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def _written_out(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
