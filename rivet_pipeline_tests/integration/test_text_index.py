"""The text index against BM25 computed row by row, whatever came, changed and was joined before."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import numpy as np
import psycopg
import pytest

from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.retrieval import index_cache, index_pieces, index_rows, index_state, lexical, lexicon, text_scoring
from rivet_pipeline.retrieval.index_cache import IndexCache, PieceName
from rivet_pipeline.retrieval.lexicon import is_due, pending_lexicon, refresh_lexicon
from rivet_pipeline.retrieval.postings import cjk_pairs, term_key
from rivet_pipeline.retrieval.scoring import PROFILE, bm25_term, idf
from rivet_pipeline.retrieval.types import SearchRequest, Source
from rivet_pipeline.transcripts.redact_rules import literal_rule
from rivet_pipeline.transcripts.redact_stored import Who, redact_everywhere
from rivet_pipeline_tests.integration.memory_rows import NOW, add_conversation, add_message, add_summary, find, ids
from rivet_pipeline_tests.integration.traffic import Threads

#: Words that the analyser leaves as they are, from common to rare.
WORDS = ["balok", "tamir", "dunak", "verig", "sohup", "kolim", "parun", "getob", "wimak", "zulod", "fonig", "hirab"]
WEIGHTS = [40, 25, 15, 10, 8, 6, 4, 3, 2, 1, 1, 1]
AGENTS = ("claude", "codex")


@dataclass
class Row:
    """What the test knows of one row."""

    source: Source
    seq: int
    conversation: UUID
    words: list[str]
    length: int
    at: datetime
    agents: tuple[str, ...]
    role: str | None = None
    hidden: bool = False


@dataclass
class World:
    """A small store and everything in it, and things that happen to it."""

    connection: Connection
    rng: random.Random
    conversations: dict[UUID, str] = field(default_factory=dict)
    noise: set[UUID] = field(default_factory=set)
    ids: dict[UUID, Row] = field(default_factory=dict)
    #: Days.
    oldest: float = 50

    def text(self) -> str:
        return " ".join(self.rng.choices(WORDS, WEIGHTS, k=self.rng.choice([0, 1, 3, 8, 20])))

    def add(self) -> None:
        conversation = self._conversation()
        agent = self.conversations[conversation]
        text, role = self.text(), self.rng.choice(["user", "assistant", "tool"])
        kind = self.rng.choice([None] * 8 + ["progress", "injected"])
        age = self.rng.random() * self.oldest
        identity = add_message(
            self.connection,
            text,
            conversation=conversation,
            agent=agent,
            role=role,
            age_days=age,
            tool_name="Bash" if role == "tool" else None,
            metadata={"kind": kind} if kind else None,
        )
        self._know(
            "message", identity, conversation, text, NOW - timedelta(days=age), (agent,), role, kind == "progress"
        )

    def summarise(self) -> None:
        conversation = self._conversation()
        agents = self.rng.choice([("claude",), ("claude", "codex")])
        text, at = self.text() or "balok", NOW - timedelta(days=self.rng.random() * 50)
        identity = add_summary(
            self.connection, text, conversation=conversation, agents=list(agents), earliest=at, latest=at
        )
        self._know("summary", identity, conversation, text, at, agents)

    def fill(self) -> None:
        """A result that comes late, or a summary that is made again."""
        identity, row = self.rng.choice(list(self.ids.items()))
        text = self.text()
        if row.source == "summary" and text:
            self.connection.execute("UPDATE ros_summaries SET content = %s WHERE id = %s", [text, identity])
            row.words, row.length = text.split(), len(text)
        elif row.source == "message":
            done = self.connection.execute(
                "UPDATE ros_messages SET tool_result = %s WHERE id = %s AND tool_result IS NULL", [text, identity]
            )
            if done.rowcount:
                row.words, row.length = row.words + text.split(), row.length + len(text)

    def _conversation(self) -> UUID:
        if not self.conversations or self.rng.random() < 0.1:
            agent, noise = self.rng.choice(AGENTS), self.rng.random() < 0.15
            made = add_conversation(self.connection, agent=agent, settings={"noise": True} if noise else None)
            self.conversations[made] = agent
            self.noise |= {made} if noise else set()
        return self.rng.choice(list(self.conversations))

    def _know(self, source: Source, identity: UUID, conversation: UUID, text: str, *rest: Any) -> None:
        table = "ros_messages" if source == "message" else "ros_summaries"
        found = self.connection.execute(f"SELECT seq FROM {table} WHERE id = %s".encode(), [identity]).fetchone()
        assert found is not None
        self.ids[identity] = Row(source, found["seq"], conversation, text.split(), len(text), *rest)

    def request(self) -> SearchRequest:
        query = " ".join(self.rng.sample(WORDS, self.rng.randint(1, 4)))
        request = SearchRequest(query, limit=50, scope=self.rng.choice(["both", "both", "messages", "summaries"]))
        if self.rng.random() < 0.3:
            request = replace(request, agent=self.rng.choice(AGENTS))
        if self.rng.random() < 0.2:
            request = replace(request, role="user")
        if self.rng.random() < 0.2:
            request = replace(request, since=NOW - timedelta(days=25))
        if self.rng.random() < 0.2:
            request = replace(request, before=NOW - timedelta(days=10))
        if self.rng.random() < 0.2:
            request = replace(request, conversation_id=self.rng.choice(list(self.conversations)))
        return request

    def passes(self, row: Row, request: SearchRequest) -> bool:
        if request.conversation_id is None and row.conversation in self.noise:
            return False
        return (
            not row.hidden
            and (request.scope == "both" or request.scope == f"{row.source}s".replace("summarys", "summaries"))
            and (request.agent is None or request.agent in row.agents)
            and (request.role is None or request.role == row.role)
            and (request.conversation_id is None or request.conversation_id == row.conversation)
            and (request.since is None or row.at >= request.since)
            and (request.before is None or row.at < request.before)
        )

    def expected(self, request: SearchRequest) -> dict[tuple[Source, int], float]:
        scores = bm25([(row.words, row.length) for row in self.ids.values()], request.query.split())
        return {
            (row.source, row.seq): score
            for row, score in zip(self.ids.values(), scores, strict=True)
            if score > 0 and self.passes(row, request)
        }

    def sessions(self, request: SearchRequest) -> dict[UUID, float]:
        texts: dict[UUID, tuple[list[str], int]] = {}
        for row in self.ids.values():
            if row.source == "message" and not row.hidden and row.words:
                words, length = texts.get(row.conversation, ([], 0))
                texts[row.conversation] = (words + row.words, length + row.length)
        return dict(zip(texts, bm25(list(texts.values()), request.query.split()), strict=True))


def bm25(texts: list[tuple[list[str], int]], query: list[str]) -> list[float]:
    """BM25 of each text (words, length) for the words of a query, out of the scoring module's own formula."""
    counted = [(Counter(words), length) for words, length in texts]
    documents = sum(bool(words) for words, _ in texts)
    mean = sum(length for words, length in texts if words) / max(documents, 1)
    df = {word: sum(word in words for words, _ in counted) for word in query}
    return [
        sum(
            bm25_term(weight=idf(documents, df[word]), tf=words[word], length=length, mean_length=mean)
            for word in query
            if words[word]
        )
        for words, length in counted
    ]


@pytest.fixture
def tiny_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few rows, so that a small store has many and joins them often."""
    monkeypatch.setattr(index_rows, "MOST_DOCUMENTS", 7)
    monkeypatch.setattr(index_pieces, "_MOST_SMALL", 3)
    monkeypatch.setattr(index_cache, "_MOST_LATEST", 25)


@pytest.mark.usefixtures("tiny_pieces")
@pytest.mark.parametrize("seed", range(3))
def test_the_index_scores_as_every_row_by_itself_would(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # In a store of this size a common word is no reason to leave a session out.
    monkeypatch.setattr(text_scoring, "_IN_EVERY_SESSION", 2.0)
    world = World(connection, random.Random(seed))
    shared = IndexCache(most_bytes=3_000)
    for step in range(120):
        action = world.rng.random()
        if action < 0.62 or not world.ids:
            world.add()
        elif action < 0.72:
            world.summarise()
        elif action < 0.88:
            world.fill()
        else:
            refresh_lexicon(connection, rebuild=action > 0.99)
        if step % 8 == 7:
            for index in (shared, IndexCache()):
                compare(world, world.request(), index)
    refresh_lexicon(connection)
    assert pending_lexicon(connection) == 0
    for _ in range(10):
        compare(world, world.request(), shared)


@pytest.mark.usefixtures("tiny_pieces")
def test_the_commonest_words_of_a_long_query_count_where_the_others_score_best(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(connection, random.Random(5))
    for number in range(120):
        world.add()
        if number in (50, 100):
            refresh_lexicon(connection)
        if number > 90:
            world.fill()
    request = SearchRequest(" ".join(WORDS), limit=50)
    expected = world.expected(request)
    monkeypatch.setattr(text_scoring, "_MOST_POSTINGS", 40)
    monkeypatch.setattr(text_scoring, "_NEAR", 30)
    found = lexical.score_texts(connection, request, now=NOW, kept=500).scores
    first = sorted(expected, key=lambda row: -expected[row])[:8]
    assert {row: found[row] for row in first} == pytest.approx({row: expected[row] for row in first}, rel=2e-4)
    assert all(found[row] <= expected[row] * 1.001 for row in found)
    assert any(found.get(row, 0.0) < expected[row] * 0.9 for row in expected)


@pytest.mark.usefixtures("tiny_pieces")
@pytest.mark.parametrize("seed", range(3))
def test_what_a_skipped_word_could_add_is_the_most_that_a_score_is_too_low(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    most, kept = 200, 60
    world = World(connection, random.Random(seed))
    for number in range(150):
        world.add()
        if number == 120:
            refresh_lexicon(connection)
    request = SearchRequest(" ".join(WORDS), limit=50)
    searched = lexical.TextSearch(connection, request, now=NOW, kept=500, index=IndexCache())
    field, words = searched._field, sorted(searched._words, key=searched._field.df)
    read = np.cumsum([field.df(word) for word in words])
    counted, skipped = words[: int(np.sum(read <= most))], words[int(np.sum(read <= most)) :]
    exact, others = field.score(words), np.sort(field.score(counted))
    bound = sum(idf(field.count, field.df(word)) * (PROFILE.k1 + 1) for word in skipped)
    monkeypatch.setattr(text_scoring, "_MOST_POSTINGS", most)
    monkeypatch.setattr(text_scoring, "_NEAR", kept)
    missing = exact - field.score(words)
    assert len(counted) > 1
    assert missing.min() > -1e-4
    assert 0.2 * bound < missing.max() <= bound
    certain = exact > others[-kept] + bound
    assert certain.any()
    assert missing[certain].max() < 1e-4


@pytest.mark.usefixtures("tiny_pieces")
@pytest.mark.parametrize("seed", range(2))
def test_looking_at_the_likely_rows_alone_finds_what_looking_at_all_finds(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    world = World(connection, random.Random(seed), oldest=400)
    for number in range(250):
        world.add()
        if number == 240:
            refresh_lexicon(connection)
    for identity in world.rng.sample(list(world.ids), 12):
        connection.execute(
            "INSERT INTO ros_access (kind, id, access_count, last_accessed_at) VALUES ('message', %s, 20, %s)",
            [identity, NOW - timedelta(days=world.rng.random() * 20)],
        )
    index, passed_over, weigh = IndexCache(), 0, lexical.TextSearch._weigh_likely

    def counting(self: lexical.TextSearch) -> Any:
        nonlocal passed_over
        likely = weigh(self)
        passed_over += 0 if likely is None else len(self._positions) - len(likely.positions)
        return likely

    monkeypatch.setattr(lexical.TextSearch, "_weigh_likely", counting)
    for _ in range(150):
        request, kept = replace(world.request(), limit=5), world.rng.choice([4, 8, 30, 60])
        monkeypatch.setattr(lexical, "_MANY", 10**9)
        every = lexical.score_texts(connection, request, now=NOW, kept=kept, index=index)
        monkeypatch.setattr(lexical, "_MANY", 1)
        likely = lexical.score_texts(connection, request, now=NOW, kept=kept, index=index)
        assert (likely.scores, likely.best, likely.context) == (every.scores, every.best, every.context), request
    assert passed_over > 300


@pytest.mark.usefixtures("tiny_pieces")
def test_when_the_store_turns_likely_rows_away_all_others_are_looked_at(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(connection, random.Random(3), oldest=400)
    for _ in range(250):
        world.add()
    refresh_lexicon(connection)
    # A time within a second, which the columns can not tell apart, makes the store test each row.
    request = SearchRequest("balok getob", limit=5, since=NOW - timedelta(days=500, microseconds=1))
    passing = lexical.TextSearch._passing

    def some(self: lexical.TextSearch, keys: Any, *, verbatim: bool = False) -> set[int]:
        return {key for key in passing(self, keys, verbatim=verbatim) if key % 4 == 0}

    monkeypatch.setattr(lexical.TextSearch, "_passing", some)
    # As if no others than some could be among the best, of which the store leaves hardly any.
    monkeypatch.setattr(lexical, "_MANY", 1)
    monkeypatch.setattr(lexical.TextSearch, "_weigh_likely", lambda self: self._weigh(self._positions[:20]))
    found = lexical.score_texts(connection, request, now=NOW, kept=20, index=IndexCache()).scores
    assert len(found) >= 20


def compare(world: World, request: SearchRequest, index: IndexCache) -> None:
    found = lexical.score_texts(world.connection, request, now=NOW, kept=500, index=index)
    expected = world.expected(request)
    assert found.scores == pytest.approx(expected, rel=2e-4), request
    assert list(found.scores.values()) == sorted(found.scores.values(), reverse=True)
    assert found.best == pytest.approx(max(expected.values(), default=0.0), rel=2e-4)
    df = {word: sum(word in row.words for row in world.ids.values()) for word in request.query.split()}
    documents = sum(bool(row.words) for row in world.ids.values())
    weights = {word: idf(documents, n) for word, n in df.items() if n}
    coverage = {
        (row.source, row.seq): sum(weights[word] for word in set(row.words) & weights.keys()) / sum(weights.values())
        for row in world.ids.values()
        if (row.source, row.seq) in expected
    }
    assert found.context.coverage == pytest.approx(coverage, rel=1e-6), request
    sessions = {row.conversation for row in world.ids.values() if (row.source, row.seq) in expected}
    scores = world.sessions(request)
    best = max((scores.get(session, 0.0) for session in sessions), default=0.0)
    wanted = {str(session): scores.get(session, 0.0) / best if best else 0.0 for session in sessions}
    assert found.context.sessions == pytest.approx(wanted, rel=2e-4), request


@pytest.mark.usefixtures("tiny_pieces")
def test_more_new_rows_than_are_read_are_found_all_the_same(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(connection, random.Random(9))
    for number in range(90):
        world.add()
        if number % 10 == 5:
            world.summarise()
        if number == 60:
            refresh_lexicon(connection)
        if number > 60:
            world.fill()
    monkeypatch.setattr(index_state, "MOST_LIVE", 5)
    for _ in range(25):
        request = world.request()
        found = lexical.score_texts(connection, request, now=NOW, kept=500)
        assert found.scores.keys() == world.expected(request).keys(), request
        extra: list[tuple[Source, int]] = [(row.source, row.seq) for row in world.ids.values()]
        more = lexical.score_texts(connection, request, extra=extra, now=NOW, kept=500).scores
        assert more.keys() == set(extra)
        assert {row for row, score in more.items() if score} >= found.scores.keys()


CJK_TEXTS = [
    "我们周末去了公园散步", "公园里的花开了", "在公园, 孩子们玩得很开心", "市中心的绿禾公园很大", "关于公园的笔记 park",
    "公司的园区在城外", "园公", "这里没有那个词", "The 公园 is open", "公园公园公园", "他说:「公园见」。",
]  # fmt: skip


def test_two_characters_are_found_wherever_a_scan_of_the_texts_finds_them(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_text = {text: add_message(connection, text) for text in CJK_TEXTS}
    in_result = add_message(connection, "[tool]", role="tool", tool_name="Bash", tool_result="结果: 公园已关闭" * 3)
    wanted = {identity for text, identity in by_text.items() if "公园" in text} | {in_result}
    for state in ("new", "behind", "indexed"):
        with monkeypatch.context() as patch:
            if state == "behind":
                patch.setattr(index_state, "MOST_LIVE", 2)
            elif state == "indexed":
                refresh_lexicon(connection)
            assert set(ids(find(connection, "公园", limit=50).hits)) == wanted, state
            assert ids(find(connection, "绿禾公园").hits)[0] == by_text["市中心的绿禾公园很大"]
            assert find(connection, "城公").hits == []


def test_the_words_of_a_row_are_those_of_its_tsvector(connection: Connection) -> None:
    texts = [
        "Straße naïve café 50% e\u0301",
        "getUserById(user_store.py)",
        "部署 deploy 部署",
        "x" * 3000,
        "word " * 700,
    ]
    for text in texts:
        add_message(connection, text)
    builder = index_rows.PieceBuilder()
    with connection.transaction():
        for row in index_rows.read_range(connection, "message", 0, 100):
            builder.add(row, keep_empty=False)
    rows = connection.execute(
        """SELECT u.lexeme, count(*) AS df, sum((cardinality(u.positions) + 1) / 2)::integer AS tf
           FROM ros_messages AS m CROSS JOIN LATERAL unnest(m.content_tsv) AS u GROUP BY 1"""
    ).fetchall()
    assert builder.word_counts() == {row["lexeme"]: row["df"] for row in rows}
    times: Counter[bytes] = Counter()
    names = list(builder.terms)
    for number, frequency in zip(builder.numbers, builder.frequencies, strict=True):
        times[names[number]] += frequency
    words = {name.decode(): n for name, n in times.items() if not name.startswith(b"\0")}
    assert words == {row["lexeme"]: row["tf"] for row in rows}
    assert times[b"\0" + "部署".encode()] == 2


def test_a_literal_text_is_found_among_many_with_the_same_parts(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical, "_VERBATIM", 20)
    for number in range(150):
        add_message(connection, f"store user py: app, src {number}")
    wanted = add_message(
        connection, "[tool] Read", role="tool", tool_name="Read", age_days=700,
        tool_result="many other lines stand here first\n" * 30 + "opened src/app/user_store.py today",
    )  # fmt: skip
    for number in range(150):
        add_message(connection, f"src app user py {number} store")
    for indexed in (False, True):
        if indexed:
            refresh_lexicon(connection)
        assert ids(find(connection, "src/app/user_store.py", limit=5).hits)[0] == wanted, indexed


def test_rows_of_unknown_filters_do_not_take_the_places_of_others(connection: Connection) -> None:
    # `check_texts.sql` tests what the columns can not tell: here a second's fraction.
    late = NOW.replace(microsecond=600_000)
    for number in range(150):
        add_message(connection, f"kestrel {number}", age_days=-0.7 / 86_400)
    wanted = [add_message(connection, "a kestrel of old, in a longer text that is a poor match", age_days=9)]
    refresh_lexicon(connection)
    found = lexical.score_texts(connection, SearchRequest("kestrel", limit=5, before=late), now=NOW, kept=10)
    seqs = connection.execute("SELECT seq FROM ros_messages WHERE id = ANY (%s)", [wanted]).fetchall()
    assert set(found.scores) == {("message", row["seq"]) for row in seqs}


def test_a_row_that_was_returned_often_is_as_fresh_as_its_last_return(connection: Connection) -> None:
    old = add_message(connection, "kestrel notes that are rather old", age_days=300)
    connection.execute(
        "INSERT INTO ros_access (kind, id, access_count, last_accessed_at) VALUES ('message', %s, 25, %s)", [old, NOW]
    )
    for number in range(60):
        add_message(connection, f"kestrel notes that are {number} old", age_days=40)
    refresh_lexicon(connection)
    found = lexical.score_texts(connection, SearchRequest("kestrel", limit=1), now=NOW, kept=1, index=IndexCache())
    row = connection.execute("SELECT seq FROM ros_messages WHERE id = %s", [old]).fetchone()
    assert row is not None
    assert list(found.scores) == [("message", row["seq"])]


@pytest.mark.usefixtures("tiny_pieces")
def test_a_refresh_that_breaks_off_loses_nothing_and_counts_nothing_twice(
    connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        add_message(connection, f"plover {number}")
    written = index_pieces.write_built
    calls: list[int] = []

    def break_off(victim: Connection, *arguments: Any) -> None:
        written(victim, *arguments)
        calls.append(1)
        if len(calls) == 3:
            connection.execute("SELECT pg_terminate_backend(%s)", [victim.info.backend_pid])

    monkeypatch.setattr(lexicon, "write_built", break_off)
    with connect(database_url) as other, pytest.raises(psycopg.OperationalError):
        refresh_lexicon(other)
    monkeypatch.setattr(lexicon, "write_built", written)
    assert pending_lexicon(connection) == 30 - 2 * 7
    request = SearchRequest("plover", limit=50)
    assert len(lexical.score_texts(connection, request, now=NOW, kept=200).scores) == 30
    assert refresh_lexicon(connection).messages == 30 - 2 * 7
    assert len(lexical.score_texts(connection, request, now=NOW, kept=200).scores) == 30
    row = connection.execute("SELECT df FROM ros_lexicon WHERE term = 'plover'").fetchone()
    assert row == {"df": 30}


@dataclass
class Traffic(Threads):
    """Writes, refreshes and searches at once until all is written."""

    committed: list[int] = field(default_factory=list)

    def write(self, own: Connection) -> None:
        conversation = add_conversation(own)
        for number in range(100):
            message = add_message(own, f"whimbrel {number}", conversation=conversation)
            self.committed.append(number)
            if number % 3 == 0:
                own.execute("UPDATE ros_messages SET tool_result = 'whimbrel again' WHERE id = %s", [message])
        self.stop.set()

    def refresh(self, own: Connection) -> None:
        while not self.stop.is_set():
            refresh_lexicon(own)

    def search(self, own: Connection) -> None:
        cache = IndexCache()
        while not self.stop.is_set():
            least = len(self.committed)
            found = lexical.score_texts(own, SearchRequest("whimbrel", limit=50), now=NOW, kept=1_000, index=cache)
            assert len(found.scores) >= least
            assert found.best > 0 or least == 0


@pytest.mark.usefixtures("tiny_pieces")
def test_searches_see_each_row_once_while_others_write_and_refresh(connection: Connection, database_url: str) -> None:
    traffic = Traffic(database_url)
    works = (traffic.write, traffic.refresh, traffic.refresh, traffic.search, traffic.search)
    threads = [traffic.start(work) for work in works]
    for thread in threads:
        thread.join(timeout=60)
    assert traffic.errors == []
    refresh_lexicon(connection)
    found = lexical.score_texts(connection, SearchRequest("whimbrel", limit=50), now=NOW, kept=1_000)
    assert len(found.scores) == 100


def test_a_message_that_is_committed_late_is_found_although_later_ones_are_known(
    connection: Connection, database_url: str
) -> None:
    conversation, other = add_conversation(connection), add_conversation(connection)
    index = IndexCache()

    def found() -> set[int]:
        scores = lexical.score_texts(connection, SearchRequest("balok", limit=50), now=NOW, kept=50, index=index).scores
        return {seq for _, seq in scores}

    add_message(connection, "balok first", conversation=conversation)
    assert found() == {1}
    with connect(database_url) as slow, slow.transaction():
        add_message(slow, "balok late", conversation=other)
        add_message(connection, "balok third", conversation=conversation)
        assert found() == {1, 3}
    assert found() == {1, 2, 3}
    # One whose transaction is given up leaves a number without a message.
    with connect(database_url) as slow, slow.transaction():
        add_message(slow, "balok never", conversation=other)
        raise psycopg.Rollback
    add_message(connection, "balok fifth", conversation=conversation)
    assert found() == {1, 2, 3, 5}
    assert index.known_messages(connection)[1:] == (0, 3)
    refresh_lexicon(connection)
    add_message(connection, "balok sixth", conversation=conversation)
    assert found() == {1, 2, 3, 5, 6}
    assert index.known_messages(connection)[1:] == (5, 6)
    # What is known counts from the end of the index, which begins anew here.
    refresh_lexicon(connection, rebuild=True)
    connection.execute("UPDATE ros_corpus SET last_message_seq = 0, last_summary_seq = 0")
    connection.execute("DELETE FROM ros_postings")
    connection.execute("DELETE FROM ros_index_pieces")
    assert found() == {1, 2, 3, 5, 6}


def test_who_searches_while_writing_tells_no_other_search_of_it(connection: Connection, database_url: str) -> None:
    conversation = add_conversation(connection)
    add_message(connection, "balok one", conversation=conversation)
    index, request = IndexCache(), SearchRequest("balok")
    with connect(database_url) as writer, writer.transaction():
        add_message(writer, "balok balok never", conversation=add_conversation(writer))
        assert len(lexical.score_texts(writer, request, now=NOW, kept=50, index=index).scores) == 2
        raise psycopg.Rollback
    found = lexical.score_texts(connection, request, now=NOW, kept=50, index=index).scores
    assert found == lexical.score_texts(connection, request, now=NOW, kept=50, index=IndexCache()).scores
    assert len(found) == 1


def test_the_index_forgets_the_words_of_a_redacted_row(connection: Connection) -> None:
    secret = "xyzzyplugh"
    add_message(connection, f"the door opens with {secret} and 密码公园")
    add_summary(connection, f"a summary that repeats {secret}")
    other = add_message(connection, "the door stays closed")
    refresh_lexicon(connection)
    keys = [term_key(secret.encode()), *map(term_key, cjk_pairs("密码"))]
    assert all(_holding(connection, key) for key in keys)
    report = redact_everywhere(connection, literal_rule(secret), Who("tester", None), apply=True)
    assert report.rows == 2
    assert find(connection, secret).hits == []
    assert is_due(connection)
    assert refresh_lexicon(connection).changed == 2
    assert _holding(connection, keys[0]) == 0
    assert _holding(connection, keys[1]) == 1
    assert find(connection, secret).hits == []
    assert other in ids(find(connection, "door").hits)
    assert not is_due(connection)


def _holding(connection: Connection, key: int) -> int:
    rows = connection.execute("SELECT id, token, source FROM ros_index_pieces").fetchall()
    pieces = [PieceName(row["id"], row["token"], row["source"]) for row in rows]
    return sum(found is not None for found in IndexCache().postings(connection, pieces, [key])[key])


def test_what_is_kept_in_memory_is_bounded(connection: Connection) -> None:
    for number in range(60):
        add_message(connection, f"plover word{number}x and balok")
    refresh_lexicon(connection)
    cache = IndexCache(most_bytes=5_000)
    for number in range(60):
        lexical.score_texts(connection, SearchRequest(f"word{number}x balok"), now=NOW, kept=10, index=cache)
    assert 0 < cache.bytes_kept <= 5_000


@pytest.mark.parametrize("within", [timedelta(0), timedelta(microseconds=1)], ids=["whole seconds", "within a second"])
def test_times_are_told_by_the_columns_as_the_store_tells_them(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, within: timedelta
) -> None:
    moment, second = datetime(2026, 3, 1, 12, tzinfo=UTC), timedelta(seconds=1)
    around = [moment + n * second + part for n in (-1, 0, 1) for part in (timedelta(0), timedelta(milliseconds=500))]
    for number, at in enumerate(around):
        add_message(connection, f"balok {number}", age_days=(NOW - at) / timedelta(days=1))
        if number == 3:
            refresh_lexicon(connection)
    asked, passing = 0, lexical.TextSearch._passing

    def counting(self: lexical.TextSearch, keys: Any, *, verbatim: bool = False) -> set[int]:
        nonlocal asked
        asked += 1
        return passing(self, keys, verbatim=verbatim)

    monkeypatch.setattr(lexical.TextSearch, "_passing", counting)
    times = {row["seq"]: row["created_at"] for row in connection.execute("SELECT seq, created_at FROM ros_messages")}
    assert len(times) == len(around)
    for bound in [moment + within, moment + second + within]:
        later = {seq for seq, at in times.items() if at >= bound}
        for request, expected in (
            (SearchRequest("balok", since=bound), later),
            (SearchRequest("balok", before=bound), times.keys() - later),
        ):
            found = lexical.score_texts(connection, request, now=NOW, kept=50, index=IndexCache()).scores
            assert {seq for _, seq in found} == expected, request
    assert asked == (4 if within else 0)


def test_times_that_the_columns_do_not_reach_are_told_by_the_store(connection: Connection) -> None:
    times = [datetime(year, 6, 1, tzinfo=UTC) for year in (1955, 1965, 1975, 2100, 2120, 2150)]
    for number, at in enumerate(times):
        add_message(connection, f"balok {number}", age_days=(NOW - at) / timedelta(days=1))
    refresh_lexicon(connection)
    seqs = [row["seq"] for row in connection.execute("SELECT seq FROM ros_messages ORDER BY created_at")]
    for year in (1940, 1960, 1970, 1990, 2110, 2130, 2180):
        bound = datetime(year, 1, 1, tzinfo=UTC)
        later = {seq for seq, at in zip(seqs, times, strict=True) if at >= bound}
        for request, expected in (
            (SearchRequest("balok", since=bound), later),
            (SearchRequest("balok", before=bound), set(seqs) - later),
        ):
            found = lexical.score_texts(connection, request, now=NOW, kept=50, index=IndexCache()).scores
            assert {seq for _, seq in found} == expected, request


def test_pieces_of_an_older_form_are_brought_up_to_date(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = add_conversation(connection)
    texts = ["plain words", "สวัสดีชาวโลก", "الْكِتَابُ القديم", "more plain words", "naïve café"]
    rows = [add_message(connection, text, conversation=conversation) for text in texts]
    leaf = add_summary(connection, "ประชุมทุกวัน", conversation=conversation)
    with monkeypatch.context() as older:
        # As the version before wrote them.
        older.setattr(index_rows, "further_terms", lambda folded: Counter())
        older.setattr(index_pieces, "FORM", 0)
        refresh_lexicon(connection)
        assert not is_due(connection)
        changed = add_message(connection, "ชาวโลก", conversation=conversation)
        refresh_lexicon(connection)
        assert ids(find(connection, "ชาวโลก", mode="fts").hits) == [changed]
    assert is_due(connection)
    assert refresh_lexicon(connection).changed == 4
    assert not is_due(connection)
    assert set(ids(find(connection, "ชาวโลก", mode="fts").hits)) == {rows[1], changed}
    assert ids(find(connection, "الكتاب", mode="fts").hits) == [rows[2]]
    assert ids(find(connection, "ประชุม", mode="fts").hits) == [leaf]
    assert set(ids(find(connection, "plain", mode="fts").hits)) == {rows[0], rows[3]}
    assert refresh_lexicon(connection).changed == 0
    # Joining leaves it as it is.
    with monkeypatch.context() as older:
        older.setattr(index_pieces, "_MOST_SMALL", 1)
        refresh_lexicon(connection)
    assert not is_due(connection)
    assert set(ids(find(connection, "ชาวโลก", mode="fts").hits)) == {rows[1], changed}


def test_a_large_piece_whose_rows_are_renewed_goes(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    # Persian letters with a hamza of their own, and one without any mark.
    texts = ["خانۀ ما", "شُکر", "این خانه", "کتابِ او"]
    rows = [add_message(connection, text) for text in texts]
    monkeypatch.setattr(index_pieces, "MOST_DOCUMENTS", 6)
    with monkeypatch.context() as older:
        older.setattr(index_rows, "further_terms", lambda folded: Counter())
        older.setattr(index_pieces, "FORM", 0)
        refresh_lexicon(connection)
    assert refresh_lexicon(connection).changed == 3
    held = connection.execute("SELECT documents FROM ros_index_pieces ORDER BY documents").fetchall()
    assert [row["documents"] for row in held] == [1, 3]
    assert not is_due(connection)
    for query, row in (("خانه", rows[2]), ("شکر", rows[1]), ("کتاب", rows[3])):
        assert row in ids(find(connection, query, mode="fts").hits)
    # So does one whose rows have got another text.
    connection.execute("UPDATE ros_messages SET tool_result = 'egret'")
    refresh_lexicon(connection)
    held = connection.execute("SELECT documents FROM ros_index_pieces").fetchall()
    assert [row["documents"] for row in held] == [1, 4]


def test_rows_that_may_be_large_are_fetched_a_few_at_a_time() -> None:
    asked: list[int] = []

    class Spy:
        def execute(self, text: bytes, values: dict[str, Any], *, binary: bool) -> SimpleNamespace:
            asked.append(len(values["seqs"]))
            return SimpleNamespace(fetchall=list)

    assert list(index_rows.read_marked(cast("Connection", Spy()), "message", list(range(500)))) == []
    assert asked == [200, 200, 100]


def test_a_word_with_and_without_marks_is_one_posting_of_its_row(connection: Connection) -> None:
    add_message(connection, "شكرا شُكْرًا ثم شُكْراً")
    builder = index_rows.PieceBuilder()
    with connection.transaction():
        for row in index_rows.read_range(connection, "message", 0, 100):
            builder.add(row, keep_empty=False)
    place = builder.terms["شكرا".encode()]
    postings = dict(zip(builder.numbers, builder.frequencies, strict=True))
    assert len(postings) == len(builder.numbers)
    assert postings[place] == 3
