"""Makes any text safe to show: nothing that XML forbids, that a terminal would obey, or that nobody sees."""

from __future__ import annotations

import hashlib
import re

# Kept: tab, newline, printable characters. Replaced: control characters (a terminal obeys them),
# lone surrogates and U+FFFE/U+FFFF (XML forbids them), other non-characters, the marks that change
# the direction of text (they make a report show another order than it has), and characters of no
# width (two names that differ only in them look alike). Joiners stay: emoji and scripts need them.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069"
    "\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff"
    + "".join(chr((plane << 16) | 0xFFFE) + chr((plane << 16) | 0xFFFF) for plane in range(1, 17))
    + "]"
)
_DIGITS = 12


def visible(text: str) -> str:
    r"""Return `text` with unsafe characters written out, such as `\x1b`, and newlines as `\n`."""
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text  # none of the unsafe ones is printable; asking costs a tenth of a search for them
    return _UNSAFE.sub(_written_out, text.replace("\r\n", "\n"))


def one_line(text: str, longest: int = 300) -> str:
    """Return `visible` text as one line, cut where it is longer than `longest`."""
    line = " ".join(visible(text).split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def name_line(text: str, longest: int = 300) -> str:
    """Return a name as one line of at most `longest` characters, at least 60.

    A longer one keeps its ends and gets a digest of the whole between them, so that names which
    differ anywhere still differ, and each is the same in every report.
    """
    line = " ".join(visible(text).split())
    if len(line) <= longest:
        return line
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    room = longest - _DIGITS - 2 * len("...")
    return f"{line[: room - room // 3]}...{digest}...{line[-(room // 3) :]}"


def _written_out(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
