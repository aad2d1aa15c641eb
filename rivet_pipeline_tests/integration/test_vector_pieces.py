"""The vectors' codes against what numpy says of the table, whatever came, changed and went before."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations, read_migrations
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.retrieval import vector_pieces
from rivet_pipeline.retrieval.vector_codes import LEAST_SQUARE, RANGE, THRESHOLD
from rivet_pipeline.retrieval.vector_pieces import VectorPieceFigures, refresh_vector_pieces, vector_pieces_due
from rivet_pipeline_tests.integration.memory_rows import (
    add_conversation,
    add_message,
    add_summary,
    add_vector,
    register_model,
)
from rivet_pipeline_tests.integration.traffic import Threads

#: The bits of a vector do not fill its last byte.
WIDTH = 21

Chunk = tuple[str, int, bytes]


#: Owners a piece where they are few, so that a few rows are many pieces.
_SMALL = 4


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four owners a piece."""
    monkeypatch.setattr(vector_pieces, "RANGE", _SMALL)


def vector(rng: random.Random) -> NDArray[np.float32]:
    """Components of both signs, and zeros, which are not above zero."""
    numbers = [rng.choice([-0.0, 0.0, rng.uniform(-1, 1)]) for _ in range(WIDTH - 1)]
    return np.array([*numbers, rng.choice([-0.5, 0.5])], dtype=np.float32)


def serving(connection: Connection) -> int:
    row = connection.execute("SELECT id FROM ros_embedding_models WHERE serving").fetchone()
    assert row is not None
    return int(row["id"])


def table_chunks(connection: Connection) -> dict[tuple[str, UUID], list[Chunk]]:
    """What numpy makes of the serving model's vectors, by owner."""
    rows = connection.execute(
        """SELECT e.owner_kind, e.owner_id, l2_normalize(e.embedding) AS unit, k.centre, coalesce(m.seq, s.seq) AS seq
           FROM ros_embeddings AS e JOIN ros_embedding_models AS k ON k.id = e.model_id
           LEFT JOIN ros_messages AS m ON e.owner_kind = 'message' AND m.id = e.owner_id
           LEFT JOIN ros_summaries AS s ON e.owner_kind = 'summary' AND s.id = e.owner_id
           WHERE e.model_id = %s AND coalesce(m.seq, s.seq) IS NOT NULL ORDER BY seq, e.chunk""",
        [serving(connection)],
    ).fetchall()
    found = defaultdict(list)
    for row in rows:
        unit, centre = row["unit"].to_numpy(), row["centre"].to_numpy()
        square = max(LEAST_SQUARE, 1 - float(centre.astype(np.float32) @ centre.astype(np.float32)))
        far = np.float16(THRESHOLD * np.sqrt(square / len(centre)))
        bits = np.stack([unit > centre, (unit > centre + far) | (unit < centre - far)])
        code = np.packbits(bits, axis=1).tobytes()
        found[row["owner_kind"], row["owner_id"]].append((row["owner_kind"], row["seq"], code))
    return dict(found)


def piece_chunks(connection: Connection, model: int) -> list[Chunk]:
    """What the pieces hold, in the order in which they hold it."""
    found = []
    pieces = connection.execute(
        "SELECT * FROM ros_vector_pieces WHERE model_id = %s ORDER BY source, number", [model]
    ).fetchall()
    for piece in pieces:
        offsets = np.frombuffer(piece["offsets"], dtype="<u2").astype(np.int64)
        codes = np.frombuffer(piece["codes"], dtype=np.uint8).reshape(piece["rows"], -1)
        assert len(offsets) == piece["rows"] > 0
        assert (np.diff(offsets) >= 0).all()
        width = vars(vector_pieces)["RANGE"]
        assert (offsets < width).all()
        seqs = piece["number"] * width + offsets
        found += [(piece["source"], int(seq), code.tobytes()) for seq, code in zip(seqs, codes, strict=True)]
    return found


def noted(connection: Connection, model: int) -> set[tuple[str, UUID]]:
    rows = connection.execute("SELECT source, owner_id FROM ros_vector_changes WHERE model_id = %s", [model]).fetchall()
    return {(row["source"], row["owner_id"]) for row in rows}


def coded(connection: Connection) -> bool:
    row = connection.execute("SELECT coded FROM ros_embedding_models WHERE serving").fetchone()
    return bool(row and row["coded"])


def agree(connection: Connection) -> None:
    """Of owners without a change, the pieces hold exactly what the table does."""
    model = serving(connection)
    changed = noted(connection, model)
    owners = table_chunks(connection)
    seqs = {
        (source, row["seq"]): (source, row["id"])
        for source, name in (("message", "ros_messages"), ("summary", "ros_summaries"))
        for row in connection.execute(f"SELECT id, seq FROM {name}".encode()).fetchall()
    }
    held = [chunk for chunk in piece_chunks(connection, model) if seqs.get(chunk[:2], chunk) not in changed]
    wanted = [chunk for owner, chunks in owners.items() if owner not in changed for chunk in chunks]
    assert held == sorted(wanted, key=lambda chunk: chunk[:2])


def all_coded(connection: Connection) -> None:
    """Everything stands in the pieces and nothing waits."""
    assert coded(connection)
    assert noted(connection, serving(connection)) == set()
    agree(connection)


class World:
    """Owners, and what happens to their vectors."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self.connection, self.rng = connection, random.Random(seed)
        self.conversation = add_conversation(connection)
        self.owners: list[tuple[str, UUID]] = []
        self.chunks: dict[UUID, int] = {}

    def add(self) -> None:
        """An owner without vectors; every fifth is a summary."""
        if self.rng.random() < 0.2:
            self.owners.append(("summary", add_summary(self.connection, "x", conversation=self.conversation)))
        else:
            self.owners.append(("message", add_message(self.connection, "x", conversation=self.conversation)))

    def embed(self) -> None:
        kind, owner = self.rng.choice(self.owners)
        if owner not in self.chunks:
            self.chunks[owner] = self.rng.choice([1, 1, 1, 2, 5])
            with self.connection.transaction():
                for chunk in range(self.chunks[owner]):
                    add_vector(self.connection, kind, owner, vector(self.rng), chunk=chunk)

    def embed_again(self) -> None:
        if self.chunks:
            self.connection.execute(
                "UPDATE ros_embeddings SET embedding = %s::real[]::vector::halfvec WHERE owner_id = %s",
                [vector(self.rng).tolist(), self.rng.choice(list(self.chunks))],
            )

    def shorten(self) -> None:
        """An owner has fewer chunks than before, or none."""
        if self.chunks:
            owner = self.rng.choice(list(self.chunks))
            self.chunks[owner] -= 1
            self.connection.execute(
                "DELETE FROM ros_embeddings WHERE owner_id = %s AND chunk >= %s", [owner, self.chunks[owner]]
            )
            if not self.chunks[owner]:
                del self.chunks[owner]

    def empty_range(self) -> None:
        """Neighbours lose all their vectors at once."""
        start = self.rng.randrange(len(self.owners))
        gone = [owner for _, owner in self.owners[start : start + 9]]
        self.connection.execute("DELETE FROM ros_embeddings WHERE owner_id = ANY(%s)", [gone])
        for owner in gone:
            self.chunks.pop(owner, None)

    def lose_summary(self) -> None:
        """A summary goes away with its vectors; what its piece held of it leads nowhere until the next time."""
        summaries = [owner for kind, owner in self.owners if kind == "summary"]
        if summaries:
            owner = self.rng.choice(summaries)
            self.connection.execute("DELETE FROM ros_embeddings WHERE owner_id = %s", [owner])
            refresh_vector_pieces(self.connection)
            self.connection.execute("DELETE FROM ros_summaries WHERE id = %s", [owner])
            self.owners.remove(("summary", owner))
            self.chunks.pop(owner, None)

    def refresh(self) -> None:
        refresh_vector_pieces(self.connection)
        agree(self.connection)
        assert noted(self.connection, serving(self.connection)) == set()


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("seed", range(3))
def test_pieces_and_changes_say_what_the_table_says_whatever_happens(connection: Connection, seed: int) -> None:
    register_model(connection, width=WIDTH)
    world = World(connection, seed)
    world.add()
    actions: list[Callable[[], None]] = [
        world.add, world.embed, world.embed_again, world.shorten, world.empty_range, world.lose_summary, world.refresh,
    ]  # fmt: skip
    for action in world.rng.choices(actions, [25, 40, 10, 8, 2, 2, 8], k=150):
        action()
        if coded(connection):
            agree(connection)
    world.embed()
    refresh_vector_pieces(connection)
    all_coded(connection)


def filled(connection: Connection, messages: int, *, seed: int = 1) -> list[UUID]:
    """Messages with a vector each of a model that serves."""
    register_model(connection, width=WIDTH)
    rng, conversation = random.Random(seed), add_conversation(connection)
    owners = [add_message(connection, f"dunlin {number}", conversation=conversation) for number in range(messages)]
    for owner in owners:
        add_vector(connection, "message", owner, vector(rng))
    return owners


@pytest.mark.usefixtures("small_ranges")
def test_figures_say_what_was_done_and_an_id_names_an_unchanged_piece(connection: Connection) -> None:
    owners = filled(connection, 10)
    assert refresh_vector_pieces(connection) == VectorPieceFigures(3, 10, 10 * (2 + 6), 0)
    before = connection.execute("SELECT id, number FROM ros_vector_pieces ORDER BY number").fetchall()
    assert refresh_vector_pieces(connection).written == 0
    assert connection.execute("SELECT id, number FROM ros_vector_pieces ORDER BY number").fetchall() == before
    row = connection.execute("SELECT seq FROM ros_messages WHERE id = %s", [owners[4]]).fetchone()
    assert row is not None
    add_vector(connection, "message", owners[4], -np.ones(WIDTH, dtype=np.float32), chunk=1)
    assert refresh_vector_pieces(connection) == VectorPieceFigures(1, 11, 11 * (2 + 6), 0)
    after = connection.execute("SELECT id, number FROM ros_vector_pieces ORDER BY number").fetchall()
    moved = [piece for piece in after if piece not in before]
    assert [piece["number"] for piece in moved] == [row["seq"] // 4]
    assert moved[0]["id"] > max(piece["id"] for piece in before)


def test_ranges_are_of_16384_numbers_and_one_without_vectors_has_no_piece(connection: Connection) -> None:
    assert RANGE == 16_384
    register_model(connection, width=WIDTH)
    rng, conversation = random.Random(3), add_conversation(connection)
    for seq in (5, RANGE - 1, 3 * RANGE, 4 * RANGE - 1):
        connection.execute("SELECT setval(pg_get_serial_sequence('ros_messages', 'seq'), %s, false)", [seq])
        add_vector(connection, "message", add_message(connection, "x", conversation=conversation), vector(rng))
    refresh_vector_pieces(connection)
    rows = connection.execute("SELECT number, offsets FROM ros_vector_pieces ORDER BY number").fetchall()
    assert [(row["number"], np.frombuffer(row["offsets"], "<u2").tolist()) for row in rows] == [
        (0, [5, RANGE - 1]),
        (3, [0, RANGE - 1]),
    ]
    all_coded(connection)


def test_topics_are_not_coded_and_a_store_without_vectors_stays_ready_for_the_first(connection: Connection) -> None:
    assert refresh_vector_pieces(connection) == VectorPieceFigures(0, 0, 0, 0)
    model = register_model(connection, width=WIDTH)
    connection.execute(
        """INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end,
                                       embedding)
           SELECT %s, 'topic', gen_random_uuid(), 0, gen_random_uuid(), 0, 1, array_fill(1, ARRAY[%s])::halfvec""",
        [model, WIDTH],
    )
    assert noted(connection, model) == set()
    assert not vector_pieces_due(connection)
    assert refresh_vector_pieces(connection) == VectorPieceFigures(0, 0, 0, 0)
    assert not coded(connection)


def test_changes_of_owners_that_are_no_more_are_deleted(connection: Connection) -> None:
    filled(connection, 2)
    summary = add_summary(connection, "x")
    add_vector(connection, "summary", summary, vector(random.Random(1)))
    refresh_vector_pieces(connection)
    connection.execute("DELETE FROM ros_embeddings WHERE owner_kind = 'summary'")
    connection.execute("DELETE FROM ros_summaries")
    assert noted(connection, serving(connection)) == {("summary", summary)}
    assert refresh_vector_pieces(connection).waiting == 0


def test_vectors_from_before_the_migration_are_coded(server: EmbeddedServer, tmp_path: Path) -> None:
    for migration in read_migrations():
        if migration.name < "0023":
            (tmp_path / f"{migration.name}.sql").write_text(migration.text)
    with connect(server.url("postgres")) as admin:
        admin.execute("CREATE DATABASE before_vector_codes")
    try:
        with connect(server.url("before_vector_codes")) as old:
            apply_migrations(old, tmp_path)
            filled(old, 6)
            add_vector(old, "summary", add_summary(old, "x"), vector(random.Random(2)))
            assert apply_migrations(old)[0] == "0023_vector_codes"
        with connect(server.url("before_vector_codes")) as new:
            assert noted(new, serving(new)) == set()
            assert vector_pieces_due(new)
            assert refresh_vector_pieces(new).chunks == 7
            assert not vector_pieces_due(new)
            all_coded(new)
    finally:
        with connect(server.url("postgres")) as admin:
            admin.execute("DROP DATABASE before_vector_codes WITH (FORCE)")


def test_codes_of_one_bit_are_made_anew(server: EmbeddedServer, tmp_path: Path) -> None:
    for migration in read_migrations():
        if migration.name < "0024":
            (tmp_path / f"{migration.name}.sql").write_text(migration.text)
    with connect(server.url("postgres")) as admin:
        admin.execute("CREATE DATABASE codes_of_one_bit")
    try:
        with connect(server.url("codes_of_one_bit")) as old:
            apply_migrations(old, tmp_path)
            filled(old, 6)
            refresh_vector_pieces(old)
            assert not vector_pieces_due(old)
            assert apply_migrations(old)[0] == "0024_vector_codes_of_two_bits"
        with connect(server.url("codes_of_one_bit")) as new:
            assert new.execute("SELECT FROM ros_vector_pieces").fetchone() is None
            assert vector_pieces_due(new)
            assert refresh_vector_pieces(new).chunks == 6
            all_coded(new)
    finally:
        with connect(server.url("postgres")) as admin:
            admin.execute("DROP DATABASE codes_of_one_bit WITH (FORCE)")


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("again", [False, True], ids=["first", "later"])
def test_a_refresh_that_breaks_off_goes_on_where_it_was(
    connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    filled(connection, 20)
    if again:
        refresh_vector_pieces(connection)
        connection.execute("UPDATE ros_embeddings SET char_end = 2")
    before = {row["id"] for row in connection.execute("SELECT id FROM ros_vector_pieces").fetchall()}
    write = vector_pieces._write_piece
    calls: list[int] = []

    def break_off(victim: Connection, *arguments: Any) -> int:
        calls.append(1)
        if len(calls) == 3:
            connection.execute("SELECT pg_terminate_backend(%s)", [victim.info.backend_pid])
        return write(victim, *arguments)

    monkeypatch.setattr(vector_pieces, "_write_piece", break_off)
    with connect(database_url) as other, pytest.raises(psycopg.OperationalError):
        refresh_vector_pieces(other)
    monkeypatch.setattr(vector_pieces, "_write_piece", write)
    new = [row for row in connection.execute("SELECT id FROM ros_vector_pieces").fetchall() if row["id"] not in before]
    assert len(new) == 2
    assert coded(connection) is again
    all_pieces = len(calls) + refresh_vector_pieces(connection).written - 1
    assert all_pieces == len({chunk[1] // 4 for chunk in piece_chunks(connection, serving(connection))})
    all_coded(connection)


@pytest.mark.usefixtures("small_ranges")
def test_a_vector_written_during_a_refresh_keeps_its_change(
    connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = filled(connection, 12)
    write = vector_pieces._write_piece
    late: list[UUID] = []

    def write_meanwhile(own: Connection, *arguments: Any) -> int:
        with connect(database_url) as other:
            if not late:
                late.append(add_message(other, "new"))
                add_vector(other, "message", late[0], vector(random.Random(8)))
                late.append(owners[0])
                other.execute("DELETE FROM ros_embeddings WHERE owner_id = %s", [owners[0]])
        return write(own, *arguments)

    monkeypatch.setattr(vector_pieces, "_write_piece", write_meanwhile)
    assert refresh_vector_pieces(connection).waiting == 2
    assert noted(connection, serving(connection)) == {("message", owner) for owner in late}
    agree(connection)
    monkeypatch.setattr(vector_pieces, "_write_piece", write)
    refresh_vector_pieces(connection)
    all_coded(connection)


def test_writers_of_the_same_owner_do_not_wait_for_each_other_nor_for_a_refresh(
    connection: Connection, database_url: str
) -> None:
    owners = filled(connection, 3)
    with connect(database_url) as one, connect(database_url) as two:
        for each in (one, two):
            each.execute("SET lock_timeout = '5s'")
        with one.transaction(), two.transaction():
            add_vector(one, "message", owners[0], vector(random.Random(1)), chunk=1)
            add_vector(two, "message", owners[0], vector(random.Random(2)), chunk=2)
            refresh_vector_pieces(connection)
            assert noted(connection, serving(connection)) == set()
    assert noted(connection, serving(connection)) == {("message", owners[0])}
    refresh_vector_pieces(connection)
    all_coded(connection)


@dataclass
class Traffic(Threads):
    """Writes, refreshes and looks at once until all is written."""

    owners: list[UUID] = field(default_factory=list)

    def write(self, own: Connection) -> None:
        rng = random.Random(4)
        for number in range(150):
            own.execute(
                "UPDATE ros_embeddings SET embedding = %s::real[]::vector::halfvec WHERE owner_id = %s",
                [vector(rng).tolist(), rng.choice(self.owners)],
            )
            if number % 5 == 0:
                add_vector(own, "message", add_message(own, "x"), vector(rng))
        self.stop.set()

    def refresh(self, own: Connection) -> None:
        while not self.stop.is_set():
            refresh_vector_pieces(own)

    def look(self, own: Connection) -> None:
        while not self.stop.is_set():
            with own.transaction():
                own.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                if coded(own):
                    agree(own)


@pytest.mark.usefixtures("small_ranges")
def test_refreshes_at_once_lose_nothing_while_others_write(connection: Connection, database_url: str) -> None:
    traffic = Traffic(database_url, owners=filled(connection, 30))
    threads = [traffic.start(work) for work in (traffic.write, traffic.refresh, traffic.refresh, traffic.look)]
    for thread in threads:
        thread.join(timeout=60)
    assert traffic.errors == []
    refresh_vector_pieces(connection)
    all_coded(connection)


def serve(connection: Connection, model: int) -> None:
    with connection.transaction():
        connection.execute("UPDATE ros_embedding_models SET serving = false WHERE serving")
        connection.execute("UPDATE ros_embedding_models SET serving = true WHERE id = %s", [model])


def copy_vectors(connection: Connection, model: int, width: int) -> None:
    """Vectors of the other model for the same owners."""
    connection.execute(
        """INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end,
                                       embedding)
           SELECT %s, owner_kind, owner_id, chunk, content_hash, 0, 1,
                  (array_fill(-1::real, ARRAY[%s]) || 1::real)::vector::halfvec
           FROM ros_embeddings WHERE model_id <> %s""",
        [model, width - 1, model],
    )


@pytest.mark.usefixtures("small_ranges")
def test_a_model_that_begins_to_serve_is_coded_from_the_start_and_the_former_one_forgotten(
    connection: Connection,
) -> None:
    filled(connection, 10)
    first = serving(connection)
    refresh_vector_pieces(connection)
    second = register_model(connection, name="wider", width=33)
    copy_vectors(connection, second, 33)
    assert len(noted(connection, second)) == 10
    refresh_vector_pieces(connection)
    assert noted(connection, second) == set()
    assert len(piece_chunks(connection, first)) == 10
    serve(connection, second)
    assert not coded(connection)
    assert vector_pieces_due(connection)
    assert refresh_vector_pieces(connection) == VectorPieceFigures(3, 10, 10 * (2 + 10), 0)
    all_coded(connection)
    assert piece_chunks(connection, first) == []
    connection.execute("DELETE FROM ros_embeddings WHERE model_id = %s AND owner_id IN (SELECT owner_id FROM "
                       "ros_embeddings LIMIT 1)", [first])  # fmt: skip
    serve(connection, first)
    assert not coded(connection)
    refresh_vector_pieces(connection)
    all_coded(connection)


def test_a_model_that_serves_again_before_a_refresh_is_as_it_was(connection: Connection) -> None:
    owners = filled(connection, 4)
    first = serving(connection)
    refresh_vector_pieces(connection)
    second = register_model(connection, name="other", width=WIDTH)
    serve(connection, second)
    connection.execute("DELETE FROM ros_embeddings WHERE model_id = %s AND owner_id = %s", [first, owners[1]])
    serve(connection, first)
    assert coded(connection)
    assert noted(connection, first) == {("message", owners[1])}
    refresh_vector_pieces(connection)
    all_coded(connection)


def test_a_refresh_leaves_a_model_that_is_just_beginning_to_serve(connection: Connection, database_url: str) -> None:
    owners = filled(connection, 4)
    second = register_model(connection, name="other", width=WIDTH)
    copy_vectors(connection, second, WIDTH)
    with connect(database_url) as other:
        with other.transaction():
            serve(other, second)
            connection.execute("SET lock_timeout = '5s'")
            refresh_vector_pieces(connection)
        assert noted(other, second) == {("message", owner) for owner in owners}
    refresh_vector_pieces(connection)
    all_coded(connection)


def test_a_refresh_is_due_at_first_then_by_changes_and_later_while_others_work(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_pieces, "LEAST_BEHIND", 3)
    monkeypatch.setattr(vector_pieces, "LEAST_BEHIND_BUSY", 5)
    assert not vector_pieces_due(connection)
    register_model(connection, width=WIDTH)
    assert not vector_pieces_due(connection)
    rng, conversation = random.Random(1), add_conversation(connection)
    states = [
        [(True, False), (True, False), (True, False), (True, False), (True, True)],
        [(False, False), (False, False), (True, False), (True, False), (True, True)],
    ]
    for expected in states:
        for due in expected:
            add_vector(connection, "message", add_message(connection, "x", conversation=conversation), vector(rng))
            assert (vector_pieces_due(connection), vector_pieces_due(connection, busy=True)) == due
        refresh_vector_pieces(connection)
        assert not vector_pieces_due(connection)


def test_a_deleted_model_leaves_nothing(connection: Connection) -> None:
    filled(connection, 3)
    model = serving(connection)
    refresh_vector_pieces(connection)
    connection.execute("DELETE FROM ros_embeddings")
    connection.execute("DELETE FROM ros_embedding_models")
    assert piece_chunks(connection, model) == []
    refresh_vector_pieces(connection)
    assert noted(connection, model) == set()


def test_a_centre_of_few_vectors_is_made_anew_when_there_are_many(connection: Connection) -> None:
    def centred_on() -> int:
        row = connection.execute("SELECT centred_on FROM ros_embedding_models WHERE serving").fetchone()
        assert row is not None
        return int(row["centred_on"])

    filled(connection, 1)
    refresh_vector_pieces(connection)
    assert centred_on() == 1
    rng, conversation = random.Random(5), add_conversation(connection)
    for number in range(4):
        add_vector(connection, "message", add_message(connection, f"{number}", conversation=conversation), vector(rng))
    refresh_vector_pieces(connection)
    assert centred_on() == 5
    all_coded(connection)
    agree(connection)


def test_a_model_that_serves_no_more_keeps_no_centre(connection: Connection) -> None:
    filled(connection, 3)
    refresh_vector_pieces(connection)
    former = serving(connection)
    register_model(connection, name="other", width=WIDTH)
    connection.execute("UPDATE ros_embedding_models SET serving = false")
    connection.execute("UPDATE ros_embedding_models SET serving = true WHERE id <> %s", [former])
    refresh_vector_pieces(connection)
    row = connection.execute(
        "SELECT coded, centre, centred_on FROM ros_embedding_models WHERE id = %s", [former]
    ).fetchone()
    assert row == {"coded": False, "centre": None, "centred_on": 0}
