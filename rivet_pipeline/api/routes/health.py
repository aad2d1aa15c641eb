"""`/healthz` and `/api/memory/health`: whether the process lives, and whether the memory is well."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from rivet_pipeline.api.models import NoQuery

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The process lives; nothing is said about the database or the models."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", summary="Whether the process lives")
async def healthz(_: Annotated[NoQuery, Query()]) -> Alive:
    """Answers without a token and without the database."""
    return Alive()
