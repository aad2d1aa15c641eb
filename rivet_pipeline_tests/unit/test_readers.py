"""Which reader takes which file, and the helpers they share."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.readers import READERS, detect, may_be_transcript
from rivet_pipeline.transcripts.readers.shared import (
    ContentIds,
    RecentSet,
    binary_placeholder,
    make_title,
    parse_time,
)
from rivet_pipeline.transcripts.reading import HEAD_BYTES, Head

CLAUDE = {"type": "user", "uuid": "1", "sessionId": "s", "isSidechain": False, "message": {"content": "x"}}
CODEX = {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "x"}}

PI = {"type": "session", "id": "x", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/app"}
GROK = {"timestamp": 1, "method": "session/update"}
COPILOT: dict[str, Any] = {
    "type": "user.message",
    "data": {},
    "id": "e",
    "timestamp": "2026-01-01T00:00:00Z",
    "parentId": None,
}


def found(path: Path, *rows: Any) -> str | None:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    reader = detect(path)
    return reader.harness if reader else None


@pytest.mark.parametrize(
    ("rows", "harness"),
    [
        ([CLAUDE], "claude-code"),
        (["broken", {"type": "brand-new"}, CLAUDE], "claude-code"),
        ([{"type": "summary", "summary": "x", "leafUuid": "y"}], "claude-code"),
        ([{"parentUuid": None, **CLAUDE, "message": {"content": "x" * 100_000}}], "claude-code"),
        ([CODEX], "codex"),
        ([{**CODEX, "payload": {"id": "x", "base_instructions": "y" * 100_000}}], "codex"),
        ([{"timestamp": "2026-01-01", "role": "user", "content": "x", "model": "m"}], "codex"),
        ([], None),
        ([{"a": 1}], None),
        ([{"role": "user", "content": "x"}], None),
        ([{"role": "user", "message": {"content": [{"type": "text", "text": "x"}]}}], "cursor"),
        ([{"role": "user", "timestamp": 1, "message": {"content": "x"}}], None),
        ([{"type": "metadata", "protocol_version": "1.4", "created_at": 1}], "kimi-code"),
        ([{"type": "metadata", "name": "x"}], None),
        (
            [{"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": "plan"}}}],
            "grok-build",
        ),
        ([{"method": "session/update", "params": {"update": {"sessionUpdate": "plan"}}}], None),
        ([{"type": "user", "content": [], "prompt_index": 0}], "grok-build"),
        ([{"type": "user", "content": "x"}], None),
        ([PI], "pi"),
        ([PI, {"type": "model_change", "provider": "openclaw"}], "openclaw"),
        ([PI, {"type": "message", "message": {}}, {"type": "custom", "customType": "openclaw.x"}], "pi"),
        ([COPILOT], "copilot-cli"),
        ([{"type": "session.start", "data": {}}], None),
        ([{"type": "session_start", "id": "d", "cwd": "/app"}], "droid"),
        ([{"type": "session_start", "id": "d"}], None),
        ([{**CLAUDE, "message": {"role": "user", "parts": [{"text": "x"}]}}], "qwen-code"),
        ([{"type": "session", "id": "x", "cwd": "/"}, {"type": "message", "message": {"content": "x"}}], None),
    ],
)
def test_files_are_recognised_by_what_is_in_them(tmp_path: Path, rows: list[Any], harness: str | None) -> None:
    assert found(tmp_path / "a.jsonl", *rows) == harness


def test_only_json_lines_are_looked_at(tmp_path: Path) -> None:
    assert found(tmp_path / "a.txt", CLAUDE) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("package.json", '{"name": "x", "version": "1.0.0", "session_id": "s", "messages": []}'),
        ("README.md", "# x\n\nuser:\nhello\n"),
        ("CHANGELOG.md", "## 1.0\n"),
        ("notes.txt", "user:\nremember the milk\n"),
        ("robots.txt", "User-agent: *\nDisallow:\n"),
        ("context.jsonl", '{"role": "user", "content": "x"}\n{"role": "narrator", "content": "y"}\n'),
        ("chat_history.jsonl", '{"from": "a", "text": "x"}\n'),
        ("events.jsonl", '{"type": "user.created", "data": {"id": 1}, "timestamp": 1}\n'),
    ],
)
def test_ordinary_files_are_nobodys(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    reader = detect(tmp_path / name)
    assert reader is None


def test_no_file_is_claimed_by_two_readers(shared_data: Path) -> None:
    checked = 0
    for path in sorted((shared_data / "transcripts").rglob("*")):
        if not path.is_file() or not may_be_transcript(path):
            continue
        head = Head(path, path.read_bytes()[:HEAD_BYTES], whole=path.stat().st_size < HEAD_BYTES)
        takers = [reader.harness for reader in READERS if head.path.suffix in reader.suffixes and reader.sniff(head)]
        folder = path.relative_to(shared_data / "transcripts").parts[0]
        assert len(takers) <= 1, path
        if folder in {"claude-code", "codex"}:
            assert takers == [folder], path
        own = {"kimi-cli": "kimi-code", "grok-cli": "grok-build", "cursor": "cursor"}.get(folder)
        if own and head.path.suffix == ".jsonl":
            assert takers == [own], path
        checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-01T10:00:00.123Z", datetime(2026, 1, 1, 10, 0, 0, 123_000, UTC)),
        ("2026-01-01T10:00:00+02:00", datetime(2026, 1, 1, 8, 0, 0, 0, UTC)),
        ("2026-01-01T10:00:00.123456789Z", datetime(2026, 1, 1, 10, 0, 0, 123_456, UTC)),
        ("2026-01-01T10:00:00", datetime(2026, 1, 1, 10, 0, 0, 0, UTC)),
        (1_767_225_600, datetime(2026, 1, 1, 0, 0, 0, 0, UTC)),
        (1_767_225_600_500, datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)),
        ("10000-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59-10:00", None),
        ("2026-02-30T00:00:00Z", None),
        (float("nan"), None),
        (10**300, None),
        (True, None),
        (None, None),
        ([], None),
    ],
)
def test_times(value: Any, expected: datetime | None) -> None:
    assert parse_time(value) == expected


def test_titles_are_one_short_line() -> None:
    assert make_title("  a \n\t b ") == "a b"
    assert make_title(" \n ") is None
    assert make_title("word " * 100) == ("word " * 24).rstrip()


def test_placeholders_name_type_and_size() -> None:
    assert binary_placeholder("image", "image/png", "AAAA") == "[image image/png, 3 bytes]"
    assert binary_placeholder("image", None, "data:image/webp;base64,AAAA") == "[image image/webp, 3 bytes]"
    assert binary_placeholder("document", None, None) == "[document]"


def test_a_recent_set_forgets_the_oldest() -> None:
    recent = RecentSet(2)
    assert [recent.add(member) for member in ("a", "b", "a", "c")] == [True, True, False, True]
    assert [member in recent for member in ("a", "b", "c")] == [False, True, True]
    assert [recent.discard("b"), recent.discard("b")] == [True, False]


def test_content_ids_tell_repetitions_apart() -> None:
    ids = ContentIds()
    first, second, other = ids.next("a", None), ids.next("a", None), ids.next("a", "b")
    assert second == f"{first}:2"
    assert other not in {first, second}
