"""Reads a Lossless Context Management store: a SQLite file, or the same tables in a Postgres database.

Here stands where the tables are and how their rows are asked for. What a row means is `lcm.py`'s. Nothing is written to
the source, and everything that is read is of one moment.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from rivet_pipeline.transcripts.lcm_sqlite import LcmSourceError, open_sqlite

Row = dict[str, Any]

#: What a store must have to be one, by table, as the public lossless-claw repository names it.
REQUIRED: Mapping[str, frozenset[str]] = {
    "conversations": frozenset({"conversation_id", "session_id"}),
    "messages": frozenset({"message_id", "conversation_id", "seq", "role", "content"}),
}

#: What it may have.
OPTIONAL = (
    "message_parts",
    "summaries",
    "summary_messages",
    "summary_parents",
    "large_files",
    "conversation_bootstrap_state",
    "lcm_embedding_profile",
)

#: Copies of the tables are found with this prefix too.
_PREFIXES = ("", "lcm_")

#: Rows fetched from a Postgres source at a time.
_FETCH = 500


class LcmSource(Protocol):
    """A store that is open. Values come as the source has them: SQLite's own types, or Postgres' text."""

    #: The source as it may be shown: a path, or host and database without the password.
    name: str
    #: The tables that are there, by the name without a prefix, with their columns.
    tables: dict[str, frozenset[str]]

    def run(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The answer to a query of this module. Raises `LcmSourceError` when the source fails."""
        ...

    def table(self, name: str) -> str:
        """The table as it stands in a query."""
        ...

    def column(self, alias: str, name: str) -> str:
        """A column as it is read."""
        ...

    #: What stands for a parameter.
    mark: str


def has(source: LcmSource, table: str, *columns: str) -> bool:
    """Whether the source has the table with these columns."""
    return set(columns) <= source.tables.get(table, frozenset()) if table in source.tables else False


def count_rows(source: LcmSource, table: str, *, filled: str | None = None) -> int:
    """The rows of a table, 0 when it is not there; with `filled`, those in which that column has a value."""
    if not has(source, table, *([filled] if filled else [])):
        return 0
    where = f' WHERE "{filled}" IS NOT NULL' if filled else ""
    ((number,),) = source.run(f"SELECT count(*) FROM {source.table(table)}{where}")  # noqa: S608 - names of this module
    return int(number)


def read_rows(source: LcmSource, table: str, *, order: Sequence[str] = ()) -> Iterator[Row]:
    """All rows of a table, none when it is not there."""
    if table not in source.tables:
        return iter(())
    columns = sorted(source.tables[table])
    shown = ", ".join(source.column("t", column) for column in columns)
    query = f"SELECT {shown} FROM {source.table(table)} AS t{_order(order)}"  # noqa: S608 - names of this module
    return (_row(columns, values) for values in source.run(query))


def read_conversation(
    source: LcmSource,
    table: str,
    conversation: Any,
    *,
    columns: Collection[str] | None = None,
    via: tuple[str, str] | None = None,
    order: Sequence[str] = (),
) -> Iterator[Row]:
    """The rows of a table that belong to a conversation, none when the table or a column is not there.

    Args:
        source: The store.
        table: The table, `t` in `order`.
        conversation: Its `conversation_id` as the source gave it; None: the rows without one.
        columns: Those to read; all when None.
        via: The table, `o` in `order`, that knows the conversation, and the key that both share; when None it is the
            table itself.
        order: Columns such as `t.seq`.
    """
    wanted = sorted(source.tables.get(table, ()) if columns is None else columns)
    owner = via[0] if via else table
    if not has(source, table, *wanted) or not has(source, owner, "conversation_id"):
        return iter(())
    shown = ", ".join(source.column("t", column) for column in wanted)
    joined, known = f"{source.table(table)} AS t", "t"
    if via:
        joined, known = f'{joined} JOIN {source.table(owner)} AS o ON o."{via[1]}" = t."{via[1]}"', "o"
    condition = f'{known}."conversation_id" ' + ("IS NULL" if conversation is None else f"= {source.mark}")
    query = f"SELECT {shown} FROM {joined} WHERE {condition}{_order(order)}"  # noqa: S608 - names of this module
    parameters = [] if conversation is None else [conversation]
    return (_row(wanted, values) for values in source.run(query, parameters))


def _row(columns: Sequence[str], values: Sequence[Any]) -> Row:
    """The row by column. SQLite may hold bytes where text is meant; only a vector is meant as bytes."""
    return {
        column: value.decode("utf-8", "replace") if isinstance(value, bytes) and column != "embedding" else value
        for column, value in zip(columns, values, strict=True)
    }


def missing_conversations(source: LcmSource) -> list[Any]:
    """The `conversation_id`s that messages or summaries name and that no conversation has, in order."""
    found: set[Any] = set()
    for table in ("messages", "summaries"):
        if has(source, table, "conversation_id"):
            query = (
                f"SELECT DISTINCT {source.column('t', 'conversation_id')} FROM {source.table(table)} AS t "  # noqa: S608
                f"WHERE NOT EXISTS (SELECT 1 FROM {source.table('conversations')} AS c "
                'WHERE c."conversation_id" = t."conversation_id")'
            )
            found |= {value for (value,) in source.run(query)}
    return sorted(found, key=lambda value: (value is not None, str(value)))


def count_orphans(source: LcmSource, table: str, owner: str, key: str, *, but: Collection[Any] = frozenset()) -> int:
    """The rows of a table whose owner is in no row of the owner's table, those of the keys in `but` left aside."""
    if not has(source, table, key) or not has(source, owner, key):
        return count_rows(source, table)
    query = (
        f"SELECT {source.column('t', key)}, count(*) FROM {source.table(table)} AS t "  # noqa: S608 - names of this module
        f'WHERE NOT EXISTS (SELECT 1 FROM {source.table(owner)} AS o WHERE o."{key}" = t."{key}") GROUP BY 1'
    )
    return sum(int(number) for value, number in source.run(query) if value not in but)


def _order(columns: Sequence[str]) -> str:
    # With the alias: without it Postgres would sort by the text that is read.
    parts = [column.split(".") for column in columns]
    return " ORDER BY " + ", ".join(f'{alias}."{name}"' for alias, name in parts) if parts else ""


@contextmanager
def open_source(location: str) -> Iterator[LcmSource]:
    """The store at a path or a postgresql:// address, open for the length of the block.

    Raises `LcmSourceError`, one line without a password, when it can not be read or is no LCM store.
    """
    if not location.strip():
        raise LcmSourceError("name the LCM store: its file, such as ~/.openclaw/lcm.db, or a postgresql:// address.")
    if location.startswith(("postgresql://", "postgres://")):
        with _open_postgres(location) as source:
            yield source
    elif "://" in location:
        raise LcmSourceError("the source must be a file or a postgresql:// address.")
    else:
        with open_sqlite(Path(location)) as connection:
            yield _SqliteSource(connection, str(Path(location).expanduser()))


class _SqliteSource:
    """The tables of a SQLite file."""

    mark = "?"

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self.name = name
        self._connection = connection
        present = {
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table','view')")
        }
        found = {
            prefix: {
                table: frozenset(row[1] for row in connection.execute(f'PRAGMA table_info("{prefix}{table}")'))
                for table in (*REQUIRED, *OPTIONAL)
                if f"{prefix}{table}" in present
            }
            for prefix in _PREFIXES
        }
        self._prefix = next((prefix for prefix in _PREFIXES if not _lacking(found[prefix])), None)
        if self._prefix is None:
            raise LcmSourceError(f"{name} is no LCM store: it has {_lacking(found[''])}.")
        self.tables: dict[str, frozenset[str]] = found[self._prefix]
        if self._prefix == "" and "lcm_embedding_profile" in present:
            self._find_vectors(present)

    def run(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(query, parameters)
        except sqlite3.Error as error:
            raise LcmSourceError(f"{self.name} can not be read to its end: {error}.") from error

    def table(self, name: str) -> str:
        vectors = name.startswith("lcm_embedding")
        return f'"{name}"' if vectors else f'"{self._prefix}{name}"'

    def column(self, alias: str, name: str) -> str:
        return f'{alias}."{name}"'

    def _find_vectors(self, present: set[str]) -> None:
        """The plain tables in which the vector extension keeps its own; the extension is not needed to read them."""
        for table in sorted(present):
            if table.startswith("lcm_embeddings_") and table.endswith(("_rowids", "_auxiliary", "_vector_chunks00")):
                self.tables[table] = frozenset(
                    row[1] for row in self._connection.execute(f'PRAGMA table_info("{table}")')
                )


class _PostgresSource:
    """The tables of a Postgres schema. Every value is read as text: a date of the year 20000 must not stop a row."""

    mark = "%s"

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], name: str) -> None:
        self.name = name
        self._connection = connection
        self._numbers = count()
        self._schema, self._prefix, self.tables = _find_schema(connection, name)

    def run(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            with self._connection.cursor(f"rivet_lcm_{next(self._numbers)}") as cursor:
                cursor.itersize = _FETCH
                cursor.execute(query.encode(), parameters or None)
                yield from cursor
        except psycopg.Error as error:
            raise LcmSourceError(f"{self.name} can not be read to its end: {_reason(error)}.") from error

    def table(self, name: str) -> str:
        return f'{_quoted(self._schema)}."{self._prefix}{name}"'

    def column(self, alias: str, name: str) -> str:
        return f'{alias}."{name}"::text'


@contextmanager
def _open_postgres(location: str) -> Iterator[LcmSource]:
    try:
        given = conninfo_to_dict(location)
        options = f"{given.get('options') or ''} -c default_transaction_read_only=on -c timezone=UTC"
        # Writing to the memory may take longer than a server waits for a client that has a transaction open.
        options += " -c idle_in_transaction_session_timeout=0"
        connection = psycopg.connect(make_conninfo(location, options=options.strip(), connect_timeout=10))
    except psycopg.ProgrammingError:
        raise LcmSourceError(
            "the source is no Postgres address; write postgresql://user:password@host:5432/database."
        ) from None
    except psycopg.Error as error:
        raise LcmSourceError(f"the source can not be reached: {_reason(error)}; check its address.") from error
    name = f"{given.get('host') or 'localhost'}/{connection.info.dbname}"
    with connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield _PostgresSource(connection, name)
        connection.rollback()


def _find_schema(
    connection: psycopg.Connection[tuple[Any, ...]], name: str
) -> tuple[str, str, dict[str, frozenset[str]]]:
    """The schema and prefix under which the tables stand: the one on the search path, else the only one there is."""
    names = [prefix + table for prefix in _PREFIXES for table in (*REQUIRED, *OPTIONAL)]
    rows = connection.execute(
        """
        SELECT table_schema, table_name, array_agg(column_name::text),
               coalesce(array_position(current_schemas(false), table_schema::name), 1000) AS place
        FROM information_schema.columns WHERE table_name = ANY(%s)
        GROUP BY table_schema, table_name ORDER BY place, table_schema
        """,
        [names],
    ).fetchall()
    found: list[tuple[int, str, str, dict[str, frozenset[str]]]] = []
    for schema, place in dict.fromkeys((row[0], row[3]) for row in rows):
        here = {row[1]: frozenset(row[2]) for row in rows if row[0] == schema}
        for prefix in _PREFIXES:
            tables = {table: here[prefix + table] for table in (*REQUIRED, *OPTIONAL) if prefix + table in here}
            if not _lacking(tables):
                found.append((place, schema, prefix, tables))
    if not found:
        raise LcmSourceError(f"{name} holds no LCM store: no schema has the tables {' and '.join(REQUIRED)}.")
    if len(found) > 1 and found[0][0] == found[1][0] == 1000:
        schemas = ", ".join(sorted({entry[1] for entry in found}))
        raise LcmSourceError(
            f"{name} holds several LCM stores; name one of the schemas {schemas}: ?options=-csearch_path%3D<schema>."
        )
    return found[0][1:]


def _lacking(tables: Mapping[str, frozenset[str]]) -> str:
    """What the tables lack to be an LCM store; empty when they are one."""
    for table, columns in REQUIRED.items():
        if table not in tables:
            return f"no table {table}"
        if missing := columns - tables[table]:
            return f"no column {table}.{sorted(missing)[0]}"
    return ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _reason(error: psycopg.Error) -> str:
    # The first line says what is wrong, the others ask whether the server runs.
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return first.removeprefix("connection failed: ").rstrip(".")
