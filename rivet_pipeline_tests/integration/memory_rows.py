"""Small rows for the retrieval tests, written by plain INSERTs, and an embedder made of hashed words."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import numpy as np
from numpy.typing import NDArray
from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.scoring import PROFILE
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.types import Hit, SearchRequest, SearchResponse

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
WIDTH = 64

#: What is found must not depend on how busy the machine is.
_PATIENT = replace(PROFILE, pattern_seconds=60.0)


def hash_embed(text: str) -> NDArray[np.float32]:
    """A unit vector of hashed words: texts that share words lie near each other."""
    vector = np.full(WIDTH, 0.01, dtype=np.float32)
    for word in re.findall(r"\w+", text.lower()):
        vector[int(hashlib.sha256(word.encode()).hexdigest(), 16) % WIDTH] += 1
    return vector / np.float32(np.linalg.norm(vector))


def add_conversation(
    connection: Connection, *, agent: str = "claude", key: str | None = None, settings: dict[str, Any] | None = None
) -> UUID:
    row = connection.execute(
        """INSERT INTO ros_conversations (session_key, agent, day, settings, updated_at)
           VALUES (%s, %s, '2026-03-01', %s, %s) RETURNING id""",
        [key or f"test:{uuid4()}", agent, Jsonb(settings or {}), NOW],
    ).fetchone()
    assert row is not None
    identity: UUID = row["id"]
    return identity


def add_message(
    connection: Connection,
    content: str,
    *,
    conversation: UUID | None = None,
    agent: str = "claude",
    role: str = "user",
    age_days: float = 0.0,
    tool_name: str | None = None,
    tool_result: str | None = None,
    metadata: dict[str, Any] | None = None,
    embed: bool = False,
) -> UUID:
    conversation = conversation or add_conversation(connection, agent=agent)
    row = connection.execute(
        """INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, tool_name, tool_result,
                                     metadata, created_at)
           VALUES (%s, %s, %s, 'test', %s, %s, %s, %s, %s, %s) RETURNING id""",
        [
            conversation,
            str(uuid4()),
            agent,
            role,
            content,
            tool_name,
            tool_result,
            Jsonb(metadata or {}),
            NOW - timedelta(days=age_days),
        ],
    ).fetchone()
    assert row is not None
    identity: UUID = row["id"]
    if embed:
        add_vector(connection, "message", identity, hash_embed(content))
    return identity


def add_summary(
    connection: Connection,
    content: str,
    *,
    conversation: UUID | None = None,
    kind: str = "leaf",
    agents: list[str] | None = None,
    earliest: datetime = NOW - timedelta(hours=1),
    latest: datetime = NOW,
    embed: bool = False,
) -> UUID:
    row = connection.execute(
        """INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, agents,
                                      model, pipeline_version, input_hash)
           VALUES (%s, %s, %s, 3, %s, %s, %s, 'test', 1, 'x') RETURNING id""",
        [conversation or add_conversation(connection), kind, content, earliest, latest, agents or ["claude"]],
    ).fetchone()
    assert row is not None
    identity: UUID = row["id"]
    if embed:
        add_vector(connection, "summary", identity, hash_embed(content))
    return identity


def register_model(connection: Connection, *, name: str = "hash", width: int = WIDTH) -> int:
    row = connection.execute("SELECT ros_register_embedding_model(%s, %s) AS id", [name, width]).fetchone()
    assert row is not None
    return int(row["id"])


def add_vector(connection: Connection, kind: str, owner: UUID, vector: NDArray[np.float32], *, chunk: int = 0) -> None:
    table = "ros_messages" if kind == "message" else "ros_summaries"
    connection.execute(
        f"""INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end,
                                        embedding)
            SELECT k.id, %s, o.id, %s, o.text_hash, 0, 1, %s::halfvec
            FROM ros_embedding_models AS k, {table} AS o WHERE k.serving AND o.id = %s""".encode(),
        [kind, chunk, "[" + ",".join(map(str, vector.tolist())) + "]", owner],
    )


def find(connection: Connection, query: str, *, embedded: bool = False, **options: Any) -> SearchResponse:
    """A search as of NOW; `fts` unless `embedded`."""
    options.setdefault("mode", "hybrid" if embedded else "fts")
    request = SearchRequest(query, **options)
    return search(connection, request, embed_query=hash_embed if embedded else None, now=NOW, profile=_PATIENT)


def ids(hits: list[Hit]) -> list[UUID]:
    return [hit.id for hit in hits]


def add_tag(
    connection: Connection, literal: str, *, conversation: UUID, summary: UUID | None = None, status: str = "accepted"
) -> None:
    """A tag on a session, or on one of its summaries."""
    key, _, value = literal.partition(":")
    connection.execute(
        """CREATE TABLE IF NOT EXISTS ros_tags (
               id uuid PRIMARY KEY DEFAULT gen_random_uuid(), entity_kind text NOT NULL, entity_id uuid NOT NULL,
               conversation_id uuid NOT NULL, tag_key text NOT NULL, tag_value text NOT NULL, status text NOT NULL,
               source text NOT NULL, proposed_by text NOT NULL)"""
    )
    connection.execute(
        """INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, status, source,
                                 proposed_by)
           VALUES (%s, %s, %s, %s, %s, %s, 'import', 'a test')""",
        ["summary" if summary else "conversation", summary or conversation, conversation, key, value, status],
    )
