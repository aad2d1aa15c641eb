"""The hooks in a harness' own configuration: what belongs there, and how it is put in and taken out again.

The three harnesses share one shape: `hooks`, by event, a list of groups, each with a list of commands. Ours are told by
their command, and nothing else is ever touched. Writing a user's file, with its backup, is done here as well.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from rivet_pipeline.errors import RivetError
from rivet_pipeline.settings import Settings

State = Literal["installed", "outdated", "not installed"]


class HookConfigError(RivetError):
    """A harness' configuration is not what it should be, and was left as it is."""


@dataclass(frozen=True, slots=True)
class Harness:
    """Where a harness keeps its hooks and which events are ours. `timeout` is in the harness' own unit."""

    name: str
    folder: Path
    file: Path
    events: tuple[str, ...]
    timeout: int

    @property
    def is_there(self) -> bool:
        """Whether the harness is installed, as far as its folder tells."""
        return self.folder.is_dir()


#: Ten seconds each. Qwen Code took milliseconds and now takes seconds, but reads 1,000 and more as milliseconds still.
_SECONDS, _MILLISECONDS = 10, 10_000


def harnesses(settings: Settings) -> dict[str, Harness]:
    """The harnesses whose hooks we know, by name."""
    turns = ("UserPromptSubmit", "Stop", "SessionEnd")
    claude = ("UserPromptSubmit", "PostToolUse", "Stop", "SubagentStop", "SessionEnd")
    folders = (settings.claude_home, settings.codex_home, settings.qwen_home)
    return {
        "claude-code": Harness("claude-code", folders[0], folders[0] / "settings.json", claude, _SECONDS),
        "codex": Harness("codex", folders[1], folders[1] / "hooks.json", turns, _SECONDS),
        "qwen-code": Harness("qwen-code", folders[2], folders[2] / "settings.json", turns, _MILLISECONDS),
    }


def hook_command(program: Path, harness: str) -> str:
    """The shell command of a hook: it does nothing, and does not fail, when the program is gone."""
    quoted = shlex.quote(str(program))
    return f"[ -x {quoted} ] && {quoted} hook {harness} || true"


def _is_ours(entry: Any, harness: str) -> bool:
    command = entry.get("command") if isinstance(entry, dict) else None
    if not isinstance(command, str):
        return False
    return re.search(rf"(?:^|[\s/'\"])rivet['\"]?\s+hook\s+{re.escape(harness)}(?=$|[\s;|&)])", command) is not None


@dataclass(frozen=True, slots=True)
class Change:
    """What would become of a configuration file. `before` is None when there is none yet."""

    path: Path
    before: str | None
    after: str

    @property
    def is_one(self) -> bool:
        """Whether anything would change."""
        return self.before != self.after

    @property
    def diff(self) -> str:
        """The change as a unified diff."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            str(self.path) if self.before is not None else "/dev/null",
            str(self.path),
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def plan_install(harness: Harness, program: Path) -> Change:
    """What installing our hooks would change; nothing, when they are there as they should be.

    Raises `HookConfigError` when the file is not JSON, or not of the shape that hooks have.
    """
    before, config = _read(harness.file)
    command = hook_command(program, harness.name)
    wanted = {"type": "command", "command": command, "timeout": harness.timeout}
    hooks = config.setdefault("hooks", {})
    for event in harness.events:
        groups = hooks.setdefault(event, [])
        found = [entry for group in groups for entry in group.get("hooks", []) if _is_ours(entry, harness.name)]
        if len(found) == 1:
            found[0].update(wanted)
            continue
        _take_out(hooks, event, harness.name)
        matcher = {"matcher": "*"} if event == "PostToolUse" else {}
        hooks.setdefault(event, []).append({**matcher, "hooks": [wanted]})
    return Change(harness.file, before, _write_out(config, before))


def plan_uninstall(harness: Harness) -> Change | None:
    """What taking our hooks out would change; None without a file. Raises `HookConfigError` as installing does."""
    before, config = _read(harness.file)
    if before is None:
        return None
    hooks = config.get("hooks", {})
    if not any(_is_ours(entry, harness.name) for entry in _entries(hooks)):
        return Change(harness.file, before, before)
    for event in list(hooks):
        _take_out(hooks, event, harness.name)
    if not hooks:
        del config["hooks"]
    return Change(harness.file, before, _write_out(config, before))


def state_of(harness: Harness, program: Path) -> State:
    """Whether our hooks are there, and as they should be. Raises `HookConfigError` as installing does."""
    _, config = _read(harness.file)
    if not any(_is_ours(entry, harness.name) for entry in _entries(config.get("hooks", {}))):
        return "not installed"
    return "outdated" if plan_install(harness, program).is_one else "installed"


def _entries(hooks: Mapping[str, Any]) -> list[Any]:
    return [entry for groups in hooks.values() for group in groups for entry in group.get("hooks", [])]


def _take_out(hooks: dict[str, Any], event: str, harness: str) -> None:
    """Removes our commands from an event, and what would be left empty by that; what was empty before stays."""
    kept, removed = [], False
    for group in hooks[event]:
        entries = group.get("hooks", [])
        others = [entry for entry in entries if not _is_ours(entry, harness)]
        removed = removed or len(others) < len(entries)
        if others or not entries:
            kept.append({**group, "hooks": others} if len(others) < len(entries) else group)
    if removed and not kept:
        del hooks[event]
    else:
        hooks[event] = kept


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    """The file's text (None when there is none, or it is empty) and what it says, checked for its shape."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None, {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise HookConfigError(f"{path} can not be read ({reason}); nothing was changed.") from error
    if not text.strip():
        return text, {}
    try:
        config = _parsed(text, object_pairs_hook=_without_repeats)
        _dumped(config, indent=1)
    except RecursionError as error:
        raise HookConfigError(f"{path} is nested too deeply; nothing was changed.") from error
    except ValueError as error:
        comments = " (it has comments, which would be lost)" if re.search(r"^\s*//|/\*", text, re.MULTILINE) else ""
        raise HookConfigError(
            f"{path} is not plain JSON{comments}: {error}. Put it right, or add the hooks by hand; nothing was changed."
        ) from error
    _check(path, config)
    return text, config


class _Number(float):
    """A number of the file, which is written back as it stands there: `1.10` and `1E5` stay so."""

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


def _parsed(text: str, **how: Any) -> Any:
    return json.loads(
        text.removeprefix("\ufeff"), parse_float=_Number, parse_int=_Number, parse_constant=_Number, **how
    )


def _dumped(config: Any, **how: Any) -> str:
    """The configuration as JSON. The encoder knows one spelling of a number, so each goes through it as a string."""
    mark = f"number-{uuid4().hex}:"
    text = json.dumps(_marked(config, mark), **how)
    return re.sub(rf'"{mark}([^"]*)"', r"\1", text)


def _marked(value: Any, mark: str) -> Any:
    if isinstance(value, _Number):
        return mark + value.text
    if isinstance(value, dict):
        return {key: _marked(item, mark) for key, item in value.items()}
    if isinstance(value, list):
        return [_marked(item, mark) for item in value]
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        # Writing it back would drop one of them.
        raise ValueError("a key stands in it twice")
    return found


def _check(path: Path, config: Any) -> None:
    hooks = config.get("hooks", {}) if isinstance(config, dict) else None
    sound = isinstance(hooks, dict) and all(
        isinstance(groups, list)
        and all(isinstance(group, dict) and isinstance(group.get("hooks", []), list) for group in groups)
        for groups in hooks.values()
    )
    if not sound:
        raise HookConfigError(f"{path} does not have the shape of a hook configuration; nothing was changed.")


def _write_out(config: Mapping[str, Any], before: str | None) -> str:
    """The configuration as text: the one before when it says the same, else indented, escaped and ended like it."""
    if before and before.strip() and _parsed(before) == config:
        return before
    found = re.search(r"^([ \t]+)\S", before or "", re.MULTILINE)
    indent: str | int = found.group(1) if found else 2
    if found and "\t" not in found.group(1):
        indent = len(found.group(1))
    escaped = (
        before is not None
        and before.removeprefix("\ufeff").isascii()
        and re.search(r"\\u[0-9a-fA-F]{4}", before) is not None
    )
    text = _dumped(config, indent=indent, ensure_ascii=escaped)
    if before and "\r\n" in before:
        text = text.replace("\n", "\r\n")
    end = "\r\n" if before and "\r\n" in before else "\n"
    start = "\ufeff" if before and before.startswith("\ufeff") else ""
    return start + text + (end if not before or before.endswith("\n") else "")


def apply_change(change: Change) -> Path | None:
    """Writes a change; the backup of the former file, if there was one.

    The file keeps its mode, and a link stays a link. Raises `HookConfigError` when it can not be written, or was
    changed by somebody else since the plan was made.
    """
    target = change.path.resolve()
    try:
        now = target.read_bytes().decode("utf-8") if target.exists() else None
        if now != change.before:
            raise HookConfigError(f"{change.path} was changed meanwhile; nothing was written, so try again.")
        backup = _back_up(target) if now is not None else None
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, change.after)
    except OSError as error:
        raise HookConfigError(f"{change.path} can not be written ({error.strerror}); nothing was changed.") from error
    return backup


def _back_up(target: Path) -> Path:
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S-%f")
    backup = target.with_name(f"{target.name}.{stamp}.backup")
    shutil.copy2(target, backup)
    return backup


def _replace(target: Path, text: str) -> None:
    mode = target.stat().st_mode & 0o7777 if target.exists() else 0o600
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(mode)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
