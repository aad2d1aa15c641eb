"""The review queue and the wiki over real HTTP: decided one or many, taken back, refused when not of the queue."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.hub_reader import Reader, form_token, page
from rivet_pipeline_tests.hub_store import LITERALS, NOBODY, HubStore, fill_hub_store
from rivet_pipeline_tests.integration.wiki_rows import add_leaf, mine


@pytest.fixture
def own(database_url: str) -> Iterator[tuple[httpx.Client, HubStore, Connection]]:
    """A hub over a store that the test may change."""
    with connect(database_url) as connection:
        store = fill_hub_store(connection, database_url)
        with (
            running_api(Settings(), database_url) as address,
            httpx.Client(base_url=address, timeout=30, follow_redirects=True) as opened,
        ):
            yield opened, store, connection


def marks(read: Reader, literal: str) -> list[str]:
    """The marks of the queue's accept buttons that stand for a tag, or all when nothing is named."""
    found = [
        str(attributes["value"])
        for tag, attributes in read.tags
        if tag == "button" and attributes.get("name") == "accept" and attributes.get("value") != "chosen"
    ]
    order = re.findall(r"topic:subject-\d(?= it)", re.sub(r"\s+", " ", read.words))
    return [mark for mark, shown in zip(found, order, strict=False) if literal in {shown, "all"}]


def trail(answer: httpx.Response) -> str:
    """What the page carries of its decisions."""
    fields = [attributes for tag, attributes in Reader(answer.text).tags if tag == "input"]
    return next(str(field["value"]) for field in fields if field.get("name") == "trail")


def statuses(connection: Connection) -> dict[str, str]:
    rows = connection.execute("SELECT tag_key || ':' || tag_value AS literal, status FROM ros_tags").fetchall()
    return {row["literal"]: row["status"] for row in rows}


def test_tags_are_decided_one_or_many_and_taken_back(own: tuple[httpx.Client, HubStore, Connection]) -> None:
    client, _, connection = own
    read = page(client, "/hub/review")
    token = form_token(read)
    [mark] = marks(read, LITERALS[3])
    answer = client.post("/hub/review", data={"form_token": token, "accept": mark})
    assert "Accepted 1." in answer.text
    first = trail(answer)
    assert statuses(connection)[LITERALS[3]] == "accepted"
    several = marks(Reader(answer.text), "all")[:4]
    answer = client.post("/hub/review", data={"form_token": token, "reject": "chosen", "item": several, "trail": first})
    assert "Rejected 4." in answer.text
    assert sorted(statuses(connection).values()).count("rejected") == 4
    answer = client.post("/hub/review/undo", data={"form_token": token, "trail": trail(answer)})
    assert "Taken back: it waits again." in answer.text
    assert sorted(statuses(connection).values()).count("suggested") == 9
    answer = client.post("/hub/review", data={"form_token": token, "reject": mark})
    assert "Rejected 0. It has changed since" in answer.text
    assert statuses(connection)[LITERALS[3]] == "accepted"
    answer = client.post("/hub/review/undo", data={"form_token": token, "trail": first})
    assert "Taken back: it waits again. Nothing is left to undo." in answer.text
    # The same decision can not be taken back twice, and nobody's newer one is overwritten.
    answer = client.post("/hub/review/undo", data={"form_token": token, "trail": first})
    assert "was undone already" in answer.text
    assert sorted(statuses(connection).values()).count("suggested") == 10


def test_a_tag_in_several_places_is_one_thing(own: tuple[httpx.Client, HubStore, Connection]) -> None:
    client, _, connection = own
    for literal in LITERALS[:2]:
        connection.execute(
            """
            INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, status, source,
                                  proposed_by)
            SELECT 'summary', (SELECT id FROM ros_summaries LIMIT 1), conversation_id, tag_key, tag_value, 'suggested',
                   'model', 'tagger-1'
            FROM ros_tags WHERE tag_key || ':' || tag_value = %s
            """,
            [literal],
        )
    read = page(client, "/hub/review")
    token, chosen = form_token(read), [marks(read, literal)[0] for literal in LITERALS[:3]]
    assert [mark.count(".") for mark in chosen] == [2, 2, 1]
    answer = client.post("/hub/review", data={"form_token": token, "accept": chosen[0]})
    assert "Accepted 1." in answer.text
    answer = client.post("/hub/review", data={"form_token": token, "accept": chosen[2], "trail": trail(answer)})
    assert f"Accepted {LITERALS[0]}" in Reader(answer.text).words
    answer = client.post("/hub/review", data={"form_token": token, "reject": "chosen", "item": chosen[:2]})
    assert "Rejected 1. It has changed since" in answer.text


def test_decisions_are_taken_back_one_by_one_in_any_order(own: tuple[httpx.Client, HubStore, Connection]) -> None:
    client, _, connection = own
    read = page(client, "/hub/review")
    token = form_token(read)
    answer = client.get("/hub/review")
    for literal in LITERALS[:4]:
        [mark] = marks(read, literal)
        answer = client.post("/hub/review", data={"form_token": token, "accept": mark, "trail": trail(answer)})
    assert "4 decisions of this page" in Reader(answer.text).words
    # Without scripts the list names each decision; the third one goes first.
    assert f"Accepted {LITERALS[2]}" in Reader(answer.text).words
    answer = client.post("/hub/review/undo", data={"form_token": token, "trail": trail(answer), "undo": "2"})
    assert statuses(connection)[LITERALS[2]] == "suggested"
    for literal in (LITERALS[3], LITERALS[1], LITERALS[0]):
        assert "Nothing is left to undo." not in answer.text
        answer = client.post("/hub/review/undo", data={"form_token": token, "trail": trail(answer)})
        assert statuses(connection)[literal] == "suggested"
    assert "Nothing is left to undo." in answer.text
    answer = client.post("/hub/review/undo", data={"form_token": token, "trail": trail(answer)})
    assert Reader(answer.text).words.count("Nothing is left to undo.") == 1


def test_a_patch_is_a_diff_and_is_decided_and_taken_back(own: tuple[httpx.Client, HubStore, Connection]) -> None:
    client, _, connection = own
    answer = client.get("/hub/review")
    read = Reader(answer.text)
    assert "said again" in read.words
    assert "<script>fire(8)</script> is never run." in read.words
    assert [tag for tag, _ in read.tags if tag == "ins"]
    token = form_token(read)
    patch = next(value for value in read.values("input", "value") if value.startswith("patch "))

    def status() -> str:
        row = connection.execute(
            "SELECT status FROM ros_wiki_patches WHERE id = %s", [patch.partition(" ")[2]]
        ).fetchone()
        assert row is not None
        return str(row["status"])

    for verdict, after in (("accept", "applied"), ("reject", "rejected")):
        answer = client.post("/hub/review", data={"form_token": token, verdict: patch})
        assert status() == after
        client.post("/hub/review/undo", data={"form_token": token, "trail": trail(answer)})
        assert status() == "proposed"


def test_the_queue_comes_as_a_fragment_for_htmx(own: tuple[httpx.Client, HubStore, Connection]) -> None:
    client, _, _ = own
    read = page(client, "/hub/review")
    [mark] = marks(read, LITERALS[0])
    answer = client.post(
        "/hub/review", data={"form_token": form_token(read), "accept": mark}, headers={"HX-Request": "true"}
    )
    assert answer.text.lstrip().startswith('<div id="review">')
    assert 'data-say="Accepted 1."' in answer.text
    assert LITERALS[0] not in marks(Reader(answer.text), "all")


def test_a_tag_is_decided_beside_its_conversation(own: tuple[httpx.Client, HubStore, Connection]) -> None:
    client, store, connection = own
    here = f"/hub/c/{store.plain}?page=2"
    read = page(client, here)
    assert "10 proposed tags to review" in read.words
    mark = read.values("button", "value")
    chosen = next(value for value in mark if value.startswith("tag "))
    answer = client.post("/hub/review", data={"form_token": form_token(read), "accept": chosen, "next": here})
    assert str(answer.url).endswith(here)
    assert "9 proposed tags to review" in Reader(answer.text).words
    assert sorted(statuses(connection).values()).count("accepted") == 1


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"accept": "everything"},
        {"accept": "tag 1.1"},
        {"accept": f"patch {NOBODY}; drop"},
        {"accept": "chosen", "item": [f"patch {NOBODY}"] * 70},
    ],
)
def test_a_form_that_names_nothing_of_the_queue_is_refused(client: httpx.Client, form: dict[str, str]) -> None:
    read = page(client, "/hub/review")
    answer = client.post("/hub/review", data={"form_token": form_token(read)} | form)
    assert answer.status_code == 400
    assert client.post("/hub/review/undo", data={"form_token": form_token(read), "undo": "x"}).status_code == 400


def test_another_page_can_not_put_words_into_the_queue(client: httpx.Client) -> None:
    assert "Click" not in page(client, "/hub/review", done="Q2xpY2sgaGVyZQ.00").words
    assert page(client, "/hub/review", done="é").words


def test_what_is_gone_is_said_and_nothing_is_chosen_is_no_error(client: httpx.Client) -> None:
    token = form_token(page(client, "/hub/review"))
    answer = client.post("/hub/review", data={"form_token": token, "accept": "chosen"}, follow_redirects=True)
    assert "Nothing was chosen." in answer.text
    answer = client.post("/hub/review", data={"form_token": token, "accept": f"patch {NOBODY}"}, follow_redirects=True)
    assert "Accepted 0. There is no such patch." in Reader(answer.text).words


def test_a_wiki_page_names_the_source_of_every_sentence(client: httpx.Client) -> None:
    read = page(client, "/hub/wiki/session-store")
    assert "Sessions live in Postgres." in read.words
    cited = {link for link in read.values("a", "href") if link.startswith("#source-")}
    assert cited
    assert cited <= {f"#{identity}" for identity in read.values("li", "id")}
    assert [link for link in read.values("a", "href") if link.startswith("/hub/s/")]
    assert "Version 2" in page(client, "/hub/wiki/session-store/history").words
    overview = page(client, "/hub/wiki")
    assert "Kelpie server" in overview.words
    assert "1 page, each sentence" in overview.words
    assert "Session store" in page(client, "/hub/wiki", q="where do sessions live").words
    assert "No page was found" in page(client, "/hub/wiki", q="zebra").words


def test_what_held_once_has_both_its_dates(client: httpx.Client, store_url: str) -> None:
    with open_pool(store_url, max_size=2) as pool:
        with pool.connection() as connection:
            add_leaf(connection, "Port | The port is number 8437 here")
            add_leaf(connection, "Port | The port is number 9000 here", days=3)
        mine(pool)
    words = " ".join(page(client, "/hub/wiki/port").words.split())
    assert "What held once (1) The port is number 8437 here" in words
    assert "as of 2 Mar 2026, until 5 Mar 2026, then: The port is number 9000 here" in words
