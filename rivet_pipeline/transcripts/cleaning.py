"""Makes text fit for storage without changing what it says. Pure functions.

Postgres takes neither U+0000 nor unpaired surrogates, and a JSON text that holds one makes every later request to a
model fail; both become U+FFFD. Surrogate pairs written as two escapes become the character they mean.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

#: Objects and arrays nested deeper than this become text.
MAX_DEPTH = 100

#: More levels than any envelope has around a message's values: a body, its messages, a message, its calls.
ENVELOPE = 10

#: Longer event ids are kept as a hash, so that the unique key fits its index.
MAX_EVENT_ID = 200


def clean_text(text: str) -> str:
    """The text with NULs and unpaired surrogates replaced by U+FFFD; pairs are joined."""
    if _UNSTORABLE.search(text) is None:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\x00", "\ufffd")


def clean_json(value: Any, *, around: int = 0) -> Any:
    """The JSON value with every string and key cleaned; what is nested deeper than `MAX_DEPTH` becomes JSON text.

    Deeper values would end the programs that come after: encoders give up after some hundred levels. `around` is how
    many levels stand around a message's own values, so that these become the same wherever they are cleaned first.
    """
    return _clean(value, MAX_DEPTH + around)


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list | tuple | dict) and depth == 0:
        return clean_text(_as_text(value))
    if isinstance(value, list | tuple):
        return [_clean(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {clean_text(str(key)): _clean(item, depth - 1) for key, item in value.items()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def _as_text(value: Any) -> str:
    """A value of any depth as JSON text. A stack of our own, since the library's encoder has the program's."""
    parts: list[str] = []
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Mark):
            parts.append(item)
        elif isinstance(item, dict):
            waiting.append(_Mark("}"))
            for number, (key, inner) in enumerate(reversed(item.items())):
                waiting += [inner, _Mark(json.dumps(str(key), ensure_ascii=False) + ": ")]
                if number < len(item) - 1:
                    waiting.append(_Mark(", "))
            waiting.append(_Mark("{"))
        elif isinstance(item, list | tuple):
            waiting.append(_Mark("]"))
            for number, inner in enumerate(reversed(item)):
                waiting.append(inner)
                if number < len(item) - 1:
                    waiting.append(_Mark(", "))
            waiting.append(_Mark("["))
        else:
            parts.append(json.dumps(item, ensure_ascii=False))
    return "".join(parts)


class _Mark(str):
    """A piece of JSON text among values that are still to be written."""

    __slots__ = ()


def clean_event_id(event_id: str) -> str:
    """An event id of 1 to 200 characters: the cleaned id itself, or `sha256:<hex>` of a longer one."""
    cleaned = clean_text(event_id).strip()
    if 0 < len(cleaned) <= MAX_EVENT_ID:
        return cleaned
    return "sha256:" + hashlib.sha256(cleaned.encode()).hexdigest()


def content_event_id(*parts: str | None) -> str:
    """An event id made of content: SHA-256 over the NUL-joined parts, None as an empty part."""
    joined = "\x00".join(clean_text(part or "") for part in parts)
    return "sha256:" + hashlib.sha256(joined.encode()).hexdigest()


def utf16_units(text: str) -> int:
    """The length in UTF-16 code units, in which the caps of the write surface are measured."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def cap_utf16(text: str, limit: int) -> str:
    """The longest prefix of at most `limit` UTF-16 code units that does not split a character."""
    if len(text) * 2 <= limit or utf16_units(text) <= limit:
        return text
    return text.encode("utf-16-le", "surrogatepass")[: limit * 2].decode("utf-16-le", "ignore")
