"""Which columns of the store hold text, which of them a redaction changes, and the parts of its queries over them.

Nothing is read or written here. A test holds the lists against the schema, so that a new column can not be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql


@dataclass(frozen=True, slots=True)
class Table:
    """A table with text in it. `key` orders its rows and finds one; `owner` is its kind in `ros_embeddings`.

    `fixed`: columns that are a row's identity: they are looked into and never changed.
    """

    name: str
    key: tuple[str, ...]
    texts: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    owner: str | None = None

    @property
    def covered(self) -> tuple[str, ...]:
        """The columns that are changed."""
        return self.texts + self.values + self.arrays

    @property
    def row_key(self) -> tuple[str, ...]:
        """What names a row in the log."""
        return ("id",) if "id" in self.also else self.key


MESSAGES = Table(
    "ros_messages",
    key=("seq",),
    texts=("content", "tool_result"),
    values=("tool_args", "metadata"),
    fixed=("event_id", "tool_name"),
    also=("id", "conversation_id"),
    owner="message",
)
CONVERSATIONS = Table(
    "ros_conversations",
    key=("id",),
    texts=("title",),
    values=("settings",),
    fixed=("session_key", "agent", "channel", "channel_id", "bot_identity"),
)
SUMMARIES = Table(
    "ros_summaries",
    key=("seq",),
    texts=("content",),
    values=("metadata",),
    arrays=("ungrounded",),
    also=("id", "conversation_id"),
    owner="summary",
)
REVISIONS = Table("ros_summary_revisions", key=("summary_id", "revision"), texts=("content",))
FULL_TEXTS = Table("ros_full_texts", key=("message_id",), texts=("content", "tool_result"), values=("tool_args",))
FAILURES = Table("ros_failures", key=("stage", "item"), texts=("error",))
IMPORT_FILES = Table("ros_import_files", key=("path_hash",), texts=("path",), values=("counts",))

#: Every table that is gone through, in this order: what others are made from first, so that what is made from it
#: meanwhile is still met.
TABLES = (MESSAGES, FULL_TEXTS, CONVERSATIONS, SUMMARIES, REVISIONS, FAILURES, IMPORT_FILES)

#: Every other column with text, and why a redaction does not change it. A test holds both lists against the schema.
EXEMPT: Mapping[tuple[str, str], str] = {
    ("ros_conversations", "session_key"): "identity; reported when it matches",
    ("ros_conversations", "agent"): "identity; reported when it matches",
    ("ros_conversations", "channel"): "identity; reported when it matches",
    ("ros_conversations", "channel_id"): "identity; reported when it matches",
    ("ros_conversations", "bot_identity"): "identity; reported when it matches",
    ("ros_messages", "event_id"): "identity, what makes the message known again; reported when it matches",
    ("ros_messages", "agent"): "copied from the conversation",
    ("ros_messages", "channel"): "copied from the conversation",
    ("ros_messages", "role"): "one of four words",
    ("ros_messages", "tool_name"): "a program's name; reported when it matches",
    ("ros_messages", "content_tsv"): "generated from content and tool_result",
    ("ros_summaries", "kind"): "one of three words",
    ("ros_summaries", "agents"): "copied from the conversation",
    ("ros_summaries", "model"): "a model's name",
    ("ros_summaries", "input_hash"): "a hash",
    ("ros_summaries", "content_tsv"): "generated from content",
    ("ros_summary_revisions", "model"): "a model's name",
    ("ros_summary_revisions", "input_hash"): "a hash",
    ("ros_embedding_models", "name"): "a model's name",
    ("ros_embeddings", "owner_kind"): "one of three words; the vectors of a changed text are deleted",
    ("ros_access", "kind"): "one of three words",
    ("ros_failures", "stage"): "a stage's name",
    ("ros_failures", "item"): "an id",
    ("ros_failures", "cause"): "one of three words",
    ("ros_stage_marks", "stage"): "a stage's name",
    ("ros_refinement_versions", "stage"): "a stage's name",
    ("ros_refinement_versions", "model"): "a model's name",
    ("ros_changed_texts", "kind"): "one of two words",
    ("ros_lexicon", "term"): "words that no text holds any more are deleted with the text",
    ("ros_index_pieces", "source"): "one of two words",
    ("ros_index_pieces", "agents"): "copied from the rows",
    ("ros_index_pieces", "columns"): "numbers",
    ("ros_postings", "data"): "hashes of words; the pieces with a changed text are written anew",
    ("ros_index_changes", "source"): "one of two words",
    ("ros_migrations", "name"): "a file's name",
    ("ros_migrations", "checksum"): "a hash",
    ("ros_redactions", "table_name"): "this log",
    ("ros_redactions", "row_key"): "this log: an id",
    ("ros_redactions", "rule"): "this log: one of four words",
    ("ros_redactions", "counts"): "this log: kinds and numbers",
    ("ros_redactions", "reason"): "this log: redacted before it is written",
    ("ros_redactions", "os_user"): "this log: an account's name",
    ("ros_redactions", "db_user"): "this log: an account's name",
}


def names(columns: Iterable[str]) -> sql.Composed:
    """Columns as a list."""
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def columns_of(table: Table) -> sql.Composed:
    """Every column of a table that a redaction reads."""
    return names(dict.fromkeys(table.key + table.also + table.covered + table.fixed))


def arguments(prefix: str, values: Sequence[Any] | None) -> dict[str, Any]:
    """What `marks` stand for."""
    return {f"{prefix}{place}": value for place, value in enumerate(values or ())}


def marks(prefix: str, values: Sequence[Any]) -> sql.Composed:
    """A placeholder for each of the values."""
    return sql.SQL(", ").join(sql.Placeholder(f"{prefix}{place}") for place in range(len(values)))


def is_row(table: Table) -> sql.Composed:
    """The condition that names one row; its arguments are the key's columns by name."""
    return sql.SQL("({}) = ({})").format(names(table.key), sql.SQL(", ").join(map(sql.Placeholder, table.key)))


def bound(table: Table, operator: str, prefix: str, key: tuple[Any, ...] | None) -> sql.Composable:
    """The rows beyond a key, or up to it; all without one."""
    if key is None:
        return sql.SQL("true")
    return sql.SQL("({}) {} ({})").format(names(table.key), sql.SQL(operator), marks(prefix, key))


def holds(table: Table, needles: Sequence[str]) -> sql.Composable:
    """Whether one of the strings stands in a column, as its text or as JSON escapes it; everything without any."""
    if not needles:
        return sql.SQL("true")
    texts: list[sql.Composable] = [sql.Identifier(name) for name in table.texts + table.fixed]
    texts += [sql.SQL("{}::text").format(sql.Identifier(name)) for name in table.values]
    texts += [sql.SQL("array_to_string({}, E'\n')").format(sql.Identifier(name)) for name in table.arrays]
    conditions = [
        sql.SQL("strpos({}, {}) > 0").format(text, sql.Placeholder(f"needle{place}"))
        for text in texts
        for place in range(len(needles))
    ]
    return sql.SQL("({})").format(sql.SQL(" OR ").join(conditions))
