"""Splits messages and earlier summaries into statements: the units the extractive summarizer chooses from.

Pure text work, no scores. Prose becomes sentences; a list with the line that announces it, a table row, a short code
block, a stack trace and a tool call become one statement each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from rivet_pipeline.summaries.types import SourceMessage, SourceSummary, minute

#: A longer statement is cut at a word, and says so.
LONGEST = 420

#: A sentence shorter than this is read together with the one after it.
_SHORTEST = 24


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that was said or done. `order` is its place in the source text, `turn` counts user messages.

    `voice` is `user`, `assistant`, `system`, `tool` or `thinking`; `source` is the number of its message or child.
    """

    text: str
    when: str
    who: str
    voice: str
    source: int
    turn: int
    order: int


def from_messages(messages: Sequence[SourceMessage]) -> list[Statement]:
    """The statements of a leaf's messages, in order."""
    statements: list[Statement] = []
    turn = 0
    for number, message in enumerate(messages):
        if message.role == "user":
            turn += 1
        who, when = f"{message.agent}/{message.role}", minute(message.created_at)
        # A harness hands its own summary back in the user's name; those are not the user's words.
        voice = {"thinking": "thinking", "summary": "assistant"}.get(str(message.metadata.get("kind")), message.role)
        for said, spoken_by in _said(message, voice):
            text = said if spoken_by in {"user", "tool"} else (_EXCLAIM.sub("", said) or said)
            statements.append(Statement(text, when, who, spoken_by, number, turn, len(statements)))
    # A batch of signs and emoji only is still a batch.
    return _merge_edits(statements) or [
        Statement(
            text, minute(message.created_at), f"{message.agent}/{message.role}", message.role, number, number, number
        )
        for number, message in enumerate(messages)
        if (text := _cut(message.content) or message.tool_name or _cut(message.tool_result or ""))
    ]


_EXCLAIM = re.compile(r"^(?:(?:Great|Perfect|Excellent|Good|Awesome|Sure|Okay|OK|Alright|Fantastic)(?: \w+)?[!.]\s+)+")
_EDIT = re.compile(r"^((?:Edit|MultiEdit|edit|str_replace\w*): \S+) \((.*)\)$")


def _merge_edits(statements: Sequence[Statement]) -> list[Statement]:
    """The edits of one file within one turn as one statement, where the first of them stands."""
    merged: list[Statement] = []
    places: dict[tuple[int, str], int] = {}
    for statement in statements:
        edit = _EDIT.match(statement.text) if statement.voice == "tool" else None
        key = (statement.turn, edit.group(1)) if edit is not None else None
        if edit is None or key not in places:
            if key is not None:
                places[key] = len(merged)
            merged.append(statement)
            continue
        first = merged[places[key]]
        if len(first.text) + len(edit.group(2)) < LONGEST - 20:
            merged[places[key]] = replace(first, text=f"{first.text[:-1]}; {edit.group(2)})")
        elif not first.text.endswith("; …)"):
            merged[places[key]] = replace(first, text=f"{first.text[:-1]}; …)")
    return merged


_BULLET = re.compile(r"^\s*[-*•]\s+`?(\d{4}-\d\d-\d\dT\d\d:\d\dZ)`?\s+`?([^\s:`]+/(\w+))`?:\s+(.*)$")
_FRAME = re.compile(
    r"^(?:Period|Span) \d{4}-\d\d-\d\dT|^\[(?:segment|part) \d+ of \d+(?: of (?:message|summary) [0-9a-f-]{36})?\]$"
)
_HEADER = re.compile(r"^\s*(?:#{1,6}\s|\*\*[^*]+\*\*:?\s*$)")


def from_summaries(children: Sequence[SourceSummary]) -> list[Statement]:
    """The statements of a parent's children: their bullets with time and author, or the sentences of a free text."""
    statements: list[Statement] = []
    turn = 0
    for number, child in enumerate(children):
        who = f"{'+'.join(child.agents) or 'unknown'}/summary"
        last = ""
        for line in child.content.splitlines():
            bullet = _BULLET.match(line)
            if bullet is not None:
                when, author, role, text = bullet.groups()
                if role == "user" and when != last:
                    turn, last = turn + 1, when
                voice = role if role in {"user", "assistant", "system", "tool"} else "assistant"
                statements.append(Statement(_cut(text), when, author, voice, number, turn, len(statements)))
            elif line.strip() and not _FRAME.match(line) and not _HEADER.match(line):
                for text in split_prose(re.sub(r"^\s*(?:[-*•]|\d+[.)])\s+", "", line)):
                    statements.append(
                        Statement(text, minute(child.earliest_at), who, "assistant", number, turn, len(statements))
                    )
    return statements


def _said(message: SourceMessage, voice: str) -> Iterator[tuple[str, str]]:
    content = _PLACEHOLDER.sub("", message.content).strip()
    call = tool_line(message) if message.tool_name or message.tool_result else ""
    if content and (message.role != "tool" or not call):
        for text in split_text(content):
            yield text, voice
    if call:
        yield call, "tool"


_PLACEHOLDER = re.compile(
    r"^\s*\[(?:tool[ _]call|tool[ _]use|tool[ _]result|thinking)\][^\n]*$", re.IGNORECASE | re.MULTILINE
)
#: Code spans come first: what looks like markup inside one is part of what it quotes.
_MARKUP = re.compile(r"(`[^`\n]{1,400}`)|</?[a-z][a-z0-9_-]{1,40}(?: [^<>\n]{0,200})?>")
_HIDDEN = re.compile(
    r"<(system-reminder|local-command-caveat|environment_context|user_instructions|ide_opened_file|ide_selection)>.*?(?:</\1>|\Z)",
    re.DOTALL,
)
_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_TRACE_START = re.compile(r"^\s*Traceback \(most recent call last\):")
_TRACE_FRAME = re.compile(r'^\s*(?:File "([^"]+)", line (\d+)|at .*?\(?([^\s()]+:\d+(?::\d+)?)\)?\s*$)')
_ITEM = re.compile(r"^\s*(?:[-*•·+]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?(.*)$")
_TABLE = re.compile(r"^\s*\|.*\|\s*$")
_TABLE_RULE = re.compile(r"^\s*\|[\s:|+-]+\|\s*$")
_HEADING = re.compile(r"^\s*#{1,6}\s+(.*?)\s*#*\s*$|^\s*\*\*([^*]+)\*\*:?\s*$")


def split_text(text: str) -> list[str]:
    """The statements of one message's text, in order."""
    text = _HIDDEN.sub("\n", _ANSI.sub("", text).replace("\r\n", "\n"))
    statements: list[str] = []
    position = 0
    for fence in _FENCE.finditer(text):
        statements += _blocks(text[position : fence.start()])
        statements += _code(fence.group(2), fence.group(3))
        position = fence.end()
    statements += _blocks(text[position:])
    return [statement for statement in statements if statement]


_NAMES = re.compile(
    r"^\s*(?:export\s+|public\s+|async\s+|static\s+|pub\s+)*(?:def|class|function|fn|func|interface|type|struct|enum|const|let|var"
    r"|CREATE\s+(?:TABLE|FUNCTION|VIEW|INDEX))\s+([A-Za-z_][\w.]*)",
    re.MULTILINE | re.IGNORECASE,
)


def _code(language: str, body: str) -> list[str]:
    lines = [line.rstrip() for line in body.splitlines() if line.strip()]
    if not lines:
        return []
    trace = _traces(lines)
    if trace and len(trace) < len(lines):
        return [_cut(trace[0].strip())]
    if len(lines) <= 4 and sum(map(len, lines)) <= 240:
        return [_cut("; ".join(f"`{line.strip()}`" for line in lines))]
    names = list(dict.fromkeys(_NAMES.findall(body)))[:8]
    told = ", ".join(f"`{name}`" for name in names) if names else f"`{lines[0].strip()[:120]}` …"
    return [f"{language} code: {told}" if language else f"quoted block: {told}"]


def _blocks(text: str) -> list[str]:
    """Statements of text without code fences: paragraphs, lists, tables and stack traces."""
    out: list[str] = []
    lines = _traces(_MARKUP.sub(lambda found: found.group(1) or " ", text).split("\n"))
    paragraph: list[str] = []
    heading = ""
    number = 0

    def flush() -> None:
        if paragraph:
            out.extend(split_prose(_join(paragraph)))
            paragraph.clear()

    while number < len(lines):
        line = lines[number]
        number += 1
        title = _HEADING.match(line)
        if not line.strip():
            flush()
        elif title is not None:
            flush()
            heading = (title.group(1) or title.group(2) or "").strip(" *:")
        elif _TABLE.match(line):
            flush()
            if not _TABLE_RULE.match(line):
                out.append(_cut(" | ".join(cell.strip() for cell in line.strip().strip("|").split("|"))))
        elif _ITEM.match(line):
            items = [line]
            while number < len(lines) and (_ITEM.match(lines[number]) or lines[number].startswith(("  ", "\t"))):
                items.append(lines[number])
                number += 1
            intro = paragraph.pop() if paragraph and paragraph[-1].rstrip().endswith(":") else ""
            flush()
            out.extend(_list(intro.strip() or (f"{heading}:" if heading else ""), items))
            heading = ""
        else:
            paragraph.append(line)
    flush()
    return out


def _traces(lines: Sequence[str]) -> list[str]:
    """The lines with each stack trace as one: what was raised, and where."""
    out: list[str] = []
    frames: list[str] = []
    inside = False
    for line in lines:
        frame = _TRACE_FRAME.match(line)
        if _TRACE_START.match(line):
            inside, frames = True, []
        elif frame is not None and (inside or line.lstrip().startswith("at ")):
            place = f"{frame.group(1)}:{frame.group(2)}" if frame.group(1) else frame.group(3)
            frames.append(place)
            if not inside and len(frames) == 1 and out:
                out[-1] = f"{out[-1].strip()} (at {place})"
        elif inside and line[:1] not in {" ", "\t", ""}:
            out += ["", f"{line.strip()}" + (f" (at {frames[-1]})" if frames else ""), ""]
            inside, frames = False, []
        elif not inside:
            frames = []
            out.append(line)
    return out


def _list(intro: str, lines: Sequence[str]) -> list[str]:
    items: list[str] = []
    for line in lines:
        item = _ITEM.match(line)
        if item is not None:
            items.append(item.group(1).strip())
        elif items and line.strip():
            items[-1] += " " + line.strip()
    items = [item for item in items if item]
    if sum(map(len, items)) + len(intro) <= LONGEST and len(items) > 1 and intro:
        return [_cut(f"{intro} {'; '.join(item.rstrip(';.,') for item in items)}")]
    if intro and items and len(items[0]) + len(intro) < 160:
        items[0] = f"{intro} {items[0]}"
    return [_cut(sentence) for item in items for sentence in (split_prose(item) if len(item) > 200 else [item])]


def _join(lines: Sequence[str]) -> str:
    """The lines of a paragraph as text: wrapped lines joined, short ones kept apart."""
    text = ""
    for line in lines:
        glue = "" if not text else (" " if len(text.rsplit("\n", 1)[-1]) > 60 else "\n")
        text += glue + line.strip()
    return text


#: A piece that ends with an abbreviation.
ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|Mr|Mrs|Ms|Dr|St|No|Nr|Fig"
    r"|(?i:approx|aprox|incl|excl|resp|inkl|exkl|zzgl|bzgl|evtl|bspw|bzw|dept|prof))|\b[A-Z])\.$"
)
#: Signs at the end of a piece that can be an abbreviation, with the one before it.
LONGEST_END = 12
_END = re.compile(r"(?<=[.!?])[\"'\u201d\u2019)\]*]*\s+(?=[^\s])|(?<=[\u3002\uff01\uff1f])\s*")


def split_prose(text: str) -> list[str]:
    """The sentences of a paragraph. Ends inside code formatting and after abbreviations are none."""
    out: list[str] = []
    for line in text.split("\n"):
        start = 0
        for end in _END.finditer(line):
            piece = line[start : end.start()]
            after = line[end.end() : end.end() + 1]
            inside_code = line.count("`", start, end.start()) % 2 == 1
            if inside_code or ABBREVIATION.search(piece[-LONGEST_END:]) or after.islower():
                continue
            out.append(line[start : end.end()].strip())
            start = end.end()
        out.append(line[start:].strip())
    joined: list[str] = []
    for piece in out:
        if not re.search(r"\w", piece):
            continue
        # "No." or "Yes!" means nothing without what follows it.
        if joined and len(joined[-1]) < _SHORTEST:
            joined[-1] = f"{joined[-1]} {piece}"
        else:
            joined.append(piece)
    return [_cut(piece) for piece in joined]


_BOLD = re.compile(r"(?<![*/\w])\*\*(\S[^*\n]*?)\*\*(?![*/\w])")


def _cut(text: str) -> str:
    text = _BOLD.sub(r"\1", " ".join(text.split()))
    if len(text) <= LONGEST:
        return text
    return f"{_to_word(text[:LONGEST])} […]"


# --- tool calls ---------------------------------------------------------------------------------------------------

#: The arguments that say what a call was about, the first one present counts.
_SUBJECTS = (
    "command", "cmd", "file_path", "path", "notebook_path", "pattern", "query", "url", "question", "todos", "plan",
    "description", "prompt", "skill", "name", "input",
)  # fmt: skip
_ERROR = re.compile(
    r"\b(?:[A-Z]\w*(?:Error|Exception)\b|error(?:\[\w+\])?:|ERROR\b|FAILED\b|fatal:|panic:|failed\b|not found\b"
    r"|denied\b|No such file|refused\b|cannot\b|Can't\b|timed? ?out\b|unrecognized|undefined|is not a)",
)
_NO_ERROR = re.compile(r"\b(?:0|no) (?:errors?|failed|failures?|warnings?)\b", re.IGNORECASE)
_OUTCOME = re.compile(
    r"\b\d+ (?:passed|failed|tests?|errors?|warnings?|files? changed|insertions?|packages?|vulnerabilit\w+|problems?)\b"
    r"|\b(?:success|succeeded|successfully|built|created|updated|installed|listening|running|ready|done)\b"
    r"|\[\w+ [0-9a-f]{7,}\]",
    re.IGNORECASE,
)
_EXIT = re.compile(r"\b(?:exit(?:ed)?(?: with)?(?: code)?|exit_code|Exit code)[:=\s]+(\d+)\b", re.IGNORECASE)
_DECORATION = re.compile(r"^[\s=_*#>+-]{3,}|[\s=_*#-]{3,}$|^\s+|\s+$")
_ANSI = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
#: Tools whose success says nothing beyond itself.
_SILENT = frozenset(
    {"write", "edit", "multiedit", "notebookedit", "todowrite", "update_plan", "apply_patch", "write_file"}
)
_LISTINGS = frozenset({"read", "view", "grep", "glob", "ls", "cat", "list_dir", "read_file", "find"})


def tool_line(message: SourceMessage) -> str:
    """A tool call in one line: its name, what it was about, how it ended and the most telling line of its result."""
    name = message.tool_name or "tool"
    subject = _subject(message.tool_args)
    line = f"{name}: {subject}" if subject else name
    result, code = _result_text(message.tool_result or "")
    failed = message.metadata.get("is_error") is True or (code or 0) != 0
    parts = [f"exit {code}"] if code is not None else (["error"] if failed else [])
    silent = name.lower() in _SILENT and not failed
    told = "" if silent else _telling(result, listing=name.lower() in _LISTINGS and not failed, failed=failed)
    if told:
        parts.append(told)
    return f"{line} → {' · '.join(parts)}" if parts else line


def _subject(value: Any) -> str:
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            return _short(value, 160)
        return _subject(parsed) if isinstance(parsed, dict) else _short(value, 160)
    if not isinstance(value, dict) or not value:
        return ""
    key = next((name for name in _SUBJECTS if value.get(name)), None)
    if key is None:
        return _short(json.dumps(value, ensure_ascii=False, sort_keys=True), 120)
    subject = _plain(value[key])
    old, new = value.get("old_string"), value.get("new_string")
    if isinstance(old, str) and isinstance(new, str):
        subject += _change(old, new)
    elif key in {"pattern", "query"} and value.get("path"):
        subject += f" in {_plain(value['path'])}"
    return _short(subject, 200)


def _change(old: str, new: str) -> str:
    """The first change between two texts, when its lines are short enough to read."""
    before, after = ([line.strip() for line in text.strip().splitlines()] for text in (old, new))
    if len(before) + len(after) > 400:
        return ""
    for tag, left, _, right, _ in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        old_line, new_line = "".join(before[left : left + 1]), "".join(after[right : right + 1])
        shown = {"replace": f"`{old_line}` → `{new_line}`", "insert": f"+ `{new_line}`", "delete": f"- `{old_line}`"}
        text = shown.get(tag, "")
        if 3 < len(text) <= 160 and re.search(r"\w", text):
            return f" ({text})"
    return ""


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value[:400]
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return _todos(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        # Codex gives ["bash", "-lc", "the command"].
        return value[-1] if value[:1] in (["bash"], ["sh"], ["zsh"]) else " ".join(value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _todos(items: list[dict[str, Any]]) -> str:
    """A to-do list: how far it is and what is being done, or all of it while nothing is."""
    texts = [_first_text(item) for item in items]
    states = [item.get("status") for item in items]
    if all(state == "completed" for state in states):
        return "all done: " + "; ".join(texts)
    current = [text for text, state in zip(texts, states, strict=True) if state == "in_progress"]
    started = any(state == "completed" for state in states)
    return "; ".join(current if started and current else texts)


def _first_text(item: dict[str, Any]) -> str:
    text = item.get("content") or item.get("step") or item.get("question") or item.get("title")
    return text if isinstance(text, str) else json.dumps(item, ensure_ascii=False, sort_keys=True)


def _result_text(result: str) -> tuple[str, int | None]:
    """A result's text and its exit code, if it says one. Codex wraps both in JSON."""
    text = _ANSI.sub("", result).strip()
    code: int | None = None
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict) and isinstance(value.get("output"), str):
            text = value["output"].strip()
            detail = value.get("metadata")
            stated = detail.get("exit_code") if isinstance(detail, dict) else value.get("exit_code")
            code = stated if isinstance(stated, int) else None
    if code is None:
        stated_in_text = _EXIT.search(text[:300]) or _EXIT.search(text[-300:])
        code = int(stated_in_text.group(1)[:9]) if stated_in_text else None
    return text, code


def _telling(text: str, *, listing: bool, failed: bool) -> str:
    lines = [_DECORATION.sub("", line) for line in _traces(text.splitlines())]
    lines = [line for line in lines if re.search(r"\w", line)]
    if not lines:
        return ""
    if listing:
        return _short(lines[0], 140) if len(lines) == 1 else ""
    errors = [line for line in lines if _ERROR.search(line) and not _NO_ERROR.search(line)]
    if errors and (failed or len(errors) * 4 <= len(lines) + 4):
        return _short(errors[0], 220)
    outcomes = [line for line in lines if _OUTCOME.search(line)]
    if outcomes:
        return _short(outcomes[-1], 180)
    return _short(lines[-1] if failed else lines[0], 140)


def _short(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{_to_word(text[:limit])} …"


def _to_word(text: str) -> str:
    """A text that was cut, without the word that the cut went through."""
    place = text.rfind(" ", len(text) // 2)
    return (text if place < 0 else text[:place]).rstrip()
