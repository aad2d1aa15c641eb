"""Why a run was asked for, as its tags say, and what it therefore redoes. Nothing else belongs here."""

from __future__ import annotations

from collections.abc import Mapping

#: The tag with which the automation says why it asks for a run; no run of a person's has it.
REASON = "rivet/reason"

NEW_ROWS = "new rows"
IDLE = "idle"
STALE = "stale"

_LIVE = frozenset({NEW_ROWS, IDLE})


def redoes_outdated(tags: Mapping[str, str]) -> bool:
    """Whether a run redoes what an older version or another model made.

    Live runs do not: a new message on an old day must not spend money on that day's other rows. Backfills, jobs and
    the sensor `remine_stale` are what a person asked for.
    """
    return tags.get(REASON) not in _LIVE
