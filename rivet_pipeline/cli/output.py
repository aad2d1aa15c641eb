"""How the commands print: consoles, JSON, times in the configured zone, and transcript text made safe for a terminal.

No command and no query belongs here. Text from the store goes through `visible` before it reaches a terminal: it may
hold escape sequences, and Rich markup, that somebody else wrote.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.text import Text

from rivet_pipeline import shortening

#: Control characters but tab and newline; C1 controls; the marks that reorder or hide text; line and paragraph
#: separators; unpaired surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def console() -> Console:
    """The console for results, on standard output."""
    return Console(highlight=False, soft_wrap=False)


def error_console() -> Console:
    """The console for errors and notes, on standard error."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def visible(text: str) -> str:
    r"""The text with every character that a terminal would act on written out, `\x1b` for escape; CR LF is LF."""
    return _UNSAFE.sub(_escaped, text.replace("\r\n", "\n"))


def one_line(text: str, limit: int | None = None) -> str:
    """`visible` text on one line, white space run together, cut with an ellipsis after `limit` characters."""
    joined = visible(shortening.one_line(text))
    return joined if limit is None or len(joined) <= limit else joined[: limit - 1] + "…"


def highlighted(text: str, query: str) -> Text:
    """Text as Rich shows it literally, with the words of the query set off. Markup in it has no effect."""
    shown = Text(text, no_wrap=False)
    words = sorted({word for word in re.findall(r"\w+", query) if len(word) > 1}, key=len, reverse=True)
    if words:
        shown.highlight_regex(re.compile("|".join(map(re.escape, words)), re.IGNORECASE), "bold yellow")
    return shown


def local_time(moment: datetime, zone: ZoneInfo) -> str:
    """A moment to the minute in a zone, with the zone's name: `2026-03-08 10:15 CET`."""
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M %Z}"


def short_id(value: UUID) -> str:
    """The first eight characters of an id, enough to tell rows of one screen apart."""
    return str(value)[:8]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID | Path):
        return str(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_json(value: Any) -> None:
    """One JSON document on standard output: times in UTC, no colour, and nothing that a terminal would act on."""
    text = json.dumps(value, default=_plain, ensure_ascii=False, indent=2)
    sys.stdout.write(_UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text) + "\n")


def fail(line: str) -> None:
    """One line on standard error."""
    error_console().print(Text(f"rivet: {one_line(line)}", style="red"))
