"""What waits for each stage and what rests after a failure, and the way to have it tried again at once.

There is no queue: what waits is read from the pending views, what rests from the failure ledger. What a failure means
for the next try is decided in `ledger.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.db.ledger import SERVICE
from rivet_pipeline.db.pending import PendingDay, amount, first_day, pending_days
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.stages import STAGES

#: Stands for every stage.
ALL_STAGES = "all"

_BY_HAND = "when summaries are made again: a backfill, `rivet memory remine`"
_BY_HAND_WIKI = "when leaves are mined again: the job `remine_wiki_days`"


@dataclass(frozen=True, slots=True)
class Rest:
    """Items of one stage that failed for one cause.

    `given_up` of them are not tried again, the time of `due` ones has come, the others rest. `held`: so many of the due
    and resting ones stand for rows that only an older version or another model made, which are made again when a person
    asks. `next_attempt_at` is the earliest of those that are tried again by themselves (UTC, None when there is none).
    `error` is the latest.
    """

    cause: str
    items: int
    given_up: int
    due: int
    held: int
    next_attempt_at: datetime | None
    oldest_at: datetime
    error: str

    @property
    def waiting(self) -> int:
        """Those whose time has not come yet: neither due nor given up."""
        return self.items - self.given_up - self.due


@dataclass(frozen=True, slots=True)
class StageQueue:
    """One stage: what is due, what of it only time made due, and what has failed and is not done.

    `items` are due now: none of them rests or was given up; `at_most`: they may be fewer, and `timed_items` is None,
    because the two are not told apart then. `service`: why the whole stage rests.
    """

    stage: str
    days: int
    items: int
    timed_items: int | None
    oldest_day: date | None
    service: Rest | None
    resting: list[Rest]
    at_most: bool = False

    @property
    def due(self) -> str:
        """The items in words."""
        return amount(self.items, at_most=self.at_most)

    @property
    def waiting(self) -> int:
        """Failed items whose time has not come yet."""
        return sum(rest.waiting for rest in self.resting)

    @property
    def given_up(self) -> int:
        """Failed items that are not tried again by themselves."""
        return sum(rest.given_up for rest in self.resting)

    @property
    def rests(self) -> bool:
        """Whether the whole stage rests because its service failed."""
        return self.service is not None and self.service.waiting > 0


@dataclass(frozen=True, slots=True)
class Failure:
    """One row of the ledger. `item` is an id, or `service`. `held`: waits for a person even when due (see `Rest`)."""

    stage: str
    item: str
    cause: str
    attempts: int
    error: str
    next_attempt_at: datetime | None
    held: bool


def queue_status(connection: Connection) -> list[StageQueue]:
    """Every stage in the order of the chain, then others that stand in the ledger only."""
    pending: dict[str, list[PendingDay]] = defaultdict(list)
    for item in pending_days(connection):
        pending[item.stage].append(item)
    rests = _rests(connection)
    stages = [*STAGES, *sorted(rests.keys() - set(STAGES))]
    return [_stage(stage, pending[stage], rests.get(stage, [])) for stage in stages]


def _stage(stage: str, work: list[PendingDay], rests: list[tuple[bool, Rest]]) -> StageQueue:
    at_most = any(item.at_most for item in work)
    return StageQueue(
        stage,
        days=len({item.day for item in work}),
        items=sum(item.items for item in work),
        timed_items=None if at_most else sum(item.items for item in work if item.timed),
        oldest_day=first_day(work),
        service=next((rest for is_service, rest in rests if is_service), None),
        resting=[rest for is_service, rest in rests if not is_service],
        at_most=at_most,
    )


def next_try(stage: str, rest: Rest, shown: Callable[[datetime], str]) -> str:
    """When failed items are tried again, in words; `shown` writes a time. Empty when none of them is."""
    words = []
    if rest.next_attempt_at is not None:
        due = rest.next_attempt_at <= datetime.now(UTC)
        words.append("now" if due else f"at {shown(rest.next_attempt_at)}")
    if rest.held:
        how = _by_hand(stage)
        words.append(f"{rest.held:,} of them {how}" if words else how)
    return ", ".join(words)


def held_back(failures: Sequence[Failure]) -> list[str]:
    """Which of the failures the pipeline does not take up by itself when they are due, and what does, in words."""
    counts = Counter(_by_hand(failure.stage) for failure in failures if failure.held)
    return [f"except {count:,}, tried again {how}" for how, count in counts.items()]


def _by_hand(stage: str) -> str:
    return _BY_HAND_WIKI if stage == "wiki_patches" else _BY_HAND


def _held(connection: Connection) -> set[tuple[str, str]]:
    """Stage and item of the failures that are held."""
    rows = connection.execute(Path(__file__).with_name("select_held.sql").read_text(encoding="utf-8")).fetchall()
    return {(row["stage"], row["item"]) for row in rows}


def _rests(connection: Connection) -> dict[str, list[tuple[bool, Rest]]]:
    """The ledger by stage and cause; True: the stage's service itself."""
    held = sorted(_held(connection))
    rows = connection.execute(
        Path(__file__).with_name("select_rests.sql").read_text(encoding="utf-8"),
        {
            "service": SERVICE,
            "held_stages": [stage for stage, _ in held],
            "held_items": [item for _, item in held],
        },
    ).fetchall()
    found: dict[str, list[tuple[bool, Rest]]] = defaultdict(list)
    for row in rows:
        stage, is_service = row.pop("stage"), row.pop("is_service")
        found[stage].append((is_service, Rest(**row)))
    return found


def retry_failed(
    connection: Connection, *, stage: str, error: str | None = None, dry_run: bool = False
) -> list[Failure]:
    """Makes failed items of a stage (`all`: of every stage) due at once, as if they had never failed.

    `error` narrows them to those whose error contains it, in any case. The rows stay, with their error, until the items
    succeed. Returns the rows as they were, oldest first; with `dry_run` nothing is changed. Raises `InvalidInputError`
    for a stage that there is not.
    """
    _check_stage(connection, stage)
    with connection.transaction():
        rows = connection.execute(
            """
            SELECT stage, item, cause, attempts, error, next_attempt_at FROM ros_failures
            WHERE (%(stage)s = %(all)s OR stage = %(stage)s)
              AND (%(error)s::text IS NULL OR position(lower(%(error)s::text) IN lower(error)) > 0)
            ORDER BY first_failed_at, stage, item
            FOR UPDATE
            """,
            {"stage": stage, "all": ALL_STAGES, "error": error},
        ).fetchall()
        held = _held(connection) if rows else set()
        if rows and not dry_run:
            _make_due(connection, rows)
    return [Failure(**row, held=(row["stage"], row["item"]) in held) for row in rows]


def _make_due(connection: Connection, rows: list[dict[str, Any]]) -> None:
    connection.execute(
        """
        UPDATE ros_failures AS f SET attempts = 0, next_attempt_at = now()
        FROM unnest(%s::text[], %s::text[]) AS i (stage, item) WHERE f.stage = i.stage AND f.item = i.item
        """,
        [[row["stage"] for row in rows], [row["item"] for row in rows]],
    )


def _check_stage(connection: Connection, stage: str) -> None:
    if stage == ALL_STAGES or stage in STAGES:
        return
    found = connection.execute("SELECT 1 FROM ros_failures WHERE stage = %s LIMIT 1", [stage]).fetchone()
    if found is None:
        raise InvalidInputError("task", f"there is no stage {stage!r}; give {ALL_STAGES}, {', '.join(STAGES)}")
