"""What asset bodies are handed: the store's connection pool and the models. Tests replace either.

Only construction belongs here. Addresses and keys are read from the settings inside the run and are no resource
configuration, because Dagster shows that in its UI.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property

import dagster as dg
from pydantic import PrivateAttr

from rivet_pipeline.db.pool import Connection, Pool, open_pool
from rivet_pipeline.db.store import store_url
from rivet_pipeline.models.factory import build_embedder
from rivet_pipeline.models.protocols import Embedder
from rivet_pipeline.settings import get_settings
from rivet_pipeline.summaries.factory import build_summarizer
from rivet_pipeline.summaries.types import Summarizer
from rivet_pipeline.tags.factory import build_tagger
from rivet_pipeline.tags.types import Tagger
from rivet_pipeline.tool_calls.factory import build_writer
from rivet_pipeline.tool_calls.types import Writer
from rivet_pipeline.wiki.factory import build_miner
from rivet_pipeline.wiki.types import Miner


class StoreResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A small pool on the migrated store, opened when a run first asks for it and closed with the run.

    `database` names another database than the configured one; tests set it.
    """

    database: str | None = None
    _pool: Pool | None = PrivateAttr(default=None)
    _run: ExitStack | None = PrivateAttr(default=None)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[StoreResource]:
        """Lets a run open the pool, and closes it after. A sensor's tick, which asks for none, opens none."""
        with ExitStack() as run:
            self._run = run
            try:
                yield self
            finally:
                self._run = self._pool = None

    @property
    def url(self) -> str:
        """The store's address."""
        return self.database or store_url(get_settings())

    @property
    def pool(self) -> Pool:
        """The open pool. Raises `RuntimeError` outside of a run, `StoreUnavailableError` when the store is away."""
        if self._run is None:
            raise RuntimeError("the store's pool is open inside a run only")
        if self._pool is None:
            self._pool = self._run.enter_context(open_pool(self.url, max_size=4, application_name="rivet-run"))
        return self._pool

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """One of the pool's connections."""
        with self.pool.connection() as connection:
            yield connection


class Models:
    """The models that the settings name, made when they are first asked for."""

    @cached_property
    def embedder(self) -> Embedder:
        """The embedding model."""
        return build_embedder(get_settings())

    @cached_property
    def summarizer(self) -> Summarizer:
        """The summarizer."""
        return build_summarizer(get_settings())

    @cached_property
    def writer(self) -> Writer:
        """The writer of tool calls' texts."""
        return build_writer(get_settings())

    @cached_property
    def tagger(self) -> Tagger | None:
        """The tagger; None while tagging is off."""
        return build_tagger(get_settings())

    @cached_property
    def miner(self) -> Miner:
        """The miner of the wiki."""
        return build_miner(get_settings())
