"""What a chat model is asked: three system prompts (the `.md` files here) and the user text around the sources.

Pure functions over the request. Nothing here talks to a model or knows which one it is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from rivet_pipeline.models.prompt_echo import DATA_SENTENCE
from rivet_pipeline.models.texts import clean_outgoing
from rivet_pipeline.summaries.types import Kind, SourceMessage, SourceSummary, SummaryRequest, minute
from rivet_pipeline.versions import OWN_TRAFFIC_MARKER

#: Tokens an answer may have, thinking included (the seeds' v5 budgets).
MAX_TOKENS: dict[Kind, int] = {"leaf": 7_000, "branch": 14_000, "root": 20_000}

#: Characters of a tool call's arguments that are quoted.
ARGS_LIMIT = 2_000

#: Characters of a tool result that are quoted, from its head and from its tail: errors stand at the end.
RESULT_HEAD, RESULT_TAIL = 4_000, 2_000

#: How often those three lengths may be halved for a model that reads little.
SQUEEZES = 5

#: How many identifiers of a first answer that stand in no source are named when it is asked for again.
MISSING_NAMED = 20

#: Characters of a title that are shown: it is often somebody's whole first message.
TITLE_LIMIT = 200

_RULE = "-" * 40

_TASK = "Write the summary of it now, by the rules you were given."
_NAMED = "An earlier summary of it named things that stand nowhere in the quoted text."

#: Sentences around the sources that no record of them has.
FRAME_SENTENCES = (_TASK, _NAMED)

_QUOTATION = re.compile(r"^transcript ([0-9a-f]{16}) begins$(.*)^transcript \1 ends$", re.MULTILINE | re.DOTALL)

#: The beginnings of the lines that this module writes around the sources.
_FRAME = (
    r"\[(?:#|Leaf\s*#|Branch\s*#)\s*\d|\[conversation\]|\[rivet-pipeline\b|\[\.\.\. \d+ (?:of \d+ )?characters left out"
    r"|transcript\s+\S+\s+(?:begins|ends)\b|\(tool (?:call|result)\)"
    r"|-{20,}+[ \t]*+(?:[\n\r\x85\u2028\u2029]|\Z)"
)
#: A summary that was made in segments has lines of these in its own text.
_SEGMENT = r"\[segment\s+\d+\s+of\s+\d"


def _imitated(frame: str) -> re.Pattern[str]:
    """A line of a source that would look like one of the frame, with the invisible characters it may begin with."""
    return re.compile(
        r"(?:\A|(?<=[\n\r\x85\u2028\u2029]))"
        r"([ \t\xa0\xad\u1680\u2000-\u200f\u202a-\u202f\u205f-\u2064\u2066-\u2069\u3000\ufeff]*+)"
        rf"(?=\\*+(?:{frame}))",
        re.IGNORECASE,
    )


_FORGED = _imitated(f"{_FRAME}|{_SEGMENT}")
_FORGED_IN_SUMMARY = _imitated(_FRAME)


@cache
def system_prompt(kind: Kind) -> str:
    """The system prompt of a level, the own-traffic marker first."""
    text = files(__package__).joinpath(f"{kind}.md").read_text(encoding="utf-8")
    return f"{OWN_TRAFFIC_MARKER}\n\n{text.strip()}\n"


def user_text(request: SummaryRequest, squeeze: int = 0) -> str:
    """Marker, preamble, and the sources between two fence lines that their own text can not contain or imitate.

    What people and agents said is quoted whole, tool traffic in bounded form; `squeeze` halves its bounds so often.
    """
    entries = [_message_entry(number, message, squeeze) for number, message in enumerate(request.messages, 1)]
    entries += [_summary_entry(request.kind, number, child) for number, child in enumerate(request.children, 1)]
    body = f"\n{_RULE}\n".join(entries)
    fence = hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()[:16]
    return (
        f"{OWN_TRAFFIC_MARKER}\n\n{preamble(request)}\n{_RULE}\n"
        f"transcript {fence} begins\n{_RULE}\n{body}\n{_RULE}\ntranscript {fence} ends\n\n"
        f"{DATA_SENTENCE} {_TASK}\n"
        f"{_named(request.missing)}"
    )


def _named(missing: Sequence[str]) -> str:
    """What a first answer held that the sources do not, as data, on one line."""
    if not missing:
        return ""
    named = json.dumps([" ".join(token.split())[:200] for token in missing[:MISSING_NAMED]], ensure_ascii=False)
    return f"\n{_NAMED} Do not write them, and write every identifier exactly as it stands there: {named}\n"


def preamble(request: SummaryRequest) -> str:
    """The `[conversation]` header: id, agent, channel, title, span and counts."""
    conversation = request.conversation
    channel = conversation.channel + (f" [{conversation.channel_id}]" if conversation.channel_id else "")
    lines = ["[conversation]", f"  id: {conversation.id}"]
    lines += [f"  agent: {_one_line(conversation.agent)}", f"  channel: {_one_line(channel)}"]
    if conversation.title:
        lines.append(f"  title: {_one_line(conversation.title)}")
    lines.append(f"  span: {minute(request.earliest_at)} → {minute(request.latest_at)}")
    lines.append(f"  messages: {request.message_count}")
    if request.children:
        lines.append(f"  {'leaves' if request.kind == 'branch' else 'branches'}: {len(request.children)}")
    return "\n".join(lines)


def taken_apart(prompt: str) -> tuple[str, list[str], str]:
    """A user text as `user_text` writes it: its quoted sources, the lines of its preamble, and the fence's number.

    A text of another form is all sources.
    """
    quotation = _QUOTATION.search(prompt)
    if quotation is None:
        return prompt, [], ""
    lines = prompt[: quotation.start()].split("\n")
    return quotation.group(2), [line.strip() for line in lines if line.startswith("  ")], quotation.group(1)


def _message_entry(number: int, message: SourceMessage, squeeze: int) -> str:
    author = f"{_one_line(message.agent)}/{_one_line(message.role)}"
    header = f"[#{number:02d} {minute(message.created_at)} {author}]"
    parts = [header]
    if message.segment:
        parts.append(message.segment)
    if message.content.strip():
        parts.append(quoted(message.content))
    if message.tool_name:
        parts.append(f"(tool call) {_one_line(message.tool_name)} {_arguments(message.tool_args, squeeze)}".rstrip())
    if message.tool_result and message.tool_result.strip():
        parts.append(f"(tool result)\n{bounded(message.tool_result, RESULT_HEAD >> squeeze, RESULT_TAIL >> squeeze)}")
    return "\n".join(parts)


def _summary_entry(kind: Kind, number: int, child: SourceSummary) -> str:
    name = "Leaf" if kind == "branch" else "Branch"
    span = f"{minute(child.earliest_at)} → {minute(child.latest_at)}"
    marker = f"{child.segment}\n" if child.segment else ""
    text = quoted(child.content, _FORGED_IN_SUMMARY)
    return f"[{name} #{number:02d} {span} | {child.message_count} messages]\n{marker}{text}"


def _arguments(value: Any, squeeze: int) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return bounded(text, ARGS_LIMIT >> squeeze, 0)


def bounded(text: str, head: int, tail: int) -> str:
    """The text as it is quoted, or its head and tail around a line that says how much of it was left out."""
    left_out = len(text) - head - tail
    if left_out <= 0:
        return quoted(text)
    end = quoted(text[len(text) - tail :]) if tail else ""
    return f"{quoted(text[:head])}\n[... {left_out} of {len(text)} characters left out here ...]\n{end}".rstrip("\n")


def quoted(text: str, forged: re.Pattern[str] = _FORGED) -> str:
    """The text with a backslash before every line that looks like a line of the prompt's own frame.

    One that begins with backslashes already gets one more, so that two texts never become the same. `forged` finds such
    lines: those of a message, unless another pattern is given.
    """
    return forged.sub(r"\1\\", clean_outgoing(text))


def _one_line(text: str) -> str:
    line = " ".join(clean_outgoing(text).split())
    return line if len(line) <= TITLE_LIMIT else f"{line[: TITLE_LIMIT - 1]}…"
