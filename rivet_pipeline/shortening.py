"""A text on one line, and cut to so many characters, as every room does it. Pure functions; it imports no room.

What must be taken off a text before it goes to a terminal, into a prompt or into Markdown is decided where it goes.
"""

from __future__ import annotations


def clip(text: str, limit: int) -> str:
    """The text, or as much of its beginning as `limit` characters hold together with `…`."""
    return text if len(text) <= limit else f"{text[: max(0, limit - 1)].rstrip()}…"


def one_line(text: str, limit: int | None = None) -> str:
    """The text on one line, white space run together, cut as by `clip` (None: whole)."""
    line = " ".join(text.split())
    return line if limit is None else clip(line, limit)
