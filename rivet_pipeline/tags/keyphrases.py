"""A tagger that needs no model."""

from __future__ import annotations
from typing import Literal as OneOf
from rivet_pipeline.tags.types import TagAnswer, TagRequest

MODEL = "keyphrases-1"


class KeyphraseTagger:
    source: OneOf["keyphrases"] = "keyphrases"

    @property
    def name(self) -> str:
        return MODEL

    def propose(self, request: TagRequest) -> TagAnswer:
        return TagAnswer([])
