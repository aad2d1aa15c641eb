"""The way back to what was cut: real transcripts in real files, and every way in which they can be missing."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import zstandard

import rivet_pipeline
from rivet_pipeline.api.tools import full_payload_text
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.cleaning import utf16_units
from rivet_pipeline.transcripts.full_payload import (
    SECTION_CHARACTERS,
    FullPayload,
    load_message,
    memory_get_full,
)
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.ingest import CAPTURE_CAP, write_batch
from rivet_pipeline.transcripts.readers import READERS, detect
from rivet_pipeline.transcripts.reading import Reading
from rivet_pipeline.transcripts.records import Message, MessageRecord, SessionRecord, ToolResult
from rivet_pipeline.transcripts.redact_rules import literal_rule
from rivet_pipeline.transcripts.redact_stored import Who, redact_everywhere
from rivet_pipeline_tests.api_server import running_api

FIRST_DAY = date(2022, 11, 1)
LONG = "".join(f"line {number} 🚀\n" for number in range(4_000))
RESULT = "".join(f"result {number}\n" for number in range(4_000))
POINTERS = {"session_jsonl_path", "session_sqlite_path"}
ROOT = os.geteuid() == 0


def claude_lines() -> list[dict[str, Any]]:
    shared = {"sessionId": "s1", "cwd": "/srv/shop", "version": "2.1.0", "isSidechain": False, "userType": "external"}

    def row(kind: str, uuid: str, content: Any) -> dict[str, Any]:
        message = {"role": kind, "content": content}
        return {"type": kind, "uuid": uuid, "timestamp": "2026-03-08T09:00:00.000Z", "message": message, **shared}

    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "cat notes"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": RESULT}]}
    return [
        row("user", "u1", "short"),
        row("user", "u2", LONG),
        row("assistant", "a1", [{"type": "thinking", "thinking": LONG}, {"type": "text", "text": "Looking."}, call]),
        row("user", "r1", [result]),
        row("assistant", "a2", "Done."),
    ]


def codex_lines() -> list[dict[str, Any]]:
    def row(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"timestamp": "2026-03-08T09:00:00.000Z", "type": kind, "payload": payload}

    call = {"type": "function_call", "name": "exec", "arguments": '{"command":"cat"}', "call_id": "c1"}
    return [
        row("session_meta", {"id": "01a0661a-da58-7251-b103-91aec47bc85b", "cwd": "/srv/shop"}),
        row("response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": LONG}]}),
        row("event_msg", {"type": "user_message", "message": LONG}),
        row("response_item", call),
        row("response_item", {"type": "function_call_output", "call_id": "c1", "output": RESULT}),
    ]


LINES = {"claude-code": claude_lines(), "codex": codex_lines()}
NAMES = {"claude-code": "s1.jsonl", "codex": "rollout-2026-03-08T09-00-00-01a0661a-da58-7251-b103-91aec47bc85b.jsonl"}


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    """A transcript; a compressed one in several frames, as a harness leaves it that appends."""
    encoded = [json.dumps(line).encode() + b"\n" for line in lines]
    if path.suffix == ".jsonl":
        path.write_bytes(b"".join(encoded))
    else:
        path.write_bytes(b"".join(zstandard.ZstdCompressor().compress(line) for line in encoded))
    return path


def capture(connection: Connection, path: Path) -> None:
    """Stores a transcript as the capture route does: under the reader's ids, cut at the cap."""
    reader = detect(path)
    assert reader is not None
    for item in reader.read(path, Reading(reader.agent)):
        if isinstance(item, Message):
            write_batch(connection, item.session, [item.record], first_day=FIRST_DAY, cap=CAPTURE_CAP)
        elif isinstance(item, ToolResult):
            write_batch(connection, item.session, [item], first_day=FIRST_DAY, cap=CAPTURE_CAP)


def cut_rows(connection: Connection) -> list[Any]:
    rows = connection.execute(
        "SELECT id FROM ros_messages WHERE metadata ->> 'truncated' = 'true' ORDER BY created_at, seq"
    ).fetchall()
    return [row["id"] for row in rows]


def get(connection: Connection, message_id: Any, **more: Any) -> FullPayload:
    message = load_message(connection, message_id)
    assert message is not None
    return memory_get_full(message, max_line=10_000_000, **more)


def parts(payload: FullPayload) -> dict[str, str]:
    return {section.name: section.text for section in payload.sections}


@pytest.mark.parametrize("ending", ["", ".zst", ".zstd"])
@pytest.mark.parametrize("harness", list(LINES))
def test_what_was_cut_is_read_back(connection: Connection, tmp_path: Path, harness: str, ending: str) -> None:
    capture(connection, write(tmp_path / (NAMES[harness] + ending), LINES[harness]))
    payloads = [get(connection, row) for row in cut_rows(connection)]
    assert {payload.status for payload in payloads} == {"recovered"}
    texts = [text for payload in payloads for text in parts(payload).values()]
    assert texts.count(LONG) == (2 if harness == "claude-code" else 1)
    assert texts.count(RESULT) == 1
    assert all(len(text) > CAPTURE_CAP or "command" in text for text in texts)


def test_what_was_not_cut_is_shown_without_a_file(connection: Connection, tmp_path: Path) -> None:
    path = write(tmp_path / "s1.jsonl", LINES["claude-code"])
    capture(connection, path)
    path.unlink()
    row = connection.execute("SELECT id FROM ros_messages WHERE content = 'short'").fetchone()
    assert row is not None
    payload = get(connection, row["id"])
    assert (payload.status, parts(payload)) == ("complete", {"content": "short"})
    assert "Nothing was cut" in full_payload_text(payload)


@pytest.fixture
def cut(connection: Connection, tmp_path: Path) -> tuple[Any, Path]:
    """A message that was cut and the transcript it came from."""
    path = write(tmp_path / "s1.jsonl", LINES["claude-code"])
    capture(connection, path)
    return cut_rows(connection)[0], path


def outcome(connection: Connection, message_id: Any, **more: Any) -> tuple[str, str]:
    """The status and the words about it; whatever it is, what is stored is shown, and nothing but it."""
    payload = get(connection, message_id, **more)
    assert parts(payload) == {"content": LONG[: len(parts(payload)["content"])]}
    assert len(parts(payload)["content"]) < CAPTURE_CAP
    return payload.status, full_payload_text(payload)


def test_a_file_that_is_gone(connection: Connection, cut: tuple[Any, Path]) -> None:
    message_id, path = cut
    path.unlink()
    status, text = outcome(connection, message_id)
    assert status == "gone"
    assert f"{path} does not exist on this machine ({socket.gethostname()})" in text
    shutil.rmtree(path.parent)
    assert outcome(connection, message_id)[0] == "gone"


def test_a_file_on_another_machine(connection: Connection, cut: tuple[Any, Path]) -> None:
    message_id, path = cut
    here = socket.gethostname()
    path.unlink()
    status, text = outcome(connection, message_id, host="another-machine")
    assert status == "elsewhere"
    assert f"{path} on {here}" in text
    # A file of the same name on this machine is another one, unless it holds these very words.
    path.write_text("something else")
    assert outcome(connection, message_id, host="another-machine")[0] == "elsewhere"
    write(path, LINES["claude-code"])
    assert get(connection, message_id, host="another-machine").status == "recovered"


def without(*uuids: str) -> list[dict[str, Any]]:
    return [line for line in claude_lines() if line["uuid"] not in uuids]


def test_a_file_that_has_changed(connection: Connection, cut: tuple[Any, Path]) -> None:
    message_id, path = cut
    write(path, without("u2"))
    status, text = outcome(connection, message_id)
    assert (status, "it does not hold this message (content)" in text) == ("changed", True)
    other = claude_lines()
    other[1]["message"]["content"] = "other words"
    write(path, other)
    status, text = outcome(connection, message_id)
    assert (status, "it holds other words under this message's id" in text) == ("changed", True)
    write(path, LINES["codex"])
    assert outcome(connection, message_id)[0] == "changed"
    path.write_text("")
    assert outcome(connection, message_id)[0] == "changed"


def test_a_file_that_has_changed_behind_the_stored_beginning(connection: Connection, tmp_path: Path) -> None:
    path = write(tmp_path / "s1.jsonl", LINES["claude-code"])
    capture(connection, path)
    payloads = {row: get(connection, row) for row in cut_rows(connection)}
    content = next(row for row, found in payloads.items() if found.message.event_id == "u2")
    result = next(row for row, found in payloads.items() if "tool_result" in parts(found))
    other = claude_lines()
    other[1]["message"]["content"] = LONG + "🚀"
    other[3]["message"]["content"][0]["content"][0]["text"] = RESULT[:-7]
    write(path, other)
    status, text = outcome(connection, content)
    assert status == "changed"
    assert f"content: {utf16_units(LONG) + 2:,} instead of {utf16_units(LONG):,}" in text
    payload = get(connection, result)
    assert (payload.status, payload.sections[-1].recovered) == ("changed", False)
    assert f"tool_result: {len(RESULT) - 7:,} instead of {len(RESULT):,}" in str(payload.problem)
    write(path, LINES["claude-code"])
    assert {get(connection, row).status for row in (content, result)} == {"recovered"}


def test_a_message_is_found_wherever_it_stands_now(connection: Connection, cut: tuple[Any, Path]) -> None:
    message_id, path = cut
    write(path, [*without("u2"), claude_lines()[1]])
    assert get(connection, message_id).status == "recovered"


def test_a_file_that_can_not_be_read(connection: Connection, cut: tuple[Any, Path]) -> None:
    message_id, path = cut
    lines = [json.dumps(line) for line in claude_lines()]
    path.write_text("\n".join([lines[0], lines[1][:1000], *lines[2:]]) + "\n")
    status, text = outcome(connection, message_id)
    assert (status, "line 2 is damaged (cut short)" in text) == ("unreadable", True)
    write(path, LINES["claude-code"])
    message = load_message(connection, message_id)
    assert message is not None
    assert memory_get_full(message, max_line=2_000).status == "unreadable"
    path.unlink()
    path.mkdir()
    assert outcome(connection, message_id)[0] == "unreadable"
    path.rmdir()
    os.mkfifo(path)
    assert outcome(connection, message_id)[0] == "unreadable"


@pytest.mark.skipif(ROOT, reason="root may read everything")
def test_a_file_that_may_not_be_read(connection: Connection, cut: tuple[Any, Path]) -> None:
    message_id, path = cut
    path.chmod(0)
    status, text = outcome(connection, message_id)
    assert (status, "Permission denied" in text) == ("unreadable", True)


def test_a_damaged_compressed_file(connection: Connection, tmp_path: Path) -> None:
    path = write(tmp_path / "s1.jsonl.zst", LINES["claude-code"])
    capture(connection, path)
    message_id = cut_rows(connection)[0]
    data = bytearray(path.read_bytes())
    data[:40] = b"x" * 40
    path.write_bytes(data)
    status, text = outcome(connection, message_id)
    assert (status, "not a sound zstd file" in text) == ("unreadable", True)


def test_a_link_is_followed_only_to_the_same_words(connection: Connection, tmp_path: Path) -> None:
    link, elsewhere = tmp_path / "link.jsonl", tmp_path / "moved.jsonl"
    link.symlink_to(write(tmp_path / "s1.jsonl", LINES["claude-code"]))
    capture(connection, link)
    message_id = cut_rows(connection)[0]
    payload = get(connection, message_id)
    assert (payload.status, payload.path) == ("recovered", str(link))
    shutil.move(tmp_path / "s1.jsonl", elsewhere)
    link.unlink()
    link.symlink_to(elsewhere)
    assert get(connection, message_id).status == "recovered"
    secret = tmp_path / "secret.txt"
    secret.write_text("root:x:0:0")
    link.unlink()
    link.symlink_to(secret)
    status, text = outcome(connection, message_id)
    assert (status, "root:x" in text) == ("changed", False)


def store(connection: Connection, content: str = "x" * 20_000, **metadata: Any) -> Any:
    """A message that was captured with such metadata, cut at the cap."""
    session = SessionRecord(f"chat:{uuid4()}", "grok", "mcp")
    record = MessageRecord("e1", "user", content, metadata=metadata)
    write_batch(connection, session, [record], first_day=FIRST_DAY, cap=CAPTURE_CAP)
    return cut_rows(connection)[-1]


def test_a_message_without_a_file_is_not_to_be_had(connection: Connection) -> None:
    payload = get(connection, store(connection))
    assert (payload.status, parts(payload)) == ("no_pointer", {"content": "x" * CAPTURE_CAP})
    assert "no transcript was noted" in full_payload_text(payload)


def test_what_was_taken_out_is_not_looked_for(connection: Connection, cut: tuple[Any, Path]) -> None:
    _, path = cut
    pointer = {"session_jsonl_path": str(path), "session_jsonl_line": 1}
    message_id = store(connection, LONG, **pointer, redacted={"token": 1})
    assert outcome(connection, message_id)[0] == "redacted"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/etc/passwd", "unreadable"),
        ("/etc/../etc/passwd", "unreadable"),
        ("notes.jsonl", "unreadable"),
        ("", "no_pointer"),
        (7, "no_pointer"),
        ("/nowhere/a\udc80.jsonl", "gone"),
        ("/nowhere/" + "x" * 5_000 + ".jsonl", "unreadable"),
        ("/nowhere/s1.db", "unreadable"),
    ],
)
def test_only_transcripts_are_opened(connection: Connection, path: object, status: str) -> None:
    payload = get(connection, store(connection, session_jsonl_path=path, session_jsonl_line=0))
    assert payload.status == status
    assert "root:" not in full_payload_text(payload)


def test_a_database_is_named_by_its_ending(connection: Connection, tmp_path: Path) -> None:
    lines = write(tmp_path / "s1.jsonl", LINES["claude-code"])
    pointer = {"session_sqlite_part_id": "prt_1"}
    assert get(connection, store(connection, session_sqlite_path=str(lines), **pointer)).status == "unreadable"
    gone = get(connection, store(connection, session_sqlite_path=str(tmp_path / "opencode.db"), **pointer))
    assert (gone.status, gone.place) == ("gone", "prt_1")


def test_a_row_under_another_programs_id_is_known_by_its_place(connection: Connection, cut: tuple[Any, Path]) -> None:
    _, path = cut
    pointer = {"session_jsonl_path": str(path), "session_jsonl_line": 1}
    assert parts(get(connection, store(connection, LONG, **pointer)))["content"] == LONG
    assert get(connection, store(connection, LONG[:8_000] + LONG, **pointer)).status == "changed"
    elsewhere = {**pointer, "session_jsonl_line": 4}
    assert get(connection, store(connection, LONG, **elsewhere)).status == "changed"


def test_words_kept_beside_others_of_the_same_id_are_found(connection: Connection, tmp_path: Path) -> None:
    path = write(tmp_path / "s1.jsonl", LINES["claude-code"])
    reader = detect(path)
    assert reader is not None
    first = next(item for item in reader.read(path, Reading(reader.agent)) if isinstance(item, Message))
    write_batch(
        connection, first.session, [MessageRecord("u2", "user", "other words")], first_day=FIRST_DAY, cap=CAPTURE_CAP
    )
    write_batch(
        connection,
        first.session,
        [item.record for item in reader.read(path, Reading(reader.agent)) if isinstance(item, Message)],
        first_day=FIRST_DAY,
    )
    row = connection.execute("SELECT id FROM ros_messages WHERE metadata ? 'clashes_with'").fetchone()
    assert row is not None
    assert parts(get(connection, row["id"]))["content"] == LONG


def test_long_sections_come_in_pieces(connection: Connection, tmp_path: Path) -> None:
    lines = claude_lines()
    lines[1]["message"]["content"] = huge = "".join(f"{number} 🚀\n" for number in range(140_000))
    capture(connection, write(tmp_path / "s1.jsonl", lines))
    message_id = cut_rows(connection)[0]
    pieces, offset = [], 0
    while True:
        section = get(connection, message_id, section="content", offset=offset).sections[0]
        assert (section.length, section.recovered) == (len(huge), True)
        assert len(section.text) <= SECTION_CHARACTERS
        pieces.append(section.text)
        if section.next_offset is None:
            break
        offset = section.next_offset
    assert len(pieces) == 3
    assert "".join(pieces) == huge
    text = full_payload_text(get(connection, message_id))
    assert f"characters 0 to {SECTION_CHARACTERS:,} of {len(huge):,}" in text
    assert f"[go on with section=content, offset={SECTION_CHARACTERS}]" in text


def test_a_result_whose_call_is_not_in_the_file(connection: Connection, tmp_path: Path) -> None:
    capture(connection, write(tmp_path / "s1.jsonl", without("u2", "a1")))
    payload = get(connection, cut_rows(connection)[0])
    assert (payload.status, parts(payload)) == ("recovered", {"tool_result": RESULT})


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    with running_api(Settings(), database_url) as base, httpx.Client(base_url=base, timeout=30) as opened:
        yield opened


def test_over_http_the_answer_is_one_text(client: httpx.Client, connection: Connection, cut: tuple[Any, Path]) -> None:
    message_id, path = cut
    answer = client.post(
        "/api/memory/tool/memory_get_full", json={"id": str(message_id), "section": None, "max_tokens": "25000"}
    )
    assert answer.status_code == 200
    text = answer.json()["result"]
    assert text.startswith(f"Message {message_id}, rivet-claude/user, in claude-code:s1\n")
    assert f"read back from {path}, line 2." in text
    assert text.endswith(f"[content: {len(LONG):,} characters]\n{LONG}")
    part = client.post("/api/memory/tool/memory_get_full", json={"id": str(message_id), "offset": 100_000_000})
    assert part.json()["result"].endswith(f"characters 100,000,000 to 100,000,000 of {len(LONG):,}]\n")


def read_back(connection: Connection, path: Path, *, of_each: int) -> int:
    """Captures a transcript with nearly everything cut, and reads some of the rows with a pointer back; how many."""
    before = set(cut_rows(connection))
    reader = detect(path)
    assert reader is not None
    for item in reader.read(path, Reading(reader.agent)):
        if isinstance(item, Message):
            write_batch(connection, item.session, [item.record], first_day=FIRST_DAY, cap=20)
        elif isinstance(item, ToolResult):
            write_batch(connection, item.session, [item], first_day=FIRST_DAY, cap=20)
    messages = [load_message(connection, row) for row in cut_rows(connection) if row not in before]
    pointed = [message for message in messages if message and POINTERS & message.metadata.keys()]
    chosen = random.Random(7).sample(pointed, min(of_each, len(pointed)))
    for message in chosen:
        payload = memory_get_full(message, max_line=100_000_000)
        assert payload.status == "recovered", (path, message.event_id, message.metadata, payload.problem)
        texts = parts(payload)
        for name, key in (("content", "full_content_length"), ("tool_result", "full_tool_result_length")):
            if key in message.metadata:
                assert utf16_units(texts[name]) == message.metadata[key]
    return len(chosen)


@pytest.mark.parametrize("folder", ["codex", "opus"])
def test_any_row_of_a_real_session_is_read_back(connection: Connection, folder: str) -> None:
    demo = Path(rivet_pipeline.__file__).parent / "demo" / folder
    assert read_back(connection, min(demo.glob("*.jsonl")), of_each=50) > 20


def test_rows_of_every_sample_are_read_back(connection: Connection, shared_data: Path) -> None:
    harnesses: Counter[str] = Counter()
    for path in sorted((shared_data / "transcripts").rglob("*")):
        reader = detect(path) if path.is_file() and path.stat().st_size < 3_000_000 else None
        if reader is not None:
            harnesses[reader.harness] += read_back(connection, path, of_each=5)
    assert harnesses.keys() <= {reader.harness for reader in READERS}
    assert min(harnesses["claude-code"], harnesses["codex"]) > 20


@pytest.mark.parametrize("harness", list(LINES))
def test_what_live_capture_cut_is_kept_whole_once_its_transcript_is_imported(
    database_url: str, connection: Connection, tmp_path: Path, harness: str
) -> None:
    path = write(tmp_path / NAMES[harness], LINES[harness])
    capture(connection, path)
    cut_ones = cut_rows(connection)
    before = connection.execute("SELECT count(*) AS n FROM ros_messages").fetchone()
    agent = connection.execute("SELECT agent FROM ros_conversations").fetchone()
    assert agent is not None
    for _ in range(2):
        import_paths(database_url, [path], first_day=FIRST_DAY, max_line=1 << 26, agent=agent["agent"])
        connection.execute("TRUNCATE ros_import_files")
    assert connection.execute("SELECT count(*) AS n FROM ros_messages").fetchone() == before
    path.unlink()
    found = [get(connection, message_id) for message_id in cut_ones]
    assert {payload.status for payload in found} == {"kept"}
    texts = {text for payload in found for text in parts(payload).values()}
    assert {LONG, RESULT} <= texts


def test_taking_a_secret_out_of_a_message_forgets_its_full_text(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    secret = "ghp_" + "aB3dE5fG7h" * 3 + "Xy12z9"
    long = [{**line} for line in claude_lines()]
    long[1] = json.loads(json.dumps(long[1]).replace("line 3999 ", f"{secret} "))
    path = write(tmp_path / "s1.jsonl", long)
    capture(connection, path)
    agent = connection.execute("SELECT agent FROM ros_conversations").fetchone()
    assert agent is not None
    import_paths(database_url, [path], first_day=FIRST_DAY, max_line=1 << 26, agent=agent["agent"])
    holding = "SELECT count(*) AS n FROM ros_full_texts WHERE strpos(content, %s) > 0"
    assert connection.execute(holding, [secret]).fetchone() == {"n": 1}
    report = redact_everywhere(connection, literal_rule(secret), Who("tester"), apply=True)
    assert report.rows == 1
    assert connection.execute(holding, [secret]).fetchone() == {"n": 0}
