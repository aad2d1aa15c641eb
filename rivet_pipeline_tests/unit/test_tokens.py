"""The estimate of tokens, and cutting a text by it."""

from __future__ import annotations

import random

import pytest

from rivet_pipeline.models.tokens import estimated_tokens, length_within

TEXTS = {
    "prose": "The sessions live in Postgres, because one store is enough for one team. " * 40,
    "code": "def get(self, key: str) -> bytes:\n    return self._rows[key]['value']  # 0xdeadbeef\n" * 40,
    "chinese": "会话保存在数据库里因为一个存储就够了" * 100,
    "one run": "0a1b2c3d" * 2000,
    "one word": "x" * 9000,
    "signs": "=-" * 3000 + "\n" + "#" * 3000,
    "emoji": "\U0001f600" * 500,
    "numbers": "1234 5678 91011 " * 300,
    "blank": "\n" * 4000 + " " * 4000,
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("tokens", [1, 2, 7, 50, 333])
def test_what_is_within_is_within_and_not_much_less(name: str, tokens: int) -> None:
    text = TEXTS[name]
    length = length_within(text, tokens)
    assert estimated_tokens(text[:length]) <= tokens
    if length < len(text):
        # Up to the piece that does not fit: a word, a number or a run of blanks.
        assert estimated_tokens(text[: length + 24]) >= min(tokens, 4) or name == "blank"


def test_everything_is_within_enough_and_nothing_within_nothing() -> None:
    for text in TEXTS.values():
        assert length_within(text, estimated_tokens(text)) == len(text)
        assert length_within(text, 0) == 0
    assert length_within("", 5) == 0


def test_more_tokens_are_never_less_text() -> None:
    chance = random.Random(7)
    text = "".join(chance.choice("ab \n\t9Z_-=/\u00e9\u4f1a\U0001f600") for _ in range(3000))
    lengths = [length_within(text, tokens) for tokens in range(0, 400, 3)]
    assert lengths == sorted(lengths)
