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
WIKI_TOPICS = Table(
    "ros_wiki_topics",
    key=("id",),
    texts=("title", "search_text"),
    values=("page",),
    arrays=("aliases", "entities", "alias_keys", "keys"),
    fixed=("slug",),
    owner="topic",
)
WIKI_PATCHES = Table("ros_wiki_patches", key=("id",), texts=("title", "reason"), values=("payload",))
WIKI_REVISIONS = Table("ros_wiki_revisions", key=("topic_id", "revision"), texts=("title",), values=("page",))
WIKI_EXTRACTIONS = Table("ros_wiki_extractions", key=("leaf_id",), arrays=("mention_keys", "mentions"))
FAILURES = Table("ros_failures", key=("stage", "item"), texts=("error",))
TAGS = Table("ros_tags", key=("id",), texts=("tag_value", "display", "reason", "removal_reason"))
TAG_VALUES = Table("ros_tag_taxonomy", key=("id",), texts=("tag_value", "alias_of", "display", "description"))
TAG_DECISIONS = Table("ros_tag_decisions", key=("id",), texts=("tag_value",), values=("before", "after"))
TAG_EXTRACTIONS = Table("ros_tag_extractions", key=("summary_id",), texts=("error",))
IMPORT_FILES = Table("ros_import_files", key=("path_hash",), texts=("path",), values=("counts",))

#: Every table that is gone through, in this order: what others are made from first, so that what is made from it
#: meanwhile is still met.
TABLES = (
    MESSAGES,
    FULL_TEXTS,
    CONVERSATIONS,
    SUMMARIES,
    REVISIONS,
    TAGS,
    TAG_VALUES,
    TAG_DECISIONS,
    TAG_EXTRACTIONS,
    WIKI_TOPICS,
    WIKI_PATCHES,
    WIKI_REVISIONS,
    WIKI_EXTRACTIONS,
    FAILURES,
    IMPORT_FILES,
)

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
    ("ros_wiki_topics", "slug"): "identity, the page's address; reported when it matches",
    ("ros_wiki_topics", "status"): "one of three words",
    ("ros_wiki_topics", "content_tsv"): "generated from title and search_text",
    ("ros_wiki_patches", "kind"): "one of three words",
    ("ros_wiki_patches", "status"): "one of five words",
    ("ros_wiki_patches", "decision"): "one of seven words",
    ("ros_wiki_patches", "model"): "a model's name",
    ("ros_wiki_patches", "decided_by"): "who decided",
    ("ros_wiki_revisions", "cause"): "what made it, and who decided",
    ("ros_wiki_redirects", "from_slug"): "identity, a page's former address",
    ("ros_wiki_extractions", "model"): "a model's name",
    ("ros_wiki_extractions", "outcome"): "one of three words",
    ("ros_embedding_models", "name"): "a model's name",
    ("ros_retrieval_quality", "question_set"): "a set's name",
    ("ros_retrieval_quality", "embedder"): "a model's name",
    ("ros_retrieval_quality", "figures"): "figures alone",
    ("ros_embeddings", "owner_kind"): "one of three words; the vectors of a changed text are deleted",
    ("ros_access", "kind"): "one of three words",
    ("ros_failures", "stage"): "a stage's name",
    ("ros_failures", "item"): "an id",
    ("ros_failures", "cause"): "one of three words",
    ("ros_stage_marks", "stage"): "a stage's name",
    ("ros_message_counts", "agent"): "copied from the conversation",
    ("ros_message_counts", "role"): "one of four words",
    ("ros_message_counts", "tool_name"): "a program's name, copied from the messages",
    ("ros_message_counts", "kind"): "one of three words",
    ("ros_refinement_versions", "stage"): "a stage's name",
    ("ros_refinement_versions", "model"): "a model's name",
    ("ros_changed_texts", "kind"): "one of two words",
    ("ros_tags", "entity_kind"): "one of two words",
    ("ros_tags", "tag_key"): "a key such as topic or project",
    ("ros_tags", "status"): "one of three words",
    ("ros_tags", "source"): "one of five words",
    ("ros_tags", "proposed_by"): "a model's, a rule's or a person's name",
    ("ros_tags", "removal"): "one of two words",
    ("ros_tags", "decided_by"): "a person's name",
    ("ros_tag_taxonomy", "tag_key"): "a key such as topic or project",
    ("ros_tag_taxonomy", "status"): "one of three words",
    ("ros_tag_taxonomy", "source"): "one of four words",
    ("ros_tag_taxonomy", "proposed_by"): "a model's or a person's name",
    ("ros_tag_taxonomy", "decided_by"): "a person's name",
    ("ros_tag_decisions", "action"): "one of six words",
    ("ros_tag_decisions", "subject"): "one of two words",
    ("ros_tag_decisions", "tag_key"): "a key such as topic or project",
    ("ros_tag_decisions", "decided_by"): "a person's name",
    ("ros_tag_extractions", "status"): "one of three words",
    ("ros_tag_extractions", "model"): "a model's name",
    ("ros_lexicon", "term"): "words that no text holds any more are deleted with the text",
    ("ros_index_pieces", "source"): "one of two words",
    ("ros_index_pieces", "agents"): "copied from the rows",
    ("ros_index_pieces", "columns"): "numbers",
    ("ros_postings", "data"): "hashes of words; the pieces with a changed text are written anew",
    ("ros_index_changes", "source"): "one of two words",
    ("ros_vector_pieces", "source"): "one of two words",
    ("ros_vector_pieces", "offsets"): "numbers",
    ("ros_vector_pieces", "codes"): "signs of vectors; the pieces with a changed text are written anew",
    ("ros_vector_changes", "source"): "one of two words",
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
