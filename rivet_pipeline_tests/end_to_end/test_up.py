"""The main job, as a person meets it: one command, then captured words become memory without anybody's help.

The tests of this module share one `rivet up` and follow one another in the order in which they stand.
"""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psutil
import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline_tests.end_to_end.conftest import Up, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

_PARTITIONS = """
query($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode { groupName partitionStats { numMaterialized numFailed } }
  }
}
"""

_MATERIALIZED = """
query($key: AssetKeyInput!, $days: [String!]) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      assetMaterializations(partitions: $days, limit: 1) {
        metadataEntries { label ... on UrlMetadataEntry { url } }
      }
    }
  }
}
"""

_BACKFILL = """
mutation($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""

_BACKFILL_STATUS = """
query($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    __typename
    ... on PartitionBackfill { status numPartitions }
    ... on PythonError { message }
  }
}
"""

_COUNTS = """
SELECT (SELECT count(*) FROM ros_messages) AS messages, (SELECT count(*) FROM ros_summaries) AS summaries,
       (SELECT count(*) FROM ros_embeddings) AS embeddings, (SELECT count(*) FROM ros_summary_revisions) AS revisions
"""


def search(up: Up, query: str, **more: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{up.api}/api/memory/search", params={"q": query, **more}, timeout=30)
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def counts(up: Up) -> dict[str, Any]:
    return up.rows(_COUNTS)[0]


def pending(up: Up) -> list[dict[str, Any]]:
    return up.rows("SELECT * FROM ros_pending_days")


def capture(up: Up, session: str, texts: list[str]) -> dict[str, Any]:
    now = datetime.now(UTC)
    messages = [
        {
            "event_id": f"e{number}",
            "role": "user" if number % 2 == 0 else "assistant",
            "content": text,
            "created_at": (now + timedelta(milliseconds=number)).isoformat(),
        }
        for number, text in enumerate(texts)
    ]
    batch = {"session_key": session, "agent": "opus", "channel": "test", "messages": messages}
    answer = httpx.post(f"{up.api}/api/capture", json=batch, timeout=30)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_one_command_ends_with_an_answer_and_both_addresses(up: Up) -> None:
    up.wait_for("Ready after")
    assert up.api in up.output
    assert up.dagster in up.output
    example = up.output.split("Example:")[1]
    assert "redis" in example.lower()
    assert "Traceback" not in up.output
    assert not [row for row in pending(up) if not row["timed"]]


def test_dagster_shows_the_days_as_materialised_partitions(up: Up) -> None:
    days = up.rows("SELECT count(DISTINCT day) AS days FROM ros_conversations")[0]["days"]
    assert days >= 10
    for asset in (
        "messages",
        "tool_call_text",
        "message_embeddings",
        "leaf_summaries",
        "root_summaries",
        "summary_embeddings",
    ):
        node = up.graphql(_PARTITIONS, key={"path": [asset]})["assetNodeOrError"]
        assert node["partitionStats"]["numMaterialized"] >= days, asset
        assert node["partitionStats"]["numFailed"] == 0, asset
    kinds = up.rows("SELECT kind, count(*) AS n FROM ros_summaries GROUP BY kind")
    assert {row["kind"] for row in kinds} == {"leaf", "branch", "root"}


def test_every_tool_call_is_told_and_a_day_links_to_its_words(up: Up) -> None:
    (calls,) = up.rows(
        """SELECT count(*) AS n, count(*) FILTER (WHERE content = '') AS untold,
                  count(*) FILTER (WHERE metadata ? 'content_made_by') AS told
           FROM ros_messages WHERE tool_name IS NOT NULL"""
    )
    assert calls["n"] > 100
    assert calls["untold"] == 0
    assert calls["told"] > 100
    materialized = up.graphql(_MATERIALIZED, key={"path": ["leaf_summaries"]}, days=["2026-09-29"])
    (latest,) = materialized["assetNodeOrError"]["assetMaterializations"]
    links = [entry["url"] for entry in latest["metadataEntries"] if entry["label"] == "lineage"]
    assert len(links) == 1
    assert links[0].startswith(f"{up.api}/hub/s/")
    assert httpx.get(links[0], timeout=30).status_code == 200
    lineage = httpx.get(links[0].replace("/hub/s/", "/api/memory/lineage/"), timeout=30).json()
    assert lineage["summary"]["kind"] == "leaf"
    assert len(lineage["summary"]["messages"]) == lineage["summary"]["messageCount"]


def test_captured_words_become_memory_by_themselves(up: Up) -> None:
    texts = [
        "The zeppelin hangar needs a new roof before winter, budget 48,200 euros.",
        "I recommend trapezoidal steel sheets; the carpenters can start on 3 December.",
        *[f"Point {number}: the crane on gate {number} is booked for day {number}." for number in range(3, 13)],
    ]
    began = time.monotonic()
    assert capture(up, "test:hangar", texts)["inserted"] == len(texts)
    assert "zeppelin" in search(up, "zeppelin hangar", mode="fts")[0]["content"]
    until(
        lambda: any("zeppelin" in hit["content"] for hit in search(up, "airship shed covering", mode="vector")),
        60 - (time.monotonic() - began),
    )
    until(lambda: up.rows("SELECT 1 FROM ros_summaries WHERE content LIKE '%hangar%'"), 60)
    leaf = up.rows("SELECT * FROM ros_summaries WHERE content LIKE '%hangar%'")[0]
    assert (leaf["kind"], leaf["message_count"]) == ("leaf", 10)
    assert "48,200" in leaf["content"]


def test_a_backfill_of_ten_days_with_nothing_to_do_writes_nothing(up: Up) -> None:
    until(lambda: not [row for row in pending(up) if not row["timed"]], 60)
    before = counts(up)
    params = {
        "assetSelection": [{"path": [stage]} for stage in ("messages", "message_embeddings", "leaf_summaries")],
        "partitionNames": [f"2026-09-{day:02}" for day in range(1, 11)],
        "tags": [],
    }
    launched = up.graphql(_BACKFILL, params=params)["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched

    def status() -> str:
        answer = up.graphql(_BACKFILL_STATUS, id=launched["backfillId"])["partitionBackfillOrError"]
        assert answer["__typename"] == "PartitionBackfill", answer
        return str(answer["status"])

    until(lambda: status() in {"COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED"}, 150)
    assert status() == "COMPLETED_SUCCESS"
    assert counts(up) == before


def test_a_killed_postgres_and_a_killed_api_are_started_again(up: Up) -> None:
    server = EmbeddedServer(up.home / "postgres")
    os.kill(int((server.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    api = next(entry for entry in json.loads((up.home / "run" / "programs.json").read_text()) if entry["name"] == "api")
    # Only one looks after Postgres, and says so.
    assert "--no-watch" in psutil.Process(api["pid"]).cmdline()
    os.kill(api["pid"], signal.SIGKILL)
    # After a crash Postgres first brings its whole data folder to the disk, which takes its time on a busy one.
    until(lambda: "Postgres had ended" in up.output and "api had ended" in up.output, 180)

    def found() -> bool:
        try:
            return bool(search(up, "zeppelin hangar", mode="fts"))
        except (httpx.HTTPError, AssertionError):
            return False

    until(found, 60)


def test_killing_everything_loses_no_acknowledged_row_and_the_next_start_catches_up(up: Up) -> None:
    acknowledged = 0
    for number in range(30):
        acknowledged += capture(up, f"test:kill-{number % 3}", [f"killed message {number}"] * 1)["inserted"]
        capture(up, f"test:busy-{number}", [f"Busy note {number}.{line} about the quay." for line in range(12)])
    stored = counts(up)["messages"]
    up.kill_group()
    up.start("--once")
    assert up.process is not None
    assert up.process.wait(300) == 0, up.output
    up.start()
    up.wait_for("Ready after")
    assert counts(up)["messages"] == stored
    assert not [row for row in pending(up) if not row["timed"]]
    doubled = up.rows("SELECT conversation_id, event_id FROM ros_messages GROUP BY 1, 2 HAVING count(*) > 1")
    assert doubled == []
    twice = up.rows("SELECT message_id FROM ros_summary_sources GROUP BY 1 HAVING count(*) > 1")
    assert twice == []


def test_a_start_with_nothing_to_do_does_nothing_and_ctrl_c_stops_everything(up: Up) -> None:
    before = counts(up)
    assert up.stop() == 0
    assert "Stopped" in up.output
    up.start("--once")
    assert up.process is not None
    assert up.process.wait(240) == 0, up.output
    assert "worked off" not in up.output
    up.start()
    up.wait_for("Ready after")
    assert counts(up) == before
    assert up.stop() == 0
    assert not EmbeddedServer(up.home / "postgres").is_running()
    for address in (up.api, up.dagster):
        with pytest.raises(httpx.ConnectError):
            httpx.get(address, timeout=2)
