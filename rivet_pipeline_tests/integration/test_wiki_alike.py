"""Two pages about one subject are proposed as one; pages of neighbours that share a word are not."""

from __future__ import annotations

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.wiki.consolidate import consolidate
from rivet_pipeline.wiki.identity import resolve
from rivet_pipeline_tests.integration.wiki_rows import add_leaf, draft, mine

NIGHTLY = (
    "Nightly restic backup | The snapshot of the archive runs every night at 02:15 and goes to the second mirror"
    " | A stale repository lock stops the snapshot"
)
ARCHIVE = (
    "Archive backups | Every snapshot of the archive goes to the second mirror"
    " | The repository lock is removed at night"
)
OTHERS = (
    "Oven door sensor | It tells the controller whether the door is closed",
    "Oven door motor | It closes within two seconds and stops at a finger",
    "Berth plan | Occupied berths are orange",
)


def pages(connection: Connection, pool: Pool, *lines: str) -> None:
    for place, line in enumerate(lines):
        add_leaf(connection, line, days=place)
    mine(pool)


def test_two_pages_about_one_subject_are_proposed_as_one(connection: Connection, pool: Pool) -> None:
    pages(connection, pool, NIGHTLY, ARCHIVE, *OTHERS)
    found = consolidate(connection)
    assert [set(pair) for pair in found.merges] == [{"Nightly restic backup", "Archive backups"}]
    row = connection.execute("SELECT reason, status FROM ros_wiki_patches WHERE kind = 'merge'").fetchone()
    assert row is not None
    assert "both are named by backup" in row["reason"]
    assert row["status"] == "proposed"


def test_a_part_of_a_title_finds_the_only_such_page_that_speaks_of_one_more_thing(
    connection: Connection, pool: Pool
) -> None:
    pages(connection, pool, "Nightly restic backup | It runs | @ntfy", *OTHERS)
    found = resolve(connection, draft("Backup", "x", entities=["ntfy", "Grafana", "cron", "Debian", "NAS"]))
    assert "names the same, and both speak of ntfy" in found.reason
    assert resolve(connection, draft("Backup", "x", entities=["Grafana"])).decision == "new"
    assert resolve(connection, draft("Oven door", "x", entities=["controller"])).decision == "new"
