"""Changes one entry of a configuration file and leaves every other character as it is, comments included. Pure.

JSON may hold comments and trailing commas, as editors' settings do. A change is checked by reading the outcome again:
what it says must be what it said before, but for the entry.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rivet_pipeline.errors import RivetError

#: An entry's value; None takes the entry out.
Entry = Mapping[str, Any] | None


class ConfigFileError(RivetError):
    """A configuration is not what it should be. `str(error)` says where, without the file's name."""


@dataclass(slots=True)
class _Node:
    """A value of a JSON text: what it says, and where it stands. `members` are an object's, in order."""

    value: Any
    start: int
    end: int
    members: list[_Member] = field(default_factory=list)

    def member(self, key: str) -> _Member | None:
        return next((member for member in self.members if member.key == key), None)


@dataclass(slots=True)
class _Member:
    key: str
    start: int
    node: _Node


_TRIVIA = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_PLAIN = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


class _Json:
    """Reads a JSON text with comments and trailing commas into nodes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self) -> _Node:
        try:
            node = self._value(self._skip(0))
        except RecursionError as error:
            raise ConfigFileError("it is nested too deeply") from error
        if self._skip(node.end) != len(self._text):
            raise self._wrong(node.end)
        return node

    def _skip(self, at: int) -> int:
        found = _TRIVIA.match(self._text, at)
        return found.end() if found else at

    def _wrong(self, at: int) -> ConfigFileError:
        line = self._text.count("\n", 0, at) + 1
        return ConfigFileError(f"it is not JSON from line {line} on")

    def _value(self, at: int) -> _Node:
        opening = self._text[at : at + 1]
        if opening == "{":
            return self._object(at)
        if opening == "[":
            return self._list(at)
        found = (_STRING if opening == '"' else _PLAIN).match(self._text, at)
        if found is None:
            raise self._wrong(at)
        return _Node(self._literal(found.group(), at), at, found.end())

    def _literal(self, text: str, at: int) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._wrong(at) from error

    def _object(self, at: int) -> _Node:
        node = _Node({}, at, at)
        position = self._skip(at + 1)
        while self._text[position : position + 1] != "}":
            key = self._value(position)
            colon = self._skip(key.end)
            if not isinstance(key.value, str) or self._text[colon : colon + 1] != ":":
                raise self._wrong(position)
            if key.value in node.value:
                raise ConfigFileError(f"the key {key.value[:60]!r} stands in it twice")
            value = self._value(self._skip(colon + 1))
            node.value[key.value] = value.value
            node.members.append(_Member(key.value, position, value))
            position = self._next(value.end, "}")
        node.end = position + 1
        return node

    def _list(self, at: int) -> _Node:
        items: list[Any] = []
        position = self._skip(at + 1)
        while self._text[position : position + 1] != "]":
            item = self._value(position)
            items.append(item.value)
            position = self._next(item.end, "]")
        return _Node(items, at, position + 1)

    def _next(self, at: int, closing: str) -> int:
        position = self._skip(at)
        if self._text[position : position + 1] == ",":
            return self._skip(position + 1)
        if self._text[position : position + 1] != closing:
            raise self._wrong(position)
        return position


def read_json(text: str) -> dict[str, Any]:
    """What a JSON text says; an empty one says nothing. Raises `ConfigFileError`."""
    if not text.strip("\ufeff \t\r\n"):
        return {}
    value = _Json(text).read().value
    if not isinstance(value, dict):
        raise ConfigFileError("it does not hold an object")
    return value


def change_json(text: str, section: str, name: str, entry: Entry) -> str:
    """The text with the entry `name` of the object `section` set, or taken out. Raises `ConfigFileError`."""
    before = read_json(text)
    held = before.get(section, {})
    if not isinstance(held, dict):
        raise ConfigFileError(f"{section} is not an object in it")
    if held.get(name) == entry:
        return text
    if not text.strip("\ufeff \t\r\n"):
        return json.dumps({section: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
    after = _set_json(text, section, name, entry) if entry is not None else _drop_json(text, section, name)
    expected = _expected(before, section, name, entry)
    if read_json(after) not in (expected, {key: value for key, value in expected.items() if value or key != section}):
        raise ConfigFileError("it is written in a way that can not be changed safely")
    return after


def _expected(before: Mapping[str, Any], section: str, name: str, entry: Entry) -> dict[str, Any]:
    held = {key: value for key, value in before.get(section, {}).items() if key != name}
    return {**before, section: held if entry is None else {**held, name: dict(entry)}}


def _indent(text: str) -> str:
    found = re.search(r"^([ \t]+)[\"}]", text, re.MULTILINE)
    return found.group(1) if found else "  "


def _rendered(value: Any, unit: str, depth: int, newline: str) -> str:
    text = json.dumps(value, indent=unit, ensure_ascii=False)
    return text.replace("\n", newline + unit * depth)


def _set_json(text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
    root = _Json(text).read()
    unit, newline = _indent(text), "\r\n" if "\r\n" in text else "\n"
    holder = root.member(section)
    if holder is None:
        return _insert(text, root, section, _rendered({name: entry}, unit, 1, newline), unit, 1)
    known = holder.node.member(name)
    if known is None:
        return _insert(text, holder.node, name, _rendered(entry, unit, 2, newline), unit, 2)
    return text[: known.node.start] + _rendered(entry, unit, 2, newline) + text[known.node.end :]


def _insert(text: str, holder: _Node, key: str, value: str, unit: str, depth: int) -> str:
    """The text with a member put behind the last one of an object, and behind what is noted there."""
    newline = "\r\n" if "\r\n" in text else "\n"
    closing = holder.end - 1
    inner_end = len(text[:closing].rstrip())
    member = f"{newline}{unit * depth}{json.dumps(key, ensure_ascii=False)}: {value}"
    tail = text[inner_end:]
    if "\n" not in text[inner_end:closing]:
        tail = newline + unit * (depth - 1) + text[closing:]
    if not holder.members:
        return text[:inner_end] + member + tail
    last = holder.members[-1].node.end
    comma = re.compile(rf"{_TRIVIA.pattern},", re.DOTALL).match(text, last)
    middle = text[last:inner_end]
    return text[:last] + ("" if comma else ",") + middle + member + ("," if comma else "") + tail


def _drop_json(text: str, section: str, name: str) -> str:
    root = _Json(text).read()
    holder = root.member(section)
    assert holder is not None
    inner = text[holder.node.start + 1 : holder.node.end - 1]
    alone = len(holder.node.members) == 1 and not re.search(r"//|/\*", _without_strings(inner))
    return _remove(text, root, section) if alone else _remove(text, holder.node, name)


def _without_strings(text: str) -> str:
    return _STRING.sub('""', text)


def _remove(text: str, holder: _Node, key: str) -> str:
    """The text without one member of an object, its comma and the line break before it."""
    place = next(number for number, member in enumerate(holder.members) if member.key == key)
    member = holder.members[place]
    start = len(text[: member.start].rstrip())
    end = member.node.end
    comma = re.compile(rf"{_TRIVIA.pattern},", re.DOTALL).match(text, end)
    if comma:
        end = comma.end()
    elif place > 0:
        # The comma before it goes instead.
        before = text[holder.members[place - 1].node.end : start]
        at = _comma_in(before)
        return text[: start - len(before)] + before[:at] + before[at + 1 :] + text[end:]
    return text[:start] + text[end:]


def _comma_in(trivia: str) -> int:
    found = re.compile(rf"({_TRIVIA.pattern}),", re.DOTALL).match(trivia)
    assert found is not None
    return found.end(1)


def read_toml(text: str) -> dict[str, Any]:
    """What a TOML text says. Raises `ConfigFileError`."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigFileError(f"it is not TOML: {error}") from error


def change_toml(text: str, section: str, name: str, entry: Entry) -> str:
    """The text with the table `[section.name]` set, or taken out. Raises `ConfigFileError`."""
    before = read_toml(text)
    held = before.get(section, {})
    if not isinstance(held, dict):
        raise ConfigFileError(f"{section} is not a table in it")
    if held.get(name) == entry:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    after, place = _without_table(text, section, name) if name in held else (text, len(text))
    if entry is not None:
        lines = [f"[{section}.{name}]", *(f"{_toml_key(key)} = {_toml(value)}" for key, value in entry.items())]
        block = newline.join(lines) + newline
        head, tail = after[:place], after[place:]
        if head.strip() and not head.endswith(newline * 2):
            head += newline if head.endswith("\n") else newline * 2
        after = head + block + (newline + tail if tail.strip() and not tail.startswith(("\n", "\r\n")) else tail)
    expected = _expected(before, section, name, entry)
    if not _says(after, (expected, {key: value for key, value in expected.items() if value or key != section})):
        raise ConfigFileError(
            f"[{section}.{name}] is written in it in a way that can not be changed safely; change it by hand"
        )
    return after


def _says(text: str, allowed: tuple[dict[str, Any], ...]) -> bool:
    try:
        return read_toml(text) in allowed
    except ConfigFileError:
        return False


def _without_table(text: str, section: str, name: str) -> tuple[str, int]:
    """The text without a table and those below it, and where the table stood, else the end."""
    quoted = rf"[\"']?{re.escape(name)}[\"']?"
    ours = re.compile(rf"^[ \t]*\[[ \t]*{re.escape(section)}[ \t]*\.[ \t]*{quoted}[ \t]*(?:\.[^\]\n]*)?\][^\n]*$")
    kept: list[str] = []
    waiting: list[str] = []
    place: int | None = None
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = ours.match(line.rstrip("\r\n")) is not None
            if inside and place is None:
                place = sum(map(len, kept))
            if not inside:
                kept += waiting
            waiting = []
        if not inside:
            kept.append(line)
        elif not line.strip() or line.lstrip().startswith("#"):
            # A note at the end of a table is about the next one.
            waiting.append(line)
        else:
            waiting = []
    kept += waiting if inside else []
    whole = "".join(kept)
    return whole, len(whole) if place is None else place


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the character that JSON leaves alone.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    raise ConfigFileError("it holds a value of a kind that can not be written back; change it by hand")
