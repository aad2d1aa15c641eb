"""What is pending is cheap to ask: marks keep the sensor's question away from conversations that are done."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

from rivet_pipeline.db import pending
from rivet_pipeline.db.pending import days_with_work, pending_days
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.transcripts import days as transcript_days

_FINISHED = """
INSERT INTO ros_conversations (session_key, agent, day, revision, updated_at)
SELECT 'test:' || n, 'opus', date '2026-01-01' + n % 60, 1, now() - interval '10 days'
FROM generate_series(1, 2000) AS n;
INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content)
SELECT c.id, n::text, 'opus', 'test', 'user', 'word' || n FROM ros_conversations AS c, generate_series(1, 3) AS n;
SELECT ros_register_embedding_model('test', 8);
INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end, embedding)
SELECT k.id, 'message', m.id, 0, m.text_hash, 0, 1, '[1,2,3,4,5,6,7,8]'
FROM ros_messages AS m, ros_embedding_models AS k;
INSERT INTO ros_stage_marks (stage, conversation_id, revision)
SELECT stage, id, 1 FROM ros_conversations, unnest(ARRAY['messages', 'message_embeddings', 'leaf_summaries']) AS stage;
ANALYZE
"""


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


def read(connection: Connection, table: str) -> int:
    """The rows of a table that the question for pending days really looks at."""
    row = connection.execute("EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM ros_pending_days").fetchone()
    assert row is not None
    found = [node for node in nodes(row["QUERY PLAN"][0]["Plan"]) if node.get("Relation Name") == table]
    assert found  # the question mentions the table
    return sum(
        round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]) for node in found
    )


def test_conversations_that_are_done_are_not_looked_at(connection: Connection) -> None:
    for statement in _FINISHED.split(";"):
        connection.execute(statement.encode())
    assert pending_days(connection) == []
    assert read(connection, "ros_messages") == 0
    assert read(connection, "ros_embeddings") == 0


def test_a_new_message_costs_a_look_at_its_conversation_only(connection: Connection) -> None:
    for statement in _FINISHED.split(";"):
        connection.execute(statement.encode())
    connection.execute(
        """WITH touched AS (UPDATE ros_conversations SET revision = 2 WHERE session_key = 'test:7' RETURNING id)
           INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content)
           SELECT id, 'new', 'opus', 'test', 'user', 'a new word' FROM touched"""
    )
    assert {(item.stage, item.items) for item in pending_days(connection)} == {
        ("messages", 1),
        ("message_embeddings", 1),
        ("leaf_summaries", 1),  # four messages, untouched for ten days: due by the stale rule
    }
    assert read(connection, "ros_messages") <= 8
    assert read(connection, "ros_embeddings") <= 8


_NOTHING_DONE = """
INSERT INTO ros_conversations (session_key, agent, day, revision, updated_at)
SELECT 'test:' || n, 'opus', date '2026-01-01' + n % 20, 1, now() - interval '10 days'
FROM generate_series(1, 600) AS n;
INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content)
SELECT c.id, n::text, 'opus', 'test', 'user', 'word' || n FROM ros_conversations AS c, generate_series(1, 20) AS n;
SELECT ros_register_embedding_model('test', 8);
ANALYZE
"""


class Looking:
    """The connection, counting the rows of tables that its queries really look at."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.rows: Counter[str] = Counter()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._connection.transaction():
            yield

    def execute(self, query: str | bytes, values: dict[str, Any] | None = None, **options: Any) -> Any:
        raw = query if isinstance(query, bytes) else query.encode()
        row = self._connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + raw, values, prepare=False).fetchone()
        assert row is not None
        for node in nodes(row["QUERY PLAN"][0]["Plan"]):
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            self.rows[node.get("Relation Name", "")] += round(rows * node["Actual Loops"])
        return self._connection.execute(raw, values, **options)


def test_the_days_of_a_store_in_which_nothing_is_done_cost_the_days_and_not_the_messages(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for statement in _NOTHING_DONE.split(";"):
        connection.execute(statement.encode())
    monkeypatch.setattr(pending, "_FEW", 100)
    monkeypatch.setattr(pending, "COUNTED", 100)
    looking = Looking(connection)
    days = days_with_work(cast(Connection, looking))
    stages = ("messages", "message_embeddings", "leaf_summaries")
    assert Counter(day.stage for day in days) == dict.fromkeys(stages, 20)
    # Of 12,000 messages: of each day ten for the leaves, a few for the vectors; and as many again up to the bounds.
    assert 0 < looking.rows["ros_messages"] < 1_000
    assert looking.rows["ros_embeddings"] < 1_000
    looking.rows.clear()
    found = pending_days(cast(Connection, looking))
    amounts: Counter[tuple[str, bool]] = Counter()
    for day in found:
        amounts[day.stage, day.at_most] += day.items
    assert amounts == {
        ("messages", False): 600,
        ("message_embeddings", True): 12_000,
        ("leaf_summaries", True): 600,
    }
    assert 0 < looking.rows["ros_messages"] < 1_000


#: What the views say, in plain words: every message of every conversation is looked at.
_WAITING = """
SELECT c.id, c.day, c.updated_at, c.active, count(m.id) AS waiting
FROM ros_conversations AS c
JOIN ros_messages AS m ON m.conversation_id = c.id
LEFT JOIN ros_stage_marks AS k ON k.stage = 'leaf_summaries' AND k.conversation_id = c.id
WHERE (k.revision IS NULL OR k.revision < c.revision) AND NOT ros_is_noise(c.session_key, c.settings)
  AND ros_is_refined(m.content, m.tool_name, m.tool_result, m.metadata)
  AND m.id NOT IN (SELECT message_id FROM ros_summary_sources)
GROUP BY c.id, c.day, c.updated_at, c.active
"""
_CHILDREN = """
SELECT s.conversation_id, CASE s.kind WHEN 'leaf' THEN 'branch' ELSE 'root' END AS parent, count(*) AS children
FROM ros_summaries AS s
WHERE s.parent_id IS NULL AND s.kind <> 'root' AND (s.grounding IS NULL OR s.grounding >= 0.6)
GROUP BY s.conversation_id, s.kind
"""
_UNMINED = """
SELECT s.id, s.day, x.leaf_id IS NULL AS new
FROM ros_summaries AS s
LEFT JOIN ros_wiki_extractions AS x ON x.leaf_id = s.id
JOIN ros_conversations AS c ON c.id = s.conversation_id AND NOT ros_is_noise(c.session_key, c.settings)
WHERE s.kind = 'leaf' AND (x.leaf_id IS NULL OR x.text_hash <> s.text_hash)
  AND (s.grounding IS NULL OR s.grounding >= 0.6 OR x.outcome = 'patches')
"""


class Reference:
    """What is due by the rules, computed row by row."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._now = datetime.now(UTC)
        rows = connection.execute("SELECT stage, item FROM ros_blocked_items").fetchall()
        self._blocked = {(row["stage"], row["item"]) for row in rows}

    def _all(self, query: str) -> list[dict[str, Any]]:
        return self._connection.execute(query.encode()).fetchall()

    def _rests(self, stage: str, *items: object) -> bool:
        return any((stage, str(item)) in self._blocked for item in ("service", *items))

    def unsummarised(self) -> dict[UUID, tuple[int, str | None]]:
        """The waiting messages by conversation, and why they are due."""
        return {row["id"]: (row["waiting"], self._why(row)) for row in self._all(_WAITING)}

    def _why(self, row: dict[str, Any]) -> str | None:
        rest, waiting = self._now - row["updated_at"], row["waiting"]
        if waiting >= 10 or (waiting >= 5 and not row["active"]):
            return "full"
        if waiting >= 5 and rest > timedelta(minutes=15):
            return "idle"
        return "stale" if waiting >= 2 and rest > timedelta(days=4) else None

    def leaves(self) -> dict[UUID, str]:
        """Why a leaf is due, by conversation, of those that do not rest."""
        due = {identity: why for identity, (_, why) in self.unsummarised().items() if why is not None}
        return {identity: why for identity, why in due.items() if not self._rests("leaf_summaries", identity)}

    def parents(self) -> dict[tuple[UUID, str], bool]:
        """Whether only time made a branch or root due, by conversation and kind."""
        children = {(row["conversation_id"], row["parent"]): row["children"] for row in self._all(_CHILDREN)}
        conversations = {row["id"]: row for row in self._all("SELECT * FROM ros_conversations")}
        leaves = self.leaves()
        found = {}
        for (identity, kind), number in children.items():
            batch, least = {"branch": (8, 5), "root": (5, 3)}[kind]
            of = conversations[identity]
            noise = of["settings"].get("noise") or of["session_key"].startswith("heartbeat:")
            below = kind == "root" and children.get((identity, "branch"), 0) >= 5
            rested = not of["active"] or self._now - of["updated_at"] > timedelta(minutes=15)
            held = identity in leaves or (below and not self._rests("branch_summaries", identity))
            if noise or number < least or self._rests(f"{kind}_summaries", identity):
                continue
            if number >= batch or (rested and not held):
                found[identity, kind] = number < batch and of["active"]
        return found

    def unmined(self) -> dict[UUID, bool]:
        """The leaves that the miner has not seen as they are, and whether it has seen them at all."""
        if self._rests("wiki_patches"):
            return {}
        return {row["id"]: row["new"] for row in self._all(_UNMINED) if not self._rests("wiki_patches", row["id"])}


def fill(connection: Connection, dice: random.Random) -> None:
    """A store in a random state: conversations of all ages, anything of each done, failed, or of an older text."""
    connection.execute("SELECT ros_register_embedding_model('test', 8)")
    if dice.random() < 0.5:
        connection.execute(
            "INSERT INTO ros_refinement_versions (stage, model, version) VALUES ('tag_proposals', 'm', 1)"
        )
    for number in range(40):
        age = dice.choice([timedelta(minutes=2), timedelta(hours=2), timedelta(days=9)])
        row = connection.execute(
            """INSERT INTO ros_conversations (session_key, agent, day, revision, active, settings, updated_at)
               VALUES (%s, 'opus', %s, 2, %s, %s, now() - %s) RETURNING id""",
            [
                f"{dice.choice(['test', 'test', 'test', 'heartbeat'])}:{number}",
                date(2026, 1, 1) + timedelta(days=dice.randrange(6)),
                dice.random() < 0.7,
                Jsonb({"noise": True} if dice.random() < 0.1 else {}),
                age,
            ],
        ).fetchone()
        assert row is not None
        _fill_conversation(connection, dice, row["id"])
    if dice.random() < 0.5:
        stage = dice.choice(["leaf_summaries", "branch_summaries", "wiki_patches", "message_embeddings"])
        _fail(connection, dice, stage, "service")


def _fail(connection: Connection, dice: random.Random, stage: str, item: object) -> None:
    later = datetime.now(UTC) + timedelta(hours=dice.choice([-1, 1]))
    connection.execute(
        """INSERT INTO ros_failures (stage, item, cause, error, next_attempt_at) VALUES (%s, %s, 'transient', 'x', %s)
           ON CONFLICT DO NOTHING""",
        [stage, str(item), dice.choice([None, later]) if item != "service" else later],
    )


def _fill_conversation(connection: Connection, dice: random.Random, conversation: UUID) -> None:
    leaves = [_summary(connection, dice, conversation, "leaf", None) for _ in range(dice.choice([0, 0, 2, 5, 6, 9]))]
    branches = [_summary(connection, dice, conversation, "branch", None) for _ in range(dice.choice([0, 0, 3, 5, 6]))]
    for leaf in leaves:
        if branches and dice.random() < 0.4:
            connection.execute("UPDATE ros_summaries SET parent_id = %s WHERE id = %s", [dice.choice(branches), leaf])
    done = dice.choice([0.0, 0.0, 0.6, 0.95, 1.0])
    for number in range(dice.choice([0, 1, 3, 6, 11, 14])):
        called = dice.random() < 0.3
        row = connection.execute(
            """INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, tool_name,
                                         tool_result, metadata)
               VALUES (%s, %s, 'opus', 'test', 'user', %s, %s, %s, %s) RETURNING id, text_hash""",
            [
                conversation,
                str(number),
                dice.choice(["", " ", "word", "words"]),
                "Bash" if called else None,
                dice.choice([None, "ok"]) if called else None,
                Jsonb({"kind": dice.choice(["injected", "notice"])} if dice.random() < 0.2 else {}),
            ],
        ).fetchone()
        assert row is not None
        if leaves and dice.random() < done:
            connection.execute("INSERT INTO ros_summary_sources VALUES (%s, %s, %s)", [leaves[0], row["id"], number])
        if dice.random() < done:
            _embed(connection, dice, "message", row)
        if dice.random() < 0.1:
            _fail(connection, dice, dice.choice(["message_embeddings", "tool_call_text"]), row["id"])
    for stage in ("messages", "tool_call_text", "message_embeddings", "leaf_summaries"):
        if dice.random() < 0.5:
            values = [stage, conversation, dice.choice([1, 2])]
            connection.execute(
                "INSERT INTO ros_stage_marks (stage, conversation_id, revision) VALUES (%s, %s, %s)", values
            )
        if dice.random() < 0.1:
            _fail(connection, dice, dice.choice(["leaf_summaries", "branch_summaries", "root_summaries"]), conversation)


def _summary(connection: Connection, dice: random.Random, conversation: UUID, kind: str, parent: UUID | None) -> UUID:
    row = connection.execute(
        """INSERT INTO ros_summaries (conversation_id, parent_id, kind, content, message_count, earliest_at, latest_at,
                                      model, pipeline_version, input_hash, grounding)
           VALUES (%s, %s, %s, 'text', 1, now(), now(), 'm', 1, 'x', %s) RETURNING id, text_hash""",
        [conversation, parent, kind, dice.choice([None, 0.5, 0.6, 1.0])],
    ).fetchone()
    assert row is not None
    if dice.random() < 0.5:
        _embed(connection, dice, "summary", row)
    if kind == "leaf" and dice.random() < 0.6:
        connection.execute(
            """INSERT INTO ros_wiki_extractions (leaf_id, text_hash, pipeline_version, model, outcome)
               VALUES (%s, %s, 1, 'm', %s)""",
            [row["id"], _hash(dice, row), dice.choice(["patches", "none", "untrusted"])],
        )
    if kind == "leaf" and dice.random() < 0.1:
        _fail(connection, dice, "wiki_patches", row["id"])
    identity: UUID = row["id"]
    return identity


def _hash(dice: random.Random, row: dict[str, Any]) -> UUID:
    """The hash of the text, or of a former one."""
    return cast(UUID, row["text_hash"]) if dice.random() < 0.7 else UUID(int=dice.getrandbits(128))


def _embed(connection: Connection, dice: random.Random, kind: str, row: dict[str, Any]) -> None:
    connection.execute(
        """INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end,
                                       embedding)
           SELECT id, %s, %s, 0, %s, 0, 1, '[1,2,3,4,5,6,7,8]' FROM ros_embedding_models""",
        [kind, row["id"], _hash(dice, row)],
    )


@pytest.mark.parametrize("seed", range(5))
def test_what_is_pending_is_what_the_rules_say_in_any_state(connection: Connection, seed: int) -> None:
    with connection.transaction():
        fill(connection, random.Random(seed))
    reference = Reference(connection)
    rows = connection.execute("SELECT conversation_id, waiting, due FROM ros_unsummarised").fetchall()
    assert {row["conversation_id"]: (row["waiting"], row["due"]) for row in rows} == reference.unsummarised()
    rows = connection.execute("SELECT conversation_id, due FROM ros_pending_leaf_summaries").fetchall()
    assert {row["conversation_id"]: row["due"] for row in rows} == reference.leaves()
    rows = connection.execute("SELECT conversation_id FROM ros_conversations_with_a_due_leaf").fetchall()
    assert {row["conversation_id"] for row in rows} == reference.leaves().keys()
    assert len(rows) == len(reference.leaves())
    rows = connection.execute("SELECT conversation_id, parent_kind, due FROM ros_pending_parent_summaries").fetchall()
    parents = {(row["conversation_id"], row["parent_kind"]): row["due"] != "full" for row in rows}
    assert parents == reference.parents()
    rows = connection.execute("SELECT id, new FROM ros_pending_wiki_patches").fetchall()
    assert {row["id"]: row["new"] for row in rows} == reference.unmined()


@pytest.mark.parametrize("seed", range(5))
def test_few_or_many_the_days_with_work_are_those_of_the_view(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    with connection.transaction():
        fill(connection, random.Random(seed))
    view: Counter[tuple[str, date, bool]] = Counter()
    for row in connection.execute("SELECT * FROM ros_pending_days").fetchall():
        view[row["stage"], row["day"], row["timed"]] += row["items"]
    assert view
    found: Counter[tuple[str, date, bool]] = Counter()
    for day in pending_days(connection):
        found[day.stage, day.day, day.timed] += day.items
        assert not day.at_most
    assert found == view
    assert {(day.stage, day.day, day.timed) for day in days_with_work(connection)} == view.keys()
    leaves = pending_days(connection, stages=["leaf_summaries"])
    assert sum(day.items for day in leaves) == sum(items for key, items in view.items() if key[0] == "leaf_summaries")

    monkeypatch.setattr(pending, "_FEW", 0)
    monkeypatch.setattr(pending, "COUNTED", 0)
    due, untimed = _stage_days(view), _stage_days(key for key in view if not key[2])
    busy = {day for stage, day in untimed if stage == "leaf_summaries"}
    brought = {(stage, day) for stage, day in due if stage in _PARENTS and day in busy}
    amounts = pending_days(connection)
    # Nothing is said to be less than it is; what is given for branches and roots on busy days is a bound alone.
    most: Counter[tuple[str, date]] = Counter()
    for day in amounts:
        most[day.stage, day.day] += day.items
    for stage, day_of, _ in view:
        assert most[stage, day_of] >= view[stage, day_of, True] + view[stage, day_of, False]
    bounds = {(day.stage, day.day) for day in amounts if day.at_most and day.stage in _PARENTS}
    assert brought <= bounds
    assert {day for _, day in bounds} <= busy
    for work in (
        {(day.stage, day.day, day.timed) for day in days_with_work(connection)},
        {(day.stage, day.day, day.timed) for day in amounts if (day.stage, day.day) not in bounds},
    ):
        assert due - brought <= _stage_days(work) <= due
        assert untimed - brought <= _stage_days(key for key in work if not key[2]) <= untimed
    assert any(day.at_most for day in amounts)
    for day in amounts:
        if day.at_most:
            assert day.items >= max(1, view[day.stage, day.day, True] + view[day.stage, day.day, False])


_PARENTS = {"branch_summaries", "root_summaries"}


def _stage_days(work: Iterable[tuple[str, date, bool]]) -> set[tuple[str, date]]:
    return {(stage, day) for stage, day, _ in work}


def test_days_are_marked_in_the_same_order_by_every_worker(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    identities = [UUID(int=number) for number in range(9, 0, -1)]
    for identity in identities:
        connection.execute(
            "INSERT INTO ros_conversations (id, session_key, agent, day, revision) VALUES (%s, %s, 'opus', %s, 1)",
            [identity, str(identity), date(2026, 1, 1)],
        )
    made: list[UUID] = []
    monkeypatch.setattr(transcript_days, "mark_seen", lambda *_, conversation_id, **__: made.append(conversation_id))
    transcript_days.observe_days(connection, [date(2026, 1, 1)])
    assert made == sorted(identities)
