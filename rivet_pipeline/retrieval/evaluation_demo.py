"""The shipped questions about the demo sessions, and which stored messages each of them should find.

A question names its session and words of the messages that answer it, so that it holds however those were imported.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.evaluation_sets import Question, QuestionSet, turn_key


@cache
def _entries() -> tuple[dict[str, Any], ...]:
    path = Path(__file__).with_name("demo_questions.json")
    return tuple(json.loads(path.read_text(encoding="utf-8")))


def demo_questions(connection: Connection) -> QuestionSet:
    """The questions, resolved in a store that holds the demo sessions; each is asked when the last of them was said.

    What is found are the user's and the assistant's words. Raises `LookupError` when an answer is not in the store.
    """
    rows = connection.execute(
        """SELECT c.session_key, m.event_id, m.content, max(m.created_at) OVER () AS newest
           FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
           WHERE m.role IN ('user', 'assistant') AND m.tool_name IS NULL
             AND coalesce(m.metadata ->> 'kind', 'speech') = 'speech'"""
    ).fetchall()
    questions = []
    for number, entry in enumerate(_entries()):
        turns = set()
        for words in entry["finds"]:
            found = [row for row in rows if entry["session"] in row["session_key"] and words in row["content"]]
            if not found:
                raise LookupError(f"no message of session {entry['session']} says {words!r}")
            turns |= {(row["session_key"], row["event_id"]) for row in found}
        questions.append(
            Question(
                id=f"demo/{number}",
                text=entry["question"],
                now=rows[0]["newest"],
                turns=frozenset(turn_key(*turn) for turn in turns),
                sessions=frozenset(session for session, _ in turns),
                group=entry["kind"],
            )
        )
    return replace(QuestionSet("demo", (), ()), questions=tuple(questions))
