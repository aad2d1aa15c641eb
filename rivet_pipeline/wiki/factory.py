"""Chooses the miner that the settings ask for. Nothing else belongs here."""

from __future__ import annotations

from rivet_pipeline.models.factory import build_chat
from rivet_pipeline.settings import Settings
from rivet_pipeline.wiki.chat_miner import ChatMiner
from rivet_pipeline.wiki.miner import MODEL, DeterministicMiner
from rivet_pipeline.wiki.types import Miner


def build_miner(settings: Settings) -> Miner:
    """The chat model that also summarises when `RIVETOS_COMPACTOR_URL` is set, else the miner in this process.

    Raises `InvalidInputError` as `build_chat` does.
    """
    chat = build_chat(settings)
    return DeterministicMiner() if chat is None else ChatMiner(chat)


def miner_name(settings: Settings) -> str:
    """The name that the settings' miner stores with each patch, without making it."""
    if settings.compactor_url is None:
        return MODEL
    return settings.compactor_model or "unnamed"
