"""Which summarizer the settings choose."""

from __future__ import annotations

import pytest

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.settings import Settings
from rivet_pipeline.summaries.factory import build_summarizer


def test_without_an_address_it_is_the_extractive_one() -> None:
    assert build_summarizer(Settings(compactor_url=None)).model == "extractive-1"


def test_with_an_address_it_is_the_named_chat_model() -> None:
    settings = Settings(compactor_url="http://127.0.0.1:8000/v1", compactor_model="local-30b")
    assert build_summarizer(settings).model == "local-30b"


def test_an_address_without_a_model_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="RIVETOS_COMPACTOR_MODEL"):
        build_summarizer(Settings(compactor_url="http://127.0.0.1:8000/v1", compactor_model=None))
