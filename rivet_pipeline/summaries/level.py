"""One level's pass on one connection: asks for each summary, holds it against its sources, writes it or says why not.

The order of each step is here: lock, read, ask the model outside any transaction, write if nobody else has. What is
due stands in `batches.py`, what a summary says in the summarizers, which levels and days are gone through in
`compact.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from rivet_pipeline.db.ledger import SERVICE, clear_failures, record_failure
from rivet_pipeline.db.locks import try_lock
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.db.stale import (
    announce_refinement,
    forget_outdated_failures,
    forget_settled_changes,
    stale_conversations,
)
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.stages import Stage, StageReport
from rivet_pipeline.summaries.batches import (
    BatchRules,
    State,
    next_leaf,
    next_parent,
    read_request,
    read_state,
    read_trust_floor,
)
from rivet_pipeline.summaries.grounding import covered, identifiers
from rivet_pipeline.summaries.sources import held_against_sources, source_texts, texts_of
from rivet_pipeline.summaries.types import (
    Kind,
    Summarizer,
    SummaryDraft,
    SummaryRequest,
)
from rivet_pipeline.summaries.window import cut, fits_of, joined, numbered, parts, smaller
from rivet_pipeline.transcripts.cleaning import clean_text

_HERE = Path(__file__).parent

#: The stage of each level.
STAGE_OF: dict[Kind, Stage] = {"leaf": "leaf_summaries", "branch": "branch_summaries", "root": "root_summaries"}

#: Failures that a smaller batch can cure.
_TOO_MUCH = frozenset({"truncated", "too-long"})


@dataclass(frozen=True, slots=True)
class _Made:
    """An existing summary that is stale, and why."""

    id: UUID
    conversation_id: UUID
    day: date
    input_hash: str
    text_hash: str
    reason: str
    trusted: bool


@dataclass(frozen=True, slots=True)
class _Draft:
    """A text that may be stored, what its sources hold of it, and what it cost. `retried`: it was asked for twice.

    `answered_by`: the models that wrote it, by the service's own word, separated by commas when its parts have several;
    `fallback`: a service that stands in for the configured one wrote at least a part.
    """

    text: str
    share: float | None
    missing: list[str]
    parts: int
    calls: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    answered_by: str
    fallback: bool
    retried: bool = False


def _charged(draft: _Draft, failed: Sequence[ModelError]) -> _Draft:
    """The draft with the cost of what was asked for it in vain."""
    return replace(
        draft,
        calls=draft.calls + sum(error.calls for error in failed),
        prompt_tokens=draft.prompt_tokens + sum(error.prompt_tokens for error in failed),
        completion_tokens=draft.completion_tokens + sum(error.completion_tokens for error in failed),
    )


class Work:
    """One level's pass on one connection."""

    def __init__(self, connection: Connection, kind: Kind, summarizer: Summarizer, version: int) -> None:
        self.stage = STAGE_OF[kind]
        self.report = StageReport(self.stage, model=summarizer.model)
        self._connection = connection
        self._kind: Kind = kind
        self._summarizer = summarizer
        self._fits = fits_of(summarizer)
        self._version = version
        self._trust_floor = read_trust_floor(connection)
        announce_refinement(connection, self.stage, model=summarizer.model, version=version)
        forget_outdated_failures(connection, self.stage)

    def conversation(self, conversation_id: UUID, day: date, rules: BatchRules) -> bool:
        """Makes batches until none is due. False when the service, not the conversation, is at fault."""
        started = time.monotonic()
        try:
            while (request := self._next(read_state(self._connection, conversation_id), rules)) is not None:
                if not self._make(request, day):
                    break
        except ModelError as error:
            return self._failed(str(conversation_id), error, day)
        finally:
            self.report.days[day].seconds += time.monotonic() - started
        return True

    def redo(
        self,
        days: Sequence[date] | None,
        after_each: Callable[[], None] | None = None,
        when_busy: Callable[[UUID], None] | None = None,
        *,
        outdated: bool = True,
        after: Sequence[Kind] = (),
    ) -> bool:
        """Makes what is stale again, with `outdated` all of it. False when the service is at fault.

        A conversation of which a level of `after` is stale counts as busy.
        """
        rows = self._connection.execute(
            (_HERE / "select_stale.sql").read_text(encoding="utf-8"),
            {
                "stage": self.stage,
                "days": list(days) if days is not None else None,
                "model": self._summarizer.model,
                "version": self._version,
                "outdated": outdated,
            },
        ).fetchall()
        below = stale_conversations(self._connection, [STAGE_OF[kind] for kind in after], days) if after else set()
        try:
            for made in (_Made(**row) for row in rows):
                with try_lock(self._connection, self.stage, made.conversation_id) as free:
                    mine = free and made.conversation_id not in below
                    if mine and self._is_as_before(made) and not self._redo_one(made):
                        return False
                if not mine and when_busy is not None:
                    when_busy(made.id)
                if after_each is not None:
                    after_each()
            return True
        finally:
            forget_settled_changes(self._connection)

    def _next(self, state: State, rules: BatchRules) -> SummaryRequest | None:
        if self._kind == "leaf":
            return next_leaf(self._connection, state, rules)
        return next_parent(self._connection, self._kind, state, rules)

    def _make(self, request: SummaryRequest, day: date) -> bool:
        """The summary of a batch, or of each piece of one that is too much. False when another worker won.

        The pieces are stored together: were one of them lost with the process, the rest of the batch might be too
        little ever to be due again.
        """
        made = self._pieces(request, day)
        if not self._write(made):
            return False
        self.report.days[day].rows += len(made)
        return True

    def _pieces(
        self, request: SummaryRequest, day: date, failed: Sequence[ModelError] = ()
    ) -> list[tuple[SummaryRequest, dict[str, Any]]]:
        """What is stored of a batch: cut to what the model can read, and halved where its answer would not end.

        `failed`: the rounds that were too much before, which the first piece is charged with.
        """
        made: list[tuple[SummaryRequest, dict[str, Any]]] = []
        for piece in cut(request, self._fits):
            several = len(piece.messages) > 1
            try:
                draft = _charged(self._draft(piece, day, in_parts=not several), failed)
                made.append((piece, self._columns(piece, draft)))
            except ModelError as error:
                if error.name not in _TOO_MUCH or not several:
                    raise
                middle = len(piece.messages) // 2
                made += self._pieces(replace(piece, messages=piece.messages[:middle]), day, (*failed, error))
                made += self._pieces(replace(piece, messages=piece.messages[middle:]), day)
            failed = ()
        return made

    def _draft(self, request: SummaryRequest, day: date, *, in_parts: bool = True) -> _Draft:
        """The summary, asked for once more with what it invented when its sources hold too little of it.

        `in_parts`: what is too much for the service is asked for in smaller parts, which stand in one text.
        """
        first = self._asked(request, day, in_parts=in_parts)
        if self._is_trusted(first):
            return first
        try:
            second = self._asked(replace(request, missing=tuple(first.missing)), day, in_parts=in_parts)
        except ModelError as error:
            if error.cause != "content":
                raise
            return replace(_charged(first, [error]), retried=True)
        better = second if self._is_trusted(second) or (second.share or 0) >= (first.share or 0) else first
        return replace(
            better,
            retried=True,
            calls=first.calls + second.calls,
            prompt_tokens=first.prompt_tokens + second.prompt_tokens,
            completion_tokens=first.completion_tokens + second.completion_tokens,
            seconds=first.seconds + second.seconds,
        )

    def _is_trusted(self, draft: _Draft) -> bool:
        return draft.share is None or draft.share >= self._trust_floor

    def _asked(self, request: SummaryRequest, day: date, *, in_parts: bool) -> _Draft:
        """The summarizer's answer, in parts when the request is too much for it, held against the sources."""
        tally = self.report.days[day]
        started = time.monotonic()
        asked, answers, failed = self._answers(request, day, in_parts=in_parts)
        text = clean_text(joined(asked, [answer.text for answer in answers])).strip()
        tally.characters += sum(map(len, source_texts(request)))
        # The lines between the parts are not judged.
        share, missing = held_against_sources("\n".join(answer.text for answer in answers), request)
        draft = _Draft(
            text=text,
            share=share,
            missing=[clean_text(token) for token in missing],
            parts=len(asked),
            calls=sum(answer.calls for answer in answers),
            prompt_tokens=sum(answer.prompt_tokens for answer in answers),
            completion_tokens=sum(answer.completion_tokens for answer in answers),
            seconds=time.monotonic() - started,
            answered_by=", ".join(dict.fromkeys(answer.answered_by for answer in answers if answer.answered_by)),
            fallback=any(answer.fallback for answer in answers),
        )
        return _charged(draft, failed)

    def _answers(
        self, request: SummaryRequest, day: date, *, in_parts: bool
    ) -> tuple[list[SummaryRequest], list[SummaryDraft], list[ModelError]]:
        """What was asked and answered, each part halved while the service says that it is too much, and what failed.

        What is raised in the end is charged with all that was asked.
        """
        asked = parts(request, self._fits)
        answers: list[SummaryDraft] = []
        failed: list[ModelError] = []
        while len(answers) < len(asked):
            place = len(answers)
            try:
                answers.append(self._answer(asked[place], day))
            except ModelError as error:
                pieces = smaller(asked[place]) if in_parts and error.name in _TOO_MUCH else []
                if len(pieces) < 2:
                    before: list[SummaryDraft | ModelError] = [*answers, *failed]
                    error.calls += sum(one.calls for one in before)
                    error.prompt_tokens += sum(one.prompt_tokens for one in before)
                    error.completion_tokens += sum(one.completion_tokens for one in before)
                    raise
                failed.append(error)
                asked = numbered([*asked[:place], *pieces, *asked[place + 1 :]])
        return asked, answers, failed

    def _answer(self, request: SummaryRequest, day: date) -> SummaryDraft:
        tally = self.report.days[day]
        try:
            draft = self._summarizer.summarize(request)
            if not clean_text(draft.text).strip():
                raise ModelError("content", "empty", "the summarizer gave no text")
        except ModelError as error:
            tally.model_calls += error.calls
            tally.tokens += error.prompt_tokens + error.completion_tokens
            raise
        except Exception as error:
            # One conversation that our own code can not take must not stop all others; the ledger shows it.
            raise ModelError("content", "defect", f"{type(error).__name__}: {error}") from error
        tally.model_calls += draft.calls
        tally.tokens += draft.prompt_tokens + draft.completion_tokens
        return draft

    def _columns(self, request: SummaryRequest, draft: _Draft) -> dict[str, Any]:
        told = covered(draft.text, ["\n".join(texts_of(source)) for source in request.inputs])
        judged = [found for found in told if found is not None]
        return {
            "conversation": request.conversation.id,
            "kind": request.kind,
            "content": draft.text,
            "message_count": request.message_count,
            "earliest_at": request.earliest_at,
            "latest_at": request.latest_at,
            "agents": request.agents,
            "model": self._summarizer.model,
            "version": self._version,
            "input_hash": self._input_hash(request),
            "grounding": draft.share,
            "ungrounded": draft.missing,
            "coverage": sum(judged) / len(judged) if judged else None,
            "uncovered": [source.id for source, found in zip(request.inputs, told, strict=True) if found is False],
            "metadata": Jsonb(
                {
                    **({"answered_by": clean_text(draft.answered_by)} if draft.answered_by else {}),
                    "seconds": round(draft.seconds, 3),
                    "calls": draft.calls,
                    "parts": draft.parts,
                    "retried": draft.retried,
                    "prompt_tokens": draft.prompt_tokens,
                    "completion_tokens": draft.completion_tokens,
                    "identifiers": len(identifiers(draft.text)),
                    "input_characters": sum(map(len, source_texts(request))),
                }
            ),
        }

    def _write(self, made: Sequence[tuple[SummaryRequest, dict[str, Any]]]) -> bool:
        """Stores the pieces of a batch with their sources. False, and nothing stored, when one is claimed already."""
        conversation = made[0][0].conversation.id
        try:
            with self._connection.transaction():
                # Two writers of one conversation wait here. NO KEY: a capture of the same moment need not.
                self._connection.execute(
                    "SELECT 1 FROM ros_conversations WHERE id = %s FOR NO KEY UPDATE", [conversation]
                )
                for request, columns in made:
                    row = self._connection.execute(
                        (_HERE / "insert_summary.sql").read_text(encoding="utf-8"), columns
                    ).fetchone()
                    assert row is not None
                    if not self._claim(row["id"], request):
                        raise psycopg.Rollback
                self._succeeded(str(conversation))
                return True
        except psycopg.errors.UniqueViolation:
            return False
        return False

    def _claim(self, summary_id: UUID, request: SummaryRequest) -> bool:
        if request.kind == "leaf":
            claimed = self._connection.execute(
                """
                INSERT INTO ros_summary_sources (summary_id, message_id, ordinal)
                SELECT %(summary)s, i.id, i.place - 1
                FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS i (id, place)
                WHERE NOT EXISTS (SELECT 1 FROM ros_summary_sources AS s WHERE s.message_id = i.id)
                """,
                {"summary": summary_id, "ids": request.input_ids},
            )
        else:
            claimed = self._connection.execute(
                "UPDATE ros_summaries SET parent_id = %s WHERE id = ANY(%s) AND parent_id IS NULL",
                [summary_id, request.input_ids],
            )
        return claimed.rowcount == len(request.input_ids)

    def _input_hash(self, request: SummaryRequest) -> str:
        row = self._connection.execute(
            "SELECT ros_input_hash(%s, %s, %s, %s) AS hash",
            [request.kind, self._summarizer.model, self._version, request.input_lines],
        ).fetchone()
        assert row is not None
        return str(row["hash"])

    def _is_as_before(self, made: _Made) -> bool:
        """Whether nobody else has made it again since it was selected."""
        row = self._connection.execute(
            """
            SELECT 1 FROM ros_summaries AS s
            WHERE s.id = %(id)s AND s.input_hash = %(hash)s AND s.text_hash = %(text)s
              AND (%(reason)s <> 'requested'
                   OR EXISTS (SELECT 1 FROM ros_remine_requests AS q WHERE q.summary_id = s.id))
            """,
            {"id": made.id, "hash": made.input_hash, "text": made.text_hash, "reason": made.reason},
        ).fetchone()
        return row is not None

    def _redo_one(self, made: _Made) -> bool:
        state = read_state(self._connection, made.conversation_id)
        request = read_request(self._connection, made.id, self._kind, state)
        started = time.monotonic()
        try:
            if not request.input_ids:
                raise ModelError("content", "no-sources", "nothing that it was made from is left")
            draft = self._draft(request, made.day)
            if made.trusted and not self._is_trusted(draft):
                detail = f"the new text names what no source holds: {draft.missing}"
                raise ModelError("content", "ungrounded", detail, fallback=draft.fallback)
        except ModelError as error:
            return self._failed(str(made.id), error, made.day)
        finally:
            self.report.days[made.day].seconds += time.monotonic() - started
        columns = self._columns(request, draft)
        with self._connection.transaction():
            replaced = self._connection.execute(
                (_HERE / "replace_summary.sql").read_text(encoding="utf-8"),
                {**columns, "id": made.id, "old_hash": made.input_hash, "old_text": made.text_hash},
            )
            self._connection.execute("DELETE FROM ros_remine_requests WHERE summary_id = %s", [made.id])
            self._succeeded(str(made.id))
        self.report.days[made.day].rows += replaced.rowcount
        return True

    def _succeeded(self, item: str) -> None:
        """Forgets the item's failures, and those of the service, which answers for every level."""
        clear_failures(self._connection, stage=self.stage, items=[item])
        for stage in STAGE_OF.values():
            clear_failures(self._connection, stage=stage, items=[SERVICE])

    def _failed(self, item: str, error: ModelError, day: date) -> bool:
        """Records a failure: the item's own, or the service's, for which the whole stage rests. True for the former."""
        mine = error.cause == "content"
        if mine and error.fallback:
            # A stand-in's bad answer says nothing of the configured model: the item is tried until that one is back.
            error = ModelError(
                "transient", error.name, f"{error.detail} (by a fallback)", retry_after=error.retry_after
            )
        with self._connection.transaction():
            record_failure(self._connection, stage=self.stage, item=item if mine else SERVICE, error=error, day=day)
        self.report.days[day].failures += 1
        return mine
