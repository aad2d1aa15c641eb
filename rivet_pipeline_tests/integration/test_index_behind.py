"""While the text index lacks too many rows for exact ranks, every face says so, and none once it is refreshed."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest

from rivet_pipeline.api.dependencies import open_resources
from rivet_pipeline.api.tools import TOOLS
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.retrieval import index_state, unindexed
from rivet_pipeline.retrieval.context import ContextRequest, build_context
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.integration.memory_rows import NOW, add_message, find
from rivet_pipeline_tests.integration.rivet_command import rivet_command

REASON = "more than 4 texts are not in the text index yet"
EFFECT = "ranks are approximate until it is refreshed"


@pytest.fixture(autouse=True)
def unread(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six rows, of which the index has one."""
    monkeypatch.setattr(index_state, "MOST_LIVE", 4)
    add_message(connection, "kestrel number 0")
    refresh_lexicon(connection)
    for number in range(1, 6):
        add_message(connection, f"kestrel number {number}")


@pytest.mark.parametrize("mode", ["fts", "hybrid"])
def test_a_search_says_that_its_ranks_are_approximate(connection: Connection, mode: str) -> None:
    response = find(connection, "kestrel", mode=mode)
    assert (len(response.hits), response.behind) == (6, REASON)
    assert find(connection, "egret", mode=mode).behind == REASON
    refresh_lexicon(connection)
    assert find(connection, "kestrel", mode=mode).behind is None


@pytest.mark.parametrize("mode", ["trigram", "vector"])
def test_modes_that_do_not_rank_by_words_say_nothing(connection: Connection, mode: str) -> None:
    assert find(connection, "kestrel", mode=mode).behind is None


def test_a_row_that_changed_is_found_while_the_index_is_refreshed(
    connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute("UPDATE ros_messages SET tool_result = 'whimbrel' WHERE content = 'kestrel number 0'")
    find_texts = unindexed.find_texts

    def refreshed(*values: Any, **named: Any) -> Any:
        with connect(database_url) as other:
            assert refresh_lexicon(other).changed == 1
        return find_texts(*values, **named)

    monkeypatch.setattr(unindexed, "find_texts", refreshed)
    assert [hit.content for hit in find(connection, "whimbrel", mode="fts").hits] == ["kestrel number 0"]


def test_a_turns_context_says_so(connection: Connection) -> None:
    def missing() -> list[tuple[str, str]]:
        context = build_context(lambda: nullcontext(connection), ContextRequest("kestrel"), now=NOW)
        return [(one.part, one.reason) for one in context.degraded if one.part == "words"]

    assert missing() == [("words", f"{REASON}; {EFFECT}")]
    refresh_lexicon(connection)
    assert missing() == []


def test_the_api_and_the_hub_say_so(connection: Connection, database_url: str) -> None:
    with running_api(Settings(), database_url) as base, httpx.Client(base_url=base, timeout=30) as client:
        words = {"q": "kestrel", "mode": "fts"}
        assert client.get("/api/memory/search", params=words).json()["degraded"] == {"reason": REASON, "effect": EFFECT}
        both = client.get("/api/memory/search", params={"q": "kestrel"}).json()["degraded"]
        assert both["reason"].startswith("semantic search is off")
        assert both["reason"].endswith(f"; {REASON}")
        assert both["effect"] == f"results are found and ranked by words alone; {EFFECT}"
        assert f"{REASON[0].upper()}{REASON[1:]}; {EFFECT}." in client.get("/hub", params=words).text
        refresh_lexicon(connection)
        assert client.get("/api/memory/search", params=words).json()["degraded"] is None
        assert EFFECT not in client.get("/hub", params=words).text


def test_the_command_says_so(
    connection: Connection,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with rivet_command(database_url, tmp_path, monkeypatch, capsys) as run:
        assert f"Note: {REASON}; {EFFECT}." in run("search", "kestrel", "--mode", "fts").err
        assert run("search", "kestrel", "--mode", "fts", "--json").json["degraded"]["effect"] == EFFECT
        refresh_lexicon(connection)
        assert EFFECT not in run("search", "kestrel", "--mode", "fts").err


def test_the_tool_says_so(connection: Connection, database_url: str) -> None:
    tool = TOOLS["memory_search"]
    asked = tool.arguments.model_validate({"query": "kestrel", "mode": "fts"})
    with open_resources(Settings(), database_url) as resources:
        assert f"Note: {REASON}; {EFFECT}." in str(tool.run(resources, asked)).splitlines()
        refresh_lexicon(connection)
        assert EFFECT not in str(tool.run(resources, asked))
