"""The extractive summarizer: what it keeps, that it keeps it verbatim, and that it never varies."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys

import pytest

from rivet_pipeline.summaries.extractive import MODEL, ExtractiveSummarizer
from rivet_pipeline.summaries.grounding import ground
from rivet_pipeline.summaries.prompts import user_text
from rivet_pipeline.summaries.sentences import from_messages, split_text, tool_line
from rivet_pipeline.summaries.types import SummaryRequest
from rivet_pipeline_tests.unit.summary_samples import CONVERSATION, child, leaf_request, message

BULLET = re.compile(r"^- \d{4}-\d\d-\d\dT\d\d:\d\dZ \S+/(?:user|assistant|system|tool): \S")


def summarize(request: SummaryRequest) -> str:
    return ExtractiveSummarizer().summarize(request).text


def bullets(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("- ")]


def test_the_same_batch_always_gives_the_same_text() -> None:
    script = (
        "from rivet_pipeline_tests.unit.summary_samples import leaf_request\n"
        "from rivet_pipeline.summaries.extractive import ExtractiveSummarizer\n"
        "import sys; sys.stdout.buffer.write(ExtractiveSummarizer().summarize(leaf_request()).text.encode())"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout.decode()
        for seed in ("0", "4711")
    }
    assert texts == {summarize(leaf_request())}


def test_another_text_has_another_models_name() -> None:
    """Fails when the same batch gets another text: count up `MODEL`, then note both here."""
    digest = hashlib.sha256(summarize(leaf_request()).encode()).hexdigest()[:16]
    assert (MODEL, digest) == ("extractive-2", "4fdeb632fff173f8")


def test_layout_frame_topics_and_bullets() -> None:
    first, blank, header, *rest = summarize(leaf_request()).splitlines()
    assert first == "Period 2026-04-18T12:00Z → 2026-04-18T12:09Z · agents opus · 10 messages · Timer app"
    assert blank == ""
    assert re.fullmatch(r"\*\*[^*]+\*\*", header)
    assert all(BULLET.match(line) or re.fullmatch(r"\*\*[^*]+\*\*", line) or not line for line in rest)
    assert len(bullets("\n".join(rest))) >= 4


def test_corrections_preferences_decisions_and_failures_are_kept() -> None:
    text = summarize(leaf_request())
    assert "12:03Z opus/user: No, not npm. Use pnpm instead, we always use pnpm 9.1.0 in this repo." in text
    assert "Please never squash them." in text
    assert "We decided to inject the clock through the constructor because" in text
    assert "failed" in text


def test_a_correction_beats_the_statements_it_corrects() -> None:
    talk = [message(n, "assistant", f"The report number {n} lists the usual figures of the week.") for n in range(9)]
    corrected = (*talk, message(9, "user", "No, use the monthly figures instead of the weekly ones."))
    assert "No, use the monthly figures instead of the weekly ones." in summarize(leaf_request(corrected))


def test_identifiers_stay_verbatim() -> None:
    identifiers = ("pnpm-lock.yaml", "3f2a91c", "9.1.0", "`src/timer.test.ts:42`", "5174", "vite.config.ts", "#128")
    text = summarize(leaf_request())
    assert [token for token in identifiers if token not in text] == []


def test_nothing_is_invented() -> None:
    request = leaf_request()
    sources = [
        user_text(request),
        *(m.content for m in request.messages),
        *(m.tool_result or "" for m in request.messages),
    ]
    assert ground(summarize(request), sources) == (1.0, [])


def test_each_of_several_unrelated_topics_has_a_bullet() -> None:
    topics = {
        "Postgres": "The Postgres replica lags behind because its disk is slow. The replica needs a faster disk.",
        "invoice": "The invoice template prints the wrong currency. Accounting wants the invoice in euros.",
        "kubernetes": "The kubernetes ingress drops websocket connections. Its ingress timeout is 60 seconds.",
        "translation": "The French translation of the settings page is missing. A translator starts on Monday.",
    }
    batch = tuple(message(n, "user", text) for n, text in enumerate(topics.values()))
    text = summarize(leaf_request(batch))
    assert [word for word in topics if word not in text] == []


def test_length_is_about_a_third_of_prose_and_bounded() -> None:
    words = [
        "cache",
        "index",
        "router",
        "queue",
        "parser",
        "lock",
        "schema",
        "vector",
        "token",
        "page",
        "hook",
        "shard",
    ]
    prose = [
        " ".join(f"The {words[(n * i) % 12]} of part {i} reads the {words[(n + i) % 12]} and then writes block {n * i}."
                 for i in range(1, 25))
        for n in range(1, 11)
    ]  # fmt: skip
    batch = tuple(message(n, "assistant", text) for n, text in enumerate(prose))
    share = len(summarize(leaf_request(batch))) / sum(map(len, prose))
    assert 0.2 < share < 0.6
    huge = summarize(leaf_request((message(0, "user", " ".join(prose) * 12),)))
    assert len(huge) < 45_000


def test_an_announcement_is_no_statement_when_there_are_others() -> None:
    batch = (message(0, "assistant", "Let me check the logs:"), message(1, "assistant", "The disk of db-3 is full."))
    text = summarize(leaf_request(batch))
    assert "The disk of db-3 is full." in text
    assert "Let me check" not in text


@pytest.mark.parametrize("content", ["ok", "…", "😀", "今天讨论了部署方案。决定使用 Postgres。"])
def test_the_smallest_batches_still_have_a_summary(content: str) -> None:
    assert content.split("。")[0] in summarize(leaf_request((message(0, "user", content),)))


def test_thinking_and_a_harness_summary_are_not_the_users_voice() -> None:
    batch = (
        message(0, "assistant", "Maybe the lock is the cause.", metadata={"kind": "thinking"}),
        message(1, "user", "This session continues an earlier one about locks.", metadata={"kind": "summary"}),
    )
    assert [statement.voice for statement in from_messages(batch)] == ["thinking", "assistant"]


def test_a_short_sentence_stands_with_the_next_one() -> None:
    assert split_text("No, not that. Use the other port.") == ["No, not that. Use the other port."]


# --- statements ---


def test_sentences_end_where_sentences_end() -> None:
    text = "Use v1.2.3 of e.g. Ruff. It then reads `a. B` as a whole. Then ask Dr. Smith about it! Is that all of it?"
    assert split_text(text) == [
        "Use v1.2.3 of e.g. Ruff.",
        "It then reads `a. B` as a whole.",
        "Then ask Dr. Smith about it!",
        "Is that all of it?",
    ]


def test_code_lists_tables_and_traces_become_statements() -> None:
    text = """The steps are:
- build the image
- push it

| name | port |
|------|------|
| api  | 5174 |

```python
def load(path):
    first = open(path)
    second = first.read()
    third = second.split()
    return third
```

Traceback (most recent call last):
  File "app/main.py", line 12, in run
    go()
ValueError: no such colour

It worked after that."""
    assert split_text(text) == [
        "The steps are: build the image; push it",
        "name | port",
        "api | 5174",
        "python code: `load`",
        "ValueError: no such colour (at app/main.py:12)",
        "It worked after that.",
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "result", "line"),
    [
        ("Bash", {"command": "uv sync"}, "Resolved 90 packages\nexit code: 0",
         "Bash: uv sync → exit 0 · Resolved 90 packages"),
        ("Read", {"file_path": "/a/b.py"}, "1\timport os\n2\timport re", "Read: /a/b.py"),
        ("Edit", {"file_path": "b.py", "old_string": "x = 1", "new_string": "x = 2"}, "The file was updated",
         "Edit: b.py (`x = 1` → `x = 2`)"),
        ("shell", '{"command": ["bash", "-lc", "make test"]}', '{"output": "2 failed", "metadata": {"exit_code": 2}}',
         "shell: make test → exit 2 · 2 failed"),
        ("TodoWrite",
         {"todos": [{"content": "A", "status": "completed"}, {"content": "B", "status": "in_progress"}]}, "ok",
         "TodoWrite: B"),
        ("Bash", {"command": "make"}, "cc a.c\nfatal: no input\nmake: stopped", "Bash: make → fatal: no input"),
        ("Ping", None, None, "Ping"),
    ],
)  # fmt: skip
def test_a_tool_call_is_one_line_with_its_most_telling_result(
    name: str, arguments: object, result: str | None, line: str
) -> None:
    assert tool_line(message(0, "tool", "", tool_name=name, tool_args=arguments, tool_result=result)) == line


def test_edits_of_one_file_in_one_turn_are_one_statement() -> None:
    batch = tuple(
        message(n, "tool", "", tool_name="Edit",
                tool_args={"file_path": "a.css", "old_string": f"old{n}", "new_string": f"new{n}"}, tool_result="done")
        for n in range(3)
    )  # fmt: skip
    assert [statement.text for statement in from_messages(batch)] == [
        "Edit: a.css (`old0` → `new0`; `old1` → `new1`; `old2` → `new2`)"
    ]


# --- parents ---


def test_a_branch_quotes_the_bullets_of_its_leaves() -> None:
    leaf = summarize(leaf_request())
    request = SummaryRequest("branch", CONVERSATION, children=(child(0, leaf), child(1, leaf.replace("5174", "5180"))))
    text = summarize(request)
    assert text.startswith("Period 2026-04-18T12:00Z → 2026-04-18T13:30Z · agents opus · 20 messages")
    assert "2026-04-18T12:03Z opus/user: No, not npm. Use pnpm instead" in text
    assert all(BULLET.match(line) for line in bullets(text))
    assert len(text) < 2 * len(leaf)
    assert ground(text, [user_text(request)]) == (1.0, [])


def test_a_root_has_sections() -> None:
    content = "\n".join(
        [
            "Period 2026-04-18T12:00Z → 2026-04-18T12:09Z · agents opus · 10 messages",
            "",
            "**work**",
            "- 2026-04-18T12:01Z opus/user: We decided to use Postgres because the team knows it.",
            "- 2026-04-18T12:02Z opus/assistant: The migration was implemented and released as 1.4.0.",
            "- 2026-04-18T12:03Z opus/assistant: The backup job still needs a test on the replica.",
            "- 2026-04-18T12:04Z opus/user: How do the nightly figures look?",
            "- 2026-04-18T12:05Z opus/assistant: The nightly figures look like those of last week.",
            "- 2026-04-18T12:06Z opus/assistant: The service currently listens on port 8080.",
        ]
    )
    text = summarize(SummaryRequest("root", CONVERSATION, children=(child(0, content),)))
    assert re.findall(r"^\*\*(.+)\*\*$", text, re.MULTILINE)[:2] == ["Decisions", "Completed"]
    assert text.index("decided to use Postgres") < text.index("released as 1.4.0")
    assert (
        "**Open items**\n- 2026-04-18T12:03Z opus/assistant: The backup job still needs a test on the replica." in text
    )
    assert "**Current state**\n- 2026-04-18T12:06Z opus/assistant: The service currently listens on port 8080." in text


def test_a_parent_over_free_text_keeps_the_childs_time() -> None:
    request = SummaryRequest(
        "branch", CONVERSATION, children=(child(2, "# Work\n\nThe cache was moved to `redis-2`."),)
    )
    assert "- 2026-04-18T14:00Z opus/summary: The cache was moved to `redis-2`." in summarize(request)


def test_a_topic_is_headed_by_its_names_and_not_by_empty_words() -> None:
    texts = [
        "Right, three good things today: the port of tide_importer is 8437 and always was.",
        "Fine, tide_importer answers on 8437 again, it was never really broken.",
        "Yes, once more: tide_importer keeps 8437, nothing else is right.",
    ]
    messages = tuple(message(number, "user", words) for number, words in enumerate(texts))
    text = summarize(SummaryRequest(kind="leaf", conversation=CONVERSATION, messages=messages))
    headers = re.findall(r"^\*\*(.+)\*\*$", text, re.MULTILINE)
    assert any("tide_importer" in header for header in headers)
    assert not {"right", "fine", "three", "once", "always"} & {
        word for header in headers for word in header.split(", ")
    }
