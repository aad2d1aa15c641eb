"""Made-up conversations of any number for benchmarks: seeded, the same for the same seed. Nothing is measured here.

Shaped after how agents' transcripts look: prompts of a few lines, answers of prose with code, tool calls whose results
are listings, logs and stack traces; texts of 1 to 150 lines, most of them short (log-normal). Words follow a
Zipf-Mandelbrot law over a vocabulary of our own making with English function words on top; every conversation has a
topic whose words, names and files come up again and again in it, and nowhere else so often. Identifiers, paths, numbers
and hashes are of an endless supply, so the vocabulary grows with the corpus as a real one does.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: All messages lie in the days before this.
NOW = datetime(2026, 3, 10, tzinfo=UTC)
DAYS = 400

#: Messages of one conversation, on average.
PER_CONVERSATION = 50

AGENTS = ("claude", "codex", "gemini")
TOOLS = ("Bash", "Read", "Edit", "Grep")

_COMMON = """
the to of and a in is it that for on with this be as are not you we have from at or if can an by will was but all do so
when which there they has would one our out up what then about into only no more some should use get new make like see
first just now also need file test code error run add line check set function data change work time return
"""
_ONSETS = "b c d f g h j k l m n p r s t v w z br ch cl dr fl gr pl pr sh st th tr"
_VOCABULARY = 120_000
_TOPICS = 2_000
_TOPIC_WORDS = 120
_EXTENSIONS = ("py", "ts", "tsx", "go", "rs", "sql", "md", "yaml", "json", "toml", "sh")
_BLOCK = 400_000

_CODE = (
    "def {a}_{b}({c}: str, {d}: int = {n}) -> None:",
    "    return {a}.{b}({c}={d})",
    "    if {a} is None and len({b}) > {n}:",
    '        raise ValueError(f"{a} {b} {{{c}!r}}")',
    "const {a}{B} = await {c}.{d}({{ limit: {n} }});",
    "export function use{A}{B}({c}: {D}Props) {{",
    "SELECT {a}_id, count(*) FROM {b}_{c} WHERE {d} > {n} GROUP BY 1;",
    "import {{ {A}, {B} }} from '../{c}/{d}';",
    "    {a}_{b} = [{c} for {c} in {d}s if {c}.{a}]",
    "assert {a}_{b}({c}) == {n}",
)
_OUTPUT = (
    "{p}:{n}: error: {a} has no attribute {b}",
    "drwxr-xr-x  2 root root {n} Mar  3 11:{m:02d} {a}-{b}",
    "[2026-02-{k:02d} 09:{m:02d}:{k:02d}] INFO {a}.{b}: {c} finished in {n} ms",
    '  File "/srv/{p}", line {n}, in {a}_{b}',
    "FAILED {p}::test_{a}_{b} - assert {n} == {m}",
    "{h}  {p}",
    "{n} passed, {m} skipped in {k}.{m:02d}s",
    "HTTP/1.1 {n} {a} request-id={h}",
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the corpus. `number` and `conversation` count from 0."""

    number: int
    conversation: int
    agent: str
    role: str
    content: str
    tool_name: str | None
    tool_result: str | None
    created_at: datetime


class Corpus:
    """Conversations of made-up text. The same arguments give the same messages."""

    def __init__(self, count: int, *, seed: int = 1) -> None:
        self.count = count
        self.conversations = max(1, math.ceil(count / PER_CONVERSATION))
        self._rng = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._words = self._vocabulary()
        ranks = np.arange(1, len(self._words) + 1, dtype=np.float64)
        weights = 1 / (ranks + 2.7) ** 1.05
        self._totals: NDArray[np.float64] = np.cumsum(weights / weights.sum())
        self._topics = self._numbers.integers(300, len(self._words), size=(_TOPICS, _TOPIC_WORDS))
        self._stock: list[str] = []
        self._next = 0

    def _vocabulary(self) -> list[str]:
        onsets = _ONSETS.split()
        nuclei, codas = "aeiou", ["", "", "", "n", "r", "s", "l", "m", "t"]
        words: dict[str, None] = dict.fromkeys(_COMMON.split())
        pick = self._rng.choice
        while len(words) < _VOCABULARY:
            syllables = self._rng.choices((1, 2, 3, 4), (5, 45, 38, 12))[0]
            words["".join(pick(onsets) + pick(nuclei) + pick(codas) for _ in range(syllables))] = None
        return list(words)

    def _take(self, count: int) -> list[str]:
        """The next words of running text."""
        if self._next + count > len(self._stock):
            places = np.searchsorted(self._totals, self._numbers.random(_BLOCK))
            self._stock = [self._words[place] for place in np.minimum(places, len(self._words) - 1).tolist()]
            self._next = 0
        self._next += count
        return self._stock[self._next - count : self._next]

    def __iter__(self) -> Iterator[Message]:
        """All messages, oldest first, conversation by conversation."""
        start = NOW - timedelta(days=DAYS)
        step = timedelta(days=DAYS) / max(self.count, 1)
        topic: list[str] = []
        paths: list[str] = []
        for number in range(self.count):
            conversation = number // PER_CONVERSATION
            if number % PER_CONVERSATION == 0:
                topic, paths = self._topic()
            role, content, tool, result = self._message(topic, paths)
            yield Message(
                number=number,
                conversation=conversation,
                agent=AGENTS[conversation % len(AGENTS)],
                role=role,
                content=content,
                tool_name=tool,
                tool_result=result,
                created_at=start + step * number,
            )

    def _topic(self) -> tuple[list[str], list[str]]:
        rng = self._rng
        topic = [self._words[place] for place in self._topics[rng.randrange(_TOPICS)].tolist()]
        # What only this conversation has: its own subset, and names of its own.
        topic = rng.sample(topic, 40)
        topic += [f"{rng.choice(topic)}_{rng.choice(topic)}" for _ in range(6)]
        topic += [f"{rng.choice(topic).upper()[:4]}-{rng.randrange(100, 9999)}" for _ in range(2)]
        paths = [
            "/".join(rng.choice(topic[:40]) for _ in range(rng.randint(1, 3)))
            + f"/{rng.choice(topic[:46])}.{rng.choice(_EXTENSIONS)}"
            for _ in range(8)
        ]
        return topic, paths

    def _message(self, topic: list[str], paths: list[str]) -> tuple[str, str, str | None, str | None]:
        rng = self._rng
        kind = rng.random()
        if kind < 0.4:
            tool, path = rng.choice(TOOLS), rng.choice(paths)
            lines = min(150, max(1, int(rng.lognormvariate(2.2, 1.1))))
            result = "\n".join(self._line(_OUTPUT if tool == "Bash" else _CODE, topic, paths) for _ in range(lines))
            return "tool", f"{tool}: {path} {rng.choice(topic)}", tool, result
        if kind < 0.6:
            return "user", self._prose(min(40, max(1, int(rng.lognormvariate(0.8, 0.9)))), topic, paths), None, None
        prose = self._prose(min(60, max(1, int(rng.lognormvariate(1.5, 0.9)))), topic, paths)
        if rng.random() < 0.4:
            lines = min(90, max(2, int(rng.lognormvariate(2.0, 0.8))))
            code = "\n".join(self._line(_CODE, topic, paths) for _ in range(lines))
            prose = f"{prose}\n```\n{code}\n```"
        return "assistant", prose, None, None

    def _prose(self, lines: int, topic: list[str], paths: list[str]) -> str:
        rng = self._rng
        said: list[str] = []
        for _ in range(lines):
            words = self._take(rng.randint(6, 16))
            for _ in range(rng.randint(1, 3)):
                words[rng.randrange(len(words))] = rng.choice(topic)
            if rng.random() < 0.15:
                words.append(rng.choice(paths))
            said.append(" ".join(words).capitalize() + rng.choice(".?.:."))
        return "\n".join(said)

    def _line(self, templates: tuple[str, ...], topic: list[str], paths: list[str]) -> str:
        rng = self._rng
        a, b = rng.choice(topic[:40]), rng.choice(topic[:40])
        c, d = self._take(2)
        return rng.choice(templates).format(
            a=a,
            b=b,
            c=c,
            d=d,
            A=a.capitalize(),
            B=b.capitalize(),
            D=d.capitalize(),
            n=rng.randrange(2_000),
            m=rng.randrange(60),
            k=rng.randrange(1, 29),
            p=rng.choice(paths),
            h=f"{rng.getrandbits(40):010x}",
        )


def shared_texts(folder: Path) -> list[str]:
    """Every string of at least 200 characters in the sample transcripts, at most 4,000 characters each."""
    texts: list[str] = []
    for path in sorted((folder / "transcripts").rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                _collect(json.loads(line), texts)
            except (ValueError, RecursionError):
                continue
    return texts


def _collect(value: Any, texts: list[str]) -> None:
    if isinstance(value, str) and len(value) >= 200:
        texts.append(value[:4000].replace("\x00", " ").encode("utf-8", "replace").decode())
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _collect(item, texts)
