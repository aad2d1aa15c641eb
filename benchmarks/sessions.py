"""Claude Code session files for benchmarks: their text, their shape and their sizes. Nothing is measured here.

Shares and lengths follow sample sessions: four messages in ten are tool calls with results, most texts are short and a
few are pages long (log-normal), every record carries the envelope that the harness writes, and a tool's result stands
in its record twice.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from benchmarks.corpus import shared_texts

START = datetime(2026, 1, 5, 8, tzinfo=UTC)

#: Ten messages of a session, over and over: about the shares of the sample sessions.
_PATTERN = ("user", "thinking", "tool", "tool", "speech", "attachment", "tool", "tool", "notice", "speech")

#: The median and the spread (sigma of the logarithm) of each text's length in characters.
_LENGTHS = {
    "user": (60, 1.6),
    "speech": (130, 1.2),
    "thinking": (140, 1.1),
    "attachment": (90, 1.5),
    "notice": (50, 1.2),
    "args": (130, 1.4),
    "result": (300, 1.8),
}

_LONGEST = 30_000


class Texts(Protocol):
    """Where texts come from."""

    def prose(self, length: int) -> str:
        """About `length` characters of what people and agents say."""
        ...

    def output(self, length: int) -> str:
        """About `length` characters of code, paths and listings."""
        ...


class MadeUp:
    """Words by Zipf's law (exponent 1) over 40,000 made-up words; code, paths and numbers made of the same words."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        words: dict[str, None] = {}
        while len(words) < 40_000:
            syllables = (rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") for _ in range(rng.randint(1, 4)))
            words["".join(syllables) + rng.choice(["", "", "n", "r", "st", "ing"])] = None
        self._words = list(words)
        self._weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))

    def prose(self, length: int) -> str:
        """Sentences, some with a path or a name out of code."""
        parts: list[str] = []
        while length > 0:
            words = self._some(self._rng.randint(4, 14))
            if self._rng.random() < 0.3:
                words[-1] = f"`{self._path()}`" if self._rng.random() < 0.5 else f"`{self._name()}`"
            sentence = " ".join(words).capitalize() + "."
            parts.append(sentence)
            length -= len(sentence) + 1
        return " ".join(parts)

    def output(self, length: int) -> str:
        """Numbered code, search hits and listings, a line each."""
        lines: list[str] = []
        while length > 0:
            lines.append(self._line())
            length -= len(lines[-1]) + 1
        return "\n".join(lines)

    def _some(self, count: int) -> list[str]:
        return self._rng.choices(self._words, cum_weights=self._weights, k=count)

    def _name(self) -> str:
        words = self._some(self._rng.randint(1, 3))
        if self._rng.random() < 0.5:
            return "_".join(words)
        return words[0] + "".join(word.capitalize() for word in words[1:])

    def _path(self) -> str:
        return "/".join(self._some(self._rng.randint(1, 3))) + "/" + self._name() + self._rng.choice([".py", ".ts"])

    def _line(self) -> str:
        number = self._rng.randint(1, 900)
        match self._rng.randrange(5):
            case 0:
                return f"{number:6}\u2192    {self._name()} = {self._name()}({self._name()}, {number})"
            case 1:
                return f"{self._path()}:{number}:        return self.{self._name()}.{self._name()}()"
            case 2:
                return (
                    f"-rw-r--r-- 1 user user {number * 37:8} Jan {number % 28 + 1:2} 10:{number % 60:02} {self._path()}"
                )
            case 3:
                return f"    # {' '.join(self._some(self._rng.randint(3, 9)))}"
            case _:
                return f"    def {self._name()}(self, {self._name()}: str) -> None:"


class Real:
    """Stretches of real texts, two of them glued together each time, so that no two are alike."""

    def __init__(self, rng: random.Random, texts: Sequence[str]) -> None:
        self._rng = rng
        self._texts = texts

    def prose(self, length: int) -> str:
        """A text cut out of others; it begins and ends anywhere."""
        parts: list[str] = []
        while length > 0:
            text = self._rng.choice(self._texts)
            start = self._rng.randrange(len(text))
            part = text[start : start + math.ceil(length * 2 / 3) + 20].strip()
            if part:
                parts.append(part)
                length -= len(part) + 1
        return "\n".join(parts)

    def output(self, length: int) -> str:
        """The same: the samples mix speech and code already."""
        return self.prose(length)


def texts_of(rng: random.Random, shared: str | None) -> Texts:
    """Texts out of the folder of sample transcripts when one is named, else made-up ones."""
    found = shared_texts(Path(shared)) if shared else []
    return Real(rng, found) if found else MadeUp(rng)


def message_text(texts: Texts, rng: random.Random) -> str:
    """One prompt or answer, as long as such texts are."""
    return texts.prose(_length(rng, rng.choice(["user", "speech"])))


def _length(rng: random.Random, kind: str) -> int:
    median, sigma = _LENGTHS[kind]
    return min(_LONGEST, max(3, int(rng.lognormvariate(math.log(median), sigma))))


def write_sessions(folder: Path, *, messages: int, files: int, texts: Texts, rng: random.Random) -> int:
    """Writes so many session files with so many messages in all, and returns their size in bytes.

    A tool call and its result are one message, as they are in the store.
    """
    size = 0
    for number in range(files):
        share = messages * (number + 1) // files - messages * number // files
        session = _Session(texts, rng, START + timedelta(hours=7 * number))
        path = folder / f"{session.id}.jsonl"
        with path.open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in session.records(share))
        size += path.stat().st_size
    return size


class _Session:
    def __init__(self, texts: Texts, rng: random.Random, start: datetime) -> None:
        self._texts = texts
        self._rng = rng
        self._time = start
        self._last: str | None = None
        self.id = self._uuid()

    def records(self, messages: int) -> Iterator[dict[str, Any]]:
        """The session's records in file order."""
        for number in range(messages):
            kind = _PATTERN[number % len(_PATTERN)]
            if kind == "tool":
                yield from self._tool()
            elif kind == "user":
                yield self._record("user", message={"role": "user", "content": self._prose(kind)})
            elif kind == "attachment":
                attachment = {"type": "hook_additional_context", "content": self._prose(kind)}
                yield self._record("attachment", attachment=attachment)
            elif kind == "notice":
                yield self._record("system", subtype="informational", content=self._prose(kind), level="info")
            else:
                key = "thinking" if kind == "thinking" else "text"
                yield self._answer({"type": key, key: self._prose(kind)})

    def _tool(self) -> Iterator[dict[str, Any]]:
        name = self._rng.choice(["Bash", "Read", "Grep", "Edit"])
        call = f"toolu_{self._rng.getrandbits(96):024x}"
        given = {"command": self._texts.output(_length(self._rng, "args")), "description": self._texts.prose(30)}
        yield self._answer({"type": "tool_use", "id": call, "name": name, "input": given})
        text = self._texts.output(_length(self._rng, "result"))
        block = {"tool_use_id": call, "type": "tool_result", "content": text, "is_error": False}
        yield self._record(
            "user", message={"role": "user", "content": [block]}, toolUseResult={"stdout": text, "stderr": ""}
        )

    def _answer(self, block: dict[str, Any]) -> dict[str, Any]:
        usage = {
            "input_tokens": self._rng.randint(3, 900),
            "cache_creation_input_tokens": self._rng.randint(0, 9000),
            "cache_read_input_tokens": self._rng.randint(9000, 90_000),
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": self._rng.randint(1, 900),
            "service_tier": "standard",
        }
        message = {
            "model": "claude-sonnet-4-5-20250929",
            "id": f"msg_{self._rng.getrandbits(96):024x}",
            "type": "message",
            "role": "assistant",
            "content": [block],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        return self._record("assistant", message=message, requestId=f"req_{self._rng.getrandbits(96):024x}")

    def _record(self, kind: str, **more: Any) -> dict[str, Any]:
        self._time += timedelta(seconds=self._rng.uniform(0.2, 30))
        parent, self._last = self._last, self._uuid()
        return {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/ada/src/shop",
            "sessionId": self.id,
            "version": "2.1.38",
            "gitBranch": "main",
            "type": kind,
            **more,
            "uuid": self._last,
            "timestamp": self._time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }

    def _prose(self, kind: str) -> str:
        return self._texts.prose(_length(self._rng, kind))

    def _uuid(self) -> str:
        return str(UUID(int=self._rng.getrandbits(128), version=4))
