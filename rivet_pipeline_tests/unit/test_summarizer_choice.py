"""Which summarizer the settings choose."""

from __future__ import annotations

from typing import Any

import pytest

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.models.factory import build_chat
from rivet_pipeline.settings import Settings
from rivet_pipeline.summaries.factory import build_summarizer


def test_without_an_address_it_is_the_extractive_one() -> None:
    assert build_summarizer(Settings(compactor_url=None)).model == "extractive-2"


def test_with_an_address_it_is_the_named_chat_model() -> None:
    settings = Settings(compactor_url="http://127.0.0.1:8000/v1", compactor_model="local-30b")
    assert build_summarizer(settings).model == "local-30b"


def test_an_address_without_a_model_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="RIVETOS_COMPACTOR_MODEL"):
        build_summarizer(Settings(compactor_url="http://127.0.0.1:8000/v1", compactor_model=None))


URL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"compactor_fallbacks": "small"}, "RIVETOS_COMPACTOR_FALLBACKS: entry 1 has no address"),
        ({"compactor_fallbacks": "http://a/v1,|secret"}, "RIVETOS_COMPACTOR_FALLBACKS: entry 2 has no address"),
        ({"compactor_fallbacks": "http://a/v1|"}, "entry 1 has nothing behind its address"),
        ({"compactor_fallbacks": "http://a/v1", "compactor_fallback_keys": "http://b/v1|secret"}, "does not name"),
        (
            {"compactor_fallbacks": "http://a/v1", "compactor_fallback_keys": "http://a/v1"},
            "entry 1 has nothing behind",
        ),
        ({"compactor_fallback_keys": "secret"}, "RIVETOS_COMPACTOR_FALLBACK_KEYS: entry 1 has no address"),
        ({"compactor_token_command": "token 'secret"}, "RIVETOS_COMPACTOR_TOKEN_COMMAND: is no command line"),
        ({"compactor_token_command": "token", "compactor_api_key": "secret"}, "keep one of the two"),
    ],
)
def test_what_can_not_be_read_is_refused_by_name_and_tells_no_secret(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        build_chat(Settings.model_validate({"compactor_url": URL, "compactor_model": "local-30b", **more}))
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_no_secret_is_shown_with_the_settings() -> None:
    settings = Settings.model_validate(
        {
            "compactor_fallback_keys": "http://a/v1|secret",
            "compactor_token_command": "token secret",
            "embed_token_command": "token secret",
        }
    )
    assert "secret" not in repr(settings)
