"""What routes are given: the process's pool, its query embedders and its settings. Opened once, closed at the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from rivet_pipeline.api.models import EmbeddingsHealth
from rivet_pipeline.api.security import require_json
from rivet_pipeline.db.pool import Connection, Pool, open_pool
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.models.embedder import PROBE
from rivet_pipeline.models.factory import build_embedder
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.retrieval.access import AccessRecorder
from rivet_pipeline.retrieval.query_vectors import QueryVectors
from rivet_pipeline.retrieval.synthesis import Synthesizer
from rivet_pipeline.settings import Settings

_log = logging.getLogger(__name__)

#: Connections of one API process. More requests than this wait for one.
POOL_SIZE = 16

#: How long, in seconds, a request waits for a free connection before it is answered with 503.
CONNECTION_WAIT = 5.0

#: Accesses are written behind this often, in seconds.
FLUSH_SECONDS = 5.0

#: A look at the embedding model takes at most so long and is good for so long, in seconds.
PROBE_TIMEOUT = 5.0
PROBE_SECONDS = 60.0


class EmbeddingProbe:
    """Whether the embedding model answers: asked with one fixed sentence, one asker at a time, remembered a minute."""

    def __init__(self, settings: Settings) -> None:
        self._embedder = build_embedder(settings, timeout=PROBE_TIMEOUT)
        self._lock = threading.Lock()
        self._seen: tuple[float, EmbeddingsHealth] | None = None

    def look(self) -> EmbeddingsHealth:
        """The latest look, at most a minute old."""
        with self._lock:
            if self._seen is None or time.monotonic() - self._seen[0] > PROBE_SECONDS:
                self._seen = (time.monotonic(), self._ask())
            return self._seen[1]

    def _ask(self) -> EmbeddingsHealth:
        try:
            self._embedder.embed([PROBE])
        except ModelError as error:
            return EmbeddingsHealth(status="unavailable", model=self._embedder.name, reason=str(error))
        return EmbeddingsHealth(status="ok", model=self._embedder.name, reason=None)


@dataclass(frozen=True, slots=True)
class Resources:
    """What one API process holds open."""

    settings: Settings
    pool: Pool
    vectors: QueryVectors
    accesses: AccessRecorder
    probe: EmbeddingProbe
    synthesizer: Synthesizer

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which named windows are cut."""
        return ZoneInfo(self.settings.timezone)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection of the pool. Raises `psycopg_pool.PoolTimeout` when none is to be had in time."""
        with self.pool.connection(timeout=CONNECTION_WAIT) as connection:
            yield connection


@contextmanager
def open_resources(settings: Settings, url: str) -> Iterator[Resources]:
    """Everything a process needs, for the length of the block; accesses that wait are written at its end.

    Raises `RivetError` when the store can not be reached or a model is named only in part.
    """
    with open_pool(url, max_size=POOL_SIZE, application_name="rivet-api") as pool:
        resources = Resources(
            settings,
            pool,
            QueryVectors(settings),
            AccessRecorder(),
            EmbeddingProbe(settings),
            Synthesizer.of(settings),
        )
        stop = threading.Event()
        behind = threading.Thread(target=_work_behind, args=(stop, resources), name="behind", daemon=True)
        behind.start()
        try:
            yield resources
        finally:
            stop.set()
            behind.join()


def _work_behind(stop: threading.Event, resources: Resources) -> None:
    """Writes accesses behind, and once more when asked to stop. A store that is away costs nothing but the delay.

    Looks at the embedding model first, so that one that lives in this process is loaded before somebody searches.
    """
    try:
        resources.probe.look()
    except Exception:
        _log.exception("the embedding model could not be looked at")
    while not stop.wait(FLUSH_SECONDS):
        resources.accesses.write_behind(resources.connection)
    resources.accesses.write_behind(resources.connection)


def resources_of(request: Request) -> Resources:
    """What the process of a request holds open."""
    resources = request.app.state.resources
    assert isinstance(resources, Resources)
    return resources


async def _resources(request: Request) -> Resources:
    # A coroutine, although it waits for nothing: FastAPI sends a plain function to a thread.
    return resources_of(request)


FromApp = Annotated[Resources, Depends(_resources)]


async def json_only(request: Request) -> None:
    """Refuses a body that is not JSON."""
    require_json(request.headers)


#: The parameters that are lists, each with the path that takes it.
LISTS = frozenset({("/api/memory/synthesis", "id")})


class JsonRoute(APIRoute):
    """A route of `json_only` and `each_once`, which are asked without FastAPI's machinery for dependencies.

    That costs more than both of them, which matters where dozens of requests a second arrive.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of a request that passes both."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            await each_once(request)
            await json_only(request)
            return await handle(request)

        return checked


async def each_once(request: Request) -> None:
    """Refuses a parameter that is given twice, of which one would be dropped in silence. Raises `InvalidInputError`.

    Lists (`LISTS`) are given item by item.
    """
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in seen and (request.url.path, name) not in LISTS:
            raise InvalidInputError(name[:60], "is given more than once; give it once")
        seen.add(name)
