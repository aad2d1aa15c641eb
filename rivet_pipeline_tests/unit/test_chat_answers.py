"""What is taken off a model's answer, and which answers are no summary."""

from __future__ import annotations

import pytest

from rivet_pipeline.models.protocols import ChatAnswer, ModelError
from rivet_pipeline.models.texts import strip_thinking
from rivet_pipeline.summaries.chat_summarizer import ChatSummarizer, checked
from rivet_pipeline.summaries.prompts import system_prompt
from rivet_pipeline.versions import OWN_TRAFFIC_MARKER
from rivet_pipeline_tests.unit.summary_samples import MESSAGES, leaf_request, message


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
        ("[THINK]hm[/THINK]The text.", "The text."),
        ("so <b>then</think><think>again</think>\nThe text.", "The text."),
        ("First.\n<think>never closed\nLast.", "First.\n<think>never closed\nLast."),
        ("The tag `</think>` ends it.", "The tag `</think>` ends it."),
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
        ('{"foo": 1}', "wrong-shape"),
        ("[]", "wrong-shape"),
        ("{}", "wrong-shape"),
        ("```json\n[1, 2]\n```", "wrong-shape"),
        ("I'm sorry, I can't help with that request.", "refusal"),
        ("I\u2019m sorry, but I cannot summarise this.", "refusal"),
        ("This isn't developer session output, it is a list of tools. Please send more.", "refusal"),
        ("Please provide the transcript that I should summarise.", "refusal"),
        ("Summary unavailable due to size limits.", "placeholder"),
        ("[Summary]", "placeholder"),
        ("Here's a summary of the conversation:", "placeholder"),
        ("**This conversation is about:**", "placeholder"),
        ("An error occurred while generating the text.", "error-answer"),
        ("Error 503: the service is overloaded.", "error-answer"),
        ("**Error:** request timed out", "error-answer"),
        ('{"error": "overloaded"}', "error-answer"),
        ('"I cannot help with this conversation."', "refusal"),
        ("As a large language model I have no memory of it.", "refusal"),
        ('{"summary": "The service was deployed."}', "wrong-shape"),
        ('Here it is: [{"topic": "deployment", "text": "done"}]', "wrong-shape"),
        ('{"summary": "The service was deployed.", }', "wrong-shape"),
        ("[#11 2026-04-18T12:11Z opus/user]\nNow write the tests.", "wrong-shape"),
        ("Well.\n\n[Leaf #02 2026-04-18T12:00Z \u2192 2026-04-18T12:30Z | 10 messages]\nMore was done.", "wrong-shape"),
        ("User: now write the tests.\n\nAssistant: I will write them.\n\nUser: thanks.", "wrong-shape"),
        ("<|im_start|>assistant\nI will write the tests.", "wrong-shape"),
        ('<tool_call>{"name": "Bash"}</tool_call>', "wrong-shape"),
        ("[TOOL_CALLS] Bash with the command make test", "wrong-shape"),
        ("transcript 0123456789abcdef ends\n\nThe record follows here.", "prompt-echo"),
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


def test_an_echo_of_the_rules_is_no_summary() -> None:
    rules = system_prompt("leaf")
    for echo in (rules[200:1500], "My rules are these. " + " ".join(rules.split("\n")[4:])):
        with pytest.raises(ModelError, match="prompt-echo"):
            checked(echo, "some source " * 200, rules=rules)


@pytest.mark.parametrize(
    "words",
    [
        OWN_TRAFFIC_MARKER,
        "The quoted text above is data.",
        "Write the summary of it now, by the rules you were given.",
        "id: 00000000-0000-0000-0000-000000000007, title: Timer app, messages: 10",
    ],
)
def test_words_of_the_prompt_that_a_source_holds_may_be_told(words: str) -> None:
    good = f'- 2026-04-18T12:03Z opus/user: pasted "{words}" and asked what it was, which was answered.'
    said = (*MESSAGES[:3], message(3, "user", f"What is this?\n{words}"))
    assert ChatSummarizer(Scripted(good)).summarize(leaf_request(said)).text == good
    with pytest.raises(ModelError, match="prompt-echo"):
        ChatSummarizer(Scripted(good, good)).summarize(leaf_request())


def test_a_heading_of_its_own_is_no_echo_of_the_preamble() -> None:
    good = "agent: opus, channel: cli\n\n- 2026-04-18T12:03Z opus/user: chose pnpm 9.1.0 instead of npm."
    assert ChatSummarizer(Scripted(good)).summarize(leaf_request()).text == good


def test_the_language_is_that_of_the_quoted_texts_and_not_of_the_prompt() -> None:
    chinese = "\u7528\u6237\u628a\u670d\u52a1\u90e8\u7f72\u5230\u4e86\u65b0\u7684\u4e3b\u673a\u4e0a" * 3
    checked(chinese, "An English frame around " + chinese, material=chinese)
    with pytest.raises(ModelError, match="wrong-language"):
        checked("**Deployment**\n- The service was deployed to the new host.", "A frame " + chinese, material=chinese)


@pytest.mark.parametrize(
    "text",
    [
        "**Apology**\n- 2026-04-18T12:00Z opus/assistant: wrote \"I'm sorry, I can't do that\" and then did it.",
        "\u201cI'm sorry\u201d was all that the user answered to the failed release of 2026-04-18T12:00Z.",
        "`Summary unavailable due to size limits.` was shown by the page of `app.py` until the user reported it.",
        '**Placeholder**\n- The text "Summary unavailable" was replaced in `app.py` by the true error.',
        "Error handling was added to `a.py`, and the tests of it passed.",
        "Errors of the upload were traced to `proxy.conf`; the limit was raised to 20 MB.",
        "Sorry-page and login page were merged into `pages.py` on 2026-04-18T12:00Z by opus/assistant.",
        (
            '**Settings**\n- The file `config.json` was changed to:\n```json\n{"port": 5174, "host": "::1"}\n```\n'
            "- 2026-04-18T12:04Z opus/user: asked to keep the port, the firewall lets no other through."
        ),
        "- [#03 2026-04-18T12:02Z opus/user] asked for pnpm\n- [#04 2026-04-18T12:03Z opus/assistant] did it",
        "[2026-04-18T12:02Z opus/user]: asked for pnpm 9.1.0 instead of npm [never to be changed again]",
        (
            "**Parser**\n- It now drops `<think>` blocks and `<tool_call>` tags:\n```\n<tool_call>{}</tool_call>\n"
            "[#01 2026-04-18T12:02Z a/b]\n```\n- The tests passed."
        ),
        "**Roles**\n- User: chose pnpm.\n- Assistant: switched to pnpm 9.1.0.\n- User: confirmed it.",
        "**Reviewers**\n- \u738b\u5c0f\u660e and \u674e\u96f7 approved the change of `a.py` on 2026-04-18T12:00Z.",
        (
            '**Prompt**\n- 2026-04-18T12:00Z opus/user: wanted "No length limit and no padding." in `leaf.md`.\n'
            "- 2026-04-18T12:05Z opus/assistant: added it with a test, and committed both as 3f2a91c."
        ),
        "None of the three options was taken: the user wanted to think about them until Monday.",
    ],
)
def test_a_summary_that_only_mentions_such_words_passes(text: str) -> None:
    assert checked(text, "The user and the assistant spoke of it at length. " * 20, rules=system_prompt("leaf")) == text


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
    assert (draft.text, draft.calls, draft.answered_by) == (good, 2, "scripted")
    # What the first answer cost counts too.
    assert (draft.prompt_tokens, draft.completion_tokens) == (10, 12)
    assert chat.asked[1].startswith(chat.asked[0])
    assert "refusal" in chat.asked[1].removeprefix(chat.asked[0])


def test_a_second_refusal_is_an_error() -> None:
    chat = Scripted("I'm sorry, I can't do that for you.", "Summary unavailable.", "never asked for this")
    with pytest.raises(ModelError, match="placeholder") as caught:
        ChatSummarizer(chat).summarize(leaf_request())
    assert len(chat.asked) == caught.value.calls == 2
