"""A writer that asks a chat model for the sentence, and the checks that its answer must pass before it may be stored.

An answer that fails a check is an error with a name of its own, never a text.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from rivet_pipeline.models.prompt_echo import DATA_SENTENCE, repeats_frame
from rivet_pipeline.models.protocols import Chat, ModelError
from rivet_pipeline.summaries.grounding import ground
from rivet_pipeline.tool_calls.types import LONGEST, Sentence, ToolCall
from rivet_pipeline.versions import OWN_TRAFFIC_MARKER

#: Tokens an answer may have; a model that thinks needs most of them for that.
MAX_TOKENS = 2_000

#: Characters of the arguments and of the result that are quoted, the result's from its head and its tail.
ARGS_LIMIT, RESULT_HEAD, RESULT_TAIL = 4_000, 1_500, 500

#: Shorter answers say nothing (the public code's floor).
SHORTEST = 10

_RULE = "-" * 40
_TASK = "Write the sentence about the call now, by the rules you were given."
_REFUSAL = re.compile(
    r"\A\W*(?:i['\u2019]?m\b|i (?:am|can|cannot|could|do|have|will|would|need|apologi[sz]e)\b|sorry\b|as an ai\b"
    r"|unfortunately\b|please\b|sure\b|certainly\b|of course\b|here (?:is|are)\b|(?:the|this) sentence\b)",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"\A\W*(?:the (?:assistant|agent|user|model|ai|tool|call)|he|she|it|they|we|you)\b", re.IGNORECASE
)
_FAILURE = re.compile(
    r"fail|error|den(?:y|ied)|reject|refus|declin|couldn['\u2019]t|could not|can ?not|unable|unsuccess|not found"
    r"|invalid|missing|no such|did not|didn['\u2019]t|does not|without success|exit code|crash|abort|cancel|interrupt"
    r"|time[ds]? out",
    re.IGNORECASE,
)
_QUOTED = re.compile('`[^`]*`|"[^"]*"|\u201c[^\u201d]*\u201d')
_COUNTED = re.compile(r"(\d+(?:[.,]\d+)*)\s?(?:rows?|lines?|files?|tests?|tokens?|chars?|characters?)")
_NEXT_SENTENCE = re.compile(r"[.!?]['\")\]\u201d]*\s+[A-Z\u00c0-\u00de]")


class ChatWriter:
    """Sentences by a chat model, one call each."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    @property
    def name(self) -> str:
        """The chat model's name."""
        return self._chat.model

    @property
    def asks_a_model(self) -> bool:
        """It does."""
        return True

    def write(self, call: ToolCall) -> Sentence:
        """The checked answer. Raises `ModelError`, with the failed check's name when an answer came."""
        answer = self._chat.complete(system=system_prompt(), user=user_text(call), max_tokens=MAX_TOKENS)
        tokens = (answer.prompt_tokens or 0) + (answer.completion_tokens or 0)
        return Sentence(checked(answer.text, call), tokens)


@cache
def system_prompt() -> str:
    """The rules, the own-traffic marker first."""
    text = files(__package__).joinpath("prompt.md").read_text(encoding="utf-8")
    return f"{OWN_TRAFFIC_MARKER}\n\n{text.strip()}\n"


def user_text(call: ToolCall) -> str:
    """The call between two fence lines that its own text can not contain."""
    parts = [f"tool: {call.name}", f"arguments: {_json(call.args)[:ARGS_LIMIT]}"]
    if call.failed:
        parts.append("The call failed.")
    if call.result is not None:
        parts.append(f"result:\n{_bounded(call.result)}")
    body = "\n".join(parts)
    fence = hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()[:16]
    return (
        f"{OWN_TRAFFIC_MARKER}\n\ncall {fence} begins\n{_RULE}\n{body}\n{_RULE}\ncall {fence} ends\n\n"
        f"{DATA_SENTENCE} {_TASK}\n"
    )


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _bounded(result: str) -> str:
    left_out = len(result) - RESULT_HEAD - RESULT_TAIL
    if left_out <= 0:
        return result
    return f"{result[:RESULT_HEAD]}\n[... left out here ...]\n{result[-RESULT_TAIL:]}"


def checked(answer: str, call: ToolCall) -> str:
    """The answer as it may be stored.

    Raises:
        ModelError: content, named `empty`, `prompt-echo`, `too-short`, `too-long-answer`, `not-a-sentence`, `refusal`,
            `wrong-subject`, `several-sentences`, `hides-the-failure` or `ungrounded`.
    """
    text = answer.strip()
    problem = _problem(text, call)
    if problem is not None:
        raise ModelError(
            "content", problem, f"the answer is no sentence about the call: {' '.join(text.split())[:200]!r}"
        )
    return text


def _problem(text: str, call: ToolCall) -> str | None:
    if not text:
        return "empty"
    prose = _QUOTED.sub("x", text)
    failed = {
        "prompt-echo": repeats_frame(text, "\n".join(_sources(call)), (_TASK,)),
        "too-short": len(text) < SHORTEST and text[0] not in "{[",
        "too-long-answer": len(text) >= LONGEST,
        "not-a-sentence": "\n" in text or text[0] in '{[`#*-"' or re.search(r"[.!?]['\")\]`\u201d]*\Z", text) is None,
        "refusal": _REFUSAL.match(text) is not None,
        "wrong-subject": _SUBJECT.match(text) is not None,
        "several-sentences": _NEXT_SENTENCE.search(prose) is not None,
        "hides-the-failure": call.failed and _FAILURE.search(prose) is None,
        "ungrounded": _invents(text, call),
    }
    return next((name for name, fails in failed.items() if fails), None)


def _invents(text: str, call: ToolCall) -> bool:
    """Whether an identifier of the text stands neither in the call's name nor in its arguments nor in its result."""
    sources = _sources(call)
    _, missing = ground(text, sources)
    # "12 passed" may well be told as "12 tests".
    numbers = [counted.group(1) if (counted := _COUNTED.fullmatch(token)) else None for token in missing]
    return any(
        number is None or not re.search(rf"(?<![\w.,]){re.escape(number)}(?![\w])", "\n".join(sources))
        for number in numbers
    )


def _sources(call: ToolCall) -> list[str]:
    return [call.name, *_strings(call.args), call.result or "", str(call.exit_code)]


def _strings(value: Any) -> list[str]:
    """A JSON value as its writers and readers see it: as JSON, and its strings unescaped."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [_json(value), *(text for item in value.values() for text in _strings(item))]
    if isinstance(value, list):
        return [_json(value), *(text for item in value for text in _strings(item))]
    return [str(value)]
