"""What each kind of Qwen Code row becomes: whose words they are, which ids they get, what a rewind takes back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.readers import detect
from rivet_pipeline.transcripts.readers.qwen_code import QwenCodeReader
from rivet_pipeline.transcripts.reading import Reading
from rivet_pipeline.transcripts.records import (
    Damaged,
    Incomplete,
    Message,
    MessageRecord,
    Paused,
    ReadItem,
    SessionUpdate,
    Skipped,
    ToolResult,
)

SESSION = "019f0000-0000-7000-8000-00000000000a"
OFF = "off_path"


def row(uuid: str, kind: str, *parts: dict[str, Any], second: int = 0, **more: Any) -> dict[str, Any]:
    message = {"role": "model" if kind == "assistant" else "user", "parts": list(parts)}
    return {
        "uuid": uuid,
        "parentUuid": None,
        "sessionId": SESSION,
        "timestamp": f"2026-01-01T10:00:{second:02}.000Z",
        "type": kind,
        "cwd": "/app",
        "version": "0.21.13",
        "message": message,
        **more,
    }


def system(uuid: str, subtype: str, **payload: Any) -> dict[str, Any]:
    return {**row(uuid, "system"), "message": None, "subtype": subtype, "systemPayload": payload}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"text": words, **more}


def call(native: str, name: str = "read_file", **args: Any) -> dict[str, Any]:
    return {"functionCall": {"id": native, "name": name, "args": args}}


def response(native: str, answer: dict[str, Any]) -> dict[str, Any]:
    return {"functionResponse": {"id": native, "name": "read_file", "response": answer}}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in rows))
    return path


def read(path: Path, **how: Any) -> list[ReadItem]:
    return list(QwenCodeReader().read(path, Reading("rivet-qwen", **how)))


def records(items: Iterable[ReadItem]) -> list[MessageRecord]:
    return [item.record for item in items if isinstance(item, Message)]


def said(items: Iterable[ReadItem]) -> list[tuple[str, str, str]]:
    return [(found.role, found.metadata.get("kind", "speech"), found.content) for found in records(items)]


def results(items: Iterable[ReadItem]) -> list[tuple[str, str, Any]]:
    found = [item for item in items if isinstance(item, ToolResult)]
    return [(item.event_id, item.tool_result, item.metadata.get("is_error")) for item in found]


def titles(items: Iterable[ReadItem]) -> list[str | None]:
    return [item.session.title for item in items if isinstance(item, SessionUpdate)]


def test_whose_words_a_users_row_holds(tmp_path: Path) -> None:
    context = "<qwen:user-prompt-submit-context>\nrules\n</qwen:user-prompt-submit-context>"
    items = read(
        write(
            tmp_path / "a.jsonl",
            row("u1", "user", text("do it"), text(context)),
            row("u2", "user", text(f"{context}\nand this"), provenance="real_user"),
            row("u3", "user", text("<task>done</task>"), subtype="notification", provenance="system"),
            row("u4", "user", text("go on"), subtype="mid_turn_user_message", provenance="system"),
            row("u5", "user", text("every hour"), subtype="cron"),
            row("u6", "user", text("reach the goal"), provenance="goal_runtime"),
            row("u7", "user", subtype="mid_turn_user_message", systemPayload={"displayText": "shown"}),
            row("u8", "user", {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
            row("u9", "user"),
        )
    )
    assert said(items) == [
        ("user", "speech", "do it"),
        ("system", "injected", context),
        ("system", "injected", context),
        ("user", "speech", "and this"),
        ("system", "notice", "<task>done</task>"),
        ("user", "speech", "go on"),
        ("system", "injected", "every hour"),
        ("system", "injected", "reach the goal"),
        ("user", "speech", "shown"),
        ("user", "speech", "[image image/png, 3 bytes]"),
    ]
    assert [item.reason for item in items if isinstance(item, Skipped)] == ["user without text"]
    assert titles(items) == ["do it"]
    ids = [found.event_id for found in records(items)]
    assert ids[0] == "u1"
    assert len(set(ids)) == len(ids)


def test_every_call_in_a_row_is_kept_and_finds_its_result(tmp_path: Path) -> None:
    items = read(
        write(
            tmp_path / "a.jsonl",
            row("a1", "assistant", text("hm", thought=True), text("both"), call("c1", path="x"), call("c2", path="y")),
            row("t1", "tool_result", response("c2", {"error": "gone"}), toolCallResult={"status": "error"}),
            row("t2", "tool_result", response("c1", {"output": "text"}), text("and a note")),
            row("a2", "assistant", call("c1", path="z"), call("", path="n"), call("", path="m")),
            row("t3", "tool_result", response("c1", {"output": "again"}), response("", {"output": "n"})),
            row("t4", "tool_result", response("", {"rows": [1]})),
            row(
                "t5", "tool_result", toolCallResult={"callId": "lost", "resultDisplay": "shown", "status": "cancelled"}
            ),
        )
    )
    assert [(found.event_id, found.tool_args) for found in records(items)] == [
        ("a1:thinking", None),
        ("a1", None),
        ("tool:c1", {"path": "x"}),
        ("tool:c2", {"path": "y"}),
        ("tool:c1:a2", {"path": "z"}),
        ("a2:call", {"path": "n"}),
        ("a2:call:2", {"path": "m"}),
    ]
    assert results(items) == [
        ("tool:c2", "gone", True),
        ("tool:c1", "text\nand a note", None),
        ("tool:c1:a2", "again", None),
        ("a2:call", "n", None),
        ("a2:call:2", '{"rows": [1]}', None),
        ("tool:lost", "shown", True),
    ]


def test_one_uuid_on_two_rows_keeps_both_and_a_repeated_row_is_the_same(tmp_path: Path) -> None:
    first, second = row("a1", "assistant", text("one")), row("a1", "assistant", text("two"))
    items = read(write(tmp_path / "a.jsonl", first, second, first, second))
    ids = [found.event_id for found in records(items)]
    assert ids[0] == "a1"
    assert ids[1].startswith("a1:")
    assert ids == ids[:2] * 2


def test_rows_without_a_uuid_get_ids_of_their_own(tmp_path: Path) -> None:
    rows = [row("", "user", text("hi")), row("", "user", text("hi")), row("", "assistant", call("", a=1))]
    path = write(tmp_path / "a.jsonl", *rows)
    ids = [found.event_id for found in records(read(path))]
    assert len(set(ids)) == 3
    grown = write(path, *rows, row("u1", "user", text("more")))
    assert [found.event_id for found in records(read(grown))][:3] == ids


def test_what_a_rewind_took_back_is_kept_and_marked(tmp_path: Path) -> None:
    items = read(
        write(
            tmp_path / "a.jsonl",
            row("u1", "user", text("start")),
            row("a1", "assistant", text("wrong"), model="dead"),
            system("s1", "custom_title", customTitle="Wrong"),
            system("r1", "rewind", targetUuid="u1"),
            row("u2", "user", text("better")),
            row("a2", "assistant", text("right"), model="live"),
            {**system("r2", "rewind", truncatedCount=1), "parentUuid": "u2"},
            row("a3", "assistant", text("best"), model="live"),
        )
    )
    assert [(found.content, found.metadata.get(OFF)) for found in records(items)] == [
        ("start", None),
        ("wrong", True),
        ("[conversation rewound to u1]", None),
        ("better", None),
        ("right", True),
        ("[conversation rewound to u2]", None),
        ("best", None),
    ]
    assert titles(items) == ["start"]
    last = [item for item in items if isinstance(item, Message)][-1]
    assert last.session.settings["model"] == "live"


def test_a_session_has_one_id_however_it_is_spelt(tmp_path: Path) -> None:
    bare = write(tmp_path / "a.jsonl", row("u1", "user", text("a"), sessionId=SESSION.replace("-", "").upper()))
    dashed = write(tmp_path / "b.jsonl", row("u1", "user", text("a")))
    keys = {item.session.session_key for path in (bare, dashed) for item in read(path) if isinstance(item, Message)}
    assert keys == {f"qwen-code:{SESSION}"}


def test_machinery(tmp_path: Path) -> None:
    usage = {"event.name": "qwen-code.api_response", "input_token_count": 5, "output_token_count": 2, "model": "m"}
    history = [{"role": "user", "parts": [{"text": "we did things"}]}, {"role": "model", "parts": [{"text": "ok"}]}]
    items = read(
        write(
            tmp_path / "a.jsonl",
            system("s0", "parent_session", parentSessionId="p"),
            system("s1", "slash_command", phase="invocation", rawCommand="/about"),
            system(
                "s2", "slash_command", phase="result", outputHistoryItems=[{"type": "info", "text": "v1"}, {"a": 1}]
            ),
            system("s3", "slash_command", phase="invocation", rawCommand="/fix the tests"),
            system("s4", "ui_telemetry", uiEvent=usage),
            row("a1", "assistant", text("one")),
            row("a2", "assistant", text("two")),
            system("s5", "ui_telemetry", uiEvent={"error_message": "quota"}),
            system("s6", "chat_compression", compressedHistory=history),
            system("s7", "custom_title", customTitle=" My  title "),
            system("s8", "attribution_snapshot"),
            {"type": "brand-new", "sessionId": SESSION},
        )
    )
    assert said(items) == [
        ("user", "notice", "/about"),
        ("system", "notice", 'v1\n{"a": 1}'),
        ("user", "speech", "/fix the tests"),
        ("assistant", "speech", "one"),
        ("assistant", "speech", "two"),
        ("system", "notice", "quota"),
        ("system", "summary", "we did things"),
    ]
    assert records(items)[3].metadata["usage"] == {"input_token_count": 5, "output_token_count": 2}
    assert "usage" not in records(items)[4].metadata
    assert titles(items) == [None, "/fix the tests", "My title"]
    parents = {item.session.settings.get("parent_session_id") for item in items if isinstance(item, SessionUpdate)}
    assert "p" in parents
    reasons = [item.reason for item in items if isinstance(item, Skipped)]
    assert reasons == ["system/ui_telemetry", "system/attribution_snapshot", "brand-new"]


def test_sub_agents_and_branches(tmp_path: Path) -> None:
    fork = {"sessionId": "old", "messageUuid": "u1"}
    items = read(
        write(
            tmp_path / "a.jsonl",
            row("u1", "user", text("old words"), forkedFrom=fork),
            row("u2", "user", text("look"), isSidechain=True, agentId="explore-1"),
        )
    )
    assert said(items) == [("user", "replay", "old words"), ("user", "speech", "look")]
    sessions = [item.session.settings for item in items if isinstance(item, Message)]
    assert sessions[0]["parent_session_id"] == "old"
    marks = records(items)[1].metadata
    assert (marks["sidechain"], marks["agent_id"]) == (True, "explore-1")
    assert titles(items) == []


def test_damage_touches_no_other_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = [json.dumps(row(f"u{number}", "user", text(f"words {number}"))) for number in range(4)]
    bad = json.dumps({**row("u9", "assistant"), "message": {"parts": [{"functionCall": {"args": {}}}, 7]}})
    path.write_text(f"{good[0]}{good[1]}\n{good[2][:80]}{good[3]}\n{bad}\n" + '{"uuid": "u5", "type": "us')
    items = read(path, settled=False)
    assert [found.content for found in records(items)] == ["words 0", "words 1", "words 3", ""]
    assert [type(item) for item in items if isinstance(item, Damaged | Incomplete)] == [Damaged, Incomplete]


def test_a_file_is_followed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", row("u1", "user", text("one")))
    reading = QwenCodeReader().read(path, Reading("rivet-qwen", follow=True))
    assert [type(next(reading)) for _ in range(3)] == [Message, SessionUpdate, Paused]
    with path.open("a") as stream:
        stream.write(json.dumps(row("u2", "user", text("two"))) + "\n")
    assert said([next(reading)]) == [("user", "speech", "two")]


@pytest.mark.parametrize(
    "rows",
    [
        [{"type": "user", "sessionId": "s", "message": {"parts": [{"text": "x"}]}}],
        [{"type": "system", "uuid": "u", "sessionId": "s"}],
        [{"uuid": "u", "sessionId": "s", "parts": []}],
    ],
)
def test_other_files_are_nobodys(tmp_path: Path, rows: list[Any]) -> None:
    assert detect(write(tmp_path / "a.jsonl", *rows)) is None


def sample(shared_data: Path, name: str) -> list[ReadItem]:
    path = shared_data / "transcripts" / "qwen-code" / name
    assert isinstance(detect(path), QwenCodeReader)
    items = read(path)
    ids = [found.event_id for found in records(items)]
    assert len(set(ids)) == len(ids)
    assert [found.event_id for found in records(read(path))] == ids
    return items


def test_real_hook_context_and_notification(shared_data: Path) -> None:
    items = sample(shared_data, "019f0000-0000-7000-8000-000000000001.jsonl")
    hook = "Synthetic hook context that is not the user's prompt."
    assert said(items) == [
        ("user", "speech", "Inspect the synthetic fixture."),
        ("system", "injected", f"<qwen:user-prompt-submit-context>\n{hook}\n</qwen:user-prompt-submit-context>"),
        ("assistant", "thinking", "I should read the synthetic file."),
        ("tool", "tool", ""),
        ("assistant", "speech", "The synthetic fixture is valid."),
        ("system", "notice", "Synthetic background notification."),
    ]
    assert results(items) == [("tool:synthetic-call-1", "Synthetic file contents.", None)]


def test_real_rewind_and_one_uuid_twice(shared_data: Path) -> None:
    items = sample(shared_data, "019f0000-0000-7000-8000-000000000004.jsonl")
    base = "019f0000-0000-7000-8000-0000000000"
    assert [(found.event_id.removeprefix(base), found.content, OFF in found.metadata) for found in records(items)] == [
        ("41", "Begin the active-chain fixture.", False),
        ("42", "Discarded branch answer.", True),
        ("44", f"[conversation rewound to {base}41]", False),
        ("45", "Continue from the rewound branch.", False),
        ("46:thinking", "Reason over the active branch.", False),
        ("tool:synthetic-active-call", "", False),
        ("46", "Active branch answer.", False),
    ]
    assert titles(items) == ["Begin the active-chain fixture.", "Active branch title"]


def test_real_glued_rows(shared_data: Path) -> None:
    items = sample(shared_data, "019f0000-0000-7000-8000-000000000005.jsonl")
    assert said(items) == [
        ("user", "speech", 'Inspect {"glued": "objects"} safely.'),
        ("assistant", "speech", "Recovered both synthetic objects."),
    ]
    assert [item for item in items if isinstance(item, Damaged)] == []


def test_real_bare_id(shared_data: Path) -> None:
    items = sample(shared_data, "019f0000000070008000000000000003.jsonl")
    assert said(items) == [("user", "speech", "Inspect a compact-ID synthetic fixture.")]
    [message] = [item for item in items if isinstance(item, Message)]
    assert message.session.session_key == "qwen-code:019f0000-0000-7000-8000-000000000003"


def test_real_telemetry(shared_data: Path) -> None:
    items = sample(shared_data, "system_telemetry.jsonl")
    assert [(role, kind) for role, kind, _ in said(items)] == [
        ("assistant", "speech"),
        ("tool", "tool"),
        ("system", "notice"),
        ("user", "speech"),
        ("system", "notice"),
    ]
    assert "cliVersion" in said(items)[-1][2]
    assert [item.reason for item in items if isinstance(item, Skipped)] == ["system/ui_telemetry"] * 3
    assert results(items) == [("tool:[trimmed for fixture]", "", None)]
