"""Chooses the summarizer that the settings ask for. Nothing else belongs here."""

from __future__ import annotations

from rivet_pipeline.models.factory import build_chat
from rivet_pipeline.settings import Settings
from rivet_pipeline.summaries.chat_summarizer import ChatSummarizer
from rivet_pipeline.summaries.extractive import MODEL as EXTRACTIVE_MODEL
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.summaries.types import Summarizer
from rivet_pipeline.summaries.window import Window


def build_summarizer(settings: Settings) -> Summarizer:
    """The chat summarizer when `RIVETOS_COMPACTOR_URL` is set, else the extractive one in this process.

    Raises `InvalidInputError` as `build_chat` does.
    """
    chat = build_chat(settings)
    if chat is None:
        return ExtractiveSummarizer()
    return ChatSummarizer(chat, Window(settings.compactor_context_tokens))


def summarizer_name(settings: Settings) -> str:
    """The name that the settings' summarizer stores with each summary, without making it."""
    if settings.compactor_url is None:
        return EXTRACTIVE_MODEL
    return settings.compactor_model or "unnamed"
