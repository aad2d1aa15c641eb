"""The demo sessions, tagged in this process, against the tags that a person would expect of them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import rivet_pipeline
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.summaries.compact import refine_level
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.tags.keyphrases import KeyphraseTagger
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline_tests.integration.tagging import rows, tag_all
from rivet_pipeline_tests.unit.demo_tags import GOLD, score

DEMO = Path(rivet_pipeline.__file__).parent / "demo"


def found(connection: Connection) -> dict[str, set[str]]:
    """The tags of each day's session, accepted by the rule or suggested."""
    tags: dict[str, set[str]] = {}
    for row in rows(
        connection,
        """SELECT c.day::text AS day, t.tag_key || ':' || t.tag_value AS tag
           FROM ros_tags AS t JOIN ros_conversations AS c ON c.id = t.conversation_id
           WHERE t.entity_kind = 'conversation' AND t.tag_key IN ('project', 'topic')""",
    ):
        tags.setdefault(row["day"], set()).add(row["tag"])
    return tags


def test_the_demo_sessions_get_the_tags_that_a_person_would_expect(connection: Connection, pool: Pool) -> None:
    import_paths(pool, [DEMO], first_day=date(2022, 11, 1), max_line=10**8)
    refine_level(pool, "leaf", days=None, summarizer=ExtractiveSummarizer())
    report = tag_all(pool, KeyphraseTagger())
    assert report.dropped == 0
    tags = found(connection)
    assert tags.keys() == GOLD.keys()
    whole = score(tags)
    assert whole.precision >= 0.8, whole.wrong
    assert whole.recall >= 0.7, whole.missed
    # The projects are a rule's; the topics must stand by themselves.
    topics = score({day: {tag for tag in found if tag.startswith("topic:")} for day, found in tags.items()})
    assert topics.precision >= 0.8, topics.wrong
    assert {tag for tag in tags["2026-09-01"] if tag.startswith("project:")} == {"project:tidewatch"}
    again = tag_all(pool, KeyphraseTagger())
    assert (again.tagged, again.stage.rows) == (0, 0)
