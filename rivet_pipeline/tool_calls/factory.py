"""Chooses the writer of tool-call texts that the settings ask for. Nothing else belongs here."""

from __future__ import annotations

from rivet_pipeline.models.factory import build_chat
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

    Raises `InvalidInputError` as `build_chat` does.
    """
    if not _asks_a_model(settings):
        return Renderer()
    deadline = min(DEADLINE_SECONDS, settings.model_deadline_seconds)
    asked = settings.model_copy(update={"compactor_model": writer_name(settings), "model_deadline_seconds": deadline})
    chat = build_chat(asked)
    return Renderer() if chat is None else ChatWriter(chat)


def writer_name(settings: Settings) -> str | None:
    """The name that the settings' writer stores with each text, without making it; None when it has none yet."""
    if not _asks_a_model(settings):
        return NAME
    return settings.tool_text_model or settings.compactor_model


def _asks_a_model(settings: Settings) -> bool:
    return settings.compactor_url is not None and settings.tool_text_model != NO_MODEL
