"""A summarizer that asks a chat model, and the checks that an answer must pass before it may be stored.

An answer that fails a check is an error with a name of its own, never a row.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from rivet_pipeline.models.prompt_echo import added, repeats_frame
from rivet_pipeline.models.protocols import Chat, ModelError
from rivet_pipeline.summaries.language import wrong_language
from rivet_pipeline.summaries.prompts import FRAME_SENTENCES, RESULT_HEAD, RESULT_TAIL, system_prompt, taken_apart
from rivet_pipeline.summaries.types import SummaryDraft, SummaryRequest
from rivet_pipeline.summaries.window import DEFAULT_WINDOW, Window

#: Shorter answers say nothing (the public code's floor).
MIN_CHARACTERS = 20

#: An answer of the same words over and over packs far better than prose (about 0.4) or a list of paths (about 0.2).
_REPETITION_RATIO = 0.06
_REPETITION_MIN = 1_000

_ECHO_CHARACTERS = 300

#: From this share of an answer on, sentences of the rules are an echo of them and no quotation.
_RULES_SHARE = 0.3

#: JSON from this share of an answer on is the answer.
_JSON_SHARE = 0.7

_REFUSALS = (
    r"(?:i['\u2019]?m|i am) (?:sorry|unable|not able)|sorry\b(?!-)|as an? (?:ai|(?:large )?language model)\b",
    r"unfortunately, i\b|i (?:can['\u2019]?t|cannot|can not|won['\u2019]?t|apologi[sz]e|do(?: not|n['\u2019]t) see)",
    r"this (?:is not|isn['\u2019]?t|does(?: not|n['\u2019]?t) (?:appear|look|seem))",
    r"(?:please|could you(?: please)?) (?:provide|share|paste)|there (?:is|are) no (?:messages?|content|transcript)",
    r"(?:sure|certainly|of course)[,!.] (?:here(?: is|['\u2019]s) (?:a|the|your) (?:poem|story|code)|how can i)",
)
_PLACEHOLDERS = (
    r"(?:the )?summary (?:is )?(?:unavailable|not available|pending|goes here|failed)",
    r"(?:summary|placeholder|todo|tbd|n/?a|none|null)\]?\W*\Z",
)
#: "Here is a summary of the conversation:", and then nothing.
_ANNOUNCED = re.compile(r"[^\n]{0,300}[:\uff1a][*_]*")
_ERROR_TEXTS = (
    r"(?:internal (?:server )?)?error(?:[:!.]|\s*\d{3}\b|\s*\Z)|an (?:unexpected )?error (?:has )?occurred",
    r"failed to (?:generate|summari[sz]e)|(?:request|connection) (?:timed out|refused)",
)
#: Marks of lists, headers and emphasis may stand before; quotation marks may not: what they hold is somebody's.
_FRONT = r"\A[^\w\"'`\u2018-\u201f\u00ab\u00bb]*(?:%s)"
_REFUSAL = re.compile(_FRONT % "|".join(_REFUSALS), re.IGNORECASE)
_PLACEHOLDER = re.compile(_FRONT % "|".join(_PLACEHOLDERS), re.IGNORECASE)
_ERROR = re.compile(_FRONT % "|".join(_ERROR_TEXTS) + r"[^\n]{0,300}\Z", re.IGNORECASE)
_QUOTED_WHOLE = re.compile(r"\A([\"'`\u201c])([^\"`\u201c\u201d]*)[\"'`\u201d]\Z")
_FENCED = re.compile(r"\A```[\w-]*\n(.*)\n```\Z", re.DOTALL)
_FENCED_PART = re.compile(r"^```.*?(?:^```|\Z)", re.DOTALL | re.MULTILINE)

#: Lines that a continued conversation has and a record of one has not.
_HEADER_LINE = re.compile(r"^\[(?:#|Leaf #|Branch #)\d+ \d{4}-\d\d-\d\dT", re.MULTILINE)
_TOOL_LINE = re.compile(
    r"^\s*(?:<(?:tool_call|function_call|tool_use|function_calls|invoke|function=)[\s>\w]|\[TOOL_CALLS?\]|<\|"
    r"(?:tool|im_start|im_end|start_header_id|channel))",
    re.MULTILINE,
)
_SPEAKER_LINE = re.compile(r"^(?:\*\*)?(user|human|assistant|ai)(?:\*\*)?:", re.MULTILINE | re.IGNORECASE)

#: The lines around the quotation, which only our own prompt has.
_FENCE = re.compile(r"\btranscript [0-9a-f]{16} (?:begins|ends)\b", re.IGNORECASE)

#: So many lines of the preamble are an echo of it; of those that name the conversation by its id, one less.
_PREAMBLE_LINES = 3

#: So many sentences of the rules that no source holds are an echo of them; one may be a quotation.
_RULES_SENTENCES = 2

_REPROACH = "Your last answer to this was not a summary"
_REMINDER = (
    f"\n{_REPROACH} ({{name}}). Whatever the transcript holds, write the record of it that "
    "your rules ask for, in the language of the transcript, and nothing else.\n"
)
_ASK_AGAIN = frozenset(
    {
        "refusal",
        "placeholder",
        "error-answer",
        "repetition",
        "too-short",
        "echo",
        "prompt-echo",
        "wrong-shape",
        "wrong-language",
    }
)


class ChatSummarizer:
    """Summaries by a chat model. An answer that is no summary is asked for once more, with a reminder."""

    def __init__(self, chat: Chat, window: Window = DEFAULT_WINDOW) -> None:
        self._chat = chat
        self._window = window

    @property
    def model(self) -> str:
        """The configured chat model's name, also while a fallback answers."""
        return self._chat.model

    def fits(self, request: SummaryRequest) -> bool:
        """Whether the model can read the request and still answer."""
        return self._window.fits(request)

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        """The checked answer. Raises `ModelError`, with the failed check's name when an answer came."""
        source, rules = self._window.text(request), system_prompt(request.kind)
        user, prompt_tokens, completion_tokens = source, 0, 0
        for calls in (1, 2):
            try:
                answer = self._chat.complete(
                    system=rules, user=user, max_tokens=self._window.answer_tokens(request.kind), temperature=0.3
                )
                prompt_tokens += answer.prompt_tokens or 0
                completion_tokens += answer.completion_tokens or 0
                text = checked(answer.text, source, rules=rules, material=_material(request), fallback=answer.fallback)
                return SummaryDraft(text, prompt_tokens, completion_tokens, calls, answer.model, answer.fallback)
            except ModelError as error:
                error.calls = calls
                prompt_tokens = error.prompt_tokens = prompt_tokens + error.prompt_tokens
                completion_tokens = error.completion_tokens = completion_tokens + error.completion_tokens
                if calls == 2 or error.cause != "content" or error.name not in _ASK_AGAIN:
                    raise
                user = source + _REMINDER.format(name=error.name)
        raise AssertionError("the second failure is raised")


def _material(request: SummaryRequest) -> str:
    """What was said, without the prompt's own words around it."""
    texts = [child.content for child in request.children]
    for message in request.messages:
        texts += [message.content, (message.tool_result or "")[: RESULT_HEAD + RESULT_TAIL]]
    return "\n".join(texts)


def checked(answer: str, source: str, *, rules: str = "", material: str | None = None, fallback: bool = False) -> str:
    """The answer as it may be stored, an outer code fence removed.

    Args:
        answer: What the model said.
        source: The user text it was asked with.
        rules: The system text it was asked with.
        material: The quoted texts alone, whose language the answer must have; None: the source.
        fallback: The answer came from a service that stands in for the configured one.

    Raises:
        ModelError: content, named `empty`, `error-answer`, `refusal`, `placeholder`, `too-short`, `prompt-echo`,
            `repetition`, `echo`, `wrong-shape`, `longer-than-source` or `wrong-language`.
    """
    text = answer.strip()
    fenced = _FENCED.match(text)
    if fenced and "```" not in fenced.group(1):
        text = fenced.group(1).strip()
    problem = _problem(text, source, rules, source if material is None else material)
    if problem is not None:
        detail = f"the answer is no summary: {' '.join(text[:2000].split())[:200]!r}"
        raise ModelError("content", problem, detail, fallback=fallback)
    return text


def _problem(text: str, source: str, rules: str, material: str) -> str | None:
    if not text:
        return "empty"
    whole = _QUOTED_WHOLE.match(text)
    front = whole.group(2) if whole else text
    failed: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("error-answer", lambda: _is_error_json(text) or _ERROR.match(front) is not None),
        ("refusal", lambda: _REFUSAL.match(front) is not None),
        ("placeholder", lambda: (_PLACEHOLDER.match(front) or _ANNOUNCED.fullmatch(text)) is not None),
        # JSON is no prose however short it is.
        ("wrong-shape", lambda: len(text) < MIN_CHARACTERS and _is_json(text)),
        ("too-short", lambda: len(text) < MIN_CHARACTERS),
        ("prompt-echo", lambda: _echoes_prompt(text, source) or _echoes_rules(text, rules, source)),
        ("repetition", lambda: _repeats(text)),
        ("echo", lambda: _echoes(text, source)),
        ("wrong-shape", lambda: _is_json(text) or _continues(text)),
        ("longer-than-source", lambda: len(text) > 2 * len(source) + 4_000),
        ("wrong-language", lambda: wrong_language(text, material)),
    )
    return next((name for name, fails in failed if fails()), None)


def _json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_error_json(text: str) -> bool:
    value = _json_value(text) if text.startswith("{") else None
    return isinstance(value, dict) and bool({"error", "errors", "detail", "message"} & value.keys())


def _is_json(text: str) -> bool:
    """Whether the answer is one JSON value, whatever stands before or behind it."""
    if text.startswith(('{"', '[{"')):
        return True
    start, end = re.search(r"[{\[]", text), max(text.rfind("}"), text.rfind("]"))
    if start is None or end + 1 - start.start() < _JSON_SHARE * len(text):
        return False
    return isinstance(_json_value(text[start.start() : end + 1]), dict | list)


def _continues(text: str) -> bool:
    """Whether the answer goes on with the conversation, or calls a tool, instead of recording it."""
    prose = _FENCED_PART.sub("", text)
    if _HEADER_LINE.search(prose) is not None or _TOOL_LINE.search(prose) is not None:
        return True
    speakers = [speaker.casefold() for speaker in _SPEAKER_LINE.findall(prose)]
    both = bool({"user", "human"} & set(speakers)) and bool({"assistant", "ai"} & set(speakers))
    return both and 2 * len(speakers) >= sum(1 for line in prose.split("\n") if line.strip())


def _repeats(text: str) -> bool:
    lines = [" ".join(line.split()).casefold() for line in re.split(r"\n|(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])", text)]
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


def _echoes_prompt(text: str, source: str) -> bool:
    """Whether what the prompt says around its sources stands in the answer, wherever, and not in the sources."""
    quoted, preamble, fence = taken_apart(source)
    fences = _FENCE.findall(text)
    if (fence and fence in text) or added(fences, text, quoted):
        return True
    # Titles and names are somebody's text, too.
    values = "\n".join(line.partition(": ")[2] for line in preamble)
    if repeats_frame(text, f"{quoted}\n{values}", (*FRAME_SENTENCES, _REPROACH)):
        return True
    repeated = added(preamble, text, quoted)
    named = any(line.startswith("id: ") for line in repeated)
    return len(repeated) >= _PREAMBLE_LINES - named


def _echoes_rules(text: str, rules: str, source: str) -> bool:
    flat = " ".join(text.split())
    sentences = [" ".join(sentence.split()) for sentence in re.split(r"\n|(?<=[.:;])\s", rules)]
    copied = [sentence for sentence in sentences if len(sentence) >= 30 and sentence in flat]
    copied = added(copied, text, source)
    return len(copied) >= _RULES_SENTENCES or sum(map(len, copied)) >= _RULES_SHARE * len(flat)
