"""A Lossless Context Management store made for tests: the public schema as SQLite or Postgres has it, and its rows."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

#: Columns by table, in the order of the public schema; types as SQLite writes them.
SCHEMA: dict[str, dict[str, str]] = {
    "conversations": {
        "conversation_id": "INTEGER PRIMARY KEY",
        "session_id": "TEXT NOT NULL",
        "session_key": "TEXT",
        "active": "INTEGER NOT NULL DEFAULT 1",
        "archived_at": "TEXT",
        "title": "TEXT",
        "bootstrapped_at": "TEXT",
        "created_at": "TEXT",
        "updated_at": "TEXT",
    },
    "messages": {
        "message_id": "INTEGER PRIMARY KEY",
        "conversation_id": "INTEGER",
        "seq": "INTEGER NOT NULL",
        "role": "TEXT NOT NULL",
        "content": "TEXT",
        "token_count": "INTEGER",
        "created_at": "TEXT",
        "embedding": "BLOB",
    },
    "summaries": {
        "summary_id": "TEXT PRIMARY KEY",
        "conversation_id": "INTEGER NOT NULL",
        "kind": "TEXT NOT NULL",
        "depth": "INTEGER NOT NULL DEFAULT 0",
        "content": "TEXT NOT NULL",
        "token_count": "INTEGER",
        "earliest_at": "TEXT",
        "latest_at": "TEXT",
        "descendant_count": "INTEGER NOT NULL DEFAULT 0",
        "created_at": "TEXT",
        "file_ids": "TEXT NOT NULL DEFAULT '[]'",
        "model": "TEXT NOT NULL DEFAULT 'unknown'",
        "embedding": "BLOB",
    },
    "message_parts": {
        "part_id": "TEXT PRIMARY KEY",
        "message_id": "INTEGER NOT NULL",
        "session_id": "TEXT NOT NULL",
        "part_type": "TEXT NOT NULL",
        "ordinal": "INTEGER NOT NULL",
        "text_content": "TEXT",
        "tool_call_id": "TEXT",
        "tool_name": "TEXT",
        "tool_status": "TEXT",
        "tool_input": "TEXT",
        "tool_output": "TEXT",
        "tool_error": "TEXT",
        "tool_title": "TEXT",
        "patch_hash": "TEXT",
        "patch_files": "TEXT",
        "file_mime": "TEXT",
        "file_name": "TEXT",
        "file_url": "TEXT",
        "subtask_prompt": "TEXT",
        "subtask_desc": "TEXT",
        "subtask_agent": "TEXT",
        "step_reason": "TEXT",
        "step_cost": "REAL",
        "step_tokens_in": "INTEGER",
        "step_tokens_out": "INTEGER",
        "snapshot_hash": "TEXT",
        "compaction_auto": "INTEGER",
        "metadata": "TEXT",
    },
    "summary_messages": {
        "summary_id": "TEXT NOT NULL",
        "message_id": "INTEGER NOT NULL",
        "ordinal": "INTEGER NOT NULL",
    },
    "summary_parents": {
        "summary_id": "TEXT NOT NULL",
        "parent_summary_id": "TEXT NOT NULL",
        "ordinal": "INTEGER NOT NULL",
    },
    "context_items": {
        "conversation_id": "INTEGER NOT NULL",
        "ordinal": "INTEGER NOT NULL",
        "item_type": "TEXT NOT NULL",
        "message_id": "INTEGER",
        "summary_id": "TEXT",
    },
    "large_files": {
        "file_id": "TEXT PRIMARY KEY",
        "conversation_id": "INTEGER NOT NULL",
        "file_name": "TEXT",
        "mime_type": "TEXT",
        "byte_size": "INTEGER",
        "storage_uri": "TEXT NOT NULL",
        "exploration_summary": "TEXT",
    },
    "conversation_bootstrap_state": {"conversation_id": "INTEGER PRIMARY KEY", "session_file_path": "TEXT NOT NULL"},
}

#: Where Postgres has another type.
POSTGRES_TYPES = {
    ("conversations", "active"): "boolean NOT NULL DEFAULT true",
    ("conversations", "created_at"): "timestamptz",
    ("messages", "created_at"): "timestamptz",
    ("messages", "embedding"): "vector",
    ("summaries", "created_at"): "timestamptz",
    ("summaries", "earliest_at"): "timestamptz",
    ("summaries", "latest_at"): "timestamptz",
    ("summaries", "embedding"): "vector",
    ("message_parts", "metadata"): "jsonb",
    ("message_parts", "step_cost"): "double precision",
}

Row = dict[str, Any]


@dataclass
class LcmRows:
    """The rows of a store that is made, and small ways to add them."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {table: [] for table in SCHEMA})

    def add(self, table: str, **values: Any) -> Row:
        self.rows[table].append(values)
        return values

    def conversation(self, number: int, **values: Any) -> None:
        defaults = {"session_id": f"session-{number}", "active": True, "created_at": "2026-03-02 09:00:00"}
        self.add("conversations", **{"conversation_id": number, **defaults, **values})

    def message(self, number: int, conversation: int | None, role: str, content: str | None, **values: Any) -> None:
        defaults = {"seq": number, "token_count": 10, "created_at": f"2026-03-02 09:{number // 60:02}:{number % 60:02}"}
        self.add(
            "messages",
            **{
                "message_id": number,
                "conversation_id": conversation,
                "role": role,
                "content": content,
                **defaults,
                **values,
            },
        )

    def part(self, message: int, ordinal: int, part_type: str, **values: Any) -> None:
        self.add(
            "message_parts",
            part_id=f"part-{message}-{ordinal}",
            message_id=message,
            session_id="session",
            part_type=part_type,
            ordinal=ordinal,
            **values,
        )

    def leaf(self, name: str, conversation: int, messages: Sequence[int], content: str, **values: Any) -> None:
        defaults = {"kind": "leaf", "depth": 0, "created_at": "2026-03-02 10:00:00", "model": "glm-5"}
        self.add(
            "summaries",
            **{"summary_id": name, "conversation_id": conversation, "content": content, **defaults, **values},
        )
        for ordinal, message in enumerate(messages):
            self.add("summary_messages", summary_id=name, message_id=message, ordinal=ordinal)

    def condensed(
        self, name: str, conversation: int, below: Sequence[str], content: str, *, depth: int = 1, **values: Any
    ) -> None:
        defaults = {"kind": "condensed", "depth": depth, "created_at": f"2026-03-02 1{depth}:30:00", "model": "glm-5"}
        self.add(
            "summaries",
            **{"summary_id": name, "conversation_id": conversation, "content": content, **defaults, **values},
        )
        for ordinal, child in enumerate(below):
            self.add("summary_parents", summary_id=name, parent_summary_id=child, ordinal=ordinal)

    def sqlite(self, path: Path, *, wal: bool = False) -> Path:
        """The store as a SQLite file, closed."""
        connection = sqlite3.connect(path)
        if wal:
            connection.execute("PRAGMA journal_mode = wal")
        for table, columns in SCHEMA.items():
            described = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            connection.execute(f"CREATE TABLE {table} ({described})")
        insert_sqlite(connection, self.rows)
        connection.commit()
        connection.close()
        return path

    def postgres(self, url: str, *, schema: str = "lcm", prefix: str = "") -> None:
        """The store as tables of a schema of a Postgres database that has pgvector."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            for table, columns in SCHEMA.items():
                described = ", ".join(
                    f"{name} {POSTGRES_TYPES.get((table, name), kind)}" for name, kind in columns.items()
                )
                connection.execute(f'CREATE TABLE "{schema}"."{prefix}{table}" ({described})'.encode())
                for row in self.rows[table]:
                    values = {name: _postgres_value(name, value) for name, value in row.items()}
                    names = ", ".join(values)
                    marks = ", ".join(["%s"] * len(values))
                    query = f'INSERT INTO "{schema}"."{prefix}{table}" ({names}) VALUES ({marks})'
                    connection.execute(query.encode(), list(values.values()))


def insert_sqlite(connection: sqlite3.Connection, rows: dict[str, list[Row]]) -> None:
    for table, entries in rows.items():
        for row in entries:
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))


def _postgres_value(name: str, value: Any) -> Any:
    if name == "embedding" and isinstance(value, bytes):
        return "[" + ",".join(map(str, struct.unpack(f"<{len(value) // 4}f", value))) + "]"
    return value


def blob(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def vector_tables(path: Path, model: str, vectors: Sequence[tuple[str, Sequence[float]]], *, block: int = 4) -> None:
    """The plain tables that the sqlite-vec extension (0.1.9) keeps for LCM's vectors, and the profile beside them."""
    width = len(vectors[0][1])
    name = "lcm_embeddings_" + "".join(sign for sign in model.lower() if sign.isalnum())
    connection = sqlite3.connect(path)
    connection.executescript(
        f"""
        CREATE TABLE lcm_embedding_profile (model_name TEXT NOT NULL PRIMARY KEY, dim INTEGER NOT NULL, active INTEGER);
        CREATE TABLE {name}_rowids
            (rowid INTEGER PRIMARY KEY AUTOINCREMENT, id, chunk_id INTEGER, chunk_offset INTEGER);
        CREATE TABLE {name}_auxiliary (rowid integer PRIMARY KEY, value00);
        CREATE TABLE {name}_vector_chunks00 (rowid PRIMARY KEY, vectors BLOB NOT NULL);
        """
    )
    connection.execute("INSERT INTO lcm_embedding_profile VALUES (?, ?, 1)", [model, width])
    for index, (owner, _) in enumerate(vectors):
        place = [index + 1, None, index // block + 1, index % block]
        connection.execute(f"INSERT INTO {name}_rowids VALUES (?, ?, ?, ?)", place)
        connection.execute(f"INSERT INTO {name}_auxiliary VALUES (?, ?)", [index + 1, owner])
    for start in range(0, len(vectors), block):
        numbers = [number for _, vector in vectors[start : start + block] for number in vector]
        data = blob(*numbers).ljust(block * width * 4, b"\0")
        connection.execute(f"INSERT INTO {name}_vector_chunks00 VALUES (?, ?)", [start // block + 1, data])
    connection.commit()
    connection.close()


def sample() -> LcmRows:
    """Two conversations: one of 24 messages with a tree of summaries and every kind of part, one small and archived."""
    store = LcmRows()
    store.conversation(1, session_key="agent:vale:telegram:42", title="Move the registry to harbour")
    store.conversation(2, session_key="agent:vale:telegram:7", active=False, archived_at="2026-03-02 12:00:00")
    store.add(
        "conversation_bootstrap_state", conversation_id=1, session_file_path="/home/u/.openclaw/s/session-1.jsonl"
    )
    for number in range(1, 21):
        role = "user" if number % 2 else "assistant"
        store.message(number, 1, role, f"Step {number}: the registry copies layer_{number}.tar to harbour-{number}.")
        store.part(
            number,
            0,
            "text",
            text_content=f"Step {number}: the registry copies layer_{number}.tar to harbour-{number}.",
        )
    # A thought, words and a call in one message; its result is a message of its own.
    store.message(21, 1, "assistant", "I look at the manifest.")
    raw = {"type": "toolCall", "id": "call-1", "name": "exec", "arguments": {"command": "crane manifest app"}}
    store.part(21, 0, "reasoning", text_content="The digest must match first.")
    store.part(21, 1, "text", text_content="I look at the manifest.")
    store.part(
        21,
        2,
        "tool",
        tool_call_id="call-1",
        tool_name="exec",
        tool_input=json.dumps(raw["arguments"]),
        metadata=json.dumps({"originalRole": "assistant", "rawType": "toolCall", "raw": raw}),
    )
    store.message(22, 1, "tool", "sha256:feedbeef zanzibar-digest")
    store.part(
        22,
        0,
        "text",
        text_content="sha256:feedbeef zanzibar-digest",
        tool_call_id="call-1",
        tool_name="exec",
        metadata=json.dumps({"originalRole": "toolResult", "toolCallId": "call-1", "toolName": "exec"}),
    )
    store.message(23, 1, "assistant", "[LCM Tool Output: file_00112233aabbccdd | tool=exec | 90,000 bytes]")
    store.add(
        "large_files",
        file_id="file_00112233aabbccdd",
        conversation_id=1,
        file_name="build.log",
        mime_type="text/plain",
        byte_size=90000,
        storage_uri="/home/u/.openclaw/lcm-files/1/file_00112233aabbccdd.txt",
        exploration_summary="A build log.",
    )
    store.message(24, 1, "user", "Thanks, that is all for the registry.")
    store.leaf("sum_a", 1, range(1, 11), "Layers 1 to 10 were copied to the harbour registry.")
    store.leaf("sum_b", 1, range(11, 22), "Layers 11 to 20 were copied; the manifest was looked at.")
    store.condensed("sum_c", 1, ["sum_a", "sum_b"], "All layers were copied to harbour.")
    store.condensed("sum_d", 1, ["sum_c"], "The registry moved.", depth=2)
    store.condensed("sum_e", 1, ["sum_d"], "A registry was moved in March.", depth=3)
    store.message(31, 2, "user", "Is the gateway up?")
    store.message(32, 2, "assistant", "It answers.")
    return store
