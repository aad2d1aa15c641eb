"""From a summary to its words and back: the domain function, the API and the command over one real tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.retrieval.lineage import Budget, LineageSummary, first_line, newest_summaries, read_lineage
from rivet_pipeline.settings import Settings
from rivet_pipeline.summaries.compact import refine_level
from rivet_pipeline.summaries.types import Kind
from rivet_pipeline.tool_calls.render import Renderer
from rivet_pipeline.tool_calls.write import write_tool_texts
from rivet_pipeline_tests.api_server import module_store, running_api
from rivet_pipeline_tests.integration.memory_rows import add_message, add_summary
from rivet_pipeline_tests.integration.pipeline import DAY, CountingSummarizer, capture, capture_calls

LEVELS: tuple[Kind, ...] = ("leaf", "branch", "root")


@pytest.fixture(scope="module")
def tree(server: EmbeddedServer) -> Iterator[Connection]:
    """A conversation of 410 messages, the last ten tool calls: 41 leaves, 6 branches, 1 root. Nobody changes it."""
    with module_store(server, "lineage_tree") as url, connect(url) as connection, open_pool(url) as pool:
        capture(connection, "test:1", count=400)
        capture_calls(connection, "test:1", count=10, first=1000)
        for kind in LEVELS:
            refine_level(pool, kind, days=None, summarizer=CountingSummarizer())
        write_tool_texts(pool, days=None, writer=Renderer())
        yield connection


def ids(connection: Connection, kind: str) -> list[UUID]:
    rows = connection.execute(
        "SELECT id FROM ros_summaries WHERE kind = %s ORDER BY earliest_at, seq", [kind]
    ).fetchall()
    return [row["id"] for row in rows]


def every(node: LineageSummary) -> list[LineageSummary]:
    return [node, *(below for child in node.children for below in every(child))]


def test_a_root_leads_down_to_every_message_in_order(tree: Connection) -> None:
    (root,) = ids(tree, "root")
    lineage = read_lineage(tree, root, Budget(summaries=1000, messages=1000))
    assert lineage is not None
    assert lineage.summary is not None
    assert (lineage.above, lineage.message, lineage.note) == ([], None, None)
    assert (lineage.omitted_summaries, lineage.omitted_messages) == (0, 0)
    nodes = every(lineage.summary)
    below = {kind: [node for node in nodes if node.kind == kind] for kind in LEVELS}
    expected = tree.execute("SELECT message_count FROM ros_summaries WHERE id = %s", [root]).fetchone()
    assert expected is not None
    messages = [message for leaf in below["leaf"] for message in leaf.messages]
    assert len(messages) == expected["message_count"]
    assert [message.created_at for message in messages] == sorted(message.created_at for message in messages)
    assert all(len(node.messages) == node.sources == 10 for node in below["leaf"])
    assert all(len(node.children) == node.sources for node in [*below["branch"], *below["root"]])
    assert lineage.session_key == "test:1"


def test_a_leaf_knows_what_stands_over_it_and_quotes_its_messages(tree: Connection) -> None:
    leaf = ids(tree, "leaf")[0]
    lineage = read_lineage(tree, leaf)
    assert lineage is not None
    assert lineage.summary is not None
    assert [summary.kind for summary in lineage.above] == ["root", "branch"]
    assert all(not summary.children for summary in lineage.above)
    first = lineage.summary.messages[0]
    assert first.excerpt == "Step 0 of test:1 changed src/part_0.py on host db-0."
    assert (first.role, first.agent, first.tool_name, first.made_by) == ("user", "opus", None, None)
    assert not lineage.summary.excerpt.startswith("Period")
    assert "src/part_" in lineage.summary.excerpt
    assert lineage.summary.grounding == 1.0


def test_a_told_call_says_that_its_text_was_made(tree: Connection) -> None:
    lineage = read_lineage(tree, ids(tree, "leaf")[-1])
    assert lineage is not None
    assert lineage.summary is not None
    told = lineage.summary.messages[0]
    assert (told.excerpt, told.tool_name, told.made_by) == (
        "Ran `make part-1000` in the shell (Build part 1000).",
        "Bash",
        "rendering-1",
    )


def test_a_message_leads_up_to_the_root(tree: Connection) -> None:
    row = tree.execute("SELECT id FROM ros_messages ORDER BY created_at, seq LIMIT 1").fetchone()
    assert row is not None
    lineage = read_lineage(tree, row["id"])
    assert lineage is not None
    assert lineage.message is not None
    assert [summary.kind for summary in lineage.above] == ["root", "branch", "leaf"]
    assert lineage.above[-1].id == ids(tree, "leaf")[0]
    assert (lineage.summary, lineage.note) == (None, None)


def test_what_a_budget_leaves_out_is_counted(tree: Connection) -> None:
    (root,) = ids(tree, "root")
    whole = read_lineage(tree, root, Budget(summaries=1000, messages=1000))
    assert whole is not None
    assert whole.summary is not None
    below = len(every(whole.summary)) - 1
    for summaries, messages in ((7, 25), (0, 0), (below, 1), (3, 1000)):
        lineage = read_lineage(tree, root, Budget(summaries, messages, 30))
        assert lineage is not None
        assert lineage.summary is not None
        nodes = every(lineage.summary)
        shown = sum(len(node.messages) for node in nodes)
        assert len(nodes) - 1 == min(summaries, below)
        assert lineage.omitted_summaries == below - (len(nodes) - 1)
        assert shown <= messages
        assert lineage.omitted_messages == lineage.summary.message_count - shown
        assert all(len(node.excerpt) <= 30 for node in nodes)
    # Higher levels come first: with as many summaries as there are branches, these are all of them.
    branches = whole.summary.sources
    lineage = read_lineage(tree, root, Budget(summaries=branches))
    assert lineage is not None
    assert lineage.summary is not None
    assert len(lineage.summary.children) == branches


def test_nothing_of_this_id_is_none_and_an_unsummarised_message_says_so(tree: Connection) -> None:
    assert read_lineage(tree, uuid4()) is None


def test_a_message_without_a_summary_says_so(connection: Connection) -> None:
    message = add_message(connection, "\n\n  === \nHello there.\nMore", tool_name=None)
    lineage = read_lineage(connection, message)
    assert lineage is not None
    assert lineage.message is not None
    assert (lineage.above, lineage.message.excerpt) == ([], "Hello there.")
    assert "no summary" in (lineage.note or "")
    call = add_message(connection, "", role="tool", tool_name="Grep", tool_result="\nfound it\n")
    lineage = read_lineage(connection, call)
    assert lineage is not None
    assert lineage.message is not None
    assert lineage.message.excerpt == "[Grep] found it"


def test_a_summary_without_sources_is_shown_with_what_is_missing(connection: Connection) -> None:
    lineage = read_lineage(connection, add_summary(connection, "**Topic**\n- The point."))
    assert lineage is not None
    assert lineage.summary is not None
    assert lineage.summary.excerpt == "**Topic** - The point."
    assert (lineage.summary.sources, lineage.omitted_messages) == (0, 3)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("--- \n***", ""),
        ("a  b\tc\nd", "a b c"),
        ("# Head\n\nBody", "# Head Body"),
        ("x" * 30, "x" * 19 + "…"),
    ],
)
def test_an_excerpt_is_the_first_line_that_says_something(text: str, line: str) -> None:
    assert first_line(text, 20) == line


def test_the_newest_summary_of_each_day_is_the_one_written_last(tree: Connection) -> None:
    newest = newest_summaries(tree, "leaf", [DAY])
    assert set(newest) == {DAY}
    row = tree.execute("SELECT id FROM ros_summaries WHERE kind = 'leaf' ORDER BY created_at DESC, seq DESC").fetchone()
    assert row == {"id": newest[DAY]}


# --- over HTTP ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(tree: Connection) -> Iterator[httpx.Client]:
    with running_api(Settings(), tree.info.dsn) as base, httpx.Client(base_url=base, timeout=30) as opened:
        yield opened


def get(client: httpx.Client, wanted: object, **parameters: int | str) -> dict[str, Any]:
    answer = client.get(f"/api/memory/lineage/{wanted}", params=parameters)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_the_api_gives_the_tree_in_camel_case_and_utc(client: httpx.Client, tree: Connection) -> None:
    (root,) = ids(tree, "root")
    body = get(client, root, messages=5, summaries=50, excerpt=40)
    assert body["sessionId"] == "test:1"
    assert body["summary"]["kind"] == "root"
    branch = body["summary"]["children"][0]
    message = branch["children"][0]["messages"][0]
    assert message["createdAt"] == "2026-03-02T09:00:00Z"
    assert message["excerpt"] == "Step 0 of test:1 changed src/part_0.py…"
    assert message["madeBy"] is None
    assert body["omittedMessages"] == body["summary"]["messageCount"] - 5
    leaf = get(client, branch["children"][0]["id"])
    assert [one["kind"] for one in leaf["above"]] == ["root", "branch"]
    up = get(client, message["id"])
    assert up["message"]["id"] == message["id"]
    assert [one["kind"] for one in up["above"]] == ["root", "branch", "leaf"]


def test_an_unknown_id_is_a_problem_and_a_wrong_one_too(client: httpx.Client, tree: Connection) -> None:
    missing = client.get(f"/api/memory/lineage/{uuid4()}")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    assert "No summary and no message" in missing.json()["detail"]
    assert client.get("/api/memory/lineage/nonsense").status_code == 400
    (root,) = ids(tree, "root")
    for wrong in ({"messages": 2001}, {"messages": -1}, {"excerpt": 5}, {"summaries": 1001}, {"depth": 2}):
        refused = client.get(f"/api/memory/lineage/{root}", params=wrong)
        assert refused.status_code == 400, wrong
        assert next(iter(wrong)) in refused.json()["detail"]
