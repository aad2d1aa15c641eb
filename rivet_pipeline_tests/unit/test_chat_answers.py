"""What is taken off a model's answer, and which answers are no summary."""

from __future__ import annotations

import pytest

from rivet_pipeline.models.protocols import ChatAnswer, ModelError
from rivet_pipeline.models.texts import strip_thinking
from rivet_pipeline.summaries.chat_summarizer import ChatSummarizer, checked
from rivet_pipeline_tests.unit.summary_samples import leaf_request


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ("<think>hm</think>The text.", "The text."),
        ("<think>a</think>\n<thinking>b\nc</thinking>\n\nThe text.", "The text."),
        ("<think>never closed", ""),
        ("opened in the prompt</think>\nThe text.", "The text."),
        ("First.\n<think>again</think>\nLast.", "First.\nLast."),
        ("The parser drops `<think>` and `</think>` tags.", "The parser drops `<think>` and `</think>` tags."),
        ("Plain.", "Plain."),
    ],
)
def test_thinking_is_stripped(answer: str, left: str) -> None:
    assert strip_thinking(answer) == left


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("``", "too-short"),
        (" ", "empty"),
        ("ok then", "too-short"),
        ("I'm sorry, I can't help with that request.", "refusal"),
        ("I\u2019m sorry, but I cannot summarise this.", "refusal"),
        ("This isn't developer session output, it is a list of tools. Please send more.", "refusal"),
        ("Please provide the transcript that I should summarise.", "refusal"),
        ("Summary unavailable due to size limits.", "placeholder"),
        ("[Summary]", "placeholder"),
        ("An error occurred while generating the text.", "placeholder"),
        ('{"error": "overloaded"}', "error-answer"),
        ("The build was green at last. " * 200, "repetition"),
        ("ab" * 1000, "repetition"),
    ],
)
def test_answers_that_are_no_summary(answer: str, name: str) -> None:
    with pytest.raises(ModelError) as caught:
        checked(answer, "some source " * 200)
    assert (caught.value.cause, caught.value.name) == ("content", name)


def test_a_copy_of_the_source_is_no_summary() -> None:
    source = " ".join(f"word{number}" for number in range(400))
    with pytest.raises(ModelError, match="echo"):
        checked(source[:1000], source)


def test_a_summary_passes_and_loses_its_fence() -> None:
    text = "**Errors**\n- 2026-04-18T12:00Z opus/user: error handling was added to `a.py`."
    assert checked(f"```markdown\n{text}\n```", "source " * 50) == text


class Scripted:
    model = "scripted"

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def complete(self, *, system: str, user: str, max_tokens: int, temperature: float = 0.3) -> ChatAnswer:
        self.asked.append(user)
        return ChatAnswer(self.answers.pop(0), self.model, 5, 6)


def test_a_refusal_is_asked_again_once_with_a_reminder() -> None:
    good = "**Package manager**\n- 2026-04-18T12:03Z opus/user: chose pnpm 9.1.0 instead of npm."
    chat = Scripted("I'm sorry, I can't do that for you.", good)
    draft = ChatSummarizer(chat).summarize(leaf_request())
    assert (draft.text, draft.calls) == (good, 2)
    assert chat.asked[1].startswith(chat.asked[0])
    assert "refusal" in chat.asked[1].removeprefix(chat.asked[0])


def test_a_second_refusal_is_an_error() -> None:
    chat = Scripted("I'm sorry, I can't do that for you.", "Summary unavailable.", "never asked for this")
    with pytest.raises(ModelError, match="placeholder"):
        ChatSummarizer(chat).summarize(leaf_request())
    assert len(chat.asked) == 2
