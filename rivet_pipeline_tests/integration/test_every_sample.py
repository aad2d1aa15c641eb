"""Every real sample of every harness: it is recognised, and a cut in it loses and doubles nothing.

The samples are not part of the project; without `RIVET_SHARED_DATA` these tests are skipped.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.readers import detect, may_be_transcript
from rivet_pipeline.transcripts.reading import Reading
from rivet_pipeline.transcripts.records import Incomplete, Message, ReadItem, ToolResult

FIRST_DAY = date(2022, 11, 1)
CUTS = 12

#: Samples that hold no message of their own, with the reason.
NO_TRANSCRIPTS = {
    "grok-cli/agentsview_current_summary.json": "read beside its chat_history.jsonl",
    "grok-cli/agentsview_legacy_summary.json": "read beside its chat_history.jsonl",
    "grok-cli/summary_real.json": "read beside its updates.jsonl",
    "kimi-cli/state.json": "read beside its wire.jsonl",
    "opencode/native_session-details.json": "names a session, and holds no message",
    "claude-ai-export/simple-invalid.json": "no export at all",
}

#: Samples that are read and hold nothing that was said or done.
WITHOUT_WORDS = {
    "codex/codex_050_legacy.jsonl",
    "codex/codex_052_raw.jsonl",
    "cursor/agent_store.db",
    "opencode/native_session-events.json",
}

#: Parts of a tree that is read from its session's file.
TREE_PARTS = ("/message/", "/part/", "/migration")


def samples() -> list[str]:
    root = os.environ.get("RIVET_SHARED_DATA")
    if not root:
        return []
    folder = Path(root) / "transcripts"
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return [
        name
        for name in names
        if name != "SOURCES.md" and name not in NO_TRANSCRIPTS and not any(part in name for part in TREE_PARTS)
    ]


SAMPLES: list[Any] = [*samples()] or [pytest.param("", marks=pytest.mark.skip(reason="RIVET_SHARED_DATA is not set"))]

Row = dict[str, Any]


def rows_of(items: Iterable[ReadItem]) -> dict[tuple[str, str], Row]:
    """What would be stored, by conversation and event id."""
    rows: dict[tuple[str, str], Row] = {}
    for item in items:
        if isinstance(item, Message):
            record = item.record
            row = {
                "role": record.role,
                "content": record.content,
                "tool": record.tool_name,
                "args": json.dumps(record.tool_args, sort_keys=True),
                "result": record.tool_result,
                "line": record.metadata.get("session_jsonl_line"),
            }
            rows.setdefault((item.session.session_key, record.event_id), row)
        elif isinstance(item, ToolResult):
            orphan = {"role": "tool", "content": "", "tool": None, "args": "null", "result": None, "line": None}
            known = rows.setdefault((item.session.session_key, item.event_id), orphan)
            if known["result"] is None:
                known["result"] = item.tool_result
    return rows


def laid(shared_data: Path, name: str, folder: Path) -> Path:
    """The sample with what stands beside it, where it can be cut."""
    source = shared_data / "transcripts" / name
    tree = next((parent for parent in source.parents if parent.name.startswith("storage_")), None)
    if tree is not None:
        shutil.copytree(tree, folder / tree.name, copy_function=shutil.copyfile)
        for path in (folder / tree.name).rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
            os.utime(path, (time.time() - 7 * 3600, time.time() - 7 * 3600))
        return folder / tree.name / source.relative_to(tree)
    shutil.copyfile(source, folder / source.name)
    return folder / source.name


def cuts(name: str, size: int) -> list[int]:
    chance = random.Random(name)
    return sorted({chance.randrange(1, size) for _ in range(CUTS)} | {size - 1})


@pytest.mark.parametrize("name", SAMPLES)
def test_a_cut_sample_gives_what_stands_before_the_cut_and_nothing_else(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    path = laid(shared_data, name, tmp_path)
    data = path.read_bytes()
    reader = detect(path)
    assert reader is not None
    whole = rows_of(reader.read(path, Reading("a")))
    assert whole or name in WITHOUT_WORDS
    for cut in cuts(name, len(data)):
        path.write_bytes(data[:cut])
        try:
            items = list(reader.read(path, Reading("a", settled=False)))
        except OSError:
            # A database that was cut can not be read at all, and is read when it is whole.
            continue
        found = rows_of(items)
        for key, row in found.items():
            assert key in whole, (cut, key, row)
            assert row | {"result": None} == whole[key] | {"result": None}, cut
            assert row["result"] in {None, whole[key]["result"]}, cut
        if path.suffix == ".jsonl":
            before = data[:cut].count(b"\n")
            missing = [key for key, row in whole.items() if (row["line"] or 0) < before and key not in found]
            held_back = sum(isinstance(item, Incomplete) for item in items)
            assert len(missing) <= 2 * held_back, (cut, missing)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_that_was_cut_is_stored_as_if_it_never_had_been(
    shared_data: Path, tmp_path: Path, connection: Connection, database_url: str, name: str
) -> None:
    path = laid(shared_data, name, tmp_path)
    data = path.read_bytes()
    cut = random.Random(name).randrange(1, len(data))
    path.write_bytes(data[:cut])
    import_paths(database_url, [path], first_day=FIRST_DAY, max_line=1 << 26, agent="cut")
    path.write_bytes(data)
    rested = time.time() - 7 * 3600
    os.utime(path, (rested, rested))
    for agent in ("cut", "clean"):
        report = import_paths(database_url, [path], first_day=FIRST_DAY, max_line=1 << 26, agent=agent)
        assert report.count("read") == 1, report.files
    again = import_paths(database_url, [path], first_day=FIRST_DAY, max_line=1 << 26, agent="cut")
    assert again.messages()["new"] == 0
    stored = {agent: stored_rows(connection, agent) for agent in ("cut", "clean")}
    assert stored["cut"] == stored["clean"]
    assert may_be_transcript(path)


def stored_rows(connection: Connection, agent: str) -> list[tuple[Any, ...]]:
    rows = connection.execute(
        """
        SELECT c.session_key, m.event_id, m.role, m.content, m.tool_name, m.tool_args, m.tool_result
        FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
        WHERE m.agent = %s ORDER BY c.session_key, m.event_id
        """,
        [agent],
    ).fetchall()
    return [tuple(row.values()) for row in rows]
