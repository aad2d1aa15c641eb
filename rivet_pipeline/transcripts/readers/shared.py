"""What every reader needs: times, titles, placeholders, bounded memories. Nothing of one harness belongs here."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.lines import Line, read_lines
from rivet_pipeline.transcripts.records import Kind, Role

#: How much of a file a reader is shown to recognise it.
HEAD_BYTES = 64 * 1024

#: Longer titles are cut (seed: titles of 120 characters).
MAX_TITLE = 120

#: Above this an epoch time is in milliseconds: as seconds it would be the year 33658.
_MILLISECONDS = 1_000_000_000_000

#: What a record of an unexpected shape raises on its way through a reader.
SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Said:
    """A stretch of text by one speaker, of one kind."""

    role: Role
    kind: Kind
    text: str


def parse_time(value: Any) -> datetime | None:
    """An aware UTC time from ISO text (without a zone: UTC) or epoch seconds or milliseconds; None when impossible."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS else value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def make_title(text: str) -> str | None:
    """The text as a title: blanks collapsed, at most 120 characters; None when nothing is left."""
    title = " ".join(text[: MAX_TITLE * 20].split())
    return title[:MAX_TITLE].rstrip() or None


def text_of(value: Any) -> str:
    """The value as text: a string as it is, anything else as JSON, nothing as the empty string."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that say something: neither None, False nor empty."""
    return {key: value for key, value in values.items() if value not in (None, False, "", {}, [])}


def binary_placeholder(what: str, media_type: Any, data: Any) -> str:
    """What stands for an image or another file: its media type and size (by its base64 length), never its bytes."""
    parts = [what]
    if isinstance(data, str) and data.startswith("data:"):
        head, _, data = data.partition(",")
        media_type = head.removeprefix("data:").split(";")[0]
    if isinstance(media_type, str) and media_type:
        parts.append(media_type[:100])
    if isinstance(data, str) and data:
        parts.append(f"{len(data.rstrip('=')) * 3 // 4:,} bytes")
    return f"[{parts[0]}]" if len(parts) == 1 else f"[{parts[0]} {', '.join(parts[1:])}]"


def head_records(head: bytes) -> Iterator[dict[str, Any]]:
    """The whole records in the first bytes of a file."""
    for item in read_lines(io.BytesIO(head), max_line=len(head)):
        if isinstance(item, Line):
            yield item.value


class RecentSet:
    """A set that forgets its oldest members beyond `limit`, so that memory stays bounded in a file of any length."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._members: dict[Hashable, None] = {}

    def add(self, member: Hashable) -> bool:
        """Adds the member; whether it is new."""
        if member in self._members:
            return False
        self._members[member] = None
        if len(self._members) > self._limit:
            del self._members[next(iter(self._members))]
        return True

    def discard(self, member: Hashable) -> bool:
        """Removes the member; whether it was there."""
        if member not in self._members:
            return False
        del self._members[member]
        return True

    def __contains__(self, member: Hashable) -> bool:
        return member in self._members


class ContentIds:
    """Event ids for records that bring none: a hash of what they say, with an ordinal for those that say it again."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def next(self, *parts: str | None) -> str:
        """The id of the next record that says this."""
        base = content_event_id(*parts)
        self._times[base] += 1
        return base if self._times[base] == 1 else f"{base}:{self._times[base]}"


def join_texts(texts: Sequence[str]) -> str:
    """Texts of one message below each other, empty ones left out."""
    return "\n".join(text for text in texts if text)
