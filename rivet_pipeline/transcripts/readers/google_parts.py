"""What the readers of Google's content shape share: the parts of a `Content`, as Gemini's relatives store them.

What a record means, and which of its words are whose, stands in each reader.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.documents import DocumentItem, Element
from rivet_pipeline.transcripts.readers.shared import Said, binary_placeholder, join_texts, mapping, present, text_of
from rivet_pipeline.transcripts.records import Incomplete, Kind

_T = TypeVar("_T")

#: How many ids are kept in mind.
_MEMORY = 65_536

#: Between these lines stands what `@file` in a prompt was replaced by (Gemini CLI, Qwen Code).
_REFERENCED_START, _REFERENCED_END = "--- Content from referenced files ---", "--- End of content ---"

#: How a whole text begins that the harness wrote in the user's name.
_INJECTED_STARTS = (
    "<session_context>",
    "This is the Gemini CLI. We are setting up the context for our chat",
    "This is the Qwen Code. We are setting up the context for our chat",
    "Here is the user's editor context",
    "Here is a summary of changes in the user's editor context",
    "System: Please continue.",
)
_SUMMARY_START = "<state_snapshot>"

#: What hooks and reminders put in front of, or behind, a prompt.
_WRAPPED = re.compile(
    r"\s*<(?P<tag>qwen:[a-z-]+-context|system-reminder|hook_context)(?:\s[^<>]*)?>.*?</(?P=tag)>", re.DOTALL
)
_BARE_COMMAND = re.compile(r"\s*/[\w:.-]+\s*|\s*\?\s*")

#: Parts that hold nothing to read: signatures and settings of other parts.
_SILENT_PARTS = frozenset({"thoughtSignature", "videoMetadata", "thought", "text"})


#: Parts that carry a file's bytes.
_INLINE = ("inlineData", "inlineFile", "inlineImage", "inlineAudio")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call, or code that the model runs. `native` is empty when it has no id."""

    native: str
    name: str
    args: Any


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a call. `native` is empty when it names none."""

    native: str
    name: str
    text: str
    failed: bool


Part = Said | Call | Result


def parts_of(content: Any) -> list[Any]:
    """The parts of a content in any of its forms: a text, a part, a list of them, an object with `parts`."""
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        content = content["parts"]
    if isinstance(content, list):
        return content
    return [] if content is None else [content]


def read_user(content: Any) -> tuple[list[Part], list[str]]:
    """A user's content as its parts, and the names of parts that could not be read.

    What the harness added is told apart: referenced files, hook contexts, reminders, set-up.
    """
    said: list[Part] = []
    passed: list[str] = []
    referenced = False
    for part in parts_of(content):
        text = _text(part)
        if text is None:
            _read_other(part, _as_user, said, passed)
            continue
        pieces, referenced = _without_files(text, referenced)
        for piece in pieces:
            append(said, piece)
    return said, passed


def _without_files(text: str, referenced: bool) -> tuple[list[Said], bool]:
    """A text as the prompt and the files referenced in it, and whether it ends among those; `referenced`: begins."""
    said: list[Said] = []
    while True:
        mark = _REFERENCED_END if referenced else _REFERENCED_START
        found = text.find(mark)
        cut = len(text) if found < 0 else found + (len(mark) if referenced else 0)
        if not referenced:
            said.extend(split_prompt(text[:cut]))
        elif text[:cut].strip():
            said.append(Said("system", "injected", text[:cut]))
        if found < 0:
            return said, referenced
        referenced, text = not referenced, text[cut:]


def read_model(content: Any) -> tuple[list[Part], list[str]]:
    """A model's content as its parts, and the names of parts that could not be read.

    Texts that follow each other are pieces of one: an answer is stored as it came.
    """
    said: list[Part] = []
    passed: list[str] = []
    flowing = False
    for part in parts_of(content):
        text = _text(part)
        if text is None:
            flowing = False
            _read_other(part, _as_model, said, passed)
        elif text.strip() or flowing:
            thought = isinstance(part, dict) and part.get("thought") is True
            append(said, Said("assistant", "thinking" if thought else "speech", text), "" if flowing else "\n")
            flowing = True
    return [part for part in said if not isinstance(part, Said) or part.text.strip()], passed


def split_prompt(text: str) -> list[Said]:
    """A text in the user's name as the user's words and what the harness put before and behind them."""
    start = text.lstrip()
    if start.startswith(_INJECTED_STARTS):
        return [Said("system", "injected", text)]
    if start.startswith(_SUMMARY_START):
        return [Said("system", "summary", text)]
    if _BARE_COMMAND.fullmatch(text):
        return [Said("user", "notice", text)]
    said: list[Said] = []
    position = 0
    while match := _WRAPPED.match(text, position):
        said.append(Said("system", "injected", match.group().strip()))
        position = match.end()
    rest = text[position:].lstrip() if position else text
    return [*said, Said("user", "speech", rest)] if rest.strip() else said


def append(said: list[Part], piece: Said, between: str = "\n") -> None:
    """Adds a saying; to the one before it when the same speaker goes on in the same way."""
    last = said[-1] if said else None
    if isinstance(last, Said) and (last.role, last.kind) == (piece.role, piece.kind):
        said[-1] = Said(last.role, last.kind, between.join(filter(None, (last.text, piece.text))))
    else:
        said.append(piece)


def response_text(response: Any) -> tuple[str, bool]:
    """A function's response as text, and whether it tells of a failure."""
    if isinstance(response, dict):
        if response.get("error"):
            return text_of(response["error"]), True
        if "output" in response:
            return text_of(response["output"]), False
        response = response or None
    return text_of(response), False


def result_text(result: Any) -> tuple[str, bool]:
    """A call's result in any of its forms, a text or parts, as text, and whether it tells of a failure."""
    texts: list[str] = []
    failed = False
    for part in parts_of(result):
        found = _text(part)
        if found is None and isinstance(part, dict) and "functionResponse" in part:
            one = _result(mapping(part["functionResponse"]))
            found, failed = one.text, failed or one.failed
        texts.append(found if found is not None else placeholder(part) or text_of(part))
    return join_texts(texts), failed


def arguments(value: Any) -> Any:
    """A call's arguments: JSON text is read, anything else kept as it is."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def placeholder(part: Any) -> str:
    """What stands for a file in a part: its name or address and media type, never its bytes; empty for no file."""
    value = mapping(part)
    data = next((value[key] for key in _INLINE if isinstance(value.get(key), dict)), None)
    if data is not None:
        media = text_of(data.get("mimeType"))
        what = media.partition("/")[0] if media.startswith(("image/", "audio/", "video/")) else "file"
        return binary_placeholder(_named(what, data.get("displayName")), media, data.get("data"))
    if isinstance(data := value.get("fileData"), dict):
        return binary_placeholder(_named("file", data.get("fileUri")), data.get("mimeType"), None)
    return ""


def _named(what: str, name: Any) -> str:
    return f"{what} {text_of(name)[:500]}".rstrip()


def _text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    return None


def _as_user(text: str) -> Said:
    return Said("user", "speech", text)


def _as_model(text: str) -> Said:
    return Said("assistant", "speech", text)


def _read_other(part: Any, speaker: Callable[[str], Said], said: list[Part], passed: list[str]) -> None:
    value = mapping(part)
    if shown := placeholder(value):
        append(said, speaker(shown))
    elif isinstance(call := value.get("functionCall"), dict):
        said.append(Call(text_of(call.get("id")), text_of(call.get("name")) or "tool", arguments(call.get("args"))))
    elif isinstance(response := value.get("functionResponse"), dict):
        said.append(_result(response))
    elif isinstance(code := value.get("executableCode"), dict):
        said.append(Call(text_of(code.get("id")), "code_execution", present({**code, "id": None})))
    elif isinstance(outcome := value.get("codeExecutionResult"), dict):
        failed = text_of(outcome.get("outcome")) not in {"", "OUTCOME_OK"}
        said.append(Result(text_of(outcome.get("id")), "code_execution", text_of(outcome.get("output")), failed))
    elif not value.keys() <= _SILENT_PARTS or not isinstance(part, dict):
        passed.append(f"{next(iter(value), 'nameless')[:60]} part")


def _result(response: dict[str, Any]) -> Result:
    text, failed = response_text(response.get("response"))
    shown = [placeholder(part) for part in parts_of(response.get("parts"))]
    return Result(
        text_of(response.get("id")), text_of(response.get("name")) or "tool", join_texts([text, *shown]), failed
    )


class RowIds:
    """Event ids out of native ids that may come back: with the same words as the same row, with others as another."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}

    def next(self, native: str, kind: Kind, text: str) -> str:
        """The event id of a row with this native id that says this."""
        base = native if kind != "thinking" else f"{native}:thinking"
        digest = content_event_id(kind, text).removeprefix("sha256:")
        if base not in self._first:
            _remember(self._first, base, digest)
        return base if self._first[base] == digest else f"{base}:{digest[:16]}"


class CallIds:
    """Event ids of tool calls out of native ids that may start anew, so that a result finds the latest of its name.

    Calls without an id are answered in their order.
    """

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, str]] = {}
        self._nameless: deque[str] = deque()
        self._last_owner: tuple[str, int] = ("", 0)

    def call(self, native: str, owner: str) -> str:
        """The event id of a call; `owner` is the record it stands in."""
        if not native:
            return self._nameless_call(owner)
        known = self._calls.get(native)
        if known is None:
            known = (owner, f"tool:{native}")
        elif known[0] != owner:
            known = (owner, f"tool:{native}:{owner}")
        _remember(self._calls, native, known)
        return known[1]

    def result(self, native: str, owner: str) -> str:
        """The event id of the call that a result belongs to; `owner` is the record that the result stands in."""
        if native:
            known = self._calls.get(native)
            return known[1] if known else f"tool:{native}"
        return self._nameless.popleft() if self._nameless else f"{owner}:result"

    def _nameless_call(self, owner: str) -> str:
        last, count = self._last_owner
        if last != owner:
            # What the record before has not heard of by now stays without a result.
            self._nameless.clear()
            count = 0
        self._last_owner = (owner, count + 1)
        event_id = f"{owner}:call" if count == 0 else f"{owner}:call:{count + 1}"
        self._nameless.append(event_id)
        return event_id


def _remember(memory: dict[str, _T], key: str, value: _T) -> None:
    memory[key] = value
    if len(memory) > _MEMORY:
        del memory[next(iter(memory))]


def hold_last(
    items: Iterable[DocumentItem], key: str, may_change: Callable[[Any], bool] = lambda _: True
) -> Iterator[DocumentItem]:
    """The parts of a document that is still rewritten: the last element of an array is held back if it may change."""
    held: Element | None = None
    for item in items:
        if not isinstance(item, Element) or item.key != key:
            yield item
            continue
        if held is not None:
            yield held
        held = item
    if held is not None:
        yield Incomplete(held.line) if may_change(held.value) else held
