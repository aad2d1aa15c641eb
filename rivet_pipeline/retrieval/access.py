"""Which rows were used: gathered in memory, written behind in batches, never on the search path.

Only what a search returned to somebody who asked counts. A listing, a figure, what a hit was unfolded to and the
context of a turn are no access and must not be recorded here: what surfaces by itself would keep surfacing.

A process that is killed loses the accesses of its last seconds, and a store that is away for long those beyond the
buffer: counts are a hint to ranking, and no word of the transcript.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.scoring import PROFILE
from rivet_pipeline.retrieval.types import Hit, Source

_log = logging.getLogger(__name__)

#: The longest that writing one batch may take, in milliseconds: a lock on the table must not hold up the writer, and
#: with it the end of the process.
_FLUSH_TIMEOUT_MS = 5_000


class AccessRecorder:
    """A bounded, thread-safe buffer of accesses.

    When `most` different rows wait, accesses of further rows are dropped and counted in `dropped`: losing some is
    better than growing without end while the database is away. In the store a row's count stops at the number that
    scoring counts, while the time of its last access goes on.
    """

    def __init__(self, *, most: int = 10_000) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[tuple[Source, UUID], tuple[int, datetime]] = {}
        self._dropped = 0
        self._away = False

    @property
    def dropped(self) -> int:
        """How many accesses were dropped because the buffer was full."""
        return self._dropped

    def __len__(self) -> int:
        with self._lock:
            return len(self._waiting)

    def record(self, hits: Iterable[Hit], *, at: datetime | None = None) -> None:
        """Notes one access of each hit, at a time (aware; default now). Touches no database."""
        self.record_ids(((hit.source, hit.id) for hit in hits), at=at)

    def record_ids(self, rows: Iterable[tuple[Source, UUID]], *, at: datetime | None = None) -> None:
        """Notes one access of each row."""
        at = at or datetime.now(UTC)
        with self._lock:
            for row in rows:
                self._add(row, 1, at)

    def _add(self, row: tuple[Source, UUID], count: int, at: datetime) -> None:
        before = self._waiting.get(row)
        if before is None and len(self._waiting) >= self._most:
            self._dropped += count
            return
        total, latest = before or (0, at)
        self._waiting[row] = (min(PROFILE.max_accesses, total + count), max(latest, at))

    def flush(self, connection: Connection) -> int:
        """Writes what waits in one transaction and returns how many rows that were.

        When it fails, everything waits again and the error is raised.
        """
        with self._lock:
            batch, self._waiting = self._waiting, {}
        if not batch:
            return 0
        # One order for everybody, so that two flushes can not wait for each other.
        ordered = sorted(batch.items(), key=lambda item: (item[0][0], item[0][1].bytes))
        try:
            with connection.transaction():
                connection.execute("SELECT set_config('statement_timeout', %s, true)", [str(_FLUSH_TIMEOUT_MS)])
                connection.execute(
                    statement("write_access"),
                    {
                        "kinds": [kind for (kind, _), _ in ordered],
                        "ids": [identity for (_, identity), _ in ordered],
                        "counts": [count for _, (count, _) in ordered],
                        "times": [at for _, (_, at) in ordered],
                        "most": PROFILE.max_accesses,
                    },
                )
        except BaseException:
            with self._lock:
                for row, (count, at) in batch.items():
                    self._add(row, count, at)
            raise
        return len(ordered)

    def write_behind(self, connect: Callable[[], AbstractContextManager[Connection]]) -> int:
        """Flushes on a connection of its own, if anything waits, and never raises: returns how many rows were written.

        What can not be written waits for the next time. A store that is away is logged once, and once more when it is
        back.
        """
        if not len(self):
            return 0
        try:
            with connect() as connection:
                written = self.flush(connection)
        except Exception as error:
            # Whatever it is: the thread that writes behind must outlive it.
            if not self._away:
                self._away = True
                _log.warning(
                    "accesses are not counted while the store can not take them: %s",
                    " ".join(f"{error or type(error).__name__}".split()),
                )
            return 0
        if self._away:
            self._away = False
            _log.warning("accesses are counted again; %d were lost since the start", self._dropped)
        return written
