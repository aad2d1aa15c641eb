"""Summaries among the hits unfold to what they were made from, and an answer in words rests on the hits alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.retrieval import expand as expand_module
from rivet_pipeline.retrieval.expand import Expansion, expand_hits, expand_more, expand_summary
from rivet_pipeline.retrieval.types import Hit
from rivet_pipeline.settings import Settings
from rivet_pipeline.versions import OWN_TRAFFIC_MARKER
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.integration.chat_server import chat_server, says
from rivet_pipeline_tests.integration.memory_rows import add_conversation, add_message, add_summary, find
from rivet_pipeline_tests.integration.rivet_command import rivet_command


def add_leaf(connection: Connection, conversation: UUID, text: str, said: Sequence[str], **options: Any) -> UUID:
    """A leaf over messages that are written here, oldest first."""
    messages = [
        add_message(connection, words, conversation=conversation, age_days=10 - number / 10)
        for number, words in enumerate(said)
    ]
    leaf = add_summary(connection, text, conversation=conversation, **options)
    for ordinal, identity in enumerate(messages):
        connection.execute("INSERT INTO ros_summary_sources VALUES (%s, %s, %s)", [leaf, identity, ordinal])
    return leaf


def texts(expansion: Expansion) -> list[str]:
    return [item.text for item in expansion.items]


@pytest.fixture
def tree(connection: Connection) -> tuple[UUID, UUID, UUID]:
    """A branch over two leaves of three messages each."""
    conversation = add_conversation(connection)
    first = add_leaf(connection, conversation, "Leaf about birds", ["a sparrow", "a kestrel on the roof", "rain"])
    second = add_leaf(connection, conversation, "Leaf about towers", ["a tower", "the kestrel nests in it", "sun"])
    branch = add_summary(connection, "Branch: kestrel, tower", conversation=conversation, kind="branch")
    connection.execute("UPDATE ros_summaries SET parent_id = %s WHERE id = ANY (%s)", [branch, [first, second]])
    return branch, first, second


def test_the_most_relevant_comes_first_and_then_the_order_of_time(
    connection: Connection, tree: tuple[UUID, UUID, UUID]
) -> None:
    expansion = expand_summary(connection, tree[0], "where does the kestrel nest")
    assert texts(expansion) == [
        "the kestrel nests in it",
        "a kestrel on the roof",
        *["a sparrow", "a tower", "rain", "sun"],
        *["Leaf about birds", "Leaf about towers"],
    ]
    assert [item.source for item in expansion.items] == ["message"] * 6 + ["summary"] * 2
    relevances = [item.relevance for item in expansion.items]
    assert relevances == sorted(relevances, reverse=True)
    assert 0 <= relevances[-1] < relevances[0] <= 1
    assert (expansion.total, expansion.repeated, expansion.more) == (8, 0, None)


def test_without_words_everything_comes_in_the_order_of_time(
    connection: Connection, tree: tuple[UUID, UUID, UUID]
) -> None:
    for query in ("", "the", "zebra"):
        assert texts(expand_summary(connection, tree[1], query)) == ["a sparrow", "a kestrel on the roof", "rain"]


def test_the_budget_holds_and_more_goes_on_where_it_stopped(connection: Connection) -> None:
    conversation = add_conversation(connection)
    leaf = add_leaf(connection, conversation, "many", [f"message {number} " + "x" * 150 for number in range(40)])
    whole = expand_summary(connection, leaf, "message", characters=40_000)
    assert len(whole.items) == whole.total == 40
    found: list[str] = []
    page = expand_summary(connection, leaf, "message", characters=1000)
    pages = 1
    while True:
        assert sum(len(text) for text in texts(page)) <= 1000
        found += texts(page)
        if page.more is None:
            break
        page = expand_more(connection, page.more, characters=1000)
        pages += 1
    assert found == texts(whole)
    assert pages > 5


def test_a_long_text_shows_the_part_that_was_asked_for(connection: Connection) -> None:
    leaf = add_leaf(
        connection, add_conversation(connection), "long", ["filler " * 900 + "kestrel here " + "end " * 900]
    )
    [item] = expand_summary(connection, leaf, "kestrel").items
    assert item.cut
    assert "kestrel here" in item.text
    assert len(item.text) <= 400 < item.characters


def test_what_stands_among_the_hits_is_not_repeated(connection: Connection, tree: tuple[UUID, UUID, UUID]) -> None:
    # The same words elsewhere, and the branch, its leaf and its message all among the hits.
    add_message(connection, "A KESTREL  on the roof")
    hits = find(connection, "kestrel", scope="messages").hits
    assert {hit.content for hit in hits} >= {"the kestrel nests in it", "a kestrel on the roof"}
    branch, first, second = tree
    summaries = [replace(hits[0], id=identity, source="summary", content=str(identity)) for identity in tree[:2]]
    result = expand_hits(connection, "kestrel", [*summaries, *hits])
    assert [expansion.summary for expansion in result.expansions] == [branch, first]
    shown = [item.id for expansion in result.expansions for item in expansion.items]
    assert len(shown) == len(set(shown))
    assert not set(shown) & {hit.id for hit in hits}
    assert first not in shown
    assert second in shown
    assert texts(result.expansions[0]) == ["a sparrow", "a tower", "rain", "sun", "Leaf about towers"]
    assert result.expansions[0].repeated == 3
    # All that stands below the leaf is in the answer by then.
    assert (texts(result.expansions[1]), result.expansions[1].repeated) == ([], 3)


def test_the_best_three_share_the_budget(connection: Connection) -> None:
    conversation = add_conversation(connection)
    leaves = [
        add_leaf(
            connection, conversation, f"kestrel {number}", [f"{number} {turn} " + "y" * 190 for turn in range(count)]
        )
        for number, count in enumerate([1, 30, 30, 30])
    ]
    hits = find(connection, "kestrel", scope="summaries").hits
    ordered = sorted(hits, key=lambda hit: leaves.index(hit.id))
    result = expand_hits(connection, "zebra", ordered, characters=4000)
    assert [expansion.summary for expansion in result.expansions] == leaves[:3]
    # The first needs little, so that the others get more than a third each.
    assert [len(expansion.items) for expansion in result.expansions] == [1, 9, 10]
    assert result.expansions[1].more is not None


def test_no_summary_and_a_failure_are_reasons(
    connection: Connection, tree: tuple[UUID, UUID, UUID], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = find(connection, "kestrel", scope="messages").hits
    assert expand_hits(connection, "kestrel", hits).reason == "no summary is among the hits"
    summary = [replace(hits[0], id=tree[0], source="summary")]
    monkeypatch.setattr(expand_module, "_TIMEOUT_MS", 200)
    with connect(database_url) as other, other.transaction():
        other.execute("LOCK TABLE ros_summary_sources IN ACCESS EXCLUSIVE MODE")
        result = expand_hits(connection, "kestrel", summary)
    assert result.expansions == []
    assert "could not be unfolded" in (result.reason or "")
    assert expand_hits(connection, "kestrel", summary).reason is None


def _token(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


#: An id that nothing has; fixed, because it stands in the names of tests.
_NOBODY = "6f1c4c9e-0b3a-4f52-9d3e-2f6f7a1f0c55"


@pytest.mark.parametrize(
    "more",
    [
        "",
        "x",
        "é",
        _token(1),
        _token(["x", "q", 1]),
        _token([_NOBODY, "q", -1]),
        _token([_NOBODY, "q", True]),
        _token([_NOBODY, 5, 1]),
        _token([_NOBODY, "q"]),
        _token([_NOBODY, "\x00", 1]),
        _token([_NOBODY, "\ud800", 1]),
        _token([7, "q", 1]),
    ],
)
def test_a_foreign_more_is_refused(connection: Connection, more: str) -> None:
    with pytest.raises(InvalidInputError, match="more"):
        expand_more(connection, more)


def test_only_summaries_unfold(connection: Connection) -> None:
    message = add_message(connection, "x")
    for identity in (message, uuid4()):
        with pytest.raises(NotFoundError, match="no summary has the id"):
            expand_summary(connection, identity)
    assert expand_summary(connection, add_summary(connection, "alone")).items == []


def test_over_http(connection: Connection, tree: tuple[UUID, UUID, UUID], database_url: str) -> None:
    with running_api(Settings(), database_url) as base, httpx.Client(base_url=base, timeout=30) as client:
        plain = client.get("/api/memory/search", params={"q": "tower", "scope": "summaries"}).json()
        assert (plain["expansions"], plain["synthesis"]) == (None, None)
        body = client.get(
            "/api/memory/search", params={"q": "kestrel tower", "scope": "summaries", "expand": "true"}
        ).json()
        assert [one["summary"] for one in body["expansions"]] == [hit["id"] for hit in body["results"]]
        first = body["expansions"][0]
        assert first["items"][0]["text"] in {"the kestrel nests in it", "a kestrel on the roof", "a tower"}
        none = client.get("/api/memory/search", params={"q": "sparrow", "scope": "messages", "expand": "true"}).json()
        assert (none["expansions"], none["expansionReason"]) == ([], "no summary is among the hits")
        by_id = client.get("/api/memory/expand", params={"id": str(tree[1]), "q": "rain", "chars": 500}).json()
        assert [item["text"] for item in by_id["items"]] == ["rain", "a sparrow", "a kestrel on the roof"]
        assert client.get("/api/memory/expand").status_code == 400
        assert client.get("/api/memory/expand", params={"more": "x"}).status_code == 400
        assert client.get("/api/memory/expand", params={"id": str(uuid4())}).status_code == 404
        unasked = client.get("/api/memory/search", params={"q": "kestrel", "synthesize": "true"}).json()
    assert unasked["results"]
    assert unasked["synthesis"]["answer"] is None
    assert "no chat model is configured" in unasked["synthesis"]["reason"]
    # Only the hits were accessed, not what they unfolded to.
    counted = {row["id"] for row in connection.execute("SELECT id FROM ros_access").fetchall()}
    returned = [plain, body, none, unasked]
    assert counted == {UUID(hit["id"]) for answer in returned for hit in answer["results"]}


def cite_the_nest(request: dict[str, Any]) -> Any:
    """Answers with the mark of the record that speaks of the nest."""
    user = request["messages"][1]["content"]
    mark = user.split("the kestrel nests in it")[0].rsplit("[#", 1)[1][:8]
    return says(f"It nests in the tower [#{mark}].")


def test_an_answer_in_words_over_http(connection: Connection, tree: tuple[UUID, UUID, UUID], database_url: str) -> None:
    with chat_server(cite_the_nest) as chat:
        settings = Settings(compactor_url=chat.url, compactor_model="m")
        with running_api(settings, database_url) as base, httpx.Client(base_url=base, timeout=30) as client:
            body = client.get(
                "/api/memory/search", params={"q": "kestrel nests", "expand": "true", "synthesize": "true"}
            ).json()
    synthesis = body["synthesis"]
    assert synthesis["answer"].startswith("It nests in the tower [#")
    [citation] = synthesis["citations"]
    cited = connection.execute("SELECT content FROM ros_messages WHERE id = %s", [citation["id"]]).fetchone()
    assert cited == {"content": "the kestrel nests in it"}
    asked = chat.asked[0]["messages"]
    assert all(message["content"].startswith(OWN_TRAFFIC_MARKER) for message in asked)
    assert (synthesis["model"], synthesis["reason"]) == ("stand-in", None)


def test_hits_come_first_and_their_answer_in_words_afterwards(
    connection: Connection, tree: tuple[UUID, UUID, UUID], database_url: str
) -> None:
    with chat_server(cite_the_nest) as chat:
        settings = Settings(compactor_url=chat.url, compactor_model="m")
        with running_api(settings, database_url) as base, httpx.Client(base_url=base, timeout=30) as client:
            found = client.get("/api/memory/search", params={"q": "kestrel nests", "scope": "messages"}).json()
            assert chat.asked == []
            ids = [hit["id"] for hit in found["results"]]
            body = client.get("/api/memory/synthesis", params={"q": "kestrel nests", "id": ids}).json()
            unfolded = client.get(
                "/api/memory/synthesis", params={"q": "kestrel nests", "id": [str(tree[0])], "expand": "true"}
            ).json()
            unknown = client.get("/api/memory/synthesis", params={"q": "kestrel", "id": [*ids, str(uuid4())]})
            wrong = [
                client.get("/api/memory/synthesis", params=parameters).status_code
                for parameters in ({"q": "kestrel"}, {"q": " ", "id": ids}, {"id": ids}, {"q": "kestrel", "id": "x"})
            ]
    for answer in (body, unfolded):
        assert "answer" in answer, answer
        assert answer["answer"].startswith("It nests in the tower [#")
        [citation] = answer["citations"]
        cited = connection.execute("SELECT content FROM ros_messages WHERE id = %s", [citation["id"]]).fetchone()
        assert cited == {"content": "the kestrel nests in it"}
        assert (answer["model"], answer["reason"]) == ("stand-in", None)
    assert len(chat.asked) == 2
    asked = chat.asked[0]["messages"][1]["content"]
    places = [asked.index(f"[#{UUID(identity).hex[:8]}]") for identity in ids]
    assert places == sorted(places)
    assert (unknown.status_code, wrong) == (404, [400] * 4)
    assert "No summary and no message has the id" in unknown.json()["detail"]
    # The search counted them, and nothing else did.
    counted = connection.execute("SELECT id, access_count FROM ros_access").fetchall()
    assert {(str(row["id"]), row["access_count"]) for row in counted} == {(identity, 1) for identity in ids}


def test_an_answer_in_words_is_a_reason_without_a_model(
    connection: Connection, tree: tuple[UUID, UUID, UUID], database_url: str
) -> None:
    with running_api(Settings(), database_url) as base, httpx.Client(base_url=base, timeout=30) as client:
        answer = client.get("/api/memory/synthesis", params={"q": "kestrel", "id": str(tree[0])})
    assert (answer.status_code, answer.json()["answer"]) == (200, None)
    assert "no chat model is configured" in answer.json()["reason"]


def test_on_the_command_line(
    connection: Connection,
    tree: tuple[UUID, UUID, UUID],
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with rivet_command(database_url, tmp_path, monkeypatch, capsys) as rivet:
        ran = rivet("search", "kestrel tower", "--scope", "summaries", "--expand", "--expand-chars", "500")
        assert ran.code == 0
        assert "        the kestrel nests in it" in ran.out
        parsed = rivet("search", "kestrel tower", "--expand", "--json").json
        assert parsed["expansions"]
        ran = rivet("search", "kestrel", "--scope", "messages", "--expand", "--synthesize")
        assert "nothing was unfolded: no summary is among the hits" in ran.err
        assert "no answer in words: no chat model is configured" in ran.err
        connection.execute("ALTER TABLE ros_access RENAME TO gone")
        # Search reads the counts too, so only their writing is taken away.
        connection.execute("CREATE VIEW ros_access AS SELECT * FROM gone WHERE false")
        connection.execute("CREATE RULE no AS ON INSERT TO ros_access DO INSTEAD NOTHING")
        assert rivet("search", "kestrel").code == 0


def test_hits_stay_what_they_are(connection: Connection, tree: tuple[UUID, UUID, UUID]) -> None:
    hits: list[Hit] = find(connection, "kestrel").hits
    before = list(hits)
    expand_hits(connection, "kestrel", hits)
    assert hits == before


def test_a_tree_that_goes_round_in_circles_has_each_row_once(
    connection: Connection, tree: tuple[UUID, UUID, UUID]
) -> None:
    branch, first, _ = tree
    connection.execute("UPDATE ros_summaries SET parent_id = %s WHERE id = %s", [first, branch])
    expansion = expand_summary(connection, branch, "kestrel")
    assert (expansion.total, len(expansion.items), expansion.repeated) == (8, 8, 0)
    connection.execute("UPDATE ros_summaries SET parent_id = id WHERE id = %s", [branch])
    expansion = expand_summary(connection, branch, "kestrel")
    assert (expansion.total, len(expansion.items), expansion.repeated) == (8, 8, 0)


def test_the_best_summary_shows_something_of_the_least_budget(connection: Connection) -> None:
    conversation = add_conversation(connection)
    for number in range(3):
        add_leaf(connection, conversation, f"kestrel {number}", [f"{number} " + "y" * 390, f"{number} " + "z" * 80])
    hits = find(connection, "kestrel", scope="summaries").hits
    result = expand_hits(connection, "kestrel", hits, characters=500)
    assert [len(expansion.items) for expansion in result.expansions] == [1, 0, 0]
    assert all(expansion.more is not None for expansion in result.expansions)
