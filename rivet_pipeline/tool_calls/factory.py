"""Chooses the writer of tool-call texts that the settings ask for. Nothing else belongs here."""

from __future__ import annotations

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.models.chat import OpenAIChat
from rivet_pipeline.settings import Settings
from rivet_pipeline.tool_calls.chat_writer import ChatWriter
from rivet_pipeline.tool_calls.render import NAME, Renderer
from rivet_pipeline.tool_calls.types import Writer

#: The value of `RIVETOS_TOOL_TEXT_MODEL` that stands for no model.
NO_MODEL = "none"

#: A sentence is asked for in front of embeddings and summaries: a server that does not answer in this time, in seconds,
#: counts as down. After that the failure ledger decides when it is asked again, more and more rarely.
DEADLINE_SECONDS = 20.0


def build_writer(settings: Settings) -> Writer:
    """The chat model that the settings name for tool calls, else the rendering in this process.

    Raises `InvalidInputError` when the chat server is set and no model is named.
    """
    name = writer_name(settings)
    if not _asks_a_model(settings):
        return Renderer()
    assert settings.compactor_url is not None
    if name is None:
        raise InvalidInputError(
            "RIVETOS_COMPACTOR_MODEL", "is needed with RIVETOS_COMPACTOR_URL; name the model that the server offers"
        )
    key = settings.compactor_api_key
    return ChatWriter(
        OpenAIChat(
            settings.compactor_url,
            name,
            key.get_secret_value() if key is not None else None,
            min(DEADLINE_SECONDS, settings.model_deadline_seconds),
        )
    )


def writer_name(settings: Settings) -> str | None:
    """The name that the settings' writer stores with each text, without making it; None when it has none yet."""
    if not _asks_a_model(settings):
        return NAME
    return settings.tool_text_model or settings.compactor_model


def _asks_a_model(settings: Settings) -> bool:
    return settings.compactor_url is not None and settings.tool_text_model != NO_MODEL
