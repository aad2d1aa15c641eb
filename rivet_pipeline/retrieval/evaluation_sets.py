"""What an evaluation asks: conversations, questions about them, and what the answers should find.

Plain data and the readers of the two public formats, LoCoMo and LongMemEval. Nothing here searches or stores.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.transcripts.cleaning import clean_text

#: A turn's name within a question set: the conversation's session key, `#`, the message's event id.
TurnKey = str

#: The turns of a session have no times of their own in either format; they are placed this far apart.
_TURN_APART = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation. `at` is aware."""

    event_id: str
    role: Literal["user", "assistant"]
    content: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Conversation:
    """One session as it is stored: a conversation of its own."""

    session_key: str
    agent: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One question and what should be found.

    `now` is the moment at which it is asked. `agent` restricts the search (None: all). A question that has neither
    `turns` nor `sessions` is asked and timed, and counts in no figure of recall. `group` is what it is reported under;
    `counted` says whether it belongs to the figures over all groups.
    """

    id: str
    text: str
    now: datetime
    turns: frozenset[TurnKey] = frozenset()
    sessions: frozenset[str] = frozenset()
    agent: str | None = None
    group: str = ""
    counted: bool = True


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Conversations and the questions about them. `skipped` counts gold entries that name nothing."""

    name: str
    conversations: tuple[Conversation, ...]
    questions: tuple[Question, ...]
    skipped: int = 0

    def head(self, limit: int | None) -> QuestionSet:
        """The set with its first `limit` questions (None: all); every conversation stays."""
        return self if limit is None else replace(self, questions=self.questions[:limit])


def turn_key(session_key: str, event_id: str) -> TurnKey:
    """The name of a turn within a question set."""
    return f"{session_key}#{event_id}"


def _load(path: Path, kind: str) -> list[Any]:
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(str(path), f"can not be read ({error.strerror}); name a {kind} file") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(str(path), f"is no JSON; name a {kind} file") from error
    if not isinstance(data, list) or not data or not all(isinstance(item, dict) for item in data):
        raise InvalidInputError(str(path), f"is no {kind} file: it must be a list of objects")
    return data


def _fail(path: Path, kind: str, place: str, error: Exception) -> InvalidInputError:
    what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return InvalidInputError(str(path), f"is no {kind} file: {place}: {what}")


_SESSION = re.compile(r"session_(\d+)")
_DIALOGUE_ID = re.compile(r"D\d+:\d+")


def read_questions(path: Path) -> QuestionSet:
    """Reads a file of either format, told by its first entry. Raises `InvalidInputError` for a file of another kind."""
    data = _load(path, "LoCoMo or LongMemEval")
    if "sample_id" in data[0]:
        return read_locomo(path)
    if "question_id" in data[0]:
        return read_longmemeval(path)
    raise InvalidInputError(str(path), "is neither a LoCoMo nor a LongMemEval file")


def read_locomo(path: Path) -> QuestionSet:
    """Reads a LoCoMo file.

    Each session is a conversation, each sample an agent of its own, named by its id: a question searches its own sample
    only, and is asked when the sample's last turn was said. A turn's text is `speaker: text` and, in brackets, the
    caption of its picture. Session dates have no zone and are taken as UTC. Both speakers are people, hence users.
    Evidence that is malformed or names no turn is skipped and counted. Category 5 (no answer exists) is reported apart.
    Raises `InvalidInputError` for a file of another kind.
    """
    conversations: list[Conversation] = []
    questions: list[Question] = []
    skipped = 0
    for number, sample in enumerate(_load(path, "LoCoMo")):
        try:
            name = clean_text(str(sample["sample_id"]))
            sessions = _locomo_sessions(name, sample["conversation"])
            asked, missing = _locomo_questions(name, sample["qa"], sessions)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _fail(path, "LoCoMo", f"sample {number + 1}", error) from error
        conversations += sessions
        questions += asked
        skipped += missing
    if not questions:
        raise InvalidInputError(str(path), "asks nothing: no sample of it has a question")
    return QuestionSet("locomo", tuple(conversations), tuple(questions), skipped)


def _locomo_sessions(name: str, said: Mapping[str, Any]) -> list[Conversation]:
    numbers = sorted(int(match[1]) for key in said if (match := _SESSION.fullmatch(key)) and said[key])
    sessions = []
    for number in numbers:
        began = datetime.strptime(said[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        turns = tuple(
            Turn(turn["dia_id"], "user", _locomo_text(turn), began + index * _TURN_APART)
            for index, turn in enumerate(said[f"session_{number}"])
        )
        sessions.append(Conversation(f"locomo:{name}:{number}", name, turns))
    if not sessions:
        raise ValueError("it has no session with turns")
    return sessions


def _locomo_text(turn: Mapping[str, str]) -> str:
    caption = turn.get("blip_caption")
    return f"{turn['speaker']}: {turn['text']}" + (f" [picture: {caption}]" if caption else "")


def _locomo_questions(
    name: str, asked: Sequence[Mapping[str, Any]], sessions: Sequence[Conversation]
) -> tuple[list[Question], int]:
    session_of = {turn.event_id: session.session_key for session in sessions for turn in session.turns}
    now = max(turn.at for session in sessions for turn in session.turns)
    questions: list[Question] = []
    skipped = 0
    for index, one in enumerate(asked):
        evidence = [str(entry) for entry in one["evidence"]]
        gold = {entry for entry in evidence if _DIALOGUE_ID.fullmatch(entry) and entry in session_of}
        skipped += len(evidence) - sum(entry in gold for entry in evidence)
        category = int(one["category"])
        questions.append(
            Question(
                id=f"{name}/{index}",
                text=clean_text(str(one["question"])),
                now=now,
                turns=frozenset(turn_key(session_of[entry], entry) for entry in gold),
                sessions=frozenset(session_of[entry] for entry in gold),
                agent=name,
                group=f"category {category}",
                counted=category != 5,
            )
        )
    return questions, skipped


def read_longmemeval(path: Path) -> QuestionSet:
    """Reads a LongMemEval file (oracle, S or M).

    All sessions of the file stand in one store, each once, and every question is asked of all of them, at its own date:
    `last week` is a week of that. What other questions' sessions say later counts as brand new. Questions without
    an answer (`_abs`) are reported apart. Dates have no zone and are taken as UTC. Raises `InvalidInputError` for a
    file of another kind.
    """
    data = _load(path, "LongMemEval")
    conversations: dict[str, Conversation] = {}
    answers: dict[str, set[TurnKey]] = {}
    for number, entry in enumerate(data):
        try:
            for key, date, turns in zip(
                entry["haystack_session_ids"], entry["haystack_dates"], entry["haystack_sessions"], strict=True
            ):
                session_key = f"longmemeval:{key}"
                if session_key not in conversations:
                    session = _longmemeval_session(session_key, _longmemeval_date(date), turns)
                    conversations[session_key] = session
                    answers[session_key] = {
                        turn_key(session_key, str(index)) for index, turn in enumerate(turns) if turn.get("has_answer")
                    }
            # Only to say which question is of another kind; it is made below, when all answers are known.
            _longmemeval_question(entry, answers)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _fail(path, "LongMemEval", f"question {number + 1}", error) from error
    questions = tuple(_longmemeval_question(entry, answers) for entry in data)
    return QuestionSet("longmemeval", tuple(conversations.values()), questions)


def _longmemeval_date(text: str) -> datetime:
    return datetime.strptime(re.sub(r"\s*\(\w+\)\s*", " ", text), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)


def _longmemeval_session(session_key: str, began: datetime, turns: Iterable[Mapping[str, Any]]) -> Conversation:
    return Conversation(
        session_key,
        "longmemeval",
        tuple(
            Turn(
                str(index),
                "user" if turn["role"] == "user" else "assistant",
                str(turn["content"]),
                began + index * _TURN_APART,
            )
            for index, turn in enumerate(turns)
        ),
    )


def _longmemeval_question(entry: Mapping[str, Any], answers: Mapping[str, set[TurnKey]]) -> Question:
    sessions = [f"longmemeval:{key}" for key in entry["answer_session_ids"] if f"longmemeval:{key}" in answers]
    abstains = str(entry["question_id"]).endswith("_abs")
    return Question(
        id=clean_text(str(entry["question_id"])),
        text=clean_text(str(entry["question"])),
        now=_longmemeval_date(entry["question_date"]),
        turns=frozenset[str]().union(*(answers[key] for key in sessions)),
        sessions=frozenset(sessions),
        group="abstention" if abstains else clean_text(str(entry["question_type"])),
        counted=not abstains,
    )
