"""Numbers as text that cannot contradict the verdict."""

from __future__ import annotations

MOST_DIGITS = 17  # what tells any two float64 numbers apart


def number(value: float) -> str:
    """Return a number with three significant digits."""
    return "0" if value == 0 else f"{value:.2e}"


def against(err: float, limit: float) -> str:
    """Return `err <= limit` or `err > limit` with as many digits as show which one holds."""
    ok = err <= limit
    sign = "<=" if ok is True else ">"
    for digits in range(2, MOST_DIGITS):
        left, right = f"{err:.{digits}e}", f"{limit:.{digits}e}"
        if (float(left) <= float(right)) == ok and (left != right or ok):
            return f"{left} {sign} {right}"
    return f"{err!r} {sign} {limit!r}"


def count(amount: int, singular: str, plural: str | None = None) -> str:
    """Return an amount with its noun."""
    return f"{amount:,} {singular if amount == 1 else plural or singular + 's'}"


def size(num_bytes: int) -> str:
    """Return a size in bytes for people."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def listed(names: list[str], most: int = 5) -> str:
    """Return names, the first few of them and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
