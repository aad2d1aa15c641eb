"""Chooses the tagger that the settings ask for. Nothing else belongs here."""

from __future__ import annotations

from rivet_pipeline.models.factory import build_classifier, build_tagger_chat
from rivet_pipeline.settings import Settings
from rivet_pipeline.tags.chat_tagger import ChatTagger, ClassifierTagger
from rivet_pipeline.tags.keyphrases import MODEL as KEYPHRASES
from rivet_pipeline.tags.keyphrases import KeyphraseTagger
from rivet_pipeline.tags.types import Tagger

#: What stands in place of a tagger's name while tagging is off.
OFF = "off"


def build_tagger(settings: Settings) -> Tagger | None:
    """The tagger's own service, else the compactor's chat model, else the phrases found in this process.

    None when tagging is off. Raises `InvalidInputError` as `build_tagger_chat` and `build_classifier` do.
    """
    if not settings.session_tagging:
        return None
    if settings.tagger_wire_shape == "native":
        return ClassifierTagger(build_classifier(settings))
    chat = build_tagger_chat(settings)
    return KeyphraseTagger() if chat is None else ChatTagger(chat)


def tagger_name(settings: Settings) -> str:
    """The name that the settings' tagger stores with each proposal, without making it."""
    if not settings.session_tagging:
        return OFF
    if settings.tagger_url is not None:
        fallback = "classifier" if settings.tagger_wire_shape == "native" else "unnamed"
        return settings.tagger_model or fallback
    if settings.compactor_url is not None:
        return settings.tagger_model or settings.compactor_model or "unnamed"
    return KEYPHRASES
