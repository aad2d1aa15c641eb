"""Live capture from the hook's payload to the store: through real files, a real API and a real database."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.client import CaptureBatch, CaptureClient, Outcome
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.live import HOLD_SECONDS, Worker, main
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.hook_jobs import JOB_SUFFIX, MAGIC
from rivet_pipeline.transcripts.hook_queue import MAX_ATTEMPTS, Job, Jobs
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.spool import Spool
from rivet_pipeline.versions import OWN_TRAFFIC_MARKER
from rivet_pipeline_tests.api_server import running_api

SESSION = "5b0f4f0e-2f58-4a7e-9d4d-1c2b3a495867"
KEY = f"claude-code:{SESSION}"


def row(number: int, kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    """A row of a Claude Code transcript."""
    return {
        "type": kind,
        "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "parentUuid": None,
        "isSidechain": False,
        "sessionId": SESSION,
        "cwd": "/home/ada/shop",
        "timestamp": f"2026-03-08T10:00:{number:02d}.000Z",
        "message": {"role": kind, "content": content},
        **fields,
    }


PROMPT = row(1, "user", "Where do sessions live?")
CALL = row(2, "assistant", [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}])
RESULT = row(3, "user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "pg redis"}])
ANSWER = row(4, "assistant", [{"type": "text", "text": "In Postgres."}])
WHOLE = [PROMPT, CALL, RESULT, ANSWER]


@dataclass
class Agent:
    """A home with a transcript in it, the hooks that are called for it, and the store behind the API."""

    settings: Settings
    connection: Connection
    transcript: Path
    database_url: str

    def write(self, *rows: dict[str, Any]) -> None:
        self.transcript.parent.mkdir(exist_ok=True)
        with self.transcript.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(one) + "\n" for one in rows)

    def call(self, event: str, *, key: str = "", task: str = "", at: float | None = None, **fields: Any) -> Path:
        """What `rivet hook claude-code` leaves behind."""
        common = {"session_id": SESSION, "transcript_path": str(self.transcript), "cwd": "/home/ada/shop"}
        return self.job(json.dumps({**common, "hook_event_name": event, **fields}).encode(), key=key, task=task, at=at)

    def job(
        self, payload: bytes, *, harness: str = "claude-code", key: str = "", task: str = "", at: float | None = None
    ) -> Path:
        folder = self.settings.home / "hook-jobs"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{time.time_ns() // 1000:016d}-{os.urandom(3).hex()}.0{JOB_SUFFIX}"
        about = [harness, key, task, "/home/ada/shop", str(at or time.time())]
        path.write_bytes(b"".join(part + b"\0" for part in (MAGIC, *map(os.fsencode, about))) + payload)
        return path

    def work(self) -> None:
        with CaptureClient.from_settings(self.settings) as client:
            Worker(self.settings, client).run()

    def rows(self) -> list[dict[str, Any]]:
        return self.connection.execute(
            """SELECT c.session_key, m.* FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = conversation_id
               ORDER BY m.created_at, m.seq"""
        ).fetchall()

    def said(self) -> list[tuple[str, str]]:
        return [(found["role"], found["content"] or found["tool_result"]) for found in self.rows()]

    def conversation(self) -> dict[str, Any]:
        found = self.connection.execute("SELECT * FROM ros_conversations").fetchall()
        assert len(found) == 1
        return found[0]

    def import_it(self) -> dict[str, int]:
        report = import_paths(
            self.database_url, [self.transcript.parent], first_day=date(2022, 11, 1), max_line=1024 * 1024
        )
        return report.messages()

    @property
    def jobs(self) -> Jobs:
        return Jobs(self.settings.home)

    @property
    def log(self) -> str:
        path = self.settings.home / "logs" / "hooks.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def agent(database_url: str, connection: Connection, tmp_path: Path) -> Iterator[Agent]:
    with running_api(Settings(home=tmp_path / "home"), database_url) as url:
        settings = Settings(home=tmp_path / "home", api_url=url)
        yield Agent(settings, connection, tmp_path / "project" / f"{SESSION}.jsonl", database_url)


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not wait long for rows that never come."""
    monkeypatch.setattr("rivet_pipeline.live.ROW_SECONDS", 0.2)


def test_a_session_is_captured_turn_by_turn_and_an_import_adds_nothing(agent: Agent) -> None:
    agent.write(PROMPT)
    agent.call("UserPromptSubmit", prompt="Where do sessions live?")
    agent.work()
    assert agent.said() == [("user", "Where do sessions live?")]
    agent.write(CALL, RESULT)
    agent.call("PostToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_use_id="toolu_1", tool_response="x")
    agent.work()
    agent.write(ANSWER)
    agent.call("Stop", last_assistant_message="In Postgres.")
    agent.work()
    expected = [("user", "Where do sessions live?"), ("tool", "pg redis"), ("assistant", "In Postgres.")]
    assert agent.said() == expected
    assert {found["session_key"] for found in agent.rows()} == {KEY}
    assert agent.conversation()["active"] is True
    agent.call("SessionEnd", reason="exit")
    agent.work()
    conversation = agent.conversation()
    assert conversation["active"] is False
    assert conversation["title"] == "Where do sessions live?"
    assert {key: conversation["settings"][key] for key in ("cwd", "source", "last_event", "session_id")} == {
        "cwd": "/home/ada/shop",
        "source": "claude-code",
        "last_event": "SessionEnd",
        "session_id": SESSION,
    }
    assert agent.import_it()["new"] == 0
    assert agent.said() == expected
    assert agent.jobs.waiting() == []
    assert agent.log == ""


def test_an_import_first_and_the_hook_after_it_add_nothing_either(agent: Agent) -> None:
    agent.write(*WHOLE)
    assert agent.import_it()["new"] == 3
    agent.call("Stop")
    agent.work()
    assert len(agent.rows()) == 3


def test_rows_are_the_same_whichever_way_they_came(agent: Agent) -> None:
    agent.write(*WHOLE)
    agent.call("Stop")
    agent.work()
    columns = ("event_id", "agent", "channel", "role", "content", "tool_name", "tool_args", "tool_result", "created_at")
    live = [{name: found[name] for name in (*columns, "metadata")} for found in agent.rows()]
    agent.transcript.rename(agent.transcript.with_name("other.jsonl"))
    agent.transcript.with_name("other.jsonl").write_text(
        agent.transcript.with_name("other.jsonl").read_text().replace(SESSION, "other")
    )
    agent.import_it()
    imported = [found for found in agent.rows() if found["session_key"] == "claude-code:other"]
    assert [{name: found[name] for name in columns} for found in imported] == [
        {name: found[name] for name in columns} for found in live
    ]
    assert [found["metadata"].keys() for found in imported] == [found["metadata"].keys() for found in live]


def test_only_what_is_new_is_posted(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[int] = []
    write = CaptureClient.write

    def counting(self: CaptureClient, batch: CaptureBatch) -> Outcome:
        posted.append(len(batch.items))
        return write(self, batch)

    monkeypatch.setattr(CaptureClient, "write", counting)
    agent.write(PROMPT, CALL)
    agent.call("PostToolUse")
    agent.work()
    agent.call("PostToolUse")
    agent.work()
    agent.write(RESULT, ANSWER)
    agent.call("Stop")
    agent.work()
    assert posted == [2, 2]
    # A transcript that was rewritten is given whole again, and the store knows what it has.
    agent.transcript.write_text("")
    agent.write(row(9, "user", "Something else"), *WHOLE)
    agent.call("Stop")
    agent.work()
    assert posted == [2, 2, 5]
    assert len(agent.rows()) == 4


def test_jobs_of_one_session_are_worked_together(agent: Agent) -> None:
    agent.write(*WHOLE)
    for event in ("UserPromptSubmit", "PostToolUse", "PostToolUse", "Stop", "SessionEnd"):
        agent.call(event, prompt="Where do sessions live?", tool_name="Bash")
    agent.work()
    assert len(agent.rows()) == 3
    assert agent.conversation()["active"] is False
    # Resumed: words after the end open it again.
    agent.write(row(5, "user", "And backups?"))
    agent.call("SessionEnd")
    agent.call("UserPromptSubmit", prompt="And backups?")
    agent.work()
    assert agent.conversation()["active"] is True


def test_a_prompts_row_that_comes_a_moment_later_is_waited_for(agent: Agent) -> None:
    agent.write(row(0, "user", "Before"))
    agent.call("Stop")
    agent.work()
    agent.call("UserPromptSubmit", prompt="Where do sessions live?")
    later = threading.Timer(0.3, agent.write, [PROMPT])
    later.start()
    agent.work()
    later.join()
    assert agent.said() == [("user", "Before"), ("user", "Where do sessions live?")]


def test_a_half_written_row_waits(agent: Agent) -> None:
    text = json.dumps(ANSWER)
    agent.write(PROMPT)
    with agent.transcript.open("a") as stream:
        stream.write(text[:60])
    agent.call("Stop")
    agent.work()
    assert agent.said() == [("user", "Where do sessions live?")]
    with agent.transcript.open("a") as stream:
        stream.write(text[60:] + "\n")
    agent.call("Stop")
    agent.work()
    assert agent.said()[1:] == [("assistant", "In Postgres.")]


@pytest.mark.usefixtures("briefly")
def test_a_first_prompt_whose_transcript_is_not_there_yet_is_not_stored_twice(agent: Agent) -> None:
    agent.call("UserPromptSubmit", prompt="Where do sessions live?")
    agent.work()
    assert agent.rows() == []
    assert len(agent.jobs.waiting()) == 1
    agent.write(*WHOLE)
    agent.call("Stop", last_assistant_message="In Postgres.")
    agent.work()
    assert len(agent.rows()) == 3
    assert agent.jobs.waiting() == []


def test_without_a_transcript_the_payloads_are_captured(agent: Agent) -> None:
    agent.call("UserPromptSubmit", prompt="Where?", transcript_path=None)
    agent.work()
    tool: dict[str, Any] = {
        "tool_name": "Bash",
        "tool_input": {"a": 1},
        "tool_use_id": "toolu_1",
        "tool_response": {"out": "x"},
    }
    agent.call("PostToolUse", transcript_path=None, **tool)
    agent.call("Stop", last_assistant_message="Here.", transcript_path=None)
    agent.work()
    assert agent.said() == [("user", "Where?"), ("tool", '{"out": "x"}'), ("assistant", "Here.")]
    rows = agent.rows()
    assert [found["metadata"]["source"] for found in rows] == ["hook"] * 3
    assert [found["event_id"].split(":")[0] for found in rows] == ["hook", "tool", "hook"]
    assert (rows[0]["session_key"], rows[0]["agent"], rows[0]["channel"]) == (KEY, "rivet-claude", "claude-code")
    agent.call("SessionEnd")
    agent.work()
    assert (agent.conversation()["active"], agent.conversation()["title"]) == (False, "Where?")


TOOL_CALL: dict[str, Any] = {
    "tool_name": "Bash",
    "tool_input": {"command": "ls"},
    "tool_use_id": "toolu_1",
    "tool_response": "pg redis",
}


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize("begun", [None, "", '{"type": "us'])
def test_a_transcript_that_comes_after_a_whole_turn_is_not_stored_twice(agent: Agent, begun: str | None) -> None:
    if begun is not None:
        agent.transcript.parent.mkdir()
        agent.transcript.write_text(begun)
    turn: list[tuple[str, dict[str, Any]]] = [
        ("UserPromptSubmit", {"prompt": "Where do sessions live?"}),
        ("PostToolUse", TOOL_CALL),
        ("Stop", {"last_assistant_message": "In Postgres."}),
    ]
    for event, fields in turn:
        agent.call(event, **fields)
        agent.work()
        assert agent.rows() == []
    assert len(agent.jobs.waiting()) == 3
    agent.transcript.unlink(missing_ok=True)
    agent.write(*WHOLE)
    agent.call("Stop", last_assistant_message="In Postgres.")
    agent.work()
    assert [found["role"] for found in agent.rows()] == ["user", "tool", "assistant"]
    assert agent.import_it()["new"] == 0
    assert agent.jobs.waiting() == []


@pytest.mark.usefixtures("briefly")
def test_what_was_kept_back_is_captured_when_the_session_ends_without_a_transcript(agent: Agent) -> None:
    agent.call("UserPromptSubmit", prompt="Where?")
    agent.call("Stop", last_assistant_message="Here.")
    agent.work()
    assert agent.rows() == []
    agent.call("SessionEnd")
    agent.work()
    assert agent.said() == [("user", "Where?"), ("assistant", "Here.")]
    assert agent.conversation()["active"] is False
    assert agent.jobs.waiting() == []


@pytest.mark.usefixtures("briefly")
def test_what_a_worker_keeps_back_goes_with_the_end_that_comes_while_it_works(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back = Jobs.put_back

    def and_end(self: Jobs, job: Job, *, failed: bool = False) -> None:
        put_back(self, job, failed=failed)
        agent.call("SessionEnd")

    monkeypatch.setattr(Jobs, "put_back", and_end)
    agent.call("Stop", last_assistant_message="Here.")
    agent.work()
    assert agent.said() == [("assistant", "Here.")]
    assert agent.conversation()["active"] is False
    assert agent.jobs.waiting() == []


@pytest.mark.usefixtures("briefly")
def test_a_prompt_is_not_kept_back_for_ever(agent: Agent) -> None:
    agent.call("UserPromptSubmit", prompt="Where?", at=time.time() - HOLD_SECONDS - 1)
    agent.work()
    assert agent.said() == [("user", "Where?")]


def test_a_turn_is_kept_back_from_its_last_job_on_and_no_longer(agent: Agent) -> None:
    agent.call("PostToolUse", at=time.time() - HOLD_SECONDS - 60, **TOOL_CALL)
    agent.call("Stop", at=time.time() - HOLD_SECONDS + 60, last_assistant_message="Here.")
    agent.work()
    assert agent.rows() == []
    for job in agent.jobs.waiting():
        job.path.unlink()
    agent.call("PostToolUse", at=time.time() - HOLD_SECONDS - 60, **TOOL_CALL)
    agent.call("Stop", at=time.time() - HOLD_SECONDS - 1, last_assistant_message="Here.")
    agent.work()
    assert agent.said() == [("tool", "pg redis"), ("assistant", "Here.")]


def test_an_end_without_a_word_makes_no_conversation(agent: Agent) -> None:
    agent.call("SessionEnd")
    agent.call("SessionEnd", session_id="other", transcript_path=None)
    agent.work()
    assert agent.connection.execute("SELECT count(*) AS n FROM ros_conversations").fetchone() == {"n": 0}
    assert agent.jobs.waiting() == []


def test_a_sub_agents_transcript_is_read_into_its_parent(agent: Agent) -> None:
    agent.write(*WHOLE)
    theirs = agent.transcript.parent / "agent-a1.jsonl"
    found = row(5, "assistant", [{"type": "text", "text": "Found it."}], isSidechain=True, agentId="a1")
    theirs.write_text(json.dumps(found) + "\n")
    agent.call("SubagentStop", agent_id="a1", agent_transcript_path=str(theirs))
    agent.work()
    assert agent.said()[-1] == ("assistant", "Found it.")
    assert agent.rows()[-1]["metadata"]["sidechain"] is True
    assert agent.import_it()["new"] == 0


def test_the_key_and_the_task_that_were_set_for_the_agent(agent: Agent) -> None:
    task = "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49"
    agent.write(*WHOLE)
    agent.call("Stop", key="den:42", task=task)
    agent.work()
    assert (agent.conversation()["session_key"], str(agent.conversation()["task_id"])) == ("den:42", task)
    agent.call("SessionEnd", key="den:42", task="no uuid")
    agent.work()
    assert (agent.conversation()["active"], str(agent.conversation()["task_id"])) == (False, task)


@pytest.mark.parametrize("begun", [True, False])
def test_a_project_is_found_out_where_the_folder_is(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begun: bool
) -> None:
    folder = tmp_path / "copy"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text('[remote "origin"]\n\turl = git@example.org:team/shop.git\n')
    monkeypatch.setattr("rivet_pipeline.api.routes.capture.planned_settings", lambda settings: {"project": "copy"})
    monkeypatch.setattr(Settings, "captures_elsewhere", True)
    if begun:
        agent.write({**PROMPT, "cwd": str(folder)})
    agent.call("UserPromptSubmit", prompt="Where do sessions live?", cwd=str(folder), at=time.time() - 1000)
    agent.work()
    assert agent.conversation()["settings"]["project"] == "shop"
    [tag] = agent.connection.execute("SELECT tag_value, source FROM ros_tags WHERE tag_key = 'project'").fetchall()
    assert tag == {"tag_value": "shop", "source": "rule"}


def test_our_own_model_traffic_is_noise(agent: Agent) -> None:
    agent.write(row(1, "user", f"{OWN_TRAFFIC_MARKER}\nSummarise this."))
    agent.call("Stop")
    agent.work()
    assert agent.conversation()["settings"]["noise"] is True
    agent.call("UserPromptSubmit", prompt=OWN_TRAFFIC_MARKER, session_id="print", transcript_path=None)
    agent.work()
    found = agent.connection.execute("SELECT ros_is_noise(session_key, settings) AS noise FROM ros_conversations")
    assert [one["noise"] for one in found.fetchall()] == [True, True]


def test_while_the_api_is_away_it_is_spooled_and_the_cursor_moves_on(agent: Agent) -> None:
    url, agent.settings = agent.settings.api_url, agent.settings.model_copy(update={"api_url": "http://127.0.0.1:9"})
    agent.write(PROMPT, CALL)
    agent.call("PostToolUse")
    agent.work()
    agent.write(RESULT, ANSWER)
    agent.call("Stop")
    agent.work()
    spool = Spool(agent.settings.spool_folder)
    assert len(spool.files()) == 2
    assert agent.jobs.waiting() == []
    agent.settings = agent.settings.model_copy(update={"api_url": url})
    agent.call("SessionEnd")
    agent.work()
    assert spool.files() == []
    assert [found["role"] for found in agent.rows()] == ["user", "tool", "assistant"]
    assert agent.conversation()["active"] is False


def test_a_job_that_fails_is_tried_again_and_kept_in_the_end(agent: Agent) -> None:
    agent.write(*WHOLE)
    job = agent.call("Stop")
    payload = job.read_bytes()
    # Neither stored nor spooled: a file stands where the spool's folder belongs.
    agent.settings = agent.settings.model_copy(update={"api_url": "http://127.0.0.1:9"})
    agent.settings.spool_folder.write_text("")
    for attempt in range(MAX_ATTEMPTS):
        assert [one.attempts for one in agent.jobs.waiting()] == [attempt]
        agent.work()
    assert agent.jobs.waiting() == []
    (dead,) = agent.jobs.dead_folder.glob(f"*{JOB_SUFFIX}")
    assert dead.read_bytes() == payload
    assert f"failed {MAX_ATTEMPTS} times" in dead.with_suffix(".reason").read_text()
    assert not (agent.settings.home / "hook-cursors").exists()


@pytest.mark.parametrize(
    ("payload", "harness", "said"),
    [
        (b"\x00\xff" * 50, "claude-code", "not JSON"),
        (b"[]", "claude-code", "not a JSON object"),
        (b'{"hook_event_name": "Stop"}', "claude-code", "neither a session nor a transcript"),
        (b"{}", "emacs", "unknown harness 'emacs'; known are claude-code, codex, qwen-code"),
    ],
)
def test_what_can_not_be_understood_is_kept_with_its_reason(
    agent: Agent, payload: bytes, harness: str, said: str
) -> None:
    agent.job(payload, harness=harness)
    agent.work()
    assert agent.jobs.dead() == 1
    assert said in agent.log


def test_an_unknown_event_is_ignored_and_logged(agent: Agent) -> None:
    agent.call("PreCompact")
    agent.work()
    assert (agent.jobs.waiting(), agent.jobs.dead()) == ([], 0)
    assert "unknown event 'PreCompact'" in agent.log


def test_a_job_whose_worker_was_killed_is_taken_up_again(agent: Agent) -> None:
    agent.write(*WHOLE)
    job = agent.call("Stop")
    # No process has such a number.
    job.rename(job.with_name(f"{job.name.split('.')[0]}.0.99999999.taken"))
    agent.work()
    assert len(agent.rows()) == 3
    assert "its worker was killed" in agent.log


def test_a_session_that_another_worker_has_is_left_to_it(agent: Agent) -> None:
    agent.write(*WHOLE)
    agent.call("Stop")
    with agent.jobs.session_lock(KEY) as mine:
        assert mine
        agent.work()
        assert agent.rows() == []
        assert len(agent.jobs.waiting()) == 1
    agent.work()
    assert len(agent.rows()) == 3


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: Path(path).write_text("no transcript\n")])
def test_a_transcript_that_is_none_is_not_waited_for(agent: Agent, make: Callable[[Path], Any]) -> None:
    agent.transcript.parent.mkdir()
    make(agent.transcript)
    agent.call("Stop", last_assistant_message="Here.")
    agent.work()
    assert agent.said() == [("assistant", "Here.")]


def test_a_first_long_transcript_is_posted_in_parts_and_goes_on_where_it_broke_off(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(0, "user", f"Message {number}", uuid=f"u{number}") for number in range(450)]
    agent.write(*rows)
    write, calls = CaptureClient.write, []

    def breaking(self: CaptureClient, batch: Any) -> Any:
        calls.append(len(batch.items))
        if len(calls) == 2:
            raise RuntimeError("killed in the middle")
        return write(self, batch)

    monkeypatch.setattr(CaptureClient, "write", breaking)
    agent.call("Stop")
    agent.work()
    assert len(agent.rows()) < 450
    agent.work()
    assert [found["content"] for found in agent.rows()] == [f"Message {number}" for number in range(450)]
    assert sum(calls[2:]) < 300


def test_codex_is_captured_and_imported_as_one(agent: Agent) -> None:
    meta = {"id": SESSION, "timestamp": "2026-03-08T10:00:00Z", "cwd": "/home/ada/shop", "originator": "codex_cli"}
    said = [("user", "input_text", "Where do sessions live?"), ("assistant", "output_text", "In Postgres.")]
    rows: list[dict[str, Any]] = [{"timestamp": "2026-03-08T10:00:00Z", "type": "session_meta", "payload": meta}]
    rows += [
        {
            "timestamp": f"2026-03-08T10:00:0{number}Z",
            "type": "response_item",
            "payload": {"type": "message", "role": role, "content": [{"type": kind, "text": text}]},
        }
        for number, (role, kind, text) in enumerate(said, 1)
    ]
    agent.transcript = agent.transcript.with_name(f"rollout-2026-03-08T10-00-00-{SESSION}.jsonl")
    agent.write(*rows)
    payload = {"session_id": SESSION, "transcript_path": str(agent.transcript), "hook_event_name": "SessionEnd"}
    agent.job(json.dumps(payload).encode(), harness="codex")
    agent.work()
    assert agent.said() == [("user", "Where do sessions live?"), ("assistant", "In Postgres.")]
    conversation = agent.conversation()
    assert (conversation["session_key"], conversation["agent"]) == (f"codex:{SESSION}", "rivet-gpt")
    assert conversation["active"] is False
    assert agent.import_it()["new"] == 0


def test_qwen_code_is_captured_and_imported_as_one(agent: Agent) -> None:
    parts = [
        ("user", {"text": "Where do sessions live?"}),
        ("assistant", {"functionCall": {"id": "c1", "name": "read_file", "args": {"path": "a"}}}),
        ("tool_result", {"functionResponse": {"id": "c1", "name": "read_file", "response": {"output": "pg"}}}),
        ("assistant", {"text": "In Postgres."}),
    ]
    rows = [
        row(number, kind, None, version="0.21.13", provenance="real_user", message={"role": "x", "parts": [part]})
        for number, (kind, part) in enumerate(parts, 1)
    ]
    agent.write(*rows)
    common = {"session_id": SESSION, "transcript_path": str(agent.transcript), "cwd": "/home/ada/shop"}
    for event in ("Stop", "SessionEnd"):
        agent.job(json.dumps({**common, "hook_event_name": event}).encode(), harness="qwen-code")
        agent.work()
    assert agent.said() == [("user", "Where do sessions live?"), ("tool", "pg"), ("assistant", "In Postgres.")]
    assert agent.rows()[1]["event_id"] == "tool:c1"
    assert (agent.conversation()["session_key"], agent.conversation()["active"]) == (f"qwen-code:{SESSION}", False)
    assert agent.import_it()["new"] == 0


def test_a_bad_setting_is_one_plain_line_in_the_log(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIVETOS_API_PORT", "port")
    monkeypatch.setattr(os, "closerange", lambda low, high: None)
    monkeypatch.setattr(os, "nice", lambda increment: 0)
    main(str(agent.settings.home))
    line = agent.log.strip()
    assert "the worker ended: RIVETOS_API_PORT is wrong: " in line
    assert "\n" not in line
    assert "pydantic" not in line
