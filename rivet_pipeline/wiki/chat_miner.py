"""A miner that asks a chat model, and the checks that its answer must pass: a strict shape, subjects, grounded claims.

An answer that fails a check is an error with a name of its own, never an empty list: "nothing" must have been said.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from rivet_pipeline.models.json_answer import parse_json_answers
from rivet_pipeline.models.prompt_echo import DATA_SENTENCE, repeats_frame
from rivet_pipeline.models.protocols import Chat, ModelError
from rivet_pipeline.models.texts import clean_outgoing, strip_thinking
from rivet_pipeline.summaries.grounding import ground
from rivet_pipeline.summaries.prompts import quoted
from rivet_pipeline.versions import OWN_TRAFFIC_MARKER
from rivet_pipeline.wiki.names import is_subject
from rivet_pipeline.wiki.types import (
    LONGEST_CLAIM,
    MOST_PATCHES,
    SECTIONS,
    Candidate,
    Claim,
    MineAnswer,
    MineRequest,
    PatchDraft,
    Section,
    claim_key,
)

#: Tokens an answer may have, thinking included (the public code's figure).
MAX_TOKENS = 32_000

#: Characters of a leaf and of a page that are quoted.
LEAF_LIMIT, PAGE_LIMIT = 28_000, 2_400

#: From which share of grounded identifiers on the claims of an answer are taken.
LEAST_GROUNDED = 0.6

_RULE = "-" * 40
_TASK = "Answer with the JSON object now, by the rules you were given."

_WEIGHTS: Mapping[Section, float] = {"summary": 1.0, "decisions": 0.9, "preferences": 0.8, "facts": 0.6, "open": 0.5}

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class _Claim(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    section: Literal["summary", "decisions", "facts", "preferences", "open"]
    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=8, max_length=LONGEST_CLAIM)]
    replaces: list[int] = Field(default_factory=list, max_length=8)


class _Patch(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    page: str | None = None
    title: Text
    aliases: list[Text] = Field(default_factory=list, max_length=8)
    entities: list[Text] = Field(default_factory=list, max_length=24)
    related: list[Text] = Field(default_factory=list, max_length=12)
    claims: list[_Claim] = Field(min_length=1, max_length=8)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    patches: list[_Patch] = Field(max_length=MOST_PATCHES)


_SHAPE = TypeAdapter(_Answer)

#: What an answer has once, and each of its patches once. Inside a string the marks would be escaped, and what only
#: shows the shape has dots in the place of a value: `{"patches": [...]}`.
_BEGINS = re.compile(r'[{,]\s*"(?:patches|claims)"\s*:(?!\s*(?:\[\s*)?(?:\{\s*)?(?:\.\.\.|\u2026))')


class ChatMiner:
    """Patches by a chat model, one call a leaf."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    @property
    def model(self) -> str:
        """The chat model's name."""
        return self._chat.model

    def mine(self, request: MineRequest) -> MineAnswer:
        """The checked answer. Raises `ModelError`, with the failed check's name when an answer came."""
        answer = self._chat.complete(
            system=system_prompt(), user=user_text(request), max_tokens=MAX_TOKENS, temperature=0.0
        )
        tokens = (answer.prompt_tokens or 0) + (answer.completion_tokens or 0)
        drafts = read_patches(answer.text, request)
        return MineAnswer(drafts, tokens=tokens, calls=1)


@cache
def system_prompt() -> str:
    """The rules, the own-traffic marker first."""
    text = files(__package__).joinpath("prompts/mine.md").read_text(encoding="utf-8")
    return f"{OWN_TRAFFIC_MARKER}\n\n{text.strip()}\n"


def user_text(request: MineRequest) -> str:
    """The leaf, the hints and the candidate pages between two fence lines that their own text can not contain."""
    parts = [f"session: {_one_line(request.title or 'untitled')} (agent {_one_line(request.agent)})"]
    if request.reviewed:
        parts.append("reviewed tags: " + ", ".join(f"{tag.key}:{tag.value}" for tag in request.reviewed))
    if request.ran_in:
        parts.append(f"ran in: {', '.join(map(_one_line, request.ran_in))} (no hint)")
    parts.append(f"[summary]\n{quoted(request.text[:LEAF_LIMIT])}")
    parts += [_candidate(candidate) for candidate in request.candidates]
    body = f"\n{_RULE}\n".join(parts)
    fence = hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()[:16]
    return (
        f"{OWN_TRAFFIC_MARKER}\n\nquoted {fence} begins\n{_RULE}\n{body}\n{_RULE}\nquoted {fence} ends\n\n"
        f"{DATA_SENTENCE} {_TASK}\n"
    )


def _candidate(candidate: Candidate) -> str:
    """A page in bounded form, its sentences numbered."""
    lines = [f"[page {candidate.slug}] {_one_line(candidate.title)} (found by: {candidate.why})"]
    if candidate.aliases:
        lines.append("also: " + ", ".join(map(_one_line, candidate.aliases[:8])))
    spent = 0
    for number, bullet in enumerate(candidate.page.bullets, 1):
        spent += len(bullet.text)
        if spent > PAGE_LIMIT:
            break
        lines.append(f"{number}. ({bullet.as_of:%Y-%m-%d}) {_one_line(bullet.text, LONGEST_CLAIM)}")
    return "\n".join(lines)


def _one_line(text: str, limit: int = 200) -> str:
    return quoted(" ".join(clean_outgoing(text).split())[:limit])


def read_patches(text: str, request: MineRequest) -> tuple[PatchDraft, ...]:
    """The patches of an answer.

    Raises:
        ModelError: content, named `no-json` or `wrong-shape` (no such object, or beside it one that was meant to be),
            `several-answers` (objects that say different things; one that says nothing beside another is passed over),
            `unknown-page` (a page that was not given), `bad-title` (no subject), `bad-replaces` (a claim that was not
            given), `prompt-echo` (a claim that holds words of the prompt's own) or `ungrounded`.
    """
    answers = [_SHAPE.validate_python(value) for value in parse_json_answers(text, _fits)]
    if len(_BEGINS.findall(strip_thinking(text))) > sum(1 + len(answer.patches) for answer in answers):
        raise ModelError("content", "wrong-shape", "an object begins beside the answer that is not of its shape")
    told = [answer for answer in answers if answer.patches] or answers
    if any(answer != told[0] for answer in told):
        raise ModelError("content", "several-answers", f"{len(told)} JSON objects say different things")
    return tuple(_draft(patch, request) for patch in told[0].patches)


def _fits(value: Any) -> bool:
    try:
        _SHAPE.validate_python(value)
    except ValidationError:
        return False
    return True


def _draft(patch: _Patch, request: MineRequest) -> PatchDraft:
    page = next((candidate for candidate in request.candidates if candidate.slug == patch.page), None)
    if patch.page is not None and page is None:
        raise ModelError("content", "unknown-page", f"{patch.page[:100]!r} is none of the pages that were given")
    title = page.title if page is not None else patch.title
    if not is_subject(title):
        raise ModelError("content", "bad-title", f"{title!r} names no subject of a page")
    claims = tuple(_claim(claim, page, request) for claim in patch.claims)
    _check_texts("\n".join(claim.text for claim in claims), request)
    aliases = tuple(name for name in (patch.title, *patch.aliases) if name != title and is_subject(name))
    return PatchDraft(title, claims, aliases, tuple(patch.entities), tuple(patch.related))


def _claim(claim: _Claim, page: Candidate | None, request: MineRequest) -> Claim:
    shown = page.page.bullets if page is not None else []
    if any(not 1 <= number <= len(shown) for number in claim.replaces):
        raise ModelError("content", "bad-replaces", f"{claim.replaces} are no claims of the page that was given")
    replaced: list[UUID] = [shown[number - 1].key for number in claim.replaces]
    own = claim_key(claim.text)
    return Claim(
        claim.section,
        claim.text,
        request.latest_at,
        _WEIGHTS[claim.section],
        tuple(key for key in replaced if key != own),
    )


def _check_texts(told: str, request: MineRequest) -> None:
    """Refuses claims that repeat the prompt, or whose identifiers the summary does not hold."""
    sources = [request.text, request.title or "", *(b.text for c in request.candidates for b in c.page.bullets)]
    if repeats_frame(told, "\n".join(sources), (_TASK,)):
        raise ModelError("content", "prompt-echo", f"the claims repeat the prompt: {' '.join(told.split())[:200]!r}")
    share, missing = ground(told, sources)
    if share is not None and share < LEAST_GROUNDED:
        raise ModelError("content", "ungrounded", f"the summary does not hold {', '.join(missing[:5])}"[:400])


assert set(_WEIGHTS) == set(SECTIONS)
