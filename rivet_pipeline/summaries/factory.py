"""Chooses the summarizer that the settings ask for. Nothing else belongs here."""

from __future__ import annotations

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.models.chat import OpenAIChat
from rivet_pipeline.settings import Settings
from rivet_pipeline.summaries.chat_summarizer import ChatSummarizer
from rivet_pipeline.summaries.extractive import MODEL as EXTRACTIVE_MODEL
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.summaries.types import Summarizer
from rivet_pipeline.summaries.window import Window


def build_summarizer(settings: Settings) -> Summarizer:
    """The chat summarizer when `RIVETOS_COMPACTOR_URL` is set, else the extractive one in this process.

    Raises `InvalidInputError` when the address is set and `RIVETOS_COMPACTOR_MODEL` is not.
    """
    if settings.compactor_url is None:
        return ExtractiveSummarizer()
    if settings.compactor_model is None:
        raise InvalidInputError(
            "RIVETOS_COMPACTOR_MODEL", "is needed with RIVETOS_COMPACTOR_URL; name the model that the server offers"
        )
    key = settings.compactor_api_key
    return ChatSummarizer(
        OpenAIChat(
            settings.compactor_url,
            settings.compactor_model,
            key.get_secret_value() if key is not None else None,
            settings.model_deadline_seconds,
        ),
        Window(settings.compactor_context_tokens),
    )


def summarizer_name(settings: Settings) -> str:
    """The name that the settings' summarizer stores with each summary, without making it."""
    if settings.compactor_url is None:
        return EXTRACTIVE_MODEL
    return settings.compactor_model or "unnamed"
