"""Queries for the search benchmarks, made from a filled store. Seeded; nothing is measured here.

Two kinds. `make_queries`: words out of one message, as somebody types who remembers some of them. `make_questions`:
as rare and as common words together as in questions that people asked, since what a search costs depends on how many
rows hold its words, and a question nearly always has a word that every tenth message holds.
"""

from __future__ import annotations

import random

import numpy as np

from rivet_pipeline.db.pool import Connection

QUERIES = 100

#: Deciles (0, 10, … 100 %) of the number of different terms in a question, stop words left out, and of the share of all
#: messages that hold a term of a question: the mean of those of the LoCoMo and of the LongMemEval development files
#: (every second question, all messages of the file together).
_TERMS = (1.0, 3.5, 4.0, 4.5, 5.5, 6.0, 6.5, 7.5, 8.0, 11.0, 20.0)
_SHARES = (0.0, 0.00145, 0.00471, 0.00852, 0.0136, 0.02094, 0.0339, 0.04849, 0.0918, 0.14836, 0.37532)
_DECILES = tuple(number / 10 for number in range(11))


def _texts(connection: Connection, rng: random.Random, count: int) -> list[str]:
    """As many messages with more than 100 characters, anywhere in the store."""
    row = connection.execute("SELECT max(seq) AS top FROM ros_messages").fetchone()
    assert row is not None
    rows = connection.execute(
        "SELECT content, tool_result FROM ros_messages WHERE seq = ANY (%s) AND length(content) > 100 LIMIT %s",
        [[rng.randint(1, row["top"]) for _ in range(20 * count)], count],
    ).fetchall()
    return [found["content"] + " " + (found["tool_result"] or "") for found in rows]


def make_queries(connection: Connection, rng: random.Random) -> list[str]:
    """Two to six words out of one message each; every eighth is a path, a name or a number as it stands there."""
    queries = []
    for number, text in enumerate(_texts(connection, rng, QUERIES)):
        words = [word.strip(".,:;()[]{}\"'`*?") for word in text.split()]
        signs = [word for word in words if any(sign in word for sign in "/_-") and len(word) < 60]
        usable = [word for word in words if 2 <= len(word) <= 30] or ["nothing"]
        if number % 8 == 7 and signs:
            queries.append(rng.choice(signs))
        else:
            queries.append(" ".join(rng.sample(usable, min(len(usable), rng.randint(2, 6)))))
    return queries


def make_questions(connection: Connection, rng: random.Random) -> list[str]:
    """Words out of one message each where it has some of the wanted frequency, and else of the whole store."""
    texts = _texts(connection, rng, QUERIES)
    frequencies = _frequencies(connection, texts)
    store = sorted((share, word) for word, share in frequencies.items())
    shares = np.array([share for share, _ in store])
    questions = []
    for text in texts:
        own = sorted({word for word in _words(text) if word in frequencies})
        chosen: dict[str, None] = {}
        for _ in range(round(float(np.interp(rng.random(), _DECILES, _TERMS)))):
            wanted = float(np.interp(rng.random(), _DECILES, _SHARES))
            near = [word for word in own if wanted / 2 <= frequencies[word] <= 2 * wanted and word not in chosen]
            chosen[rng.choice(near) if near else store[int(np.argmin(np.abs(shares - wanted)))][1]] = None
        questions.append(" ".join(chosen) + "?")
    return questions


def _words(text: str) -> set[str]:
    """The plain words of a text, without signs."""
    return {word for word in (part.strip(".,:;?()").lower() for part in text.split()) if word.isalpha()}


def _frequencies(connection: Connection, texts: list[str]) -> dict[str, float]:
    """By word, the share of all messages that hold its term; without stop words, which have none."""
    rows = connection.execute(
        """SELECT w.word, x.df / greatest(1, (SELECT max(seq) FROM ros_messages))::float8 AS share
           FROM unnest(%s::text[]) AS w (word)
           CROSS JOIN LATERAL (SELECT ros_query_terms(w.word) AS terms) AS t
           JOIN ros_lexicon AS x ON x.term = t.terms[1]
           WHERE cardinality(t.terms) = 1""",
        [sorted({word for text in texts for word in _words(text)})],
    ).fetchall()
    return {row["word"]: row["share"] for row in rows}
