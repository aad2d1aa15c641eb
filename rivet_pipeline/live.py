"""Live capture: the worker that a hook starts. It takes the jobs that hooks have left and posts what is new.

Reading transcripts is the readers' business, delivering is the client's; here stands what lies between: which
transcript, from where on, under which key. A transcript is read as `rivet import` reads it, so that both store the same
rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from rivet_pipeline.client import CaptureBatch, CaptureClient
from rivet_pipeline.errors import RivetError
from rivet_pipeline.settings import Settings, settings_problem
from rivet_pipeline.transcripts.hook_jobs import HARNESSES, log, unknown_harness
from rivet_pipeline.transcripts.hook_payloads import (
    AGENTS,
    BadPayloadError,
    HookEvent,
    UnknownEventError,
    parse_payload,
)
from rivet_pipeline.transcripts.hook_queue import DEADLINE_SECONDS, Job, Jobs
from rivet_pipeline.transcripts.projects import planned_settings
from rivet_pipeline.transcripts.readers import detect
from rivet_pipeline.transcripts.readers.shared import make_title
from rivet_pipeline.transcripts.reading import Reader, Reading, SourceState
from rivet_pipeline.transcripts.records import Message, MessageRecord, SessionRecord, SessionUpdate, ToolResult

#: So long, in seconds, a prompt's row is waited for: the harness may write it a moment after the hook.
ROW_SECONDS = 2.0

#: Jobs whose transcript is not there yet are kept back until so long, in seconds, after the last of them.
HOLD_SECONDS = 600.0

_POLL_SECONDS = 0.05

#: So much is posted at once: items, or characters.
_BATCH_ITEMS = 200
_BATCH_CHARACTERS = 2_000_000

Item = Message | ToolResult | SessionUpdate


def main(home: str) -> None:
    """Works off the jobs of a home, and ends. Problems go to the hooks' log."""
    # Whatever the agent had open is not ours to keep open.
    os.closerange(3, 256)
    with suppress(OSError):
        os.nice(10)
    try:
        settings = Settings(home=Path(home))
        with CaptureClient.from_settings(settings) as client:
            # A worker that hangs is ended by the system; its jobs are found by the next one.
            Worker(settings, client, arm=signal.alarm).run()
    except ValidationError as error:
        log(home, f"the worker ended: {settings_problem(error)}")
    except Exception as error:
        log(home, f"the worker ended: {type(error).__name__}: {error}")


@dataclass(slots=True)
class _Call:
    """A job and what its payload says."""

    job: Job
    event: HookEvent

    @property
    def session_key(self) -> str | None:
        """The key under which the session is stored: the one that was set for the agent, else the harness' own."""
        if self.job.session_key.strip():
            return self.job.session_key
        return self.own_key

    @property
    def own_key(self) -> str | None:
        """The key that the transcript's reader gives the session."""
        return f"{self.event.harness}:{self.event.session_id}" if self.event.session_id else None

    @property
    def lock(self) -> str:
        """What two jobs of one session have in common."""
        return self.own_key or str(self.event.transcript)

    @property
    def task_id(self) -> UUID | None:
        """The task that was set for the agent; None unless it is a UUID."""
        try:
            return UUID(self.job.task_id)
        except ValueError:
            return None

    @property
    def at(self) -> datetime:
        """When the hook was called."""
        return datetime.fromtimestamp(self.job.time, UTC)


class Worker:
    """Takes jobs session by session, until none is left that nobody else has.

    `arm` is told in how many seconds the process is to be ended, before each session, and 0 after it.
    """

    def __init__(self, settings: Settings, client: CaptureClient, *, arm: Callable[[int], object] = int) -> None:
        self._arm = arm
        self._settings = settings
        self._client = client
        self._jobs = Jobs(settings.home)
        self._cursors = _Cursors(settings.home / "hook-cursors")
        #: Jobs that are another worker's, wait, or have failed: not to be looked at again by this worker.
        self._left: set[str] = set()
        #: Those of them that wait for their transcript: they are taken again beside a new one of their session.
        self._held: set[str] = set()

    def run(self) -> None:
        """Works until nothing is left."""
        self._jobs.sweep()
        while self._round():
            pass

    def _round(self) -> bool:
        """Looks at all jobs once; whether anything was done, so that new ones may have come meanwhile."""
        done = False
        for session, calls in self._calls().items():
            with self._jobs.session_lock(session) as mine:
                taken = [call for call in calls if self._jobs.take(call.job)] if mine else []
                if taken:
                    done = True
                    self._work(taken)
            # Who has the lock looks for jobs once more when it gives it back, so what is left here is not forgotten.
            self._left |= {call.job.stem for call in calls}
        return done

    def _calls(self) -> dict[str, list[_Call]]:
        """The jobs by session, each session's in order. What can not be used is put out of the way."""
        found: dict[str, list[_Call]] = {}
        for job in self._jobs.waiting():
            if job.stem in self._left - self._held:
                continue
            if (call := self._understood(job)) is not None:
                found.setdefault(call.lock, []).append(call)
        return {
            session: calls for session, calls in found.items() if any(call.job.stem not in self._left for call in calls)
        }

    def _understood(self, job: Job) -> _Call | None:
        try:
            if not job.read():
                raise BadPayloadError("not a job")
            if job.harness not in HARNESSES:
                raise BadPayloadError(unknown_harness(job.harness))
            call = _Call(job, parse_payload(job.harness, job.payload))
            if call.event.session_id is None and call.event.transcript is None:
                raise BadPayloadError("it names neither a session nor a transcript")
        except OSError:
            return None
        except UnknownEventError as error:
            if self._jobs.take(job):
                self._jobs.log(job, f"is ignored: {error}")
                self._jobs.finish(job)
            return None
        except BadPayloadError as error:
            if self._jobs.take(job):
                self._jobs.bury(job, str(error))
            return None
        return call

    def _work(self, calls: list[_Call]) -> None:
        self._arm(DEADLINE_SECONDS)
        try:
            held = _Session(self._settings, self._client, self._cursors, calls).capture()
        except RivetError as error:
            self._fail(calls, str(error))
        except Exception as error:
            self._fail(calls, f"{type(error).__name__}: {error}")
        else:
            for call in calls:
                if held:
                    self._held.add(call.job.stem)
                    self._jobs.put_back(call.job)
                else:
                    self._jobs.finish(call.job)
        finally:
            self._arm(0)

    def _fail(self, calls: list[_Call], reason: str) -> None:
        for call in calls:
            self._jobs.fail(call.job, reason)


class _Session:
    """What some calls of one session come to, in order."""

    def __init__(self, settings: Settings, client: CaptureClient, cursors: _Cursors, calls: list[_Call]) -> None:
        self._settings = settings
        self._client = client
        self._cursors = cursors
        self._calls = calls
        self._last = calls[-1]

    def capture(self) -> bool:
        """Captures; True when the calls are to wait, because the transcript may still come."""
        for path in self._agent_transcripts():
            if (reader := _readable(path)) is not None:
                self._transcript(path, reader, finalize=False)
        main = next((call.event.transcript for call in reversed(self._calls) if call.event.transcript), None)
        if main is None:
            self._payloads()
            return False
        prompt = self._last.event.prompt if self._last.event.name == "UserPromptSubmit" else None
        deadline = time.monotonic() + ROW_SECONDS
        reader = _readable(main)
        while reader is None and prompt is not None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            reader = _readable(main)
        if reader is None:
            return self._without(main)
        self._until_heard(main, reader, prompt, deadline)
        return False

    def _agent_transcripts(self) -> list[Path]:
        named = (call.event.agent_transcript for call in self._calls if call.event.name == "SubagentStop")
        return list(dict.fromkeys(path for path in named if path is not None))

    def _without(self, main: Path) -> bool:
        """A transcript is named and is not there. While it may still come, nothing else is stored in its place."""
        ended = any(call.event.name == "SessionEnd" for call in self._calls)
        if not ended and _may_come(main) and time.time() - self._last.job.time < HOLD_SECONDS:
            return True
        self._payloads()
        return False

    # Payloads

    def _payloads(self) -> None:
        records = [record for call in self._calls for record in call.event.records(call.job.stem, call.at)]
        key = self._last.session_key
        if key is None:
            raise RivetError("the payload names no session, and its transcript is not there.")
        marker = f"payloads of {key}"
        finalize = self._last.event.name == "SessionEnd"
        # A conversation is made by its first message: an end alone makes none.
        if not records and not (finalize and self._cursors.load(marker).items):
            return
        harness = self._last.event.harness
        settings = self._planned({"source": harness, "session_id": self._last.event.session_id, **self._context()})
        given = self._cursors.load(marker).items
        first = next((record.content for record in records if record.role == "user"), "") if given == 0 else ""
        session = SessionRecord(key, AGENTS[harness], harness, make_title(first), settings)
        self._client.write(CaptureBatch(self._with_task(session), records, finalize))
        self._cursors.save(marker, _Cursor(items=given + len(records)))

    def _context(self) -> dict[str, str]:
        cwd = next((call.event.cwd or call.job.cwd for call in reversed(self._calls)), "")
        return {**({"cwd": cwd} if cwd else {}), "last_event": self._last.event.name}

    def _planned(self, settings: dict[str, Any]) -> dict[str, Any]:
        """With what the folder tells, where the API runs on another machine and can not look at it itself."""
        return {**_told_by(str(settings.get("cwd"))), **settings} if self._settings.captures_elsewhere else settings

    def _with_task(self, session: SessionRecord) -> SessionRecord:
        return SessionRecord(
            session.session_key, session.agent, session.channel, session.title, session.settings, self._last.task_id
        )

    # Transcripts

    def _until_heard(self, path: Path, reader: Reader, prompt: str | None, deadline: float) -> None:
        """Reads what is new, and again when the file changes, until the prompt's own row is among it."""
        finalize = self._last.event.name == "SessionEnd"
        while True:
            state = reader.state(path)
            heard = self._transcript(path, reader, finalize=finalize)
            if prompt is None or _says(heard, prompt):
                return
            while reader.state(path) == state:
                if time.monotonic() > deadline:
                    return
                time.sleep(_POLL_SECONDS)

    def _transcript(self, path: Path, reader: Reader, *, finalize: bool) -> str | None:
        """Posts what is new in a transcript; the last words of a user in it, None when it was not read."""
        path = path.resolve()
        state = reader.state(path)
        cursor = self._cursors.load(str(path))
        if cursor.is_at(state) and not finalize:
            return None
        how = Reading(reader.agent, self._settings.import_max_line, settled=finalize, abandoned=finalize)
        tail = _Tail(path, reader, how, cursor)
        outbox = _Outbox(self._client, self, reader.harness)
        for item in tail.new_items():
            if outbox.add(item):
                self._cursors.save(str(path), tail.cursor(None))
        outbox.flush(finalize=self._finalized(tail) if finalize else None)
        self._cursors.save(str(path), tail.cursor(state))
        return tail.last_words

    def _finalized(self, tail: _Tail) -> SessionRecord | None:
        """Which of the sessions in a transcript is the one that ended."""
        own = self._last.own_key
        return tail.sessions.get(own or "") or next(reversed(tail.sessions.values()), None)

    def placed(self, session: SessionRecord) -> SessionRecord:
        """A session as it is stored: under the key and the task set for the agent, with what the hook knows of it."""
        own = self._last.own_key
        if own is not None and session.session_key != own:
            return session
        settings = self._planned({**self._context(), **session.settings, "last_event": self._last.event.name})
        key = self._last.session_key or session.session_key
        return self._with_task(SessionRecord(key, session.agent, session.channel, session.title, settings))


@lru_cache(maxsize=64)
def _told_by(cwd: str) -> dict[str, Any]:
    """What a folder tells of the session in it. It is looked at once, because a drive may hang."""
    return planned_settings({"cwd": cwd})


def _readable(path: Path) -> Reader | None:
    """The reader for a transcript that is there; None when it is not, or nobody knows it (yet)."""
    try:
        return detect(path) if path.is_file() else None
    except OSError:
        return None


def _may_come(path: Path) -> bool:
    """Whether a file that no reader knows may yet become a transcript: it is not there, or has only begun."""
    try:
        if not path.is_file():
            return not path.exists()
        with path.open("rb") as file:
            return file.read(1) in (b"", b"{")
    except OSError:
        return False


def _says(heard: str | None, prompt: str) -> bool:
    return heard is not None and (not prompt.strip() or prompt.strip() in heard)


@dataclass(frozen=True, slots=True)
class _Cursor:
    """How far a transcript was given: so many items, the digest over their ids, and the file's state then."""

    items: int = 0
    digest: str = ""
    size: int = -1
    mtime_ns: int = -1

    def is_at(self, state: SourceState) -> bool:
        """Whether the file has not changed since."""
        return (self.size, self.mtime_ns) == (state.size, state.mtime_ns)


class _Cursors:
    """The cursors of a home, a small file each. One that is lost or damaged costs time: all is sent again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, name: str) -> Path:
        return self._folder / f"{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.json"

    def load(self, name: str) -> _Cursor:
        """The cursor of that name, at the beginning when there is none."""
        try:
            saved = json.loads(self._path(name).read_text(encoding="utf-8"))
            return _Cursor(int(saved["items"]), str(saved["digest"]), int(saved["size"]), int(saved["mtime_ns"]))
        except (OSError, ValueError, TypeError, KeyError):
            return _Cursor()

    def save(self, name: str, cursor: _Cursor) -> None:
        """Replaces a cursor. Raises `OSError` when it can not be written."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(name)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        shown = name.encode("utf-8", "replace").decode()
        temporary.write_text(json.dumps({"of": shown, **asdict(cursor)}), encoding="utf-8")
        temporary.chmod(0o600)
        temporary.rename(path)


class _Tail:
    """The items of a transcript that were not given yet: all of them, unless the first ones are those of the cursor."""

    def __init__(self, path: Path, reader: Reader, how: Reading, cursor: _Cursor) -> None:
        self._path = path
        self._reader = reader
        self._how = how
        self._known = cursor
        self._count = 0
        self._digest = hashlib.sha256()
        self.sessions: dict[str, SessionRecord] = {}
        self.last_words: str | None = None

    def new_items(self) -> Iterator[Item]:
        """The items to give, in order. Raises `OSError` when the file can not be read."""
        items = self._items()
        known = sum(1 for _ in islice(items, self._known.items))
        if known < self._known.items or self._digest.hexdigest() != self._known.digest:
            self._count, self._digest = 0, hashlib.sha256()
            items = self._items()
        yield from items

    def cursor(self, state: SourceState | None) -> _Cursor:
        """The cursor behind the last item given; with the state of a file that was read to its end."""
        size, mtime_ns = (state.size, state.mtime_ns) if state else (-1, -1)
        return _Cursor(self._count, self._digest.hexdigest(), size, mtime_ns)

    def _items(self) -> Iterator[Item]:
        for item in self._reader.read(self._path, self._how):
            if isinstance(item, Message | ToolResult | SessionUpdate):
                self._note(item)
                yield item

    def _note(self, item: Item) -> None:
        if not isinstance(item, SessionUpdate):
            self.sessions.setdefault(item.session.session_key, item.session)
        if isinstance(item, Message):
            says, event_id = "message", item.record.event_id
            if item.record.role == "user":
                self.last_words = item.record.content
        elif isinstance(item, ToolResult):
            says, event_id = "result", item.event_id
        else:
            says, event_id = "session", item.session.title or ""
        line = f"{says}\x00{item.session.session_key}\x00{event_id}\n"
        self._digest.update(line.encode("utf-8", "surrogatepass"))
        self._count += 1


@dataclass(slots=True)
class _Outbox:
    """Collects items by conversation and posts them, each conversation's in order."""

    client: CaptureClient
    session: _Session
    harness: str
    _waiting: dict[str, tuple[SessionRecord, list[MessageRecord | ToolResult]]] = field(default_factory=dict)
    _items: int = 0
    _characters: int = 0

    def add(self, item: Item) -> bool:
        """Takes an item; whether everything taken so far was posted."""
        key = item.session.session_key
        session, items = self._waiting.get(key, (item.session, []))
        self._waiting[key] = (_merged(session, item.session), items)
        if isinstance(item, Message):
            items.append(item.record)
            self._characters += len(item.record.content) + len(item.record.tool_result or "")
        elif isinstance(item, ToolResult):
            items.append(item)
            self._characters += len(item.tool_result)
        self._items += 1
        if self._items < _BATCH_ITEMS and self._characters < _BATCH_CHARACTERS:
            return False
        self.flush()
        return True

    def flush(self, *, finalize: SessionRecord | None = None) -> None:
        """Posts what was taken; `finalize` is the session that is over, with or without new words."""
        if finalize is not None:
            self._waiting.setdefault(finalize.session_key, (finalize, []))
        for key, (session, items) in self._waiting.items():
            ends = finalize is not None and key == finalize.session_key
            if _worth_posting(session, items) or ends:
                self.client.write(CaptureBatch(self.session.placed(session), items, ends))
        self._waiting.clear()
        self._items = self._characters = 0


def _worth_posting(session: SessionRecord, items: Iterable[MessageRecord | ToolResult]) -> bool:
    """A title alone is worth it: its conversation has words already, or the title would not have come after them."""
    return bool(list(items)) or session.title is not None


def _merged(old: SessionRecord, new: SessionRecord) -> SessionRecord:
    if old is new:
        return old
    settings = {**old.settings, **new.settings}
    return SessionRecord(new.session_key, new.agent, new.channel, new.title or old.title, settings, new.task_id)
