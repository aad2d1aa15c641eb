"""How much of what people ask about is still in the leaf: our extractive summaries beside the first sentences.

Reads a LoCoMo file (conversations in sessions, questions with the turns that answer them), stores it in an embedded
Postgres of its own and makes the leaves as the pipeline does. For each turn that answers a question, the words of the
answer which that turn holds are looked up in the leaf above it. Questions whose answer shares no word with the turn
(dates that must be worked out, yes and no) can not be judged so and are counted apart.

The baselines have the same messages: the first sentence of each; the first sentence of each, then the second of each
and so on, until as many characters are quoted as in the leaf (its times, names and headings not counted); and as much
of the beginning of the text.

    RIVET_SHARED_DATA=... python -m benchmarks.summary_evidence [--file locomo.json]
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import UUID

from benchmarks.temporary import temporary_server
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.summaries.compact import summarize_leaves
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer

#: Category 5 asks for what was never said.
_ANSWERABLE = (1, 2, 3, 4)

_WORD = re.compile(r"[^\W_]+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")

#: What a leaf says beside quoting: its first line, its headings, and the time and the speaker before each bullet.
_FRAME = re.compile(r"^(?:Period .*|\*\*.*\*\*|- \S+Z \S+: )", re.MULTILINE)

#: Words that tell nothing of an answer.
_STOP = frozenset(
    (Path(__file__).parents[1] / "rivet_pipeline" / "summaries" / "stop_words.txt").read_text(encoding="utf-8").split()
)


@dataclass
class Evidence:
    """One turn that answers a question: its session, its id, and the words of the answer that it holds."""

    session: str
    turn: str
    category: int
    words: frozenset[str]


@dataclass
class Sample:
    """The sessions of a file by name, each a list of (turn, speaker, text, time), and what is asked of them."""

    sessions: dict[str, list[tuple[str, str, str, datetime]]] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)
    unjudged: int = 0


def stems(text: str) -> set[str]:
    """The telling words of a text, lower case, without the commonest endings."""
    words = {word for word in _WORD.findall(text.lower()) if word not in _STOP}
    return {re.sub(r"(?:ing|ed|es|s)$", "", word) if len(word) > 4 else word for word in words}


def read_locomo(path: Path) -> Sample:
    """Everything of a LoCoMo file that can be judged. Evidence without a turn is left out."""
    sample = Sample()
    for number, entry in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        turns: dict[str, tuple[str, str]] = {}
        for key, rows in entry["conversation"].items():
            if re.fullmatch(r"session_\d+", key) is None:
                continue
            at = datetime.strptime(f"{entry['conversation'][f'{key}_date_time']} +0000", "%I:%M %p on %d %B, %Y %z")
            session = f"{number}:{key}"
            said = sample.sessions.setdefault(session, [])
            for place, row in enumerate(rows):
                text = " ".join(part for part in (row.get("text"), row.get("blip_caption")) if part)
                said.append((row["dia_id"], row["speaker"], text, at + timedelta(minutes=place)))
                turns[row["dia_id"]] = (session, text)
        for question in entry["qa"]:
            if question["category"] in _ANSWERABLE:
                _judge(sample, question, turns)
    return sample


def _judge(sample: Sample, question: dict[str, Any], turns: dict[str, tuple[str, str]]) -> None:
    for turn in question["evidence"]:
        if turn not in turns:
            continue
        session, text = turns[turn]
        words = frozenset(stems(str(question["answer"])) & stems(text))
        if words:
            sample.evidence.append(Evidence(session, turn, question["category"], words))
        else:
            sample.unjudged += 1


def store(connection: Connection, sample: Sample) -> dict[UUID, tuple[str, str]]:
    """Stores the sessions as conversations; the session and turn of each message."""
    ids: dict[UUID, tuple[str, str]] = {}
    for session, said in sample.sessions.items():
        with connection.transaction():
            row = connection.execute(
                """INSERT INTO ros_conversations (session_key, agent, day, revision, created_at, updated_at)
                   VALUES (%s, 'locomo', %s, 1, %s, %s) RETURNING id""",
                [session, said[0][3].date(), said[0][3], said[-1][3]],
            ).fetchone()
            assert row is not None
            speakers = list(dict.fromkeys(speaker for _, speaker, _, _ in said))
            for turn, speaker, text, at in said:
                role = "user" if speaker == speakers[0] else "assistant"
                stored = connection.execute(
                    """INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, created_at)
                       VALUES (%s, %s, 'locomo', 'benchmark', %s, %s, %s) RETURNING id""",
                    [row["id"], turn, role, text, at],
                ).fetchone()
                assert stored is not None
                ids[stored["id"]] = (session, turn)
    return ids


def leaves(connection: Connection, ids: dict[UUID, tuple[str, str]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each leaf's text with the turns below it, in order."""
    rows = connection.execute(
        """SELECT s.content, array_agg(o.message_id ORDER BY o.ordinal) AS messages
           FROM ros_summaries AS s JOIN ros_summary_sources AS o ON o.summary_id = s.id
           WHERE s.kind = 'leaf' GROUP BY s.id"""
    ).fetchall()
    for row in rows:
        yield row["content"], [ids[message] for message in row["messages"]]


def first_sentences(texts: Sequence[str], length: int) -> str:
    """The first sentence of each text, then the second of each, until there are `length` characters of them."""
    taken: list[str] = []
    for layer in zip_longest(*(_SENTENCE.split(text) for text in texts)):
        for sentence in layer:
            if sentence is None:
                continue
            if sum(map(len, taken)) + len(sentence) > length:
                return "\n".join(taken)
            taken.append(sentence)
    return "\n".join(taken)


def quoted(leaf: str) -> str:
    """What a leaf quotes of its messages."""
    return _FRAME.sub("", leaf).strip()


def beginning(texts: Sequence[str], length: int) -> str:
    """The first `length` characters."""
    return "\n".join(texts)[:length]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="a LoCoMo file; default: bench/locomo_dev.json of RIVET_SHARED_DATA")
    path = parser.parse_args().file
    if path is None:
        shared = os.environ.get("RIVET_SHARED_DATA")
        if shared is None:
            raise SystemExit("Name a LoCoMo file with --file, or the folder of sample data with RIVET_SHARED_DATA.")
        path = Path(shared) / "bench" / "locomo_dev.json"
    sample = read_locomo(path)
    with temporary_server() as server, connect(server.url("postgres")) as connection:
        apply_migrations(connection)
        ids = store(connection, sample)
        with open_pool(server.url("postgres")) as pool:
            summarize_leaves(pool, days=None, summarizer=ExtractiveSummarizer())
        made = list(leaves(connection, ids))
    report(sample, made)


def report(sample: Sample, made: Sequence[tuple[str, list[tuple[str, str]]]]) -> None:
    """Prints the share of evidence turns whose leaf holds every judged word of the answer, beside the baselines."""
    texts = {(session, turn): text for session, said in sample.sessions.items() for turn, _, text, _ in said}
    ways: dict[str, Callable[[str, list[str]], str]] = {
        "our leaf": lambda leaf, _: leaf,
        "first sentence of each": lambda _, below: "\n".join(_SENTENCE.split(text)[0] for text in below),
        "first sentences": lambda leaf, below: first_sentences(below, len(quoted(leaf))),
        "beginning": lambda leaf, below: beginning(below, len(quoted(leaf))),
    }
    words: dict[str, dict[tuple[str, str], set[str]]] = {way: {} for way in ways}
    for leaf, turns in made:
        below = [texts[turn] for turn in turns]
        for way, make in ways.items():
            words[way].update(dict.fromkeys(turns, stems(make(leaf, below))))
    summarised = [one for one in sample.evidence if (one.session, one.turn) in words["our leaf"]]
    length = sum(len(texts[turn]) for _, turns in made for turn in turns)
    share, whole = sum(len(quoted(leaf)) for leaf, _ in made) / length, sum(len(leaf) for leaf, _ in made) / length
    print(f"{len(texts)} turns, {len(made)} leaves; of their sources they quote {share:.2f} ({whole:.2f} with frame)")
    print(f"{len(summarised)} evidence turns judged, {len(sample.evidence) - len(summarised)} below no leaf,")
    print(f"{sample.unjudged} that share no word with the answer\n")
    print(f"{'':<24}{'all words':>10}{'words':>8}" + "".join(f"{f'cat {c}':>8}" for c in _ANSWERABLE))
    for way, held in words.items():
        full: dict[int, list[bool]] = defaultdict(list)
        shares: list[float] = []
        for one in summarised:
            there = one.words & held[(one.session, one.turn)]
            full[one.category].append(there == one.words)
            shares.append(len(there) / len(one.words))
        every = [hit for hits in full.values() for hit in hits]
        line = f"{way:<24}{sum(every) / len(every):>10.3f}{sum(shares) / len(shares):>8.3f}"
        print(line + "".join(f"{sum(full[c]) / max(1, len(full[c])):>8.3f}" for c in _ANSWERABLE))


if __name__ == "__main__":
    main()
