"""The summary tree over random conversations, with two workers at once, and with a crash at every statement.

What a summary says is tested elsewhere; here it is which messages it stands for, and under what it stands.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import rivet_pipeline
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.db.quality import orphan_summaries
from rivet_pipeline.summaries.compact import summarize_branches, summarize_leaves, summarize_roots
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.summaries.types import Summarizer, SummaryDraft, SummaryRequest
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline_tests.unit.demo_points import CORRECTIONS, DECISIONS, PREFERENCES

ACTIVE, IDLE, STALE = timedelta(0), timedelta(minutes=20), timedelta(days=5)

#: Each conversation of this module begins on a day of its own, so that a pass can be told to do it alone.
_days = (date(2026, 1, 1) + timedelta(days=number) for number in itertools.count())

SOME = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


# --- random conversations ---


class Said:
    """A message before it is stored: seconds after the first one, and what it says."""

    def __init__(self, at: int, role: str, text: str, tool: str | None, result: str | None, kind: str | None) -> None:
        self.at, self.role, self.text, self.tool, self.result, self.kind = at, role, text, tool, result, kind

    def __repr__(self) -> str:
        return f"Said({self.at}, {self.role}, {self.text[:20]!r}, {self.tool}, {self.kind})"


texts = st.one_of(
    st.just(""),
    st.just("   "),
    st.just("ok"),
    st.text(min_size=1, max_size=40).map(lambda text: text.replace("\x00", "")),
    st.sampled_from(
        ["The gauge TG-02 stamps local time.", "No, use the timer instead.", "潮位メモを更新してください。"]
    ),
    st.integers(2, 60).map(lambda times: "One more line of the account, see `src/app.py`. " * times),
)
# Many at the same second, some far apart, and captured in any order.
messages = st.lists(
    st.builds(
        Said,
        at=st.one_of(st.integers(0, 3), st.integers(0, 10_000_000)),
        role=st.sampled_from(["user", "assistant", "tool", "system"]),
        text=texts.map(lambda text: text.encode("utf-8", "ignore").decode()),
        tool=st.sampled_from([None, None, None, "Bash"]),
        result=st.sampled_from([None, None, "", "done", "error: no such file"]),
        kind=st.sampled_from([None, None, None, None, "speech", "thinking", "injected", "replay"]),
    ),
    max_size=40,
)


@st.composite
def talks(draw: st.DrawFn) -> list[Said]:
    """Conversations of up to some hundred messages: a short random one, repeated, so that trees have every level."""
    said = draw(messages)
    times = draw(st.sampled_from([1, 1, 2, 5, 12]))
    return said * times


def steps(count: int) -> list[Said]:
    """A plain conversation."""
    return [
        Said(
            number,
            "assistant" if number % 2 else "user",
            f"Step {number} changed `src/part_{number}.py`. " * 3,
            None,
            None,
            None,
        )
        for number in range(count)
    ]


def store(connection: Connection, said: Sequence[Said], rest: timedelta, *, noise: bool = False) -> tuple[UUID, date]:
    """The conversation as capture leaves it, last written `rest` ago."""
    day = next(_days)
    row = connection.execute(
        """
        INSERT INTO ros_conversations (session_key, agent, channel, title, day, revision, updated_at)
        VALUES (%s, 'opus', 'cli', 'Test', %s, 1, %s) RETURNING id
        """,
        [f"{'heartbeat' if noise else 'test'}:{day}", day, datetime.now(UTC) - rest],
    ).fetchone()
    assert row is not None
    with connection.cursor() as cursor:
        cursor.executemany(
            """
            INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, tool_name, tool_result,
                                      metadata, created_at)
            VALUES (%s, %s, 'opus', 'cli', %s, %s, %s, %s, jsonb_strip_nulls(jsonb_build_object('kind', %s::text)), %s)
            """,
            [
                (
                    row["id"],
                    str(number),
                    one.role,
                    one.text,
                    one.tool,
                    one.result,
                    one.kind,
                    datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=one.at),
                )
                for number, one in enumerate(said)
            ],
        )
    identity: UUID = row["id"]
    return identity, day


# --- passes and trees ---


class Counted:
    """The extractive summarizer, counted. With `most` characters it can not read more than that at once."""

    model = "extractive-2"

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.calls = 0

    def fits(self, request: SummaryRequest) -> bool:
        return self.most is None or sum(len(source.content) for source in request.inputs) <= self.most

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        self.calls += 1
        return ExtractiveSummarizer().summarize(request)


def passes(pool: Pool, day: date, summarizer: Summarizer) -> int:
    """Passes over all levels until one writes nothing. Returns how many wrote something."""
    number = 0
    while once(pool, day, summarizer):
        number += 1
    return number


def once(pool: Pool, day: date, summarizer: Summarizer) -> int:
    """One pass over all levels. Returns how many rows it wrote."""
    levels = (summarize_leaves, summarize_branches, summarize_roots)
    return sum(level(pool, days=[day], summarizer=summarizer).rows for level in levels)


def tree(connection: Connection, conversation: UUID) -> list[tuple[str, tuple[int, ...], str]]:
    """Every summary as its kind, the places of the messages below it, and its text without ids."""
    places = {
        row["id"]: place
        for place, row in enumerate(
            connection.execute(
                "SELECT id FROM ros_messages WHERE conversation_id = %s ORDER BY created_at, seq", [conversation]
            )
        )
    }
    below: dict[UUID, list[int]] = {}
    for row in connection.execute(
        """
        SELECT s.summary_id, s.message_id FROM ros_summary_sources AS s
        JOIN ros_summaries AS l ON l.id = s.summary_id
        WHERE l.conversation_id = %s ORDER BY s.summary_id, s.ordinal
        """,
        [conversation],
    ):
        below.setdefault(row["summary_id"], []).append(places[row["message_id"]])
    summaries = connection.execute(
        "SELECT * FROM ros_summaries WHERE conversation_id = %s ORDER BY depth, earliest_at, seq", [conversation]
    ).fetchall()
    for summary in summaries:
        if summary["parent_id"] is not None:
            below.setdefault(summary["parent_id"], []).extend(below[summary["id"]])
    return [
        (summary["kind"], tuple(below.get(summary["id"], ())), re.sub(r"[0-9a-f-]{36}", "id", summary["content"]))
        for summary in summaries
    ]


def sizes(waiting: int, batch: int, least: int) -> list[int]:
    """The sizes that batches of so many have; `least` is from how many on the rest is one too (0: never)."""
    rest = waiting % batch
    return [batch] * (waiting // batch) + ([rest] if least and rest >= least else [])


def assert_sound(connection: Connection, conversation: UUID, rest: timedelta, *, noise: bool, whole: bool) -> None:
    """The invariants; with `whole` also how many messages and children each batch has."""
    refined = [
        place
        for place, row in enumerate(
            connection.execute(
                """
                SELECT ros_is_refined(content, tool_name, tool_result, metadata) AS refined FROM ros_messages
                WHERE conversation_id = %s ORDER BY created_at, seq
                """,
                [conversation],
            )
        )
        if row["refined"]
    ]
    made = tree(connection, conversation)
    leaves = [places for kind, places, _ in made if kind == "leaf"]
    expected = [] if noise else sizes(len(refined), 10, {ACTIVE: 0, IDLE: 5, STALE: 2}[rest])
    # Cover and order: each due message in one leaf, in total order, the oldest first, none left out between.
    assert [place for places in leaves for place in places] == refined[: sum(expected)]
    for kind in ("branch", "root"):
        covered = [place for found, places, _ in made if found == kind for place in places]
        assert covered == refined[: len(covered)]
    if whole:
        branches = sizes(len(expected), 8, 0 if rest == ACTIVE else 5)
        roots = sizes(len(branches), 5, 0 if rest == ACTIVE else 3)
        assert [len(places) for places in leaves] == expected
        assert sum(kind == "branch" for kind, _, _ in made) == len(branches)
        assert sum(kind == "root" for kind, _, _ in made) == len(roots)
    assert_counts_and_spans(connection, conversation)


def assert_counts_and_spans(connection: Connection, conversation: UUID) -> None:
    """Each summary's figures are those of what stands below it, and each parent is of the next level."""
    wrong = connection.execute(
        """
        WITH below AS (
            SELECT x.summary_id AS id, count(*) AS n, min(m.created_at) AS a, max(m.created_at) AS b, 'message' AS kind
            FROM ros_summary_sources AS x JOIN ros_messages AS m ON m.id = x.message_id GROUP BY x.summary_id
            UNION ALL
            SELECT parent_id, sum(message_count), min(earliest_at), max(latest_at), min(kind) FROM ros_summaries
            WHERE parent_id IS NOT NULL GROUP BY parent_id HAVING min(kind) = max(kind)
        )
        SELECT s.* FROM ros_summaries AS s LEFT JOIN below AS b ON b.id = s.id
        WHERE s.conversation_id = %s
          AND ((s.message_count, s.earliest_at, s.latest_at) IS DISTINCT FROM (b.n, b.a, b.b)
               OR b.kind <> CASE s.kind WHEN 'leaf' THEN 'message' WHEN 'branch' THEN 'leaf' ELSE 'branch' END
               OR (s.kind = 'root' AND s.parent_id IS NOT NULL)
               OR btrim(s.content) = '' OR s.grounding < 1)
        """,
        [conversation],
    ).fetchall()
    assert wrong == []


def at_once(works: Sequence[Callable[[], Any]]) -> None:
    """Runs them in threads that start together. Raises what the first of them raised."""
    errors: list[BaseException] = []
    ready = threading.Barrier(len(works))

    def run(work: Callable[[], Any]) -> None:
        try:
            ready.wait()
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@SOME
@example(said=steps(417), rest=STALE, noise=False)
@given(said=talks(), rest=st.sampled_from([ACTIVE, IDLE, STALE]), noise=st.sampled_from([False] * 5 + [True]))
def test_any_conversation_makes_a_sound_tree(
    connection: Connection, pool: Pool, said: list[Said], rest: timedelta, noise: bool
) -> None:
    conversation, day = store(connection, said, rest, noise=noise)
    assert passes(pool, day, Counted()) <= 1
    assert_sound(connection, conversation, rest, noise=noise, whole=True)
    again = Counted()
    assert passes(pool, day, again) == 0
    assert again.calls == 0


@SOME
@given(said=talks(), rest=st.sampled_from([ACTIVE, IDLE, STALE]), most=st.integers(200, 3_000))
def test_a_bound_on_what_is_read_loses_no_message(
    connection: Connection, pool: Pool, said: list[Said], rest: timedelta, most: int
) -> None:
    conversation, day = store(connection, said, rest)
    passes(pool, day, Counted(most))
    assert_sound(connection, conversation, rest, noise=False, whole=False)
    again = Counted(most)
    assert passes(pool, day, again) == 0
    assert again.calls == 0


@SOME
@given(said=talks(), rest=st.sampled_from([ACTIVE, IDLE, STALE]), most=st.sampled_from([None, 1_500]))
def test_two_workers_make_the_tree_of_one(
    connection: Connection, pool: Pool, said: list[Said], rest: timedelta, most: int | None
) -> None:
    alone, day = store(connection, said, rest)
    passes(pool, day, Counted(most))
    together, other_day = store(connection, said, rest)
    at_once([lambda: passes(pool, other_day, Counted(most))] * 2)
    # A worker whose last pass met the other's lock leaves nothing behind that the other does not do.
    passes(pool, other_day, Counted(most))
    assert tree(connection, together) == tree(connection, alone)


class Interrupted(Counted):
    """While it makes one summary of a level another worker passes over all levels of the day."""

    def __init__(self, most: int | None, during: str, other: Callable[[], Any]) -> None:
        super().__init__(most)
        self.during = during
        self.other = other

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        if request.kind == self.during:
            self.other()
        return super().summarize(request)


@SOME
@given(
    said=talks(),
    rest=st.sampled_from([ACTIVE, IDLE, STALE]),
    most=st.sampled_from([None, 1_500]),
    during=st.sampled_from(["leaf", "branch"]),
)
@example(said=steps(130), rest=IDLE, most=None, during="leaf")
@example(said=steps(323), rest=STALE, most=None, during="branch")
@example(said=steps(85), rest=ACTIVE, most=1_500, during="leaf")
def test_a_worker_in_the_midst_of_another_takes_nothing_from_its_tree(
    connection: Connection, pool: Pool, said: list[Said], rest: timedelta, most: int | None, during: str
) -> None:
    alone, day = store(connection, said, rest)
    passes(pool, day, Counted(most))
    between, other_day = store(connection, said, rest)
    passes(pool, other_day, Interrupted(most, during, lambda: once(pool, other_day, Counted(most))))
    assert tree(connection, between) == tree(connection, alone)


# --- crashes ---


class CrashError(Exception):
    """The process dies here."""


class _Counting:
    """A connection that counts its statements, and dies instead of sending the `at`-th."""

    def __init__(self, connection: Connection, at: int | None) -> None:
        self._connection = connection
        self.at = at
        self.sent = 0

    def execute(self, *arguments: Any, **named: Any) -> Any:
        self.sent += 1
        if self.sent == self.at:
            self._connection.close()
            raise CrashError
        return self._connection.execute(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class CrashingPool:
    """A pool of one session after another, whose statements are counted through them all."""

    def __init__(self, url: str, at: int | None) -> None:
        self._url = url
        self._counting: _Counting | None = None
        self.at = at
        self.sent = 0

    @contextmanager
    def connection(self) -> Iterator[_Counting]:
        from rivet_pipeline.db.pool import connect

        with connect(self._url) as opened:
            counting = _Counting(opened, None if self.at is None else self.at - self.sent)
            try:
                yield counting
            finally:
                self.sent += counting.sent


def until_gone(connection: Connection) -> None:
    """Waits for the server to notice that a session has died, whose locks it holds until then."""
    while connection.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'").fetchone() is not None:
        time.sleep(0.005)


SMALL_TALK = steps(47)


@pytest.mark.parametrize("most", [None, 600])
def test_a_crash_at_any_statement_changes_nothing(
    connection: Connection, pool: Pool, database_url: str, most: int | None
) -> None:
    alone, day = store(connection, SMALL_TALK, STALE)
    counted = CrashingPool(database_url, None)
    once(counted, day, Counted(most))  # type: ignore[arg-type]
    expected = tree(connection, alone)
    assert {kind for kind, _, _ in expected} >= {"leaf", "branch"}
    crashed = 0
    for at in range(1, counted.sent + 1, 1 if most is None else 3):
        conversation, day = store(connection, SMALL_TALK, STALE)
        try:
            once(CrashingPool(database_url, at), day, Counted(most))  # type: ignore[arg-type]
        except (CrashError, psycopg.OperationalError):
            crashed += 1
            until_gone(connection)
        once(pool, day, Counted(most))
        assert tree(connection, conversation) == expected
        assert_counts_and_spans(connection, conversation)
    assert crashed > 15
    for kind in ("leaf", "branch"):
        assert orphan_summaries(connection, kind).at_fault == 0


# --- the demo ---


DEMO = Path(rivet_pipeline.__file__).parent / "demo"


def compacted(connection: Connection, pool: Pool, workers: int) -> list[Any]:
    """The trees of all conversations in the store, made by so many workers at once, and made again in vain."""
    connection.execute("UPDATE ros_conversations SET updated_at = now() - interval '5 days'")
    levels = (summarize_leaves, summarize_branches, summarize_roots)
    at_once([lambda: [level(pool, days=None, summarizer=Counted()) for level in levels * 2]] * workers)
    again = Counted()
    assert [level(pool, days=None, summarizer=again).rows for level in levels] == [0, 0, 0]
    assert again.calls == 0
    conversations = connection.execute("SELECT id FROM ros_conversations ORDER BY session_key, agent").fetchall()
    return [tree(connection, row["id"]) for row in conversations]


@pytest.fixture
def demo(connection: Connection, pool: Pool) -> Connection:
    import_paths(pool, [DEMO], first_day=date(2022, 11, 1), max_line=10**8)
    return connection


def forget_summaries(connection: Connection) -> None:
    connection.execute(
        "TRUNCATE ros_summary_sources, ros_summary_revisions, ros_remine_requests, ros_summaries, ros_stage_marks "
        "CASCADE"
    )


def test_the_demo_compacted_by_one_and_by_two_workers_is_the_same(demo: Connection, pool: Pool) -> None:
    one = compacted(demo, pool, 1)
    forget_summaries(demo)
    two = compacted(demo, pool, 2)
    assert two == one
    assert {kind for made in one for kind, _, _ in made} == {"leaf", "branch", "root"}
    for row in demo.execute("SELECT id FROM ros_conversations").fetchall():
        assert_counts_and_spans(demo, row["id"])


def test_the_leaves_of_the_demo_hold_every_decision_correction_and_preference(demo: Connection, pool: Pool) -> None:
    compacted(demo, pool, 1)
    told: dict[str, str] = {}
    for row in demo.execute(
        "SELECT c.day, s.content FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id "
        "WHERE s.kind = 'leaf' ORDER BY s.seq"
    ):
        told[row["day"].isoformat()] = f"{told.get(row['day'].isoformat(), '')} {' '.join(row['content'].split())}"
    missing = [
        (day, point)
        for points in (DECISIONS, CORRECTIONS, PREFERENCES)
        for day, spoken in points.items()
        for point in spoken
        if point not in told[day]
    ]
    assert missing == []


def test_every_summary_of_the_demo_is_grounded_and_covers_its_sources(demo: Connection, pool: Pool) -> None:
    compacted(demo, pool, 1)
    row = demo.execute(
        "SELECT min(grounding) AS grounding, min(coverage) AS least, avg(coverage) AS average FROM ros_summaries "
        "WHERE kind = 'leaf'"
    ).fetchone()
    assert row is not None
    assert row["grounding"] == 1.0
    assert row["least"] >= 0.4
    assert row["average"] >= 0.7


def test_the_samples_compacted_twice_by_two_workers(connection: Connection, pool: Pool, shared_data: Path) -> None:
    import_paths(pool, [shared_data / "transcripts" / "claude-code"], first_day=date(2022, 11, 1), max_line=10**8)
    one = compacted(connection, pool, 1)
    assert connection.execute("SELECT id, ungrounded FROM ros_summaries WHERE grounding < 1").fetchall() == []
    forget_summaries(connection)
    assert compacted(connection, pool, 2) == one
