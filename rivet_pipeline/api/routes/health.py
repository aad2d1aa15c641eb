"""`/healthz` and `/api/memory/health`: whether the process lives, and whether the memory is well."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from rivet_pipeline.api.dependencies import FromApp
from rivet_pipeline.api.models import FailuresHealth, HealthAnswer, NoQuery, SpoolHealth
from rivet_pipeline.db.inspection import failure_counts
from rivet_pipeline.db.pending import pending_days
from rivet_pipeline.stages import STAGES
from rivet_pipeline.transcripts.spool import Spool

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The process lives; nothing is said about the database or the models."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", summary="Whether the process lives")
async def healthz(_: Annotated[NoQuery, Query()]) -> Alive:
    """Answers without a token and without the database."""
    return Alive()


@router.get("/api/memory/health", summary="Whether the memory is well")
def health(_: Annotated[NoQuery, Query()], resources: FromApp) -> HealthAnswer:
    """Says `degraded` when the embedding model does not answer, or items have failed or captures waited for too long.

    Pending work is no fault. A database that can not be reached is answered with 503.
    """
    with resources.connection() as connection:
        found = pending_days(connection)
        pending: dict[str, int] = dict.fromkeys(STAGES, 0)
        for item in found:
            pending[item.stage] += item.items
        failures = FailuresHealth(**failure_counts(connection))
    embeddings = resources.probe.look()
    spool = Spool(resources.settings.spool_folder).status()
    failed = failures.permanent or failures.given_up or spool.complaints
    return HealthAnswer(
        status="ok" if embeddings.status == "ok" and not failed else "degraded",
        database="ok",
        embeddings=embeddings,
        pending=pending,
        pending_at_most=sorted({item.stage for item in found if item.at_most}),
        failures=failures,
        spool=SpoolHealth(depth=spool.depth, oldest_seconds=spool.oldest_seconds, dead=spool.dead),
        observed_at=datetime.now(UTC),
    )
