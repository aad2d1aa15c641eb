"""What the database itself promises: words are kept, identities are unique, text is found as it was written."""

from __future__ import annotations

import psycopg
import pytest

from rivet_pipeline.db.pool import Connection


def test_connection_speaks_utc(connection: Connection) -> None:
    assert connection.execute("SHOW timezone").fetchone() == {"TimeZone": "UTC"}


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("see src/app/user_store.py now", "user_store.py"),
        ("call getUserById first", "user"),
        ("ticket PROJ-1234 closed", "1234"),
        ("the React-DOM package", "react dom"),
        ("un café noir", "cafe"),
        ("今天讨论了部署方案", "部署"),
        ("photo-2024.jpg attached", "jpg"),
    ],
)
def test_words_are_found_whole_and_in_parts(connection: Connection, text: str, query: str) -> None:
    row = connection.execute(
        "SELECT ros_query_terms(%s) && tsvector_to_array(ros_analyse(%s, NULL)) AS found", [query, text]
    ).fetchone()
    assert row == {"found": True}


def test_words_are_the_same_as_when_every_text_was_folded_twice(connection: Connection) -> None:
    former = """
        to_tsvector('pg_catalog.english'::regconfig, ros_fold(said))
        || to_tsvector('pg_catalog.english'::regconfig, ros_split(ros_fold(said)))
    """
    ascii_alone = "".join(map(chr, range(1, 128)))
    texts = [
        ascii_alone,
        "parseHTTPRequest2 at /srv/shop_1, don't e.g. 3.14 a@b.org https://x.org/y?z=1",
        f"{ascii_alone} Grüße, naïve ﬁne Ⅷ ½ — “so” 今天讨论了部署方案 한국어 e\u0301",
        *(" ".join(map(chr, range(start, start + 256))) for start in range(0x80, 0x3100, 256)),
    ]
    differing = connection.execute(
        f"SELECT said FROM unnest(%s::text[]) AS said WHERE ros_tokens(said) IS DISTINCT FROM {former}", [texts]
    ).fetchall()
    assert differing == []


def test_a_text_with_too_many_words_is_indexed_on_a_prefix(connection: Connection) -> None:
    text = " ".join(f"{number:032x}" for number in range(40_000))
    row = connection.execute("SELECT length(ros_analyse(%s, NULL)) AS words", [text]).fetchone()
    assert row is not None
    assert row["words"] > 1000


def test_embedding_model_may_not_change_its_width(connection: Connection) -> None:
    connection.execute("SELECT ros_register_embedding_model('m', 256)")
    with pytest.raises(psycopg.DataError, match="256"):
        connection.execute("SELECT ros_register_embedding_model('m', 768)")
