"""A running hub over one small store a test file; its tests only read it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import connect
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import module_store, running_api
from rivet_pipeline_tests.hub_store import HubStore, fill_hub_store


@pytest.fixture(scope="module")
def store_url(server: EmbeddedServer, request: pytest.FixtureRequest) -> Iterator[str]:
    with module_store(server, request.path.stem.removeprefix("test_")) as url:
        yield url


@pytest.fixture(scope="module")
def store(store_url: str) -> HubStore:
    with connect(store_url) as connection:
        return fill_hub_store(connection, store_url)


@pytest.fixture(scope="module")
def base(store_url: str, store: HubStore) -> Iterator[str]:
    with running_api(Settings(timezone="Europe/Berlin"), store_url) as address:
        yield address


@pytest.fixture
def client(base: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base, timeout=30) as opened:
        yield opened
