"""The capture client: posts batches to `/api/capture`, and keeps in the spool what can not be posted.

How a batch is cut, when the spool is replayed, and what each answer means is decided here; the spool's files are
`transcripts/spool.py`'s, and what a message is, `transcripts/records.py`'s.

A client only ever acknowledges what is stored or on the disk. What waits is sent before what is new, the oldest first,
and within a session always in order; what keeps failing while the rest gets through is passed over, and buried in the
end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.cleaning import ENVELOPE, cap_utf16, clean_json, utf16_units
from rivet_pipeline.transcripts.ingest import CAPTURE_CAP
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord, ToolResult
from rivet_pipeline.transcripts.redaction import redact_item, redact_session
from rivet_pipeline.transcripts.spool import (
    DamagedSpoolFileError,
    Spool,
    SpoolError,
    SpoolFile,
    session_mark,
)

if TYPE_CHECKING:
    import httpx

#: The largest body that is sent, in bytes of JSON (seed: batches of at most 768 KiB).
MAX_BODY = 768 * 1024

#: So many spooled files are sent, the oldest first, before a live batch (seed: at most 50).
REPLAY_LIMIT = 50

#: So often a file may fail, while others get through, before it is buried.
MAX_ATTEMPTS = 10

#: How long, in seconds, a writer waits for another one that replays, and may replay itself before it writes.
LOCK_SECONDS = 1.0
_REPLAY_SECONDS = 30.0

#: A larger value of the settings, in bytes of JSON, is left out with its size; so are all when there are too many.
_MAX_SETTING = 16 * 1024
_MAX_SETTINGS = 128 * 1024

#: Longer titles are cut, as the store does.
_MAX_TITLE = 500

#: What a message keeps when its metadata alone are too large: who it is and where its full text stands.
_POINTERS = (
    "source", "kind", "session_jsonl_path", "session_jsonl_line", "result_jsonl_line", "session_sqlite_path",
    "session_sqlite_part_id", "session_host", "truncated", "full_content_length", "full_tool_result_length",
    "full_tool_args_length",
)  # fmt: skip

#: Answers in the four hundreds that say nothing about the capture: time, rate, or a key that can be put right.
_PASSING = frozenset({401, 403, 408, 425, 429})

#: So often a batch is sent again without the messages that were refused, before the rest is refused with them.
_MAX_ROUNDS = 10

_CONNECT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class CaptureBatch:
    """Messages of one conversation on their way to the API, in order. `finalize` says that the conversation is over."""

    session: SessionRecord
    items: Sequence[MessageRecord | ToolResult] = ()
    finalize: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """The batch is stored. `skipped` were known; `filled` of them took a late tool result."""

    inserted: int
    skipped: int
    filled: int


@dataclass(frozen=True, slots=True)
class Spooled:
    """The batch, or what is left of it, is on the disk and is sent later; `reason` says why it was not sent now."""

    files: tuple[Path, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Some of the batch is not to the API's liking; it is kept in `dead/`. The rest is stored, or spooled."""

    files: tuple[Path, ...]
    reason: str
    status: int


Outcome = Written | Spooled | Refused


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did. `stopped` says why it ended before everything was tried; `busy` that another one is at it."""

    sent: int = 0
    buried: int = 0
    waiting: int = 0
    stopped: str | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True)
class _Stored:
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Bad:
    """Refused for what it says. `messages` are the numbers of the ones at fault, when the API names them."""

    status: int
    reason: str
    messages: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Away:
    """Not taken, and not for what it says. `down`: nothing else would be taken either."""

    reason: str
    down: bool


_Answer = _Stored | _Bad | _Away


@dataclass(slots=True)
class _Delivery:
    """What became of one body: the sums of its answers, or why it was not taken; and what was refused of it."""

    sums: dict[str, int] = field(default_factory=lambda: {"inserted": 0, "skipped": 0, "filled": 0})
    away: _Away | None = None
    refused: list[tuple[dict[str, Any], _Bad]] = field(default_factory=list)


@dataclass(slots=True)
class _Pass:
    """The state of one replay."""

    sent: int = 0
    buried: int = 0
    tried: int = 0
    stopped: str | None = None
    #: Sessions of which a file could not be delivered: their later ones stay behind it.
    held: set[str] = field(default_factory=set)
    #: Files that failed, and why, with nothing delivered since. Two of them in a row mean that the API is at fault.
    suspects: list[tuple[SpoolFile, str]] = field(default_factory=list)


class CaptureClient:
    """Posts captures to one API. Not for several threads at once; several processes may share a spool."""

    def __init__(
        self, url: str, token: str | None, spool: Spool, *, redact: bool = False, timeout: float = 30.0
    ) -> None:
        self._redact = redact
        self._url = url.rstrip("/")
        self._token = token
        self._spool = spool
        self._timeout = timeout
        self._opened: httpx.Client | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> CaptureClient:
        """The client that the settings describe."""
        token = settings.api_token.get_secret_value() if settings.api_token else None
        return cls(settings.capture_url, token, Spool(settings.spool_folder), redact=settings.capture_redaction)

    def __enter__(self) -> CaptureClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection, if there is one."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def write(self, batch: CaptureBatch) -> Outcome:
        """Stores a batch, or spools it; what waits is sent first. Raises `SpoolError` when it can do neither.

        Messages without a time get that of the one before them, else now, so that a replay keeps it.
        """
        if self._redact:
            # The API does it too, but would see less: the spool is on the disk, and what is too large is cut here.
            items = [_redacted(item) for item in batch.items]
            batch = CaptureBatch(redact_session(batch.session), items, batch.finalize)
        bodies = list(make_bodies(batch, datetime.now(UTC)))
        try:
            return self._write_behind(bodies) if self._spool.files() else self._write_now(bodies)
        except SpoolError:
            # The spool is of no use, which is no reason to lose what the API may take.
            return self._write_now(bodies)

    def _write_behind(self, bodies: list[dict[str, Any]]) -> Outcome:
        """Sends what waits, then the bodies; or spools them, when they would overtake what is of their session."""
        key = bodies[0]["session_key"]
        with self._spool.lock(LOCK_SECONDS) as mine:
            if not mine:
                return self._keep(bodies, "another process is replaying the spool")
            done = self._replay(REPLAY_LIMIT)
            if done.stopped is not None:
                return self._keep(bodies, done.stopped)
            if session_mark(key) in done.held or self._spool.waits(key):
                return self._keep(bodies, "earlier captures of the session wait")
            outcome = self._write_now(bodies)
            if not isinstance(outcome, Spooled):
                self._blame(done)
            return outcome

    def replay(self, limit: int | None = None, *, wait: float = LOCK_SECONDS) -> Replayed:
        """Sends what waits, the oldest first, at most `limit` files. Raises `SpoolError` when the spool fails."""
        if not self._spool.files():
            return Replayed()
        with self._spool.lock(wait) as mine:
            if not mine:
                return Replayed(waiting=len(self._spool.files()), busy=True)
            done = self._replay(limit)
            stopped = done.stopped or next((reason for _, reason in done.suspects), None)
            return Replayed(done.sent, done.buried, len(self._spool.files()), stopped)

    # A live batch

    def _write_now(self, bodies: list[dict[str, Any]]) -> Outcome:
        sums = {"inserted": 0, "skipped": 0, "filled": 0}
        refused: list[tuple[dict[str, Any], _Bad]] = []
        kept: Spooled | None = None
        for number, body in enumerate(bodies):
            delivery = self._deliver(body)
            if delivery.away is not None:
                kept = self._keep(bodies[number:], delivery.away.reason)
                break
            refused += delivery.refused
            sums = {name: sums[name] + delivery.sums[name] for name in sums}
        if refused:
            return Refused(tuple(self._bury_new(refused)), refused[0][1].reason, refused[0][1].status)
        return kept or Written(**sums)

    def _keep(self, bodies: Sequence[dict[str, Any]], reason: str) -> Spooled:
        return Spooled(tuple(self._spool.put(_encoded(body), body["session_key"]) for body in bodies), reason)

    def _bury_new(self, refused: Sequence[tuple[dict[str, Any], _Bad]]) -> Iterator[Path]:
        for body, bad in refused:
            yield self._spool.put_dead(_encoded(body), body["session_key"], reason=bad.reason, status=bad.status)

    # The spool

    def _replay(self, limit: int | None) -> _Pass:
        done = _Pass()
        self._spool.sweep()
        deadline = time.monotonic() + _REPLAY_SECONDS
        for file in self._spool.files():
            if limit is not None and time.monotonic() > deadline:
                done.stopped = "sending what waits takes long"
            if done.stopped is not None or (limit is not None and done.tried >= limit):
                break
            if file.mark is None or file.mark not in done.held:
                self._replay_one(file, done)
        return done

    def _replay_one(self, file: SpoolFile, done: _Pass) -> None:
        try:
            body = self._spool.read(file)
        except FileNotFoundError:
            return
        except DamagedSpoolFileError as error:
            self._spool.bury(file, reason=f"damaged: {error}")
            done.tried, done.buried = done.tried + 1, done.buried + 1
            return
        mark = session_mark(body["session_key"])
        if mark in done.held:
            return
        done.tried += 1
        delivery = self._deliver(body)
        if delivery.away is not None:
            self._pass_over(file, mark, delivery.away, done)
            return
        if delivery.refused and len(delivery.refused[0][0]["messages"]) == len(body.get("messages") or ()):
            bad = delivery.refused[0][1]
            self._spool.bury(file, reason=bad.reason, status=bad.status)
        else:
            list(self._bury_new(delivery.refused))
            self._spool.remove(file)
        done.buried += len(delivery.refused)
        done.sent += not delivery.refused
        self._blame(done)

    def _pass_over(self, file: SpoolFile, mark: str, away: _Away, done: _Pass) -> None:
        done.held.add(mark)
        if away.down or done.suspects:
            done.stopped = away.reason
        else:
            done.suspects.append((file, away.reason))

    def _blame(self, done: _Pass) -> None:
        """Something got through: what failed before it has itself to blame."""
        for file, reason in done.suspects:
            attempts = self._spool.note_attempt(file, reason)
            if attempts >= MAX_ATTEMPTS:
                self._spool.bury(file, reason=f"failed {attempts} times while others got through: {reason}")
                done.buried += 1
        done.suspects.clear()

    # One body

    def _deliver(self, body: dict[str, Any]) -> _Delivery:
        """Posts a body; without the messages at fault, should the API name some."""
        delivery = _Delivery()
        for attempt in range(_MAX_ROUNDS):
            answer = self._post(body)
            if isinstance(answer, _Away):
                return _Delivery(away=answer)
            if isinstance(answer, _Stored):
                for name in delivery.sums:
                    delivery.sums[name] += int(answer.answer.get(name) or 0)
                return delivery
            messages = body.get("messages") or []
            bad = answer.messages & frozenset(range(len(messages)))
            if not bad or len(bad) == len(messages) or attempt == _MAX_ROUNDS - 1:
                delivery.refused.append(({**body, "messages": messages}, answer))
                return delivery
            delivery.refused.append(({**body, "messages": [messages[number] for number in sorted(bad)]}, answer))
            body = {**body, "messages": [one for number, one in enumerate(messages) if number not in bad]}
        return delivery

    def _post(self, body: Mapping[str, Any]) -> _Answer:
        import httpx

        # As bytes: httpx writes a text in ASCII alone, and the API reads the token as UTF-8.
        headers = {b"Content-Type": b"application/json"}
        if self._token:
            headers[b"Authorization"] = f"Bearer {self._token}".encode()
        try:
            answer = self._http().post(f"{self._url}/api/capture", content=_encoded(body), headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            return _Away(
                f"{_shown(self._url)} can not be reached ({_short(str(error) or type(error).__name__)})", down=True
            )
        except httpx.HTTPError as error:
            # It listens and did not answer: killed in the middle, or this very capture is too much for it.
            return _Away(
                f"{_shown(self._url)} did not answer ({_short(str(error) or type(error).__name__)})", down=False
            )
        return _judge(answer.status_code, answer.text)

    def _http(self) -> httpx.Client:
        import httpx

        if self._opened is None:
            timeout = httpx.Timeout(self._timeout, connect=_CONNECT_SECONDS)
            # Loading certificates takes longer than all the rest, and a proxy does not lead to this machine.
            secure = self._url.startswith("https:")
            self._opened = httpx.Client(timeout=timeout, verify=secure, trust_env=not _is_local(self._url))
        return self._opened


def _judge(status: int, text: str) -> _Answer:
    """What an answer means for the capture that was sent."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if status == 200 and isinstance(body, dict) and body.get("ok") is True:
        return _Stored(body)
    reason = _reason(status, body, text)
    if 400 <= status < 500 and status not in _PASSING:
        return _Bad(status, reason, _named_messages(body))
    # A success or a redirection that is none of ours comes from something else at that address.
    return _Away(reason, down=status < 500)


def _reason(status: int, body: Any, text: str) -> str:
    if status < 400:
        return f"what answers ({status}) is not the memory's API; check RIVETOS_API_URL"
    detail = body.get("detail") if isinstance(body, dict) else None
    # Whoever shows the reason ends the sentence.
    said = _short(detail if isinstance(detail, str) and detail else text).rstrip(". ")
    return f"answered {status}: {said}" if said else f"answered {status}"


def _named_messages(body: Any) -> frozenset[int]:
    """The numbers of the messages that a refusal is about; none unless it is about messages alone."""
    errors = body.get("errors") if isinstance(body, dict) else None
    fields = [error.get("field") for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    numbers = set()
    for name in fields:
        number = str(name).removeprefix("messages[").partition("]")[0]
        if not str(name).startswith("messages[") or not number.isdecimal():
            return frozenset()
        numbers.add(int(number))
    return frozenset(numbers)


def _short(text: str) -> str:
    return " ".join(text[:2000].split())[:300]


def _shown(url: str) -> str:
    """An address without the password that it may hold."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _json_bytes(value: Any) -> int:
    return len(_encoded(value))


# Bodies


def _redacted(item: MessageRecord | ToolResult) -> MessageRecord | ToolResult:
    try:
        return redact_item(item)
    except RecursionError:
        # What is nested too deeply to be looked at is left out.
        item = replace(item, metadata=_clean(dict(item.metadata)))
        return redact_item(replace(item, tool_args=_clean(item.tool_args)) if isinstance(item, MessageRecord) else item)


def make_bodies(batch: CaptureBatch, now: datetime) -> Iterator[dict[str, Any]]:
    """The bodies that a batch is sent as, one at least; each at most `MAX_BODY` bytes. Only the last one finalizes."""
    head = _head(batch.session)
    room = MAX_BODY - _json_bytes({**head, "finalize": True, "messages": []})
    taken: list[dict[str, Any]] = []
    size = 0
    for message in _messages(batch.items, now):
        needed = _json_bytes(message) + 1
        if needed > room:
            message = _shrunk(message, room)
            needed = _json_bytes(message) + 1
        if taken and size + needed > room:
            yield {**head, "messages": taken}
            taken, size = [], 0
        taken.append(message)
        size += needed
    yield {**head, "messages": taken, **({"finalize": True} if batch.finalize else {})}


def _head(session: SessionRecord) -> dict[str, Any]:
    settings = {key: _small_setting(value) for key, value in _clean(dict(session.settings)).items()}
    if (size := _json_bytes(settings)) > _MAX_SETTINGS:
        settings = _elided(size)
    head = {
        "session_key": session.session_key,
        "agent": session.agent,
        "channel": session.channel,
        "title": session.title[:_MAX_TITLE] if session.title else None,
        "settings": settings,
        "task_id": str(session.task_id) if session.task_id else None,
    }
    return {key: value for key, value in _clean(head).items() if value not in (None, {})}


def _small_setting(value: Any) -> Any:
    size = _json_bytes(value)
    return value if size <= _MAX_SETTING else _elided(size)


def _elided(size: int) -> dict[str, Any]:
    return {"_elided": True, "bytes": size}


def _clean(value: Any) -> Any:
    """The value without what JSON in UTF-8 can not hold; what is nested too deeply is text."""
    return clean_json(value, around=ENVELOPE)


def _messages(items: Sequence[MessageRecord | ToolResult], now: datetime) -> Iterator[dict[str, Any]]:
    last: datetime | None = None
    for item in items:
        message, metadata = _message(item)
        if item.created_at is None and isinstance(item, MessageRecord):
            metadata["time_source"] = "capture" if last is None else "position"
        last = item.created_at or last or now
        yield {**message, "metadata": metadata, "created_at": last.isoformat()}


def _message(item: MessageRecord | ToolResult) -> tuple[dict[str, Any], dict[str, Any]]:
    metadata: dict[str, Any] = _clean(dict(item.metadata))
    if isinstance(item, ToolResult):
        return {"event_id": _clean(item.event_id), "role": "tool", "tool_result": _clean(item.tool_result)}, metadata
    known = {
        "event_id": item.event_id,
        "role": item.role,
        "content": item.content,
        "tool_name": item.tool_name,
        "tool_result": item.tool_result,
    }
    message = {key: value for key, value in _clean(known).items() if value is not None}
    if item.tool_args is not None:
        message["tool_args"] = _clean(item.tool_args)
    return message, metadata


def _shrunk(message: dict[str, Any], room: int) -> dict[str, Any]:
    """A message that is too large for a body of its own, cut to what the API keeps, then further until it fits."""
    metadata = dict(message["metadata"])
    message = {**message, "metadata": metadata}
    for name in ("content", "tool_result"):
        text = message.get(name)
        if isinstance(text, str) and len(kept := cap_utf16(text, CAPTURE_CAP)) < len(text):
            message[name] = kept
            metadata |= {"truncated": True, f"full_{name}_length": utf16_units(text)}
    if "tool_args" in message and _json_bytes(message) + 1 > room:
        size = _json_bytes(message["tool_args"])
        message["tool_args"] = _elided(size)
        metadata["full_tool_args_length"] = size
    if (size := _json_bytes(metadata)) > room // 2:
        message["metadata"] = {key: metadata[key] for key in _POINTERS if key in metadata} | _elided(size)
    return message
