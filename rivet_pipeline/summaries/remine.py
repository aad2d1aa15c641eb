"""Redoes stale summaries in this process, and says beforehand what that would take.

What is stale says the store (`db/stale.py`), how a summary is made again `compact.py`. Here is the way through the
days: a month of them at a time, oldest first, leaves before their branches and these before their roots, so that an
interruption leaves the older days finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from uuid import UUID

from psycopg.types.json import Jsonb

from rivet_pipeline.db.ledger import SERVICE
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.db.stale import StaleDay, request_remine, stale_days
from rivet_pipeline.stages import Stage, StageReport
from rivet_pipeline.summaries.compact import announce_summarizer, resummarize
from rivet_pipeline.summaries.level import STAGE_OF
from rivet_pipeline.summaries.prompts import system_prompt
from rivet_pipeline.summaries.types import Kind, Summarizer
from rivet_pipeline.versions import SUMMARY_PIPELINE_VERSION

KINDS: tuple[Kind, ...] = ("leaf", "branch", "root")

#: Days that are brought through all levels together.
_DAYS_AT_A_TIME = 31

#: A usual figure for English prose; code and other languages take more tokens.
_CHARACTERS_PER_TOKEN = 4

#: How long another worker's hold on a conversation is waited for, in seconds, before what it kept from us is tried once
#: more. The lock of a process that was killed is free when the server has seen its connection end.
_BUSY_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Scope:
    """Which summaries are meant: levels, and the UTC days on which their conversations began (`before` exclusive)."""

    kinds: tuple[Kind, ...] = KINDS
    since: date | None = None
    before: date | None = None

    def __contains__(self, found: StaleDay) -> bool:
        return (
            found.stage in self.stages
            and (self.since is None or found.day >= self.since)
            and (self.before is None or found.day < self.before)
        )

    @property
    def stages(self) -> set[Stage]:
        """The stages of the levels."""
        return {STAGE_OF[kind] for kind in self.kinds}


@dataclass(frozen=True, slots=True)
class LevelCost:
    """What one level of a scope takes. Tokens are estimates.

    `waiting` rows rest after a failure. `requested`, `version`, `model` and `source` say why the rows are stale.
    `may_follow`: rows above that are not stale now and become so if a text below them changes.
    """

    kind: Kind
    rows: int
    waiting: int
    days: int
    requested: int
    version: int
    model: int
    source: int
    input_tokens: int
    output_tokens: int
    may_follow: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a pass is: summaries tried, how many are known to be meant by now, and the first of the days at work."""

    done: int
    known: int
    day: date


@dataclass(slots=True)
class RemineReport:
    """What a pass did. `left`: rows of the scope that are still stale. `stopped`: why it ended early, if it did."""

    reports: list[StageReport] = field(default_factory=list)
    left: int = 0
    stopped: str | None = None


def announced_model(connection: Connection) -> str | None:
    """The model that the leaves are made with as far as the store knows; None when none was ever made."""
    row = connection.execute(
        "SELECT model FROM ros_refinement_versions WHERE stage = %s", [STAGE_OF["leaf"]]
    ).fetchone()
    return None if row is None else str(row["model"])


def estimate_remine(
    connection: Connection,
    summarizer: Summarizer,
    scope: Scope,
    *,
    force: bool = False,
    version: int = SUMMARY_PIPELINE_VERSION,
) -> list[LevelCost]:
    """What redoing a scope with this summarizer would take, by level. Changes nothing. `force`: as in `remine`."""
    with connection.transaction(force_rollback=True):
        announce_summarizer(connection, summarizer.model, version=version)
        if force:
            request_remine(connection, kinds=scope.kinds, since=scope.since, before=scope.before)
        rows = connection.execute(
            Path(__file__).with_name("estimate_remine.sql").read_text(encoding="utf-8"),
            {
                "kinds": list(scope.kinds),
                "since": scope.since,
                "before": scope.before,
                "model": summarizer.model,
                "instructions": Jsonb({kind: len(system_prompt(kind)) for kind in KINDS}),
                "characters_per_token": _CHARACTERS_PER_TOKEN,
            },
        ).fetchall()
    return [LevelCost(**row) for row in rows]


def remine(
    pool: Pool,
    summarizer: Summarizer,
    scope: Scope,
    *,
    force: bool = False,
    version: int = SUMMARY_PIPELINE_VERSION,
    progress: Callable[[Progress], None] | None = None,
) -> RemineReport:
    """Redoes what is stale in a scope; with `force` everything in it, also what has not changed.

    Each summary is stored by itself, and what `force` asks for stands in the store until it is done: whoever runs this
    again, without `force`, goes on where it ended. A service that does not answer ends the pass. What another worker
    held when its turn came is tried once more at the end, and so is what stands on it.
    """
    with pool.connection() as connection:
        announce_summarizer(connection, summarizer.model, version=version)
        if force:
            request_remine(connection, kinds=scope.kinds, since=scope.since, before=scope.before)
        ready = _ready(connection, scope)
    walk = _Walk(pool, summarizer, scope, version, progress, known=sum(found.ready for found in ready))
    walk.through(ready)
    if walk.busy and walk.report.stopped is None:
        time.sleep(_BUSY_SECONDS)
        with pool.connection() as connection:
            ready = _ready(connection, scope)
        # Of all that is stale by now: what the other worker changed makes what stands on it stale, too.
        walk.through(ready)
    with pool.connection() as connection:
        walk.report.left = sum(found.items for found in stale_days(connection) if found in scope)
    return walk.report


def _ready(connection: Connection, scope: Scope) -> list[StaleDay]:
    return [found for found in stale_days(connection) if found in scope and found.ready]


class _Walk:
    """One pass through the days."""

    def __init__(
        self,
        pool: Pool,
        summarizer: Summarizer,
        scope: Scope,
        version: int,
        progress: Callable[[Progress], None] | None,
        *,
        known: int,
    ) -> None:
        self.report = RemineReport([StageReport(STAGE_OF[kind], model=summarizer.model) for kind in scope.kinds])
        self.busy: set[UUID] = set()
        self._pool = pool
        self._summarizer = summarizer
        self._scope = scope
        self._version = version
        self._progress = progress
        self._known = known
        self._done = 0

    def through(self, ready: Sequence[StaleDay]) -> None:
        """Brings the days through every level, the oldest first, until the service is at fault."""
        days = sorted({found.day for found in ready})
        for first in range(0, len(days), _DAYS_AT_A_TIME):
            if not self.redo(days[first : first + _DAYS_AT_A_TIME]):
                break

    def redo(self, days: Sequence[date]) -> bool:
        """Brings some days through every level. False when the service is at fault."""

        def after_each() -> None:
            self._done += 1
            if self._progress is not None:
                # Parents whose children have changed were not known of at the start.
                self._known = max(self._known, self._done)
                self._progress(Progress(self._done, self._known, days[0]))

        for place, (kind, total) in enumerate(zip(self._scope.kinds, self.report.reports, strict=True)):
            found = resummarize(
                self._pool,
                days=days,
                summarizer=self._summarizer,
                kinds=[kind],
                version=self._version,
                after_each=after_each,
                when_busy=self.busy.add,
                after=self._scope.kinds[:place],
            )
            for report in found:
                total.add(report)
            self.report.stopped = self._rests(STAGE_OF[kind])
            if self.report.stopped is not None:
                return False
        return True

    def _rests(self, stage: Stage) -> str | None:
        """Why the stage's service is not asked now, in its own words."""
        with self._pool.connection() as connection:
            row = connection.execute(
                """
                SELECT error FROM ros_failures
                WHERE ros_is_blocked(%s, %s) AND item = %s AND stage = ANY(%s) AND next_attempt_at > now()
                ORDER BY last_failed_at DESC LIMIT 1
                """,
                [stage, SERVICE, SERVICE, list(STAGE_OF.values())],
            ).fetchone()
        return None if row is None else str(row["error"])
