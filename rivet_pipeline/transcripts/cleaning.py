"""Makes text fit for storage without changing what it says. Pure functions.

Postgres takes neither U+0000 nor unpaired surrogates, and a JSON text that holds one makes every later request to a
model fail; both become U+FFFD. Surrogate pairs written as two escapes become the character they mean.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

#: Longer event ids are kept as a hash, so that the unique key fits its index.
MAX_EVENT_ID = 200


def clean_text(text: str) -> str:
    """The text with NULs and unpaired surrogates replaced by U+FFFD; pairs are joined."""
    if _UNSTORABLE.search(text) is None:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\x00", "\ufffd")


def clean_json(value: Any) -> Any:
    """The JSON value with every string and key cleaned, at any depth."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


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
    return len(text) + sum(1 for character in text if ord(character) > 0xFFFF)


def cap_utf16(text: str, limit: int) -> str:
    """The longest prefix of at most `limit` UTF-16 code units that does not split a character."""
    if len(text) * 2 <= limit or utf16_units(text) <= limit:
        return text
    return text.encode("utf-16-le", "surrogatepass")[: limit * 2].decode("utf-16-le", "ignore")
