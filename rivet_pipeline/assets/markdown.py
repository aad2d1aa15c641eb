"""Markdown that Dagster shows: tables and cells that no text can break out of."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "Nothing needed work.") -> str:
    """A Markdown table; the sentence `empty` when there are no rows."""
    if not rows:
        return empty
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def code(text: str, length: int = 60) -> str:
    """A text of at most `length` characters in code formatting, unable to end its cell."""
    kept = " ".join(text.split()).replace("`", "'").replace("|", "\u00a6")
    return f"`{kept[:length]}{'…' if len(kept) > length else ''}`"
