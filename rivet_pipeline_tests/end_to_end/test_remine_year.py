"""A year of days made again after a new version, as a person does it in Dagster's UI: launched, watched, cancelled, and
launched once more."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from rivet_pipeline.cli.processes import free_port
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import connect, open_pool
from rivet_pipeline.db.store import DATABASE, create_database
from rivet_pipeline.embedding.embed import embed_messages, embed_summaries
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.summaries.compact import summarize_branches, summarize_leaves
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.versions import SUMMARY_PIPELINE_VERSION
from rivet_pipeline_tests.end_to_end.conftest import Up, until
from rivet_pipeline_tests.integration.pipeline import capture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not os.environ.get("RIVET_LONG_TESTS"), reason="takes minutes; RIVET_LONG_TESTS=1 runs it"),
]

YEAR = [date(2025, 3, 1) + timedelta(days=number) for number in range(365)]
#: Every fifth day was made by the current version already; one day holds a branch.
CURRENT = YEAR[::5]
OLD = [day for day in YEAR if day not in CURRENT]
LONG = OLD[100]

#: Seconds before a question about a backfill: Dagster works hard for the answer, on the cores that the runs need.
_PAUSE = 3.0

_LAUNCH = """
mutation($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
_CANCEL = """
mutation($id: String!) {
  cancelPartitionBackfill(backfillId: $id) { __typename ... on PythonError { message } }
}
"""
_STATUS = """
query($id: String!) {
  partitionBackfillOrError(backfillId: $id) { __typename ... on PartitionBackfill { status } }
}
"""
_PROGRESS = """
query($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    __typename
    ... on PartitionBackfill {
      numPartitions
      assetBackfillData {
        assetBackfillStatuses {
          ... on AssetPartitionsStatusCounts {
            assetKey { path } numPartitionsTargeted numPartitionsMaterialized numPartitionsFailed
          }
        }
      }
    }
  }
}
"""
_POOL = "mutation($name: String!, $limit: Int!) { setConcurrencyLimit(concurrencyKey: $name, limit: $limit) }"
_PARTITIONS = """
query($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      assetPartitionStatuses { ... on TimePartitionStatuses { ranges { status startKey endKey } } }
    }
  }
}
"""
_SHOWN = """
query($key: AssetKeyInput!, $days: [String!]) {
  assetOrError(assetKey: $key) {
    ... on Asset {
      assetMaterializations(partitions: $days, limit: 1) {
        metadataEntries { label ... on IntMetadataEntry { intValue } }
      }
    }
  }
}
"""


def _seed(home: Path) -> None:
    """A store with a year of small conversations, wholly refined, most of its summaries by the version before."""
    server = EmbeddedServer(home / "postgres")
    server.start()
    create_database(server.url("postgres"), DATABASE)
    with connect(server.url(DATABASE)) as connection:
        apply_migrations(connection)
    with connect(server.url(DATABASE)) as connection, open_pool(server.url(DATABASE), max_size=3) as pool:
        for day in YEAR:
            capture(connection, f"test:{day}", day=day, count=50 if day == LONG else 10)
        summarizer = ExtractiveSummarizer()
        summarize_leaves(pool, days=CURRENT, summarizer=summarizer)
        for level in (summarize_leaves, summarize_branches):
            level(pool, days=OLD, summarizer=summarizer, version=SUMMARY_PIPELINE_VERSION - 1)
        embed_messages(pool, WordLlamaEmbedder(), days=None)
        embed_summaries(pool, WordLlamaEmbedder(), days=None)
        connection.execute(
            "INSERT INTO ros_stage_marks (stage, conversation_id, revision) SELECT 'messages', id, revision "
            "FROM ros_conversations"
        )
        refresh_lexicon(connection)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with tempfile.TemporaryDirectory(prefix="rivet-year-", ignore_cleanup_errors=True) as folder:
        started = Up(Path(folder) / "home", free_port(), free_port())
        _seed(started.home)
        try:
            started.start("--no-demo")
            started.wait_for("Ready after")
            yield started
        finally:
            if started.process is not None and started.process.poll() is None:
                started.stop()
            EmbeddedServer(started.home / "postgres").stop()


def launch(up: Up, days: list[date]) -> str:
    params = {
        "assetSelection": [{"path": [f"{kind}_summaries"]} for kind in ("leaf", "branch")],
        "partitionNames": [str(day) for day in days],
        "title": "the new version",
        "tags": [],
    }
    launched = up.graphql(_LAUNCH, params=params)["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched
    return str(launched["backfillId"])


def pool(up: Up, limit: int) -> None:
    """How many steps may call a model at once."""
    for name in ("llm", "embedder"):
        up.graphql(_POOL, name=name, limit=limit)


def ended(up: Up, backfill: str) -> bool:
    time.sleep(_PAUSE)
    return status(up, backfill) not in {"REQUESTED", "CANCELING"}


def status(up: Up, backfill: str) -> str:
    return str(up.graphql(_STATUS, id=backfill)["partitionBackfillOrError"]["status"])


def materialized(up: Up, backfill: str) -> tuple[int, int]:
    """The days of a backfill, and those whose leaves Dagster shows as done."""
    time.sleep(_PAUSE)
    answer = up.graphql(_PROGRESS, id=backfill)["partitionBackfillOrError"]
    assert answer["__typename"] == "PartitionBackfill", answer
    counts = {found["assetKey"]["path"][0]: found for found in answer["assetBackfillData"]["assetBackfillStatuses"]}
    return int(answer["numPartitions"]), int(counts["leaf_summaries"]["numPartitionsMaterialized"])


def missing(up: Up) -> list[date]:
    """The days that Dagster shows as not materialised, which its UI offers to launch."""
    node = up.graphql(_PARTITIONS, key={"path": ["branch_summaries"]})["assetNodeOrError"]
    ranges = [
        (date.fromisoformat(found["startKey"]), date.fromisoformat(found["endKey"]))
        for found in node["assetPartitionStatuses"]["ranges"]
        if found["status"] == "MATERIALIZED"
    ]
    return [day for day in YEAR if not any(first <= day <= last for first, last in ranges)]


def one(up: Up, query: str) -> int:
    (row,) = up.rows(query)
    return int(next(iter(row.values())))


def stale(up: Up) -> int:
    return one(up, "SELECT count(*) FROM ros_stale_summaries")


def redone(up: Up) -> int:
    return one(up, "SELECT count(*) FROM ros_summary_revisions")


def test_a_year_is_redone_by_a_backfill_that_may_be_cancelled_and_launched_again(up: Up) -> None:
    old = len(OLD) + 4 + 1  # a leaf a day, four more on the long day, and its branch
    until(lambda: stale(up) == old, 120)  # the running pipeline has said what is current
    current = ", ".join(f"'{day}'" for day in CURRENT)
    untouched = f"SELECT sum(hashtext(id || xmin::text)) FROM ros_summaries WHERE day IN ({current})"
    before, vectors = one(up, untouched), one(up, "SELECT sum(hashtext(owner_id || xmin::text)) FROM ros_embeddings")

    # No step begins once the first month is done, so that a fast machine leaves days to cancel.
    pool(up, 1)
    first = launch(up, YEAR)
    until(lambda: redone(up) >= 24, 400)
    pool(up, 0)
    until(lambda: materialized(up, first)[1] >= 31, 400)
    assert materialized(up, first)[0] == 365
    assert up.graphql(_CANCEL, id=first)["cancelPartitionBackfill"]["__typename"] == "CancelBackfillSuccess"
    until(lambda: ended(up, first), 120)
    assert status(up, first) == "CANCELED"
    done, left = redone(up), stale(up)
    assert done + left == old
    assert left > 0

    pool(up, 2)
    rest = missing(up)
    assert 0 < len(rest) < 365
    second = launch(up, rest)
    until(lambda: ended(up, second), 300)
    assert status(up, second) == "COMPLETED_SUCCESS"
    assert materialized(up, second) == (len(rest), len(rest))
    assert missing(up) == []
    assert stale(up) == 0
    assert redone(up) == old  # each of them once, by one backfill or the other
    assert one(up, f"SELECT count(*) FROM ros_summaries WHERE pipeline_version < {SUMMARY_PIPELINE_VERSION}") == 0
    assert one(up, "SELECT count(*) FROM ros_failures") == 0
    assert one(up, untouched) == before
    # The texts came out the same: nothing was embedded anew.
    assert one(up, "SELECT sum(hashtext(owner_id || xmin::text)) FROM ros_embeddings") == vectors
    shown = up.graphql(_SHOWN, key={"path": ["leaf_summaries"]}, days=[str(LONG)])
    entries = shown["assetOrError"]["assetMaterializations"][0]["metadataEntries"]
    assert {entry["label"]: entry.get("intValue") for entry in entries}["stale_left"] == 0
