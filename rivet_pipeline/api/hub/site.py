"""Puts the hub into the application: every page's routes, in order, and what they share."""

from __future__ import annotations

from fastapi import FastAPI

from rivet_pipeline.api.attempts import Attempts
from rivet_pipeline.api.hub import conversation, frame, health, review, search, summaries, timeline, wiki
from rivet_pipeline.api.hub.cookie_key import CookieKey
from rivet_pipeline.api.hub.pages import Hub
from rivet_pipeline.api.hub.sign_in import ROOT as ROOT
from rivet_pipeline.settings import Settings


def mount(app: FastAPI, settings: Settings, attempts: Attempts, cookie_key: CookieKey | None) -> None:
    """Adds the pages under `/hub`. `attempts` is what the guard counts with, `cookie_key` what it accepts, too."""
    app.state.hub = Hub(settings, attempts, cookie_key)
    for module in (search, conversation, summaries, timeline, review, wiki, health, frame):
        app.include_router(module.router)
    app.include_router(frame.last)
