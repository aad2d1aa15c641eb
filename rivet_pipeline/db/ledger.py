"""The failure ledger and the stage marks: the two small tables that every stage keeps beside its rows.

What a failure means for the next try is decided here, once for all stages.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import date, timedelta
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.protocols import Cause, ModelError
from rivet_pipeline.models.texts import clean_outgoing

#: The item of a stage's model service itself: while it is blocked, the pending views let the whole stage rest.
SERVICE = "service"

#: After this many content failures an item is left alone until its text, or the stage's model or version, changes.
MAX_CONTENT_ATTEMPTS = 3

#: A wrong configuration (401, 402, 403) is tried again after this long.
PERMANENT_RETRY = timedelta(hours=1)

_FIRST_DELAY = timedelta(seconds=30)
_LONGEST_DELAY = timedelta(minutes=30)


def retry_delay(cause: Cause, attempts: int, retry_after: float | None = None) -> timedelta | None:
    """How long to wait after the `attempts`-th failure (1 for the first). None: not tried again by itself.

    Transient causes double from 30 seconds to 30 minutes, less up to a tenth so that items do not move in step, and
    never sooner than the service asked (`retry_after`, seconds).
    """
    if cause == "permanent":
        return PERMANENT_RETRY
    if cause == "content" and attempts >= MAX_CONTENT_ATTEMPTS:
        return None
    doubled = min(_FIRST_DELAY * (1 << min(attempts - 1, 16)), _LONGEST_DELAY)
    delay = doubled * random.uniform(0.9, 1.0)  # noqa: S311 - jitter, not a secret
    return max(delay, timedelta(seconds=retry_after or 0.0))


def record_failure(connection: Connection, *, stage: str, item: str, error: ModelError, day: date | None) -> None:
    """Counts one more failure of an item and sets when it is tried next. Runs in the caller's transaction.

    Failures of another cause before it do not count: an item that met a service that was down has all its tries left.
    """
    row = connection.execute(
        "SELECT attempts, cause FROM ros_failures WHERE stage = %s AND item = %s FOR UPDATE", [stage, item]
    ).fetchone()
    attempts = (row["attempts"] if row and row["cause"] == error.cause else 0) + 1
    delay = retry_delay(error.cause, attempts, error.retry_after)
    connection.execute(
        """
        INSERT INTO ros_failures (stage, item, cause, error, attempts, day, next_attempt_at)
        VALUES (%(stage)s, %(item)s, %(cause)s, %(error)s, %(attempts)s, %(day)s, now() + %(delay)s::interval)
        ON CONFLICT (stage, item) DO UPDATE SET
            cause = excluded.cause, error = excluded.error, attempts = excluded.attempts, last_failed_at = now(),
            next_attempt_at = excluded.next_attempt_at
        """,
        {
            "stage": stage,
            "item": item,
            "cause": error.cause,
            # A service's words may hold what Postgres can not store.
            "error": clean_outgoing(str(error))[:2000],
            "attempts": attempts,
            "day": day,
            "delay": delay,
        },
    )


def clear_failures(connection: Connection, *, stage: str, items: Iterable[str]) -> None:
    """Forgets the failures of items that have succeeded. Runs in the caller's transaction."""
    connection.execute("DELETE FROM ros_failures WHERE stage = %s AND item = ANY(%s)", [stage, list(items)])


def try_changed_stage_again(connection: Connection, stage: str) -> None:
    """Gives what failed a new start, because the stage's model or version is another one. In the caller's transaction.

    Transient failures of items keep their time: they said nothing of the model.
    """
    connection.execute(
        "DELETE FROM ros_failures WHERE stage = %s AND (cause = 'content' OR item = %s)", [stage, SERVICE]
    )


def try_services_again(connection: Connection) -> int:
    """Ends the waits of model services that were down: whoever starts anew may have mended them. Returns how many."""
    return connection.execute(
        "UPDATE ros_failures SET next_attempt_at = now() WHERE item = %s AND next_attempt_at > now()", [SERVICE]
    ).rowcount


def waiting_failures(connection: Connection) -> int:
    """How many items, services among them, rest after a failure and so are not pending now."""
    row = connection.execute(
        "SELECT count(*) AS n FROM ros_failures WHERE next_attempt_at IS NULL OR next_attempt_at > now()"
    ).fetchone()
    return int(row["n"]) if row else 0


def mark_seen(connection: Connection, *, stage: str, conversation_id: UUID, revision: int) -> None:
    """Says that a stage has nothing left to do in a conversation up to `revision`. Runs in the caller's transaction.

    `revision` must have been read before the work was selected, so that a write in between makes it pending again.
    """
    connection.execute(
        """
        INSERT INTO ros_stage_marks (stage, conversation_id, revision) VALUES (%s, %s, %s)
        ON CONFLICT (stage, conversation_id) DO UPDATE SET revision = excluded.revision, marked_at = now()
        WHERE ros_stage_marks.revision < excluded.revision
        """,
        [stage, conversation_id, revision],
    )
