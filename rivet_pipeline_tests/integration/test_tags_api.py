"""`/api/memory/tags*` and the tool `memory_tags` over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.errors import StoreUnavailableError
from rivet_pipeline.settings import Settings
from rivet_pipeline.tags.log import read_log
from rivet_pipeline.tags.read import count_tags, list_tags, lookup_sessions, read_pending, tags_of_conversations
from rivet_pipeline.tags.review import suggest_removal
from rivet_pipeline.tags.vocabulary import list_values
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.integration.memory_rows import add_conversation
from rivet_pipeline_tests.integration.tagging import ScriptedTagger, leaf, tag_all

TAGS = "/api/memory/tags"
TOOL = "/api/memory/tool/memory_tags"


@dataclass
class Api:
    """A client, and the session whose tags wait."""

    client: httpx.Client
    session: UUID

    def get(self, path: str = "", **parameters: Any) -> Any:
        answer = self.client.get(TAGS + path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        answer = self.client.post(TAGS + path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def tool(self, status: int = 200, **arguments: Any) -> Any:
        answer = self.client.post(TOOL, json=arguments)
        assert answer.status_code == status, answer.text
        return answer.json()["result" if status == 200 else "detail"]

    def pending(self) -> list[dict[str, Any]]:
        return [tag for session in self.get("/pending")["sessions"] for tag in session["tags"]]


def seed(connection: Connection, pool: Pool) -> UUID:
    session = add_conversation(connection, key="claude-code:1", settings={"project": "shop"})
    leaf(connection, session)
    tag_all(pool, ScriptedTagger(["topic:caching", "topic:redis"]))
    return session


@pytest.fixture
def api(connection: Connection, pool: Pool, database_url: str) -> Iterator[Api]:
    """An API whose agents may write."""
    session = seed(connection, pool)
    settings = Settings(enable_memory_write=True)
    with running_api(settings, database_url) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield Api(client, session)


def test_a_review_from_what_waits_to_what_counts(api: Api) -> None:
    [session] = api.get("/pending")["sessions"]
    assert (session["sessionKey"], session["accepted"]) == ("claude-code:1", ["project:shop"])
    assert session["ageSeconds"] >= 0
    assert session["excerpt"]
    caching, redis = session["tags"]
    assert (caching["tag"], [row["entityType"] for row in caching["rows"]]) == (
        "topic:caching",
        ["conversation", "summary"],
    )
    items = [{"id": row["id"], "state": "accepted", "seen": row["revision"]} for row in caching["rows"]]
    done = api.post("/decide", {"items": items, "decided_by": "ada"})
    assert (done["changed"], [item["outcome"] for item in done["items"]]) == (2, ["changed", "changed"])
    late = api.post("/decide", {"items": [items[0] | {"state": "rejected"}], "decided_by": "bea"})
    assert (late["changed"], late["items"][0]["outcome"]) == (0, "conflict")
    api.post("/decide", {"ids": [row["id"] for row in redis["rows"]], "state": "rejected"})
    assert api.pending() == []
    assert api.get("/counts", key="Topic")["counts"] == [
        {"key": "topic", "value": "caching", "display": "", "conversations": 1}
    ]
    found = api.post("/lookup", {"session_keys": ["claude-code:1", "x:1"], "states": ["accepted", "rejected"]})
    told = {(tag["tag"], tag["state"], tag["reviewed"]) for tag in found["sessions"]["claude-code:1"]}
    assert told == {
        ("project:shop", "accepted", False),
        ("topic:caching", "accepted", True),
        ("topic:redis", "rejected", True),
    }
    assert found["sessions"]["x:1"] == []
    [rejected, accepted] = api.get("/log")["decisions"]
    assert (rejected["decidedBy"], accepted["decidedBy"], accepted["rows"]) == ("api", "ada", 2)
    api.post("/undo", {"decision": done["decision"], "decided_by": "ada"})
    assert [tag["tag"] for tag in api.pending()] == ["topic:caching"]
    assert "undone already" in api.post("/undo", {"decision": done["decision"]}, 409)["detail"]


def test_tags_are_added_listed_and_found_under_every_spelling(api: Api) -> None:
    added = api.post("", {"session_key": "claude-code:1", "tag": "Topic\uff1aWeb Sockets", "decided_by": "ada"})
    assert added["items"][0]["tag"]["display"] == "Web Sockets"
    api.post("", {"entity_id": str(api.session), "key": "mood", "value": "calm"})
    tags = {
        f"{tag['key']}:{tag['value']}" for tag in api.get(conversation_id=str(api.session), state="accepted")["tags"]
    }
    assert tags == {"project:shop", "topic:web-sockets", "mood:calm"}
    [found] = api.get(key="TOPIC", value="web  sockets")["tags"]
    assert (found["state"], found["decidedBy"], found["reviewed"]) == ("accepted", "ada", True)
    removal = api.post("/removal", {"id": found["id"], "reason": "off the subject"})
    assert removal["changed"] == 1
    assert [tag["tag"] for tag in api.pending() if tag["removal"]] == ["topic:web-sockets"]
    api.post("/decide", {"ids": [found["id"]], "state": "removed"})
    assert api.get(key="topic", value="web-sockets", state="rejected")["tags"][0]["removal"] is None


def test_the_vocabulary_is_edited_and_merged(api: Api) -> None:
    api.post("/taxonomy", {"key": "topic", "value": "Cache", "description": "Kept answers", "decided_by": "ada"})
    merged = api.post("/taxonomy/merge", {"key": "topic", "from": "caching", "into": "cache"})
    assert (merged["from"], merged["into"], merged["moved"], merged["dropped"]) == ("caching", "cache", 2, 0)
    refused = api.post("/taxonomy/merge", {"key": "topic", "from": "cache", "into": "caching"}, 400)
    assert "circle" in refused["detail"]
    described = {"key": "topic", "value": "topic: Cache", "description": "Answers that are kept"}
    assert api.post("/taxonomy", described)["state"] == "accepted"
    decided = api.post("/taxonomy/decide", {"entries": [{"key": "topic", "value": "redis", "state": "rejected"}]})
    assert decided["changed"] == 1
    values = {one["value"]: (one["state"], one["aliasOf"]) for one in api.get("/taxonomy", key="topic")["values"]}
    assert values == {"cache": ("accepted", None), "caching": ("accepted", "cache"), "redis": ("rejected", None)}
    assert [tag["tag"] for tag in api.pending()] == ["topic:cache"]


def test_a_value_that_begins_with_its_key_is_decided_as_it_was_listed(api: Api) -> None:
    for tag in ("topic:x", "topic:topic:x"):
        api.post("", {"session_key": "claude-code:1", "tag": tag})
        api.tool(action="taxonomy_upsert", tag=tag)
    echoed = {"key": "topic", "value": "topic:x"}
    decided = api.post("/taxonomy/decide", {"entries": [{**echoed, "state": "rejected", "seen": _revision(api)}]})
    assert decided["changed"] == 1
    assert api.post("/taxonomy", {**echoed, "description": "twice"})["value"] == "topic:x"
    values = {one["value"]: one["state"] for one in api.get("/taxonomy", key="topic")["values"]}
    assert (values["x"], values["topic:x"]) == ("accepted", "rejected")
    assert [tag["value"] for tag in api.get(**echoed)["tags"]] == ["topic:x"]
    assert api.post("", {"session_key": "claude-code:1", **echoed})["items"][0]["outcome"] == "unchanged"
    # What others are merged into is named, not echoed: there the key before it is only a key.
    merged = api.post("/taxonomy/merge", {"key": "topic", "from": "topic:x", "into": "topic:x"})
    assert (merged["from"], merged["into"], merged["dropped"]) == ("topic:x", "x", 1)


def _revision(api: Api) -> int:
    [found] = [one for one in api.get("/taxonomy", key="topic")["values"] if one["value"] == "topic:x"]
    revision: int = found["revision"]
    return revision


def test_what_waits_says_whether_more_does(api: Api, connection: Connection, pool: Pool) -> None:
    leaf(connection, add_conversation(connection, key="claude-code:2"))
    tag_all(pool, ScriptedTagger(["topic:caching"]))
    assert [(len(found["sessions"]), found["more"]) for found in (api.get("/pending", limit=n) for n in (1, 2))] == [
        (1, True),
        (2, False),
    ]
    assert "More sessions wait" in api.tool(limit=1)
    assert "More sessions wait" not in api.tool(limit=2)


WRONG: list[tuple[str, Any, str]] = [
    ("/decide", {"state": "accepted"}, "either ids"),
    ("/decide", {"ids": [str(UUID(int=1))]}, "need a state"),
    ("/decide", {"ids": ["x"], "state": "accepted"}, "ids[0]"),
    ("/decide", {"ids": [str(UUID(int=1))], "state": "maybe"}, "state"),
    ("", {"session_key": "claude-code:1", "tag": "no colon"}, "key:value"),
    ("", {"session_key": "claude-code:1"}, "either tag"),
    ("", {"tag": "topic:x"}, "either entity_id"),
    ("", {"session_key": "claude-code:1", "tag": "topic:x", "decided_by": " "}, "decided_by"),
    ("", {"session_key": "claude-code:1", "tag": "topic:" + "x" * 129}, "longer than 128"),
    ("/taxonomy/merge", {"key": "topic", "from": "a"}, "into"),
    ("/lookup", {"session_keys": ["x"] * 501}, "session_keys"),
    ("/undo", {"decision": "x"}, "decision"),
    ("/undo", {"decision": str(UUID(int=1)), "extra": 1}, "extra"),
]


WRONG_CALLS: list[tuple[dict[str, Any], str]] = [
    ({"action": "decide"}, "state"),
    ({"action": "decide", "ids": [str(UUID(int=1))], "state": "accepted", "seen": [1, 2]}, "seen"),
    ({"action": "lookup"}, "session_keys"),
    ({"action": "add", "tag": "topic:x"}, "session_key"),
    ({"action": "add", "session_key": "claude-code:1"}, "tag"),
    ({"action": "taxonomy_merge", "key": "topic"}, "from_value"),
    ({"action": "undo"}, "decision"),
    ({"action": "explode"}, "action"),
    ({"action": "pending", "colour": 1}, "colour"),
]


def test_what_is_wrong_or_not_there_is_said(api: Api) -> None:
    for path, body, says in WRONG:
        assert says in api.post(path, body, 400)["detail"]
    for arguments, says in WRONG_CALLS:
        assert says in api.tool(400, **arguments)
    assert "no conversation" in api.post("", {"session_key": "nobody:1", "tag": "topic:x"}, 404)["detail"]
    assert "no summary" in api.post("", {"entity_type": "summary", "entity_id": str(uuid4()), "tag": "topic:x"}, 404)[
        "detail"
    ].replace("there is ", "")
    assert api.client.get(TAGS, params={"state": "odd"}).status_code == 400
    assert api.client.get(TAGS, params={"value": "x"}).status_code == 400
    assert api.client.get(TAGS, params={"colour": "x"}).status_code == 400
    assert api.client.post(f"{TAGS}/decide", content="ids=1").status_code == 415
    assert api.client.post(f"{TAGS}/decide", json={"ids": ["x" * 300_000]}).status_code == 413
    assert api.client.delete(TAGS).status_code == 405


def test_a_tag_of_six_kilobytes_is_refused_and_leaves_nothing(api: Api, connection: Connection) -> None:
    before = connection.execute("SELECT count(*) AS n FROM ros_tags").fetchone()
    for tag in ("topic:" + "g" * 6_000, "k" * 6_000 + ":x"):
        detail = api.post("", {"session_key": "claude-code:1", "tag": tag}, 400)["detail"]
        assert "is longer than" in detail or "must be key:value" in detail
        assert len(detail) < 300
        key, _, value = tag.partition(":")
        body = {"entity_id": str(api.session), "key": key, "value": value}
        assert "is longer than" in api.post("", body, 400)["detail"]
        assert api.tool(400, action="add", session_key="claude-code:1", tag=tag) == detail
        found = api.client.get("/api/memory/search", params={"q": "redis", "tag": tag}).json()
        assert (found["results"], "no session carries the tag" in found["reason"]) == ([], True)
    assert connection.execute("SELECT count(*) AS n FROM ros_tags").fetchone() == before


def test_half_a_character_in_a_literal_answers_400_whichever_way_in(api: Api) -> None:
    def send(path: str, body: str) -> httpx.Response:
        return api.client.post(path, content=body, headers={"content-type": "application/json"})

    for path, body in (
        (TAGS, r'{"session_key": "claude-code:1", "tag": "topic:a\ud83c"}'),
        (TAGS, r'{"session_key": "claude-code:1", "key": "topic", "value": "\udf89x"}'),
        (f"{TAGS}/taxonomy", r'{"key": "topic", "value": "a\ud83c"}'),
        (f"{TAGS}/taxonomy/decide", r'{"entries": [{"key": "topic", "value": "\ud83c", "state": "accepted"}]}'),
        (f"{TAGS}/taxonomy/merge", r'{"key": "topic", "from": "caching", "into": "a\udf89"}'),
        (TOOL, r'{"action": "add", "session_key": "claude-code:1", "tag": "topic:a\ud83c"}'),
    ):
        answer = send(path, body)
        assert (answer.status_code, "half a character" in answer.text) == (400, True), answer.text
    whole = send(TAGS, r'{"session_key": "claude-code:1", "tag": "topic:\ud83c\udf89"}')
    assert whole.json()["items"][0]["tag"]["value"] == "🎉"


@pytest.mark.parametrize(
    "lost", ["ros_tags", "ros_tag_taxonomy", "ros_tag_decisions", "ros_tag_rule_marks", "ros_tag_extractions"]
)
def test_one_lost_table_is_as_none_at_all(connection: Connection, pool: Pool, lost: str) -> None:
    session = seed(connection, pool)
    assert tags_of_conversations(connection, [session]) != {}
    connection.execute(f"DROP TABLE {lost} CASCADE".encode())
    assert list_tags(connection) == []
    assert read_pending(connection) == []
    assert count_tags(connection) == []
    assert list_values(connection) == []
    assert read_log(connection) == []
    assert tags_of_conversations(connection, [session]) == {}
    assert lookup_sessions(connection, ["claude-code:1"]) == {"claude-code:1": []}
    with pytest.raises(StoreUnavailableError, match="not installed"):
        suggest_removal(connection, uuid4(), by="ada")


def test_without_the_tables_reads_are_empty_and_writes_answer_503(api: Api, connection: Connection) -> None:
    connection.execute("DROP TABLE ros_tags, ros_tag_taxonomy, ros_tag_decisions, ros_tag_extractions CASCADE")
    assert api.get() == {"tags": []}
    assert api.get("/pending") == {"sessions": [], "more": False}
    assert api.get("/counts") == {"counts": []}
    assert api.get("/taxonomy") == {"values": []}
    assert api.get("/log") == {"decisions": []}
    assert api.post("/lookup", {"session_keys": ["a:1"]}) == {"sessions": {"a:1": []}}
    for path, body in (
        ("/decide", {"ids": [str(uuid4())], "state": "accepted"}),
        ("", {"session_key": "claude-code:1", "tag": "topic:x"}),
        ("/removal", {"id": str(uuid4())}),
        ("/taxonomy", {"key": "topic", "value": "x"}),
        ("/taxonomy/decide", {"entries": [{"key": "topic", "value": "x", "state": "accepted"}]}),
        ("/taxonomy/merge", {"key": "topic", "from": "a", "into": "b"}),
        ("/undo", {"decision": str(uuid4())}),
    ):
        assert "not installed" in api.post(path, body, 503)["detail"]
    assert "not installed" in api.tool(action="pending")
    assert "not installed" in api.tool(action="add", session_key="claude-code:1", tag="topic:x")


# --- the tool ---


def test_the_tool_reads_and_decides(api: Api) -> None:
    waiting = api.tool()
    assert "claude-code:1 (claude)" in waiting
    assert "topic:caching [suggested/model] 0.80: it says so" in waiting
    ids = [row["id"] for tag in api.pending() if tag["tag"] == "topic:caching" for row in tag["rows"]]
    assert api.tool(action="decide", ids=ids, state="accepted").startswith("2 of 2 changed (decision ")
    assert "conflict" in api.tool(action="decide", ids=ids, state="rejected")
    assert api.tool(action="lookup", session_keys=["claude-code:1", "none:1"]) == (
        "claude-code:1: project:shop, topic:caching, topic:redis?\nnone:1: no tags"
    )
    assert api.tool(action="lookup", session_keys="none:1") == "none:1: no tags"
    assert api.tool(action="counts", key="topic") == "1 topic:caching"
    added = api.tool(action="add", session_key="claude-code:1", tag="Topic\uff1aNew")
    assert added.startswith("topic:new is accepted. 1 of 1 changed")
    assert "topic:new [accepted/person]" in api.tool(action="list", tag="topic:new")
    assert "topic:caches is accepted" in api.tool(action="taxonomy_upsert", tag="topic:caches", description="Kept")
    merged = api.tool(action="taxonomy_merge", key="topic", from_value="topic:caching", into="topic:caches")
    assert merged.startswith("topic:caching now means topic:caches: 2 tags moved")
    decision = merged.rpartition("decision ")[2].rstrip(").")
    assert api.tool(action="undo", decision=decision).startswith("Undone: ")
    assert "1 of 1 changed" in api.tool(action="taxonomy_decide", tag="topic:redis", state="rejected")
    assert "topic:redis [rejected] 0 conversations" in api.tool(action="taxonomy")
    assert api.tool(action="pending") == "Nothing waits for a review."
    [new] = api.get(key="topic", value="new")["tags"]
    assert "1 of 1 changed" in api.tool(action="suggest_removal", ids=[new["id"]], reason="off")
    assert "take off topic:new" in api.tool()


def test_without_the_write_flag_the_tool_only_reads(connection: Connection, pool: Pool, database_url: str) -> None:
    session = seed(connection, pool)
    with running_api(Settings(), database_url) as url, httpx.Client(base_url=url, timeout=60) as client:
        api = Api(client, session)
        assert "topic:caching" in api.tool()
        for action in (
            "decide",
            "add",
            "suggest_removal",
            "taxonomy_upsert",
            "taxonomy_decide",
            "taxonomy_merge",
            "undo",
        ):
            assert "read-only here" in api.tool(400, action=action)
        assert api.post("/decide", {"ids": [api.pending()[0]["rows"][0]["id"]], "state": "accepted"})["changed"] == 1
