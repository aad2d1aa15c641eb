"""What a stage leaves undone on a day, as figures and as words a person can act on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import dagster as dg

from rivet_pipeline.assets.links import day_in_hub, in_hub
from rivet_pipeline.assets.markdown import code, table
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.timeline import StageState, failures_of, read_left, resting_service
from rivet_pipeline.stages import Stage

#: Rows of the failure ledger that one day shows; the hub has the others.
_SHOWN = 5

_COMPLETE = "Nothing: this stage was done with the day when the run ended."


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of one day for one stage.

    `stale` counts rows of an older making, `failures` are rows of the ledger, the latest first; `service` says why the
    stage rests as a whole, if it does.
    """

    stage: Stage
    day: date
    state: StageState
    stale: int = 0
    failures: Sequence[Mapping[str, Any]] = ()
    service: Mapping[str, Any] | None = None

    def words(self) -> dict[str, Any]:
        """The metadata that a person reads first: what is left, and where the hub shows the day."""
        return {"what_is_left": dg.MetadataValue.md(what_is_left(self)), "hub": day_in_hub(self.day)}

    def figures(self) -> dict[str, int]:
        """The counts, which Dagster plots."""
        return {"pending": self.state.pending, "waiting": self.state.waiting, "failing": self.state.failing}


def left_on(
    connection: Connection, stage: Stage, days: Sequence[date], stale: Mapping[date, int] | None = None
) -> dict[date, Left]:
    """What is left of each of the days. `stale` counts the rows of an older making, where they are made again."""
    states = read_left(connection, stage, days)
    failures: dict[date, list[Mapping[str, Any]]] = {}
    for failure in failures_of(connection, days, stage=stage, limit=_SHOWN * len(days)):
        failures.setdefault(failure["day"], []).append(failure)
    service = resting_service(connection, stage)
    return {
        day: Left(stage, day, states.get(day, StageState()), (stale or {}).get(day, 0), failures.get(day, []), service)
        for day in days
    }


def what_is_left(left: Left) -> str:
    """In Markdown: how much is left of a day, why, and what to do about it."""
    lines = [*_service(left), *_counts(left)]
    if not lines:
        return _COMPLETE
    if left.failures:
        lines += ["", _ledger(left.failures)]
        if left.state.failing > _SHOWN:
            lines += ["", f"All of them: [{left.day} in the hub]({in_hub(f'/hub/day/{left.day}')})"]
    return "\n".join(lines)


def _service(left: Left) -> Iterator[str]:
    if left.service is not None:
        yield (
            f"- **The model service is down**, tried again at {_moment(left.service['next_attempt_at'])}; until then "
            f"nothing of this stage counts as pending. It said: {code(str(left.service['error']), 160)}"
        )


def _counts(left: Left) -> Iterator[str]:
    state = left.state
    if state.failing:
        yield (
            f"- **{state.failing} failing**: in the failure ledger, below with the cause. When the reason is gone, "
            f"`rivet memory retry-failed --task {left.stage}` has them tried at once, and says "
            "which of them wait until they are made again by hand."
        )
    if state.pending:
        yield f"- **{state.pending} pending**: due and not done; the sensor `pending_work` asks for them again."
    if state.waiting:
        calm = "" if left.service is not None else " Nothing needs doing."
        yield f"- **{state.waiting} waiting** for more messages, silence or the model service.{calm}"
    if left.stale:
        yield (
            f"- **{left.stale} stale**: made by an older version or another model, and still serving. Materialise the "
            "day by hand, or switch the sensor `remine_stale` on."
        )


def _ledger(failures: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            code(str(one["item"])),
            one["cause"],
            one["attempts"],
            code(str(one["error"]), 160),
            "given up" if one["next_attempt_at"] is None else _moment(one["next_attempt_at"]),
        )
        for one in failures[:_SHOWN]
    ]
    return table(("item", "cause", "tries", "error", "next try"), rows)


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
