"""Reads the messages of a leaf in the order of time: who said what, what was refuted, agreed to and committed. Pure.

A leaf is a list of bullets by topic, each with its minute and its voice. What somebody says right after a statement
tells whether that holds: a guess that is answered with "No" was none of the session's results, a proposal that is
answered with "Good" is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rivet_pipeline.wiki.addressed import addresses_machine, holds_object
from rivet_pipeline.wiki.standing import is_guess, is_question, points_of
from rivet_pipeline.wiki.types import LONGEST_CLAIM, MineRequest
from rivet_pipeline.wiki.wordings import (
    ACCEPTS,
    ACCEPTS_CJK,
    CONCEDES,
    PROPOSES,
    PROPOSES_CJK,
    REFUTES,
    RESERVES,
)

_BULLET = re.compile(
    r"^\s*(?:[-*•]|\d+[.)])\s+`?(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?Z)`?\s+`?\S*?/(?P<voice>\w+)`?:?`?\s*(?P<text>.+)$"
)
_PLAIN_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+(?P<text>.+)$")
_VOICES = frozenset({"user", "assistant", "system"})

#: The subject of a commit, in the command that made it and did not fail.
_COMMIT = re.compile(
    r"\bgit commit\b[^|;\"']{0,200}?-[a-z]{0,8}m[= ]?\s{0,8}(?P<quote>[\"'])"
    r"(?P<subject>[^\"'\n$\u2026]{12,160})(?P=quote)"
)
_FAILED = re.compile(r"\u2192 (?:exit [1-9]|error\b)")

#: Behind a word of agreement: what follows takes some of it back.
_LIMITS = re.compile(
    r"\A, (?:but|only|just (?:not|no|don['\u2019]t)|except|not|aber|nur|nicht|pero|sólo|solo|mais"
    r"|seulement|pas|ma|però|mas)(?!\w)",
    re.IGNORECASE,
)

#: A longer first sentence is no bare agreement.
_LONGEST_YES = 80


@dataclass(slots=True)
class Message:
    """What one voice said in one breath. `held`: the sentences that nobody has refuted since.

    `agreed`: for a sentence that proposes, what somebody has answered to it; `commits`: subjects of commits.
    """

    voice: str
    when: datetime
    said: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    agreed: dict[str, str] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)


def read_turns(request: MineRequest) -> list[Message]:
    """The messages of a leaf, oldest first. Messages that address a machine are left out as a whole."""
    messages = _messages(request)
    for message in messages:
        for text in message.raw:
            if message.voice == "tool":
                message.commits += _commits(text)
            else:
                message.said += [point for point in points_of(text) if not holds_object(point)]
        message.held = list(message.said)
    for place, message in enumerate(messages):
        if message.voice == "user":
            _answer(messages[:place], message)
        elif message.voice == "assistant":
            _take_back(messages[:place], message)
    return messages


def _messages(request: MineRequest) -> list[Message]:
    found: list[Message] = []
    lines = [_line(line, request) for line in request.text.splitlines()]
    bullets = sorted((one for one in lines if one is not None), key=lambda one: one[1])
    addressed = {(voice, when) for voice, when, text in bullets if voice in _VOICES and addresses_machine(text)}
    for voice, when, text in bullets:
        if (voice, when) in addressed:
            continue
        if not found or (found[-1].voice, found[-1].when) != (voice, when):
            found.append(Message(voice, when))
        found[-1].raw.append(text)
    return found


def _line(line: str, request: MineRequest) -> tuple[str, datetime, str] | None:
    match = _BULLET.match(line)
    when = None if match is None else _time(match["when"])
    if match is not None and when is not None:
        return (match["voice"], when, match["text"]) if match["voice"] in {*_VOICES, "tool"} else None
    plain = _PLAIN_BULLET.match(line)
    return None if plain is None else ("assistant", request.latest_at, plain["text"])


def _time(written: str) -> datetime | None:
    """A time of UTC; None for one that no calendar or clock has."""
    try:
        return datetime.fromisoformat(written.replace("Z", "+00:00")).astimezone(UTC)
    except ValueError:
        return None


def _commits(text: str) -> Iterator[str]:
    if _FAILED.search(text) is None:
        for match in _COMMIT.finditer(text):
            yield " ".join(match["subject"].split())


def _before(messages: Sequence[Message], voice: str) -> list[Message]:
    """What the other voice has said since this voice spoke last, and in the same minute."""
    found: list[Message] = []
    for message in reversed(messages):
        if message.voice == voice:
            if found:
                break
            continue
        if message.voice in _VOICES:
            found.append(message)
    return found


def _answer(before: Sequence[Message], answer: Message) -> None:
    """What a person's answer makes of what was said right before it."""
    spoken = [message for message in _before(before, "user") if message.voice == "assistant"]
    if any(map(REFUTES.search, _first_words(answer))):
        for message in spoken:
            message.held = []
    elif (yes := _agreement(answer)) is not None:
        for message in spoken:
            for text in message.held:
                if _proposes(text) and len(text) + len(yes) + 20 <= LONGEST_CLAIM:
                    message.agreed[text] = yes
                    answer.held = [point for point in answer.held if not point.startswith(yes.rstrip(".!"))]


def _take_back(before: Sequence[Message], message: Message) -> None:
    """An agent that concedes takes back its own last words, and what it said before in the same breath."""
    place = next((place for place, text in enumerate(message.said) if CONCEDES.search(text)), None)
    raw = next((place for place, text in enumerate(message.raw) if CONCEDES.search(text)), None)
    if place is None and raw is None:
        return
    if place:
        message.held = message.said[place + 1 :]
    for former in _before(before, "assistant")[-1:]:
        earlier = [one for one in before if one.voice == "assistant" and one.when <= former.when]
        for one in earlier[-2:]:
            one.held, one.agreed = [], {}


def _first_words(answer: Message) -> list[str]:
    """Every sentence of a person, with the scraps that `points_of` takes off."""
    return [piece.strip() for text in answer.raw for piece in re.split(r"(?<=[.!?])\s+", text)]


def _agreement(answer: Message) -> str | None:
    """The person's own words of agreement, None where there is none or one with a reservation."""
    if not answer.raw:
        return None
    first = re.split(r"(?<=[.!\u3002])\s*", answer.raw[0].strip(), maxsplit=1)[0]
    clause = first.split(", ")[0]
    if len(first) > _LONGEST_YES // 2 and len(clause) < _LONGEST_YES // 2:
        if _LIMITS.match(first[len(clause) :]) is not None:
            return None
        first = clause
    yes = ACCEPTS.search(first) is not None or ACCEPTS_CJK.search(first) is not None
    if not yes or len(first) > _LONGEST_YES or is_question(first) or RESERVES.search(first):
        return None
    return first


def _proposes(text: str) -> bool:
    proposes = PROPOSES.search(text) is not None or PROPOSES_CJK.search(text) is not None
    return proposes and not is_question(text) and not is_guess(text)
