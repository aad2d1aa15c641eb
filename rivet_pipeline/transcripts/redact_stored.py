"""Takes a secret out of everything that is stored: the one deliberate, logged exception to immutability.

In which order the rows are gone through and how each is written is here; what is replaced is `redact_rules`' business,
and where text stands that of `redact_tables`. Candidates are found by Postgres, the replacing is Python's, and a row is
a transaction of its own: an interrupted run is simply started again, and a row that fails stops no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.transcripts.redact_rules import (
    PATTERN_SECONDS,
    PatternTimeoutError,
    Rule,
    excerpt,
    sum_of,
    time_limit,
    values_in,
)
from rivet_pipeline.transcripts.redact_tables import (
    CONVERSATIONS,
    FAILURES,
    MESSAGES,
    REVISIONS,
    SUMMARIES,
    TABLES,
    TAG_DECISIONS,
    TAGS,
    WIKI_EXTRACTIONS,
    WIKI_PATCHES,
    WIKI_REVISIONS,
    WIKI_TOPICS,
    Table,
    arguments,
    bound,
    columns_of,
    holds,
    is_row,
    names,
)
from rivet_pipeline.transcripts.redaction import Counts, placeholder, redact_text

#: Rows that are looked through in one statement, and how long it may take, in seconds. What takes longer is halved.
WINDOW = 500
STATEMENT_SECONDS = 60

#: How long, in seconds, to wait for whoever else writes to a row.
LOCK_SECONDS = 30

#: Excerpts kept of each table.
EXCERPTS = 5

_WIKI = (WIKI_TOPICS, WIKI_PATCHES, WIKI_REVISIONS, WIKI_EXTRACTIONS)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Who:
    """Who redacts, and why."""

    os_user: str
    reason: str | None = None


@dataclass(slots=True)
class TableReport:
    """What was found in one table: rows, replacements by kind, and some masked excerpts."""

    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    excerpts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RedactionReport:
    """What a run found, or changed.

    `fixed`: columns that hold a match and can not be changed, with the number of rows. `problems`: rows that were left
    as they are, and why. `files`: transcript files that the changed messages came from; they still hold the words.
    `neighbours`: other messages of the same conversation with a value that was taken out of the named one. `busy`:
    conversations whose summaries were being made at the end. `taken`: what was found in titles and summaries, as it was
    written; for `wiki.redacted` alone, and never shown.
    """

    run_id: UUID
    applied: bool
    tables: dict[str, TableReport] = field(default_factory=dict)
    fixed: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    conversations: set[UUID] = field(default_factory=set)
    neighbours: int = 0
    busy: int = 0
    taken: set[str] = field(default_factory=set, repr=False)

    @property
    def rows(self) -> int:
        """Rows with something to replace."""
        return sum(table.rows for table in self.tables.values())


def redact_everywhere(connection: Connection, rule: Rule, who: Who, *, apply: bool) -> RedactionReport:
    """Replaces what the rule matches in every covered table, or with `apply` off only says what it would.

    Rows that come in while it runs are met when they come after those already seen. Raises `psycopg.OperationalError`
    when the store goes away; what was changed by then stays changed, and is not found again.
    """
    run = _Run(connection, rule, who, apply=apply)
    for table in TABLES:
        run.table(table, run.scan(table))
    run.finish()
    return run.report


def redact_message(connection: Connection, message_id: UUID, rule: Rule, who: Who, *, apply: bool) -> RedactionReport:
    """Replaces the rule's shapes in one message, and them and the values found there in what its conversation holds.

    That is the title, the settings, the summaries with their revisions, the tags with what was decided of them, and the
    failures. A `whole` rule replaces the message's whole text, and that of every summary that was made from it; the
    next run of the pipeline makes these again.
    """
    found = connection.execute(
        "SELECT conversation_id, content, tool_result, tool_args, metadata FROM ros_messages WHERE id = %s",
        [message_id],
    ).fetchone()
    if found is None:
        raise InvalidInputError("message", f"there is no message {message_id}")
    values = values_in([found["content"], found["tool_result"]], [found["tool_args"], found["metadata"]])
    run = _Run(connection, rule.with_values(values), who, apply=apply)
    if rule.name == "whole":
        run.emptied = {message_id} | run.summaries_of(message_id)
        run.first_words = found["content"].strip()[:40]
    conversation = found["conversation_id"]
    run.table(MESSAGES, run.some(MESSAGES, "id = %s", [message_id]))
    run.table(CONVERSATIONS, run.some(CONVERSATIONS, "id = %s", [conversation]))
    run.table(SUMMARIES, run.some(SUMMARIES, "conversation_id = %s", [conversation]))
    mine = "summary_id IN (SELECT id FROM ros_summaries WHERE conversation_id = %s)"
    run.table(REVISIONS, run.some(REVISIONS, mine, [conversation]))
    run.table(TAGS, run.some(TAGS, "conversation_id = %s", [conversation]))
    theirs = "coalesce(before, after) ->> 'conversation_id' = %s::text"
    run.table(TAG_DECISIONS, run.some(TAG_DECISIONS, theirs, [str(conversation)]))
    _redact_wiki(run, conversation)
    items = "item = ANY(ARRAY[%s, %s] || ARRAY(SELECT id::text FROM ros_summaries WHERE conversation_id = %s))"
    run.table(FAILURES, run.some(FAILURES, items, [str(message_id), str(conversation), conversation]))
    run.count_neighbours(conversation, message_id)
    if rule.name == "whole" and apply:
        # Sentences of the wiki quote the emptied summaries in parts that no pattern names.
        for leaf in sorted(run.emptied - {message_id}):
            connection.execute("SELECT ros_wiki_forget_leaf(%s)", [leaf])
    run.finish()
    return run.report


def _redact_wiki(run: _Run, conversation: UUID) -> None:
    """What the wiki made of the leaves of one conversation."""
    leaves = "leaf_id IN (SELECT id FROM ros_summaries WHERE conversation_id = %s AND kind = 'leaf')"
    pages = f"(SELECT topic_id FROM ros_wiki_patches WHERE {leaves})"  # noqa: S608 - a constant
    run.table(WIKI_TOPICS, run.some(WIKI_TOPICS, f"id IN {pages}", [conversation]))
    run.table(WIKI_PATCHES, run.some(WIKI_PATCHES, leaves, [conversation]))
    run.table(WIKI_REVISIONS, run.some(WIKI_REVISIONS, f"topic_id IN {pages}", [conversation]))
    run.table(WIKI_EXTRACTIONS, run.some(WIKI_EXTRACTIONS, leaves, [conversation]))


class _Run:
    """One run of the command over one connection."""

    def __init__(self, connection: Connection, rule: Rule, who: Who, *, apply: bool) -> None:
        self.report = RedactionReport(uuid4(), apply, taken=set(rule.needles) if rule.name != "pattern" else set())
        #: Messages and summaries whose whole text goes.
        self.emptied: set[UUID] = set()
        #: What a title that repeats an emptied message begins with.
        self.first_words = ""
        self._connection = connection
        self._rule = rule
        self._who = who
        self._apply = apply
        self._files: set[str] = set()

    # --- which rows

    def scan(self, table: Table) -> Iterator[Row]:
        """The candidates of a whole table, in the order of its key."""
        last: tuple[Any, ...] | None = None
        size = WINDOW
        while True:
            try:
                upper = self._window_end(table, last, size)
                rows = self._candidates(table, last, upper)
            except psycopg.errors.QueryCanceled:
                if size > 1:
                    size //= 2
                    continue
                upper, rows = self._window_end(table, last, 1), []
                self.report.problems.append(f"{table.name}: a row takes too long to read")
            yield from rows
            if upper is None:
                return
            last, size = upper, min(size * 2, WINDOW)

    def some(self, table: Table, condition: str, values: Sequence[Any]) -> list[Row]:
        """The rows of a table that a condition of this module names."""
        query = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {}").format(
            columns_of(table), sql.Identifier(table.name), sql.SQL(condition), names(table.key)
        )
        return self._connection.execute(query, values).fetchall()

    def summaries_of(self, message_id: UUID) -> set[UUID]:
        """The summaries that a message stands in, from its leaf up to the root."""
        rows = self._connection.execute(
            """
            WITH RECURSIVE above AS (
                SELECT s.id, s.parent_id FROM ros_summary_sources AS x JOIN ros_summaries AS s ON s.id = x.summary_id
                WHERE x.message_id = %s
                UNION
                SELECT s.id, s.parent_id FROM above AS a JOIN ros_summaries AS s ON s.id = a.parent_id
            )
            SELECT id FROM above
            """,
            [message_id],
        ).fetchall()
        return {row["id"] for row in rows}

    def _window_end(self, table: Table, last: tuple[Any, ...] | None, size: int) -> tuple[Any, ...] | None:
        """The key of the window's last row; None when the rest of the table is smaller than a window."""
        query = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} OFFSET %(skip)s LIMIT 1").format(
            names(table.key), sql.Identifier(table.name), bound(table, ">", "after", last), names(table.key)
        )
        rows = self._timed(query, {"skip": size - 1, **arguments("after", last)})
        return tuple(rows[0][name] for name in table.key) if rows else None

    def _candidates(self, table: Table, last: tuple[Any, ...] | None, upper: tuple[Any, ...] | None) -> list[Row]:
        query = sql.SQL("SELECT {} FROM {} WHERE {} AND {} AND {} ORDER BY {}").format(
            columns_of(table),
            sql.Identifier(table.name),
            bound(table, ">", "after", last),
            bound(table, "<=", "upto", upper),
            holds(table, self._rule.needles),
            names(table.key),
        )
        needles = arguments("needle", self._rule.needles)
        return self._timed(query, {**needles, **arguments("after", last), **arguments("upto", upper)})

    def _timed(self, query: sql.Composed, values: Mapping[str, Any]) -> list[Row]:
        with self._connection.transaction():
            self._connection.execute(
                sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(STATEMENT_SECONDS * 1000))
            )
            return self._connection.execute(query, values).fetchall()

    # --- what becomes of them

    def table(self, table: Table, rows: Iterable[Row]) -> None:
        """Goes through rows of a table: counts what would be replaced, and replaces it when that is wanted."""
        report = self.report.tables.setdefault(table.name, TableReport())
        for row in rows:
            try:
                with time_limit(PATTERN_SECONDS):
                    change = self._change(table, row)
                    self._look_at_fixed(table, row)
                    self._remember(table, row)
                if change is not None and self._apply:
                    change = self._write(table, row)
            except (psycopg.Error, PatternTimeoutError) as error:
                if self._connection.broken or self._connection.closed:
                    raise
                self.report.problems.append(f"{table.name} {_row_key(table, row)}: {_reason(error)}")
                continue
            if change is not None:
                self._count(table, report, row, change)

    def count_neighbours(self, conversation_id: UUID, message_id: UUID) -> None:
        """Counts the conversation's other messages with a value that was found in the named one."""
        if not self._rule.needles:
            return
        query = sql.SQL(
            "SELECT count(*) AS n FROM ros_messages WHERE conversation_id = %(conversation)s AND id <> %(id)s AND {}"
        ).format(holds(MESSAGES, self._rule.needles))
        values = {"conversation": conversation_id, "id": message_id, **arguments("needle", self._rule.needles)}
        self.report.neighbours = int(self._timed(query, values)[0]["n"])

    def finish(self) -> None:
        """Lists the files, and counts the conversations whose summaries are being made from what was read before."""
        self.report.files = sorted(self._files)
        if not self._apply:
            return
        for conversation in self.report.conversations:
            key = [str(conversation)]
            row = self._connection.execute(
                """
                SELECT EXISTS (
                    SELECT 1 FROM pg_locks AS l, unnest(ARRAY['leaf', 'branch', 'root']) AS k (kind)
                    WHERE l.locktype = 'advisory' AND l.objsubid = 2
                      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                      AND l.classid::bigint::bit(32)::integer = hashtext('ros_' || k.kind || '_summaries')
                      AND l.objid::bigint::bit(32)::integer = hashtext(%s)) AS busy
                """,
                key,
            ).fetchone()
            self.report.busy += bool(row and row["busy"])

    def _change(self, table: Table, row: Row) -> _Change | None:
        if row.get("id") in self.emptied:
            return self._emptied(table, row)
        change = _Change()
        for name in table.texts:
            if row[name]:
                change.add(name, row[name], self._rule.text(row[name]))
        for name in table.values:
            change.add(name, row[name], self._value(name, row[name]))
        for name in table.arrays:
            parts = [self._rule.text(part) for part in row[name]]
            change.add(name, row[name], ([text for text, _ in parts], sum_of(counts for _, counts in parts)))
        if table is CONVERSATIONS and self.first_words and (row["title"] or "").startswith(self.first_words[:20]):
            change.columns["title"] = placeholder("title")
            change.counts["title"] += 1
        return change if change.counts else None

    def _value(self, name: str, value: Any) -> tuple[Any, Counts]:
        if name != "metadata" or not isinstance(value, dict) or "redacted" not in value:
            return self._rule.value(value)
        # The count itself names kinds, which a pattern may well match.
        changed: dict[str, Any]
        changed, counts = self._rule.value({key: item for key, item in value.items() if key != "redacted"})
        return {**changed, "redacted": value["redacted"]}, counts

    def _emptied(self, table: Table, row: Row) -> _Change | None:
        kind = table.owner or "message"
        change = _Change()
        for name in (*table.texts, *(name for name in table.values if name == "tool_args")):
            gone = placeholder(kind)
            if row[name] and row[name] != gone:
                change.add(name, row[name], (gone, {kind: 1}))
        for name in table.arrays:
            change.add(name, row[name], ([], {kind: 1} if row[name] else {}))
        if "metadata" in table.values:
            change.add("metadata", row["metadata"], self._value("metadata", row["metadata"]))
        return change if change.counts else None

    def _write(self, table: Table, row: Row) -> _Change | None:
        """Replaces in the row as it is now, in a transaction of its own. None when somebody else was quicker."""
        with self._connection.transaction():
            self._connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'".encode())
            if table in (MESSAGES, CONVERSATIONS):
                # As every writer: the session first, then its rows.
                self._connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtext(session_key)) FROM ros_conversations WHERE id = %s",
                    [row["conversation_id"] if table is MESSAGES else row["id"]],
                )
            found = self._connection.execute(
                sql.SQL("SELECT {} FROM {} WHERE {} FOR UPDATE").format(
                    columns_of(table), sql.Identifier(table.name), is_row(table)
                ),
                {name: row[name] for name in table.key},
            ).fetchone()
            if found is None:
                return None
            with time_limit(PATTERN_SECONDS):
                change = self._change(table, found)
            if change is not None:
                (self._write_message if table is MESSAGES else self._write_row)(table, found, change)
        return change

    def _write_message(self, table: Table, row: Row, change: _Change) -> None:
        metadata: dict[str, Any] = change.columns.get("metadata") or row["metadata"]
        already = metadata.get("redacted")
        counts = Counter(already if isinstance(already, dict) else {}) + change.counts
        new = {**row, **change.columns, "metadata": {**metadata, "redacted": dict(counts)}}
        self._connection.execute(
            "SELECT ros_redact_message(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [
                row["id"],
                new["content"],
                None if new["tool_args"] is None else Jsonb(new["tool_args"]),
                new["tool_result"],
                Jsonb(new["metadata"]),
                *self._log(change),
            ],
        )

    def _write_row(self, table: Table, row: Row, change: _Change) -> None:
        self._connection.execute(
            """
            INSERT INTO ros_redactions (run_id, rule, counts, reason, os_user, table_name, row_key)
            VALUES (%s, %s, %s, %s, %s, %s, %s)
            """,
            [*self._log(change), table.name, _row_key(table, row)],
        )
        before = self._terms(row) if table.owner else set()
        mined = table is SUMMARIES and row["id"] not in self.emptied
        former = self._text_hash(row) if mined else None
        assignments = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(f"new_{name}")) for name in change.columns
        )
        new = {f"new_{name}": Jsonb(value) if name in table.values else value for name, value in change.columns.items()}
        self._connection.execute(
            sql.SQL("UPDATE {} SET {} WHERE {}").format(sql.Identifier(table.name), assignments, is_row(table)),
            {**new, **{name: row[name] for name in table.key}},
        )
        if mined:
            self._keep_mined(row, former)
        if table.owner:
            self._connection.execute(
                "DELETE FROM ros_embeddings WHERE owner_kind = %s AND owner_id = %s", [table.owner, row["id"]]
            )
            self._connection.execute("SELECT ros_forget_terms(%s)", [sorted(before - self._terms(row))])

    def _text_hash(self, row: Row) -> Any:
        found = self._connection.execute("SELECT text_hash FROM ros_summaries WHERE id = %s", [row["id"]]).fetchone()
        return found["text_hash"] if found else None

    def _keep_mined(self, row: Row, former: Any) -> None:
        """A leaf that was mined as it was stays mined as it is: its patches are redacted, and not proposed anew."""
        values = {"leaf": row["id"], "former": former, "now": self._text_hash(row)}
        for table, column in (("ros_wiki_patches", "leaf_hash"), ("ros_wiki_extractions", "text_hash")):
            query = f"UPDATE {table} SET {column} = %(now)s WHERE leaf_id = %(leaf)s AND {column} = %(former)s"  # noqa: S608
            self._connection.execute(query.encode(), values)

    def _terms(self, row: Row) -> set[str]:
        found = self._connection.execute(
            "SELECT tsvector_to_array(content_tsv) AS terms FROM ros_summaries WHERE id = %s", [row["id"]]
        ).fetchone()
        return set(found["terms"]) if found else set()

    def _log(self, change: _Change) -> list[Any]:
        reason = self._who.reason
        if reason is not None:
            reason = redact_text(self._rule.text(reason)[0])[0]
        return [self.report.run_id, self._rule.name, Jsonb(dict(change.counts)), reason, self._who.os_user]

    def _look_at_fixed(self, table: Table, row: Row) -> None:
        for name in table.fixed:
            if row[name] and self._rule.text(row[name])[1]:
                self.report.fixed[f"{table.name}.{name}"] += 1

    def _remember(self, table: Table, row: Row) -> None:
        """Keeps what names of the wiki may have been made of."""
        if table in (CONVERSATIONS, SUMMARIES):
            for name in table.texts:
                self.report.taken |= self._rule.found_in(row[name] or "")

    def _count(self, table: Table, report: TableReport, row: Row, change: _Change) -> None:
        report.rows += 1
        report.counts.update(change.counts)
        # A page's names may be parts of the secret that only `wiki.redacted` takes out.
        if len(report.excerpts) < EXCERPTS and table not in _WIKI:
            report.excerpts.append(excerpt(next(iter(change.columns.values()))))
        if table is MESSAGES:
            self.report.conversations.add(row["conversation_id"])
            paths = (value for key, value in row["metadata"].items() if key.endswith("_path"))
            self._files.update(path for path in paths if isinstance(path, str))


@dataclass(slots=True)
class _Change:
    """What becomes of one row."""

    columns: dict[str, Any] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, old: Any, result: tuple[Any, Counts]) -> None:
        """Takes a column's new value when something was replaced in it."""
        new, counts = result
        if counts and new != old:
            self.columns[name] = new
            self.counts.update(counts)


def vacuum(connection: Connection, report: RedactionReport) -> None:
    """Frees the space of the former row versions in the tables that a run has changed, and samples the rows anew.

    The planner's samples of a column may hold whole short texts. Runs outside of any transaction.
    """
    changed = [name for name, table in report.tables.items() if table.rows]
    for name in [*changed, *(["ros_embeddings", "ros_lexicon"] if changed else [])]:
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(name)))


def _reason(error: Exception) -> str:
    """Why a row was left, without the detail, in which Postgres repeats the row."""
    if isinstance(error, psycopg.Error):
        return error.diag.message_primary or type(error).__name__
    return "the pattern takes too long on this row"


def _row_key(table: Table, row: Row) -> str:
    return " ".join(str(row[name]) for name in table.row_key)
