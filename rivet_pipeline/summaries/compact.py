"""Makes the summary tree: one pass of a level over days, and the redoing of what an older version made.

Which conversations and summaries are gone through, and in which order, is here; what is done with each of them stands
in `level.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from uuid import UUID

from rivet_pipeline.db.locks import try_lock
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.db.stale import (
    announce_refinement,
    request_remine,
)
from rivet_pipeline.stages import StageReport
from rivet_pipeline.summaries.batches import (
    due_conversations,
    read_rules,
)
from rivet_pipeline.summaries.level import STAGE_OF, Work
from rivet_pipeline.summaries.types import (
    Kind,
    Summarizer,
)
from rivet_pipeline.versions import SUMMARY_PIPELINE_VERSION


def announce_summarizer(connection: Connection, model: str, *, version: int = SUMMARY_PIPELINE_VERSION) -> None:
    """Says with which model and version every level is made from now on; what others made is stale.

    Cheap when it is known.
    """
    for stage in STAGE_OF.values():
        announce_refinement(connection, stage, model=model, version=version)


def summarize_leaves(
    pool: Pool, *, days: Sequence[date] | None, summarizer: Summarizer, version: int = SUMMARY_PIPELINE_VERSION
) -> StageReport:
    """Makes every due leaf of the conversations of those days (None: all), then marks what has nothing left.

    Holds one connection of the pool. A transient or permanent model failure ends the pass; a content failure ends its
    conversation only. Both are in `ros_failures`, and nothing is written for them.
    """
    return _pass(pool, "leaf", days, summarizer, version)


def summarize_branches(
    pool: Pool, *, days: Sequence[date] | None, summarizer: Summarizer, version: int = SUMMARY_PIPELINE_VERSION
) -> StageReport:
    """Makes every due branch over parentless leaves. As `summarize_leaves` otherwise."""
    return _pass(pool, "branch", days, summarizer, version)


def summarize_roots(
    pool: Pool, *, days: Sequence[date] | None, summarizer: Summarizer, version: int = SUMMARY_PIPELINE_VERSION
) -> StageReport:
    """Makes every due root over parentless branches. As `summarize_leaves` otherwise."""
    return _pass(pool, "root", days, summarizer, version)


def resummarize(
    pool: Pool,
    *,
    days: Sequence[date] | None,
    summarizer: Summarizer,
    force: bool = False,
    kinds: Sequence[Kind] = ("leaf", "branch", "root"),
    version: int = SUMMARY_PIPELINE_VERSION,
    after_each: Callable[[], None] | None = None,
    when_busy: Callable[[UUID], None] | None = None,
    outdated: bool = True,
    after: Sequence[Kind] = (),
) -> list[StageReport]:
    """Makes existing summaries again from the same sources where model, version or a source's text has changed.

    Which these are says `ros_stale_summaries`; without `outdated` only those of a changed text, or that somebody asked
    for. Leaves go first, so that a parent is redone once, from its new children.
    The older text goes to `ros_summary_revisions`. A failure keeps the older text and is recorded under the summary's
    id. With `force` everything is redone. Without a difference nothing is asked and nothing written. `after_each` is
    called after each summary that was tried, `when_busy` with each that was passed over because another worker was at
    its conversation, or because the conversation has stale summaries of the levels of `after`, which this caller has
    been through: another worker is at these, and what stands on them would be made twice.
    """
    reports: list[StageReport] = []
    with pool.connection() as connection:
        if force:
            request_remine(connection, kinds=kinds, days=days)
        for kind in kinds:
            work = Work(connection, kind, summarizer, version)
            reports.append(work.report)
            if not work.redo(days, after_each, when_busy, outdated=outdated, after=after):
                break
    return reports


def refine_level(
    pool: Pool,
    kind: Kind,
    *,
    days: Sequence[date] | None,
    summarizer: Summarizer,
    version: int = SUMMARY_PIPELINE_VERSION,
    outdated: bool = True,
) -> StageReport:
    """Brings one level of the tree up to date: redoes what is stale, then makes what is due. One report of both.

    Without `outdated` what an older version or another model made is left as it is (see `resummarize`).
    """
    report = StageReport(STAGE_OF[kind], model=summarizer.model)
    for redone in resummarize(pool, days=days, summarizer=summarizer, kinds=[kind], version=version, outdated=outdated):
        report.add(redone)
    report.add(_pass(pool, kind, days, summarizer, version))
    return report


def _pass(pool: Pool, kind: Kind, days: Sequence[date] | None, summarizer: Summarizer, version: int) -> StageReport:
    with pool.connection() as connection:
        work = Work(connection, kind, summarizer, version)
        rules = read_rules(connection)
        last = None
        for due in due_conversations(connection, kind, days):
            if kind == "leaf" and last not in (None, due.day):
                # Whoever asks what is pending meanwhile need not look at what this pass has done.
                _mark_seen(connection, [last])
            last = due.day
            with try_lock(connection, work.stage, due.conversation_id) as mine:
                if mine and not work.conversation(due.conversation_id, due.day, rules):
                    break
        if kind == "leaf":
            _mark_seen(connection, days)
        return work.report


def _mark_seen(connection: Connection, days: Sequence[date] | None) -> None:
    connection.execute(
        (Path(__file__).parent / "mark_seen.sql").read_text(encoding="utf-8"),
        {"days": list(days) if days is not None else None},
    )
