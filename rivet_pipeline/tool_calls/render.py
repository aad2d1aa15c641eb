"""Says in one sentence what a tool call did, from its name, its arguments and how it ended. Pure functions, no model.

The well-known kinds of tools have a sentence of their own; every other one is called by its name with its arguments. A
change that gives other sentences raises `versions.TOOL_TEXT_VERSION`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from rivet_pipeline.tool_calls.types import LONGEST, Sentence, ToolCall

#: Stored as `content_made_by`.
NAME = "rendering-1"

#: How much is quoted, in characters: what the call is about, a lesser detail, one argument of an unknown tool, the line
#: that says why it failed.
_SUBJECT, _DETAIL, _ARGUMENT, _REASON = 200, 100, 80, 140

#: Arguments of an unknown tool that are named; the others are counted.
_NAMED_ARGUMENTS = 4

#: Texts of more lines together are not compared: that takes the square of their number.
_COMPARED = 400

_ANSI = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
_TAGS = re.compile(r"</?(?:tool_use_error|error|stderr|output)>", re.IGNORECASE)
_EXIT = re.compile(r"^\s*exit(?:ed)?(?: with)?(?: code)?:?\s*\d+\s*$", re.IGNORECASE)
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE)
_DATA = re.compile(r"(?:data:[\w.+/-]{1,80};base64,)?[A-Za-z0-9+/_=-]{200,}")
_PATCHED = re.compile(r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ (?:b/)?)(\S[^\n]*?)\s*$", re.MULTILINE)
_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "cmd", "powershell", "pwsh"})

Arguments = Mapping[str, Any]


class Renderer:
    """The writer that asks no model. The same call always gives the same text."""

    @property
    def name(self) -> str:
        """`rendering-1`."""
        return NAME

    @property
    def asks_a_model(self) -> bool:
        """It does not."""
        return False

    def write(self, call: ToolCall) -> Sentence:
        """The rendered call; never fails."""
        return Sentence(render(call))


def render(call: ToolCall) -> str:
    """The call as one sentence of at most `LONGEST` characters on one line, its failure included."""
    ending = _ending(call)
    said = _short(_said(call), LONGEST - len(ending) - 1)
    return f"{said.rstrip('.')}{ending}."


def _said(call: ToolCall) -> str:
    name = _short(call.name, 120) or "a tool"
    args = _arguments(call.args)
    if name.startswith("mcp__") and name.count("__") >= 2:
        _, server, tool = name.split("__", 2)
        return f"Called {server}'s {tool}{_with(args)}"
    known = _KINDS.get(re.sub(r"[^a-z0-9]", "", name.lower()))
    told = known(name, args) if known is not None and isinstance(args, Mapping) else None
    return told or f"Called {name}{_with(args)}"


def _arguments(value: Any) -> Any:
    """The arguments; those that came as a JSON text, unpacked, and a bare text for a tool that takes only one."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value) if value.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            parsed = None
        return parsed if isinstance(parsed, dict) else {"input": value}
    return value


def _ending(call: ToolCall) -> str:
    if not call.failed:
        return ""
    code = call.exit_code
    failed = f"; it failed with exit code {code}" if code else "; it failed"
    reason = _reason(call.result or "")
    return f"{failed}: {reason}" if reason else failed


def _reason(result: str) -> str:
    """The line of a result that says why the call failed."""
    text = _TAGS.sub("", _ANSI.sub("", result))
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line) and not _EXIT.match(line)]
    if not lines:
        return ""
    return _short(lines[-1] if _TRACEBACK.search(text) else lines[0], _REASON).rstrip(".")


# --- the kinds of tools that are known ------------------------------------------------------------------------------


def _ran(_: str, args: Arguments) -> str | None:
    command = _command(args)
    if not command:
        return None
    began = "Started" if args.get("run_in_background") is True else "Ran"
    place = _text(args, "workdir", "cwd", "dir_path", "directory")
    where = f" in the shell, in {_short(place, _DETAIL)}" if place else " in the shell"
    purpose = _text(args, "description", "justification")
    told = f" ({_short(purpose, _DETAIL).rstrip('.')})" if purpose else ""
    return f"{began} {_code(command)}{where}{told}"


def _command(args: Arguments) -> str:
    value = next((args[key] for key in ("command", "cmd", "script", "input") if args.get(key)), None)
    if isinstance(value, list):
        words = [word for word in value if isinstance(word, str)]
        # Codex gives ["bash", "-lc", "the command"].
        return words[-1] if len(words) > 2 and words[0] in _SHELLS else " ".join(words)
    return value if isinstance(value, str) else ""


def _read(name: str, args: Arguments) -> str | None:
    path = _path(args)
    return f"Read {path}{_lines(name, args)}" if path else None


def _lines(name: str, args: Arguments) -> str:
    window = args.get("view_range")
    first, last = window if isinstance(window, list) and len(window) == 2 else (None, None)
    first = _number(args, "start_line", "startLine", "offset") if first is None else first
    last = _number(args, "end_line", "endLine") if last is None else last
    count = _number(args, "limit")
    if not isinstance(first, int) or not first:
        return f" (the first {_counted(count, 'line')})" if count else (f" (to line {last})" if last else "")
    # Only of this tool it is certain that lines are counted from 1.
    if count and name == "Read":
        last = first + count - 1
    if isinstance(last, int) and last >= first:
        return f" (lines {first}-{last})"
    return f" ({_counted(count, 'line')} from offset {first})" if count else f" (from line {first})"


def _wrote(_: str, args: Arguments) -> str | None:
    path = _path(args)
    text = _text(args, "content", "contents", "text", "file_text", "new_source")
    size = f" ({_counted(len(text.splitlines()), 'line')})" if text else ""
    return f"Wrote {path}{size}" if path else None


def _edited(_: str, args: Arguments) -> str | None:
    path = _path(args)
    if not path:
        return None
    edits = args.get("edits")
    if isinstance(edits, list) and len(edits) != 1:
        return f"Edited {path} ({_counted(len(edits), 'edit')})"
    change = edits[0] if isinstance(edits, list) and isinstance(edits[0], dict) else args
    return f"Edited {path}{_change(change)}"


def _change(args: Arguments) -> str:
    """The first change between the former text and the new one, unless both are long."""
    old, new = ([line.strip() for line in _text(args, *keys).splitlines() if line.strip()] for keys in _CHANGES)
    if len(old) + len(new) > _COMPARED:
        return ""
    everywhere = ", everywhere" if args.get("replace_all") is True else ""
    for tag, i, _, j, _ in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "replace":
            return f", {_code(_short(old[i], 70))} to {_code(_short(new[j], 70))}{everywhere}"
        if tag != "equal":
            line = old[i] if tag == "delete" else new[j]
            return f", {'removed' if tag == 'delete' else 'added'} {_code(_short(line, 100))}{everywhere}"
    return ""


_CHANGES = (("old_string", "old_str", "oldText", "search"), ("new_string", "new_str", "newText", "replace"))


def _patched(_: str, args: Arguments) -> str | None:
    changes = args.get("changes")
    if isinstance(changes, Mapping):
        paths = [str(path) for path in changes]
    else:
        paths = _PATCHED.findall(_text(args, "input", "patch", "diff")[:200_000])
    paths = list(dict.fromkeys(path for path in paths if path != "/dev/null"))
    if not paths:
        return None
    return f"Patched {_listed(paths)}"


def _searched_files(_: str, args: Arguments) -> str | None:
    pattern = _text(args, "pattern", "query", "regex", "search_term", "q")
    if not pattern:
        return None
    place = _path(args) or "the files"
    only = _text(args, "glob", "include", "include_pattern", "file_pattern", "type")
    return f"Searched {place} for {_code(pattern)}" + (f" (only {_short(only, _DETAIL)})" if only else "")


def _listed_files(_: str, args: Arguments) -> str | None:
    pattern, path = _text(args, "pattern", "glob", "glob_pattern", "query"), _path(args)
    if pattern:
        return f"Listed the files that match {_code(pattern)}" + (f" in {path}" if path else "")
    return f"Listed {path}" if path else None


def _searched_web(_: str, args: Arguments) -> str | None:
    query = args.get("query") or args.get("q") or args.get("search_query") or args.get("queries")
    text = ", ".join(str(item) for item in query) if isinstance(query, list) else query
    return f"Searched the web for {_quoted(text)}" if isinstance(text, str) and text.strip() else None


def _fetched(_: str, args: Arguments) -> str | None:
    address = _text(args, "url", "uri", "urls")
    asked = _text(args, "prompt", "query")
    if not address:
        return f"Fetched from the web: {_quoted(asked)}" if asked else None
    return f"Fetched {_short(address, _SUBJECT)}" + (f", asking {_quoted(asked)}" if asked else "")


def _planned(_: str, args: Arguments) -> str | None:
    tasks = [item for item in _list(args, "todos", "plan", "items") if isinstance(item, dict)]
    if not tasks:
        return None
    done = sum(item.get("status") == "completed" for item in tasks)
    current = [_text(item, "content", "step", "title", "task") for item in tasks if item.get("status") == "in_progress"]
    now = f", now {_quoted('; '.join(filter(None, current)))}" if any(current) else ""
    if done or now:
        return f"Updated the to-do list: {done} of {_counted(len(tasks), 'task')} done{now}"
    texts = filter(None, (_text(item, "content", "step", "title", "task") for item in tasks))
    return f"Made a to-do list of {_counted(len(tasks), 'task')}: {_short('; '.join(texts), _SUBJECT)}"


def _delegated(_: str, args: Arguments) -> str | None:
    task = _text(args, "description", "task", "title") or _text(args, "prompt", "message", "instructions")
    if not task:
        return None
    kind = _text(args, "subagent_type", "agent_type", "agent", "name")
    return f"Started a sub-agent{f' ({_short(kind, 60)})' if kind else ''} for {_quoted(task)}"


def _asked(_: str, args: Arguments) -> str | None:
    questions = args.get("questions")
    first = questions[0] if isinstance(questions, list) and questions else args
    question = _text(first, "question", "text", "prompt") if isinstance(first, dict) else ""
    if not question:
        return None
    more = (
        f" and {_counted(len(questions) - 1, 'more question')}" if isinstance(questions, list) and questions[1:] else ""
    )
    return f"Asked the user {_quoted(question)}{more}"


_Kind = Callable[[str, Arguments], str | None]

#: By the tool's name in small letters and digits alone, as the harnesses call them.
_KINDS: Mapping[str, _Kind] = {
    name: kind
    for kind, names in (
        (_ran, "bash shell runshellcommand execcommand terminal localshell localshellcall executecommand shellcommand"),
        (_ran, "runterminalcmd runterminalcommand containerexec runcommand"),
        (_read, "read readfile view viewfile openfile cat readnotebook notebookread readmanyfiles"),
        (_wrote, "write writefile createfile writetofile notebookwrite"),
        (_edited, "edit multiedit editfile strreplace strreplaceeditor strreplaceedittool replace searchreplace"),
        (_edited, "notebookedit replaceinfile strreplacefile"),
        (_patched, "applypatch applydiff patch"),
        (_searched_files, "grep greptool searchfiles searchfilecontent ripgrep grepsearch codebasesearch"),
        (_listed_files, "glob find ls list listdir listdirectory listfiles filesearch findfiles"),
        (_searched_web, "websearch googlewebsearch searchweb websearchcall"),
        (_fetched, "webfetch fetch fetchurl openurl readurl fetchwebpage"),
        (_planned, "todowrite updateplan writetodos settodolist settodos"),
        (_delegated, "task agent spawnagent delegate delegatetask"),
        (_asked, "askuserquestion askuser askfollowupquestion"),
    )
    for name in names.split()
}


# --- any other tool -------------------------------------------------------------------------------------------------


def _with(args: Any) -> str:
    """The arguments of a tool that is called by its name."""
    if isinstance(args, Mapping):
        filled = {str(key): value for key, value in args.items() if value not in (None, "", [], {})}
        parts = [f"{_short(key, 40)} {_value(value)}" for key, value in list(filled.items())[:_NAMED_ARGUMENTS]]
        if len(filled) > _NAMED_ARGUMENTS:
            parts.append(_counted(len(filled) - _NAMED_ARGUMENTS, "more argument"))
    else:
        parts = [] if args in (None, "", []) else [_value(args)]
    if args is None:
        # They may not have been captured.
        return ""
    if not parts:
        return " without arguments"
    last = f" and {parts[-1]}" if len(parts) > 1 else parts[-1]
    return f" with {', '.join(parts[:-1])}{last}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value, _ARGUMENT)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return _short(_listed(value), _ARGUMENT)
    return _short(json.dumps(value, ensure_ascii=False, sort_keys=True, default=str), _ARGUMENT)


# --- texts ----------------------------------------------------------------------------------------------------------


def _text(args: Arguments, *keys: str) -> str:
    """The first of these arguments that is a text which says something."""
    return next((args[key] for key in keys if isinstance(args.get(key), str) and args[key].strip()), "")


def _number(args: Arguments, *keys: str) -> int | None:
    return next((args[key] for key in keys if type(args.get(key)) is int), None)


def _list(args: Arguments, *keys: str) -> list[Any]:
    return next((args[key] for key in keys if isinstance(args.get(key), list)), [])


def _path(args: Arguments) -> str:
    keys = ("file_path", "path", "notebook_path", "absolute_path", "filePath", "filename", "target_file", "dir_path")
    one = _text(args, *keys)
    if not one:
        return _listed([path for path in _list(args, "paths", "file_paths", "files") if isinstance(path, str)])
    return _short(one, _SUBJECT) if re.search(r"\w", one) else _code(one)


def _listed(items: Sequence[str], most: int = 4) -> str:
    shown = [_short(item, _DETAIL) for item in items[:most]]
    if len(items) > most:
        shown.append(f"{len(items) - most} more")
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def _counted(number: int | None, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _code(text: str) -> str:
    """A text in code formatting, with as many signs around it as it takes."""
    shown = _short(text, _SUBJECT)
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def _quoted(text: str, limit: int = _SUBJECT) -> str:
    return f"\u201c{_short(text, limit)}\u201d"


def _short(text: str, limit: int) -> str:
    """The text on one line, data in it named instead of quoted, cut at a word with an ellipsis."""
    if len(text) > 20 * limit:
        text = text[: 20 * limit] + " …"
    text = " ".join(_DATA.sub(lambda found: f"({len(found.group()):,} characters of data)", text).split())
    if len(text) <= limit:
        return text
    kept = text[: max(0, limit - 2)]
    space = kept.rfind(" ")
    return f"{kept[:space] if space > limit // 2 else kept} …"
