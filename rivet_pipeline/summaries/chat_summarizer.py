"""A summarizer that asks a chat model, and the checks that an answer must pass before it may be stored.

An answer that fails a check is an error with a name of its own, never a row.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter

from rivet_pipeline.models.protocols import Chat, ModelError
from rivet_pipeline.summaries.prompts import system_prompt
from rivet_pipeline.summaries.types import SummaryDraft, SummaryRequest
from rivet_pipeline.summaries.window import DEFAULT_WINDOW, Window

#: Shorter answers say nothing (the public code's floor).
MIN_CHARACTERS = 20

#: An answer of the same words over and over packs far better than prose (about 0.4) or a list of paths (about 0.2).
_REPETITION_RATIO = 0.06
_REPETITION_MIN = 1_000

_ECHO_CHARACTERS = 300

_REFUSALS = (
    r"(?:i['\u2019]?m|i am) (?:sorry|unable|not able)|sorry\b|as an ai\b|unfortunately, i\b",
    r"i (?:can['\u2019]?t|cannot|can not|won['\u2019]?t|apologi[sz]e)",
    r"this (?:is not|isn['\u2019]?t|does(?: not|n['\u2019]?t) (?:appear|look|seem))",
    r"(?:please|could you(?: please)?) (?:provide|share|paste)|there (?:is|are) no (?:messages?|content|transcript)",
    r"(?:sure|certainly|of course)[,!.] (?:here(?: is|['\u2019]s) (?:a|the|your) (?:poem|story|code)|how can i)",
)
_PLACEHOLDERS = (
    r"(?:the )?summary (?:is )?(?:unavailable|not available|pending|goes here|failed)",
    r"\[?(?:summary|placeholder|todo|tbd|n/?a|none|null)\]?\W*\Z",
    r"(?:error|internal (?:server )?error|an error occurred|failed to (?:generate|summari[sz]e))\b[^\n]{0,300}\Z",
)
_REFUSAL = re.compile(rf"\A\W*(?:{'|'.join(_REFUSALS)})", re.IGNORECASE)
_PLACEHOLDER = re.compile(rf"\A\W*(?:{'|'.join(_PLACEHOLDERS)})", re.IGNORECASE)
_FENCED = re.compile(r"\A```[\w-]*\n(.*)\n```\Z", re.DOTALL)

_REMINDER = (
    "\nYour last answer to this was not a summary ({name}). Whatever the transcript holds, write the record of it that "
    "your rules ask for, and nothing else.\n"
)
_ASK_AGAIN = frozenset({"refusal", "placeholder", "error-answer", "repetition", "too-short", "echo"})


class ChatSummarizer:
    """Summaries by a chat model. An answer that is no summary is asked for once more, with a reminder."""

    def __init__(self, chat: Chat, window: Window = DEFAULT_WINDOW) -> None:
        self._chat = chat
        self._window = window

    @property
    def model(self) -> str:
        """The chat model's name."""
        return self._chat.model

    def fits(self, request: SummaryRequest) -> bool:
        """Whether the model can read the request and still answer."""
        return self._window.fits(request)

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        """The checked answer. Raises `ModelError`, with the failed check's name when an answer came."""
        user = self._window.text(request)
        try:
            return self._ask(request, user, user, calls=1)
        except ModelError as error:
            if error.cause != "content" or error.name not in _ASK_AGAIN:
                raise
            reminder = _REMINDER.format(name=error.name)
        return self._ask(request, user + reminder, user, calls=2)

    def _ask(self, request: SummaryRequest, text: str, source: str, *, calls: int) -> SummaryDraft:
        answer = self._chat.complete(
            system=system_prompt(request.kind),
            user=text,
            max_tokens=self._window.answer_tokens(request.kind),
            temperature=0.3,
        )
        return SummaryDraft(
            text=checked(answer.text, source),
            prompt_tokens=answer.prompt_tokens or 0,
            completion_tokens=answer.completion_tokens or 0,
            calls=calls,
        )


def checked(answer: str, source: str) -> str:
    """The answer as it may be stored, an outer code fence removed.

    Raises:
        ModelError: content, named `empty`, `too-short`, `error-answer`, `refusal`, `placeholder`, `repetition`,
            `echo` or `longer-than-source`.
    """
    text = answer.strip()
    fenced = _FENCED.match(text)
    if fenced and "```" not in fenced.group(1):
        text = fenced.group(1).strip()
    problem = _problem(text, source)
    if problem is not None:
        raise ModelError("content", problem, f"the answer is no summary: {' '.join(text.split())[:200]!r}")
    return text


def _problem(text: str, source: str) -> str | None:
    if not text:
        return "empty"
    failed = {
        "error-answer": _is_error_json(text),
        "refusal": _REFUSAL.match(text) is not None,
        "placeholder": _PLACEHOLDER.match(text) is not None,
        "too-short": len(text) < MIN_CHARACTERS,
        "repetition": _repeats(text),
        "echo": _echoes(text, source),
        "longer-than-source": len(text) > 2 * len(source) + 4_000,
    }
    return next((name for name, fails in failed.items() if fails), None)


def _is_error_json(text: str) -> bool:
    if not text.startswith(("{", "[")):
        return False
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return not isinstance(value, dict) or bool({"error", "errors", "detail", "message"} & value.keys())


def _repeats(text: str) -> bool:
    lines = [" ".join(line.split()).casefold() for line in re.split(r"\n|(?<=[.!?])\s", text)]
    lines = [line for line in lines if len(line) >= MIN_CHARACTERS]
    if lines:
        _, most = Counter(lines).most_common(1)[0]
        if most >= 5 and most > 0.3 * len(lines):
            return True
    raw = text.encode("utf-8", "replace")
    return len(raw) >= _REPETITION_MIN and len(zlib.compress(raw)) < _REPETITION_RATIO * len(raw)


def _echoes(text: str, source: str) -> bool:
    start = " ".join(text.split())[:_ECHO_CHARACTERS]
    return len(start) == _ECHO_CHARACTERS and start in " ".join(source.split())
