"""The spool's files: private, in order, whole, and never in each other's way."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from rivet_pipeline.transcripts.spool import DamagedSpoolFileError, Spool, SpoolError, SpoolFile


def body(text: str = "x", session: str = "s:1") -> bytes:
    message = {"event_id": text, "role": "user", "content": text}
    return json.dumps({"session_key": session, "agent": "a", "channel": "c", "messages": [message]}).encode()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "home" / "capture-spool")


def test_files_are_private_whole_and_named_by_time_and_session(spool: Spool) -> None:
    path = spool.put(body(), "s:1")
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in spool.folder.iterdir()] == [path.name]
    moment, counter, unique = path.stem.split("-", 2)
    assert abs(int(moment) / 1000 - time.time()) < 60
    assert counter.isdecimal()
    assert uuid.UUID(unique).variant == uuid.RFC_4122
    assert spool.files()[0].mark is not None


def test_a_folder_that_others_may_enter_is_closed(spool: Spool) -> None:
    spool.folder.mkdir(parents=True, mode=0o755)
    spool.put(body(), "s:1")
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700


def test_order_is_that_of_putting_also_when_the_clock_is_set_back(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [spool.put(body(str(number)), f"s:{number % 3}").name for number in range(50)]
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    names.append(spool.put(body("last"), "s:1").name)
    assert [file.name for file in spool.files()] == names


def test_a_session_that_waits_is_told_by_the_names_alone(spool: Spool) -> None:
    spool.put(b"damaged", "s:1")
    assert spool.waits("s:1")
    assert not spool.waits("s:2")


def test_the_listing_says_session_age_size_and_attempts(spool: Spool) -> None:
    spool.put(body("a", "s:1"), "s:1")
    file = spool.files()[0]
    assert spool.note_attempt(file, "answered 500") == 1
    assert spool.note_attempt(file, "answered 502") == 2
    spool.put(b"{", "s:2")
    first, second = spool.listing()
    assert (first.session_key, first.messages, first.size, first.attempts) == ("s:1", 1, len(body("a", "s:1")), 2)
    assert first.last_error == "answered 502"
    assert 0 <= first.age < 60
    assert (second.session_key, second.attempts) == (None, 0)
    spool.remove(file)
    assert [one.name for one in spool.listing()] == [second.name]
    assert not list(spool.folder.glob("*.attempts"))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "empty"),
        (b"\x00" * 300, "empty"),
        (b"{", "not JSON"),
        (body()[:-10], "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no capture"),
        (b'{"agent": "a"}', "no capture"),
        (b'{"session_key": 5}', "no capture"),
        (b'{"session_key": "s", "messages": {}}', "no capture"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(spool: Spool, raw: bytes, reason: str) -> None:
    spool.put(raw, "s:1")
    with pytest.raises(DamagedSpoolFileError, match=reason):
        spool.read(spool.files()[0])


def test_what_is_buried_keeps_its_bytes_and_its_reason_and_can_come_back(spool: Spool) -> None:
    first = spool.put(b"\x00broken", "s:1")
    spool.put(body("later"), "s:1")
    spool.bury(spool.files()[0], reason="damaged: not JSON", status=None)
    assert [path.name for path in (spool.dead_folder / first.name,) if path.read_bytes() == b"\x00broken"]
    (dead,) = spool.dead()
    assert (dead.name, dead.reason, dead.status, dead.session_key) == (first.name, "damaged: not JSON", None, None)
    assert dead.when is not None
    assert stat.S_IMODE((spool.dead_folder / first.name).stat().st_mode) == 0o600
    assert spool.status().dead == 1
    assert spool.revive() == 1
    assert spool.files()[0].name == first.name
    assert list(spool.dead_folder.iterdir()) == []


def test_what_is_refused_at_once_is_kept_too(spool: Spool) -> None:
    spool.put_dead(body("no"), "s:1", reason="answered 400: no", status=400)
    (dead,) = spool.dead()
    assert (dead.session_key, dead.reason, dead.status) == ("s:1", "answered 400: no", 400)
    assert spool.files() == []


def test_status_of_nothing_of_something_and_of_what_can_not_be_read(spool: Spool, tmp_path: Path) -> None:
    assert (spool.status().depth, spool.status().oldest_seconds, spool.status().complaints) == (0, None, [])
    spool.put(body(), "s:1")
    name = f"{int((time.time() - 3600) * 1000):013d}-000001-{uuid.uuid4()}.json"
    (spool.folder / name).write_bytes(body())
    status = spool.status()
    assert (status.depth, status.dead, status.bytes) == (2, 0, 2 * len(body()))
    assert 3590 < (status.oldest_seconds or 0) < 3700
    assert "60 min" in status.complaints[0]
    assert "rivet spool replay" in status.complaints[0]
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    assert "can not be read" in Spool(not_a_folder).status().complaints[0]


def test_a_folder_that_can_not_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="nothing can be spooled"):
        Spool(tmp_path / "file" / "spool").put(body(), "s:1")


def test_foreign_names_have_their_place_and_no_mark(spool: Spool) -> None:
    spool.put(body(), "s:1")
    name = f"1500000000000-{uuid.uuid4()}.json"
    (spool.folder / name).write_bytes(body("older", "s:2"))
    assert [file.mark is None for file in spool.files()] == [True, False]
    assert spool.read(SpoolFile(name, spool.folder / name))["session_key"] == "s:2"


def test_only_one_process_has_the_lock_and_it_goes_with_the_process(spool: Spool) -> None:
    script = (
        "import sys, time; from pathlib import Path; from rivet_pipeline.transcripts.spool import Spool\n"
        "with Spool(Path(sys.argv[1])).lock(0) as mine:\n    print(mine, flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(spool.folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with spool.lock(0.1) as mine:
            assert not mine
    finally:
        other.kill()
        other.communicate()
    with spool.lock(5) as mine:
        assert mine


def test_what_a_killed_writer_left_is_swept_when_it_is_old(spool: Spool) -> None:
    spool.put(body(), "s:1")
    new, old = spool.folder / ".new.json.tmp", spool.folder / ".old.json.tmp"
    new.write_text("half")
    old.write_text("half")
    os.utime(old, (1, 1))
    spool.sweep()
    assert (new.exists(), old.exists(), len(spool.files())) == (True, False, 1)
