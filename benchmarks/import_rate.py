"""How fast import is against a raw COPY of exactly the rows it makes, in the same run.

Writes Claude Code session files (made-up words by Zipf's law, or stretches of real text when RIVET_SHARED_DATA is set),
imports them into a fresh migrated database of a temporary embedded server as it runs in production (fsync on), reads
the rows back, and copies them into a second database with the same indexes and triggers. Both are repeated in turn,
each time into a new database; medians are compared.

    python -m benchmarks.import_rate [--messages 20000] [--rounds 3] [--profile]
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from benchmarks.sessions import texts_of, write_sessions
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts import batches, importer, ingest
from rivet_pipeline.transcripts.readers.claude_code import ClaudeCodeReader

FIRST_DAY = date(2022, 11, 1)
MAX_LINE = int(Settings.model_fields["import_max_line"].default)

_CONVERSATIONS = "id, session_key, agent, channel, title, settings, active, day, revision, created_at, updated_at"
_MESSAGES = """id, seq, conversation_id, event_id, agent, channel, role, content, tool_name, tool_args, tool_result,
               metadata, created_at, captured_at"""

#: The functions of `ingest` by the part of the work they do. Besides, `parse` is the reader and `commit` what is left
#: of a batch.
_PARTS = {
    "clean": ("clean_session", "make_row"),
    "plan": ("wanted_ids", "_look_up", "_found", "possible_clashes", "make_plan"),
    "write": ("_conversation_values", "_message_values", "_insert", "_fill"),
}


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a store as COPY gives and takes them."""

    conversations: list[bytes]
    messages: list[bytes]


class Databases:
    """Fresh, migrated databases of one server."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._numbers = count(1)

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """The address of a new one, dropped at the end. The server has nothing left to write when it is handed out."""
        name = f"benchmark_{next(self._numbers)}"
        with connect(self._server.url("postgres")) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
            with connect(self._server.url(name)) as connection:
                apply_migrations(connection)
            admin.execute("CHECKPOINT")
            yield self._server.url(name)
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def run_import(url: str, folder: Path, messages: int) -> float:
    """Imports the folder, checks that every message landed, and returns the seconds it took."""
    begun = time.perf_counter()
    report = importer.import_paths(url, [folder], first_day=FIRST_DAY, max_line=MAX_LINE)
    seconds = time.perf_counter() - begun
    if report.messages()["new"] != messages:
        raise SystemExit(f"{messages} messages were written and {report.messages()} came of them")
    return seconds


def read_rows(url: str) -> Rows:
    """Everything that the import stored, but generated columns."""
    with connect(url) as connection:
        return Rows(
            _copy_out(connection, f"SELECT {_CONVERSATIONS} FROM ros_conversations"),
            _copy_out(connection, f"SELECT {_MESSAGES} FROM ros_messages ORDER BY seq"),
        )


def run_copy(url: str, rows: Rows) -> float:
    """Copies the messages in one transaction and returns the seconds it took; their conversations are there before."""
    with connect(url) as connection:
        _copy_in(connection, f"COPY ros_conversations ({_CONVERSATIONS}) FROM STDIN", rows.conversations)
        begun = time.perf_counter()
        _copy_in(connection, f"COPY ros_messages ({_MESSAGES}) FROM STDIN", rows.messages)
        return time.perf_counter() - begun


def _copy_out(connection: Connection, query: str) -> list[bytes]:
    with connection.cursor().copy(f"COPY ({query}) TO STDOUT".encode()) as stream:
        return [bytes(block) for block in stream]


def _copy_in(connection: Connection, statement: str, blocks: list[bytes]) -> None:
    with connection.cursor().copy(statement.encode()) as stream:
        for block in blocks:
            stream.write(block)


class Profile:
    """Where an import's time goes: wall-clock seconds by part, by timers around the functions of each part."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Times everything that is imported within the block."""
        with ExitStack() as stack:
            for part, names in _PARTS.items():
                for name in names:
                    timed = self._timed(part, getattr(ingest, name))
                    stack.enter_context(patch.object(ingest, name, timed))
            stack.enter_context(patch.object(batches, "write_batch", self._timed("batch", ingest.write_batch)))
            stack.enter_context(patch.object(ClaudeCodeReader, "read", self._steps("parse", ClaudeCodeReader.read)))
            yield

    def table(self, whole: float) -> Iterator[tuple[str, float]]:
        """Each part's seconds, in the order of the work; `other` is what the importer itself took."""
        inner = sum(self.seconds[part] for part in _PARTS)
        yield "parse", self.seconds["parse"]
        yield from ((part, self.seconds[part]) for part in _PARTS)
        yield "commit", self.seconds["batch"] - inner
        yield "other", whole - self.seconds["batch"] - self.seconds["parse"]

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds[part] += time.perf_counter() - begun

        return timed

    def _steps(self, part: str, function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def steps(*arguments: Any, **named: Any) -> Iterator[Any]:
            items = function(*arguments, **named)
            while True:
                begun = time.perf_counter()
                item = next(items, None)
                self.seconds[part] += time.perf_counter() - begun
                if item is None:
                    return
                yield item

        return steps


def main() -> None:
    """Writes the files, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3, help="how often each of the two is run (at least 2)")
    parser.add_argument("--profile", action="store_true", help="also say where the time of one more import goes")
    options = parser.parse_args()
    rng = random.Random(11)
    shared = os.environ.get("RIVET_SHARED_DATA")
    with tempfile.TemporaryDirectory(prefix="rivet-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "sessions"
        folder.mkdir()
        size = write_sessions(
            folder, messages=options.messages, files=options.files, texts=texts_of(rng, shared), rng=rng
        )
        server = EmbeddedServer(Path(name) / "postgres")
        server.start()
        try:
            _measure(Databases(server), folder, size, options)
        finally:
            server.stop()


def _measure(databases: Databases, folder: Path, size: int, options: argparse.Namespace) -> None:
    imports: list[float] = []
    copies: list[float] = []
    rows: Rows | None = None
    for _ in range(max(2, options.rounds)):
        with databases.fresh() as url:
            imports.append(run_import(url, folder, options.messages))
            rows = rows or read_rows(url)
        with databases.fresh() as url:
            copies.append(run_copy(url, rows))
    assert rows is not None
    copied = sum(map(len, rows.messages))
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"{options.messages:,} messages in {options.files} files ({size / 1e6:.1f} MB, {copied / 1e6:.1f} MB of rows), "
        f"{len(imports)} rounds; load {load}\n"
    )
    print(f"{'':10}{'messages/s':>12}{'MB/s':>8}{'seconds (median, all)':>28}")
    for label, times, amount in (("COPY", copies, copied), ("import", imports, size)):
        middle = median(times)
        every = ", ".join(f"{seconds:.1f}" for seconds in times)
        print(f"{label:10}{options.messages / middle:>12,.0f}{amount / middle / 1e6:>8.1f}{middle:>10.1f}  ({every})")
    print(f"\nimport is {median(copies) / median(imports):.2f} of COPY")
    if options.profile:
        _print_profile(databases, folder, options.messages)


def _print_profile(databases: Databases, folder: Path, messages: int) -> None:
    profile = Profile()
    with databases.fresh() as url, profile.watching():
        whole = run_import(url, folder, messages)
    print(f"\n{'part':10}{'seconds':>10}{'share':>8}")
    for part, seconds in profile.table(whole):
        print(f"{part:10}{seconds:>10.2f}{seconds / whole:>8.0%}")


if __name__ == "__main__":
    main()
