"""A miner that needs no model: it takes from a leaf what was decided, stated, preferred and corrected. Deterministic.

What a session is about comes from its title (`subjects.py`), what is worth keeping from the wordings that the
extractive summarizer knows. It quotes and never rewords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files

from rivet_pipeline.summaries.extractive import is_filler
from rivet_pipeline.summaries.grounding import identifiers, telling_words
from rivet_pipeline.summaries.sentences import Statement, split_prose
from rivet_pipeline.summaries.signals import (
    BACKWARD,
    CORRECTION,
    OPEN,
    PREFERENCE,
    STATE,
)
from rivet_pipeline.wiki.addressed import addresses_machine, holds_object
from rivet_pipeline.wiki.names import fold, tidy_title, title_terms
from rivet_pipeline.wiki.subjects import subject_of
from rivet_pipeline.wiki.types import (
    LONGEST_CLAIM,
    MOST_PATCHES,
    SAME_SESSION,
    Candidate,
    Claim,
    MineAnswer,
    MineRequest,
    PatchDraft,
    Section,
)

MODEL = "extractive-wiki-1"

#: The page of what a person wants everywhere and always.
PREFERENCES_TITLE = "Standing preferences"

#: Sentences that one leaf brings to a page, the weightiest first.
_MOST_CLAIMS = 6

#: A shorter or longer sentence says too little or too much.
_SHORTEST = 20
_TELLING = 2

_BULLET = re.compile(
    r"^\s*(?:[-*•]|\d+[.)])\s+`?(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?Z)`?\s+`?\S*?/(?P<voice>\w+)`?:?`?\s*(?P<text>.+)$"
)
_PLAIN_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+(?P<text>.+)$")
_QUESTION = re.compile(r"[?\uff1f][\"'”»)]*\Z")

#: Wants something everywhere and always.
_STANDING = re.compile(
    r"\b(?:always(?! (?:another|the same|a)\b)|from now on|general rule|house rules?|in future|every time|by principle"
    r"|remember for next time|i (?:prefer|hate)|don't ever|immer|grundsätzlich|ab jetzt|no new dependency|units only"
    r")\b",
    re.IGNORECASE,
)
#: Tells of something that comes again and again.
_REPEATS = re.compile(r"\balways (?:another|the same|a)\b", re.IGNORECASE)

#: Says why something went wrong.
_CAUSE = re.compile(
    r"\b(?:the (?:root )?cause|came from|comes from|caused by|because|the reason|due to|explains? why|not from)\b",
    re.IGNORECASE,
)
#: Decides, and does not only give a reason.
_DECIDES = re.compile(
    r"\b(?:decision(?:[,:]| of \d)|(?:decision|choice)\b[^.;]{0,40}\b(?:reversed|stands)|decided(?! on \d)|agreed"
    r"|settled on|opted for|in favou?r of|let's (?:go with|use|keep|do)|going with"
    r"|(?:we|i)(?:'ll| will)? (?:chose|choose|drop|put|take|keep|use)|entschieden)\b",
    re.IGNORECASE,
)
#: What is said before the point.
_OPENING = re.compile(
    r"\A(?:(?:ok(?:ay)?|good|very good|nice|right|perfect|exactly|great|fine|yes|super|done|indeed|thanks?|got it|hm+"
    r"|morning|committed as \S+|pushed|applied|fixed and green)\s*[.!,:]\s+|(?:then|and|but|so|now|also|dann)\s+)+"
    r"(?=[\w`\"»])",
    re.IGNORECASE,
)
#: The same as English signals, of German sentences.
_GERMAN_STATE = re.compile(r"\b(?:heißt|liegt|steht|läuft|kommt|gilt|stimmt|braucht|ist|sind)\b")
_GERMAN = re.compile(r"\b(?:der|die|das|dem|den|und|ist|für|ich|nicht|mit|auf|ein|eine|einen|wie|nur|kein|von)\b")
_GERMAN_WISH = re.compile(r"\b(?:brauche ich|ich (?:will|brauche|möchte)|will (?:den|die|das)|bitte|nur|nie|niemals)\b")
_SAYS_FIGURE = re.compile(r"\d")

_NAME = re.compile(
    r"(?<![\w/.@-])(?:(?:PR|MR) #\d+|[A-Z][A-Za-z0-9]*(?:[._-][A-Za-z0-9]+)+|[A-Z]{2,}[A-Z0-9]*(?:-\d+)?"
    r"|[A-Z][a-z]+[A-Z]\w*|[A-Z][a-zäöüß]{2,}(?:\s[A-Z][a-zäöüß]{2,}){0,2})(?![\w/])"
)
_NO_NAME = frozenset(files(__package__).joinpath("no_names.txt").read_text(encoding="utf-8").split())
#: Words of a sentence that tell nothing of its subject: days, months, and that something was agreed.
_NO_NAMES_OR_SIGNALS = _NO_NAME | {"agreed", "decided", "reason", "entschieden"}
_FACT_IDENTIFIER = re.compile(r"[A-Za-z].*[._/#-]|[a-z][A-Z]|[A-Z]+-\d")


class DeterministicMiner:
    """Quotes what a leaf says of its session's subject. The same request always gives the same answer."""

    @property
    def model(self) -> str:
        """`extractive-wiki-1`."""
        return MODEL

    def mine(self, request: MineRequest) -> MineAnswer:
        """A patch for the session's subject, and one for what the person wants everywhere, where they are said."""
        said = list(_sentences(request))
        standing = [one for one in said if one.voice == "user" and _STANDING.search(one.text)]
        rest = [one for one in said if one not in standing]
        drafts = _about_subject(request, rest)
        wishes = _about_preferences(standing)
        if wishes is not None:
            drafts = [*drafts[: MOST_PATCHES - 1], wishes]
        return MineAnswer(tuple(drafts[:MOST_PATCHES]), mentions=names_in([one.text for one in said]))


@dataclass(frozen=True, slots=True)
class _Said:
    """One sentence of a leaf, who said it (user, assistant, system) and when."""

    text: str
    voice: str
    when: datetime


def _sentences(request: MineRequest) -> Iterator[_Said]:
    """What people and agents say in a leaf, sentence by sentence; no tools, no messages that address a machine."""
    lines = request.text.splitlines()
    addressed = {_message(line) for line in lines if addresses_machine(_bullet_text(line))}
    for line in lines:
        if _message(line) in addressed:
            continue
        match = _BULLET.match(line)
        voice, when = "assistant", request.latest_at
        if match is not None:
            voice = match["voice"]
            when = datetime.fromisoformat(match["when"].replace("Z", "+00:00")).astimezone(UTC)
        else:
            match = _PLAIN_BULLET.match(line)
        if match is None or voice not in {"user", "assistant", "system"}:
            continue
        yield from (_Said(text, voice, when) for text in _points(match["text"], voice) if not holds_object(text))


def _message(line: str) -> tuple[str, str] | str:
    """What tells the message of a bullet from others: who said it and when; of another line itself."""
    match = _BULLET.match(line)
    return line if match is None else (match["when"], match["voice"])


def _bullet_text(line: str) -> str:
    match = _BULLET.match(line) or _PLAIN_BULLET.match(line)
    return match["text"] if match is not None else ""


def _points(text: str, voice: str) -> list[str]:
    """The sentences of one bullet. What a person says right after a decision belongs to it."""
    points: list[str] = []
    for sentence in split_prose(text.strip()):
        point = " ".join(sentence.split()).strip()
        follows = (
            bool(points)
            and voice == "user"
            and (_DECIDES.search(points[-1]) is not None or points[-1].startswith(("Reason", "Because")))
            and _QUESTION.search(point) is None
            and len(points[-1]) + len(point) < LONGEST_CLAIM
        )
        if follows:
            points[-1] += f" {point}"
        elif point:
            points.append(_OPENING.sub("", point))
    return [point[0].upper() + point[1:] if point[0].isascii() else point for point in points if point]


def _about_subject(request: MineRequest, said: Sequence[_Said]) -> list[PatchDraft]:
    """A patch for the session's subject, and one for each other page that some of its sentences are about instead."""
    found = _subject(request, said)
    if found is None:
        return []
    title, others = found
    own = next((one for one in request.candidates if fold(one.title) == fold(title)), None)
    terms = {term for name in (title, *(own.aliases if own else ())) for term in title_terms(name)}
    pages = _page_names([one for one in request.candidates if one is not own])
    claims: dict[str, list[Claim]] = {title: []}
    for claim in _claims(said, terms):
        for home in _homes(claim, title, terms, pages):
            claims.setdefault(home, []).append(claim)
    return [
        _draft(request, home, tuple(found_claims), others if home == title else ())
        for home, found_claims in claims.items()
        if found_claims
    ]


def _page_names(pages: Sequence[Candidate]) -> dict[str, set[str]]:
    """For each page the names that are its own: what it is called, where that is a name and no common word."""
    names: dict[str, set[str]] = {}
    for page in pages:
        spoken = {fold(entity) for entity in page.page.entities}
        called = [title_terms(name) for name in (page.title, *page.aliases)]
        names[page.title] = {term for terms in called for term in terms if term in spoken or len(terms) == 1}
    return names


def _homes(claim: Claim, title: str, terms: set[str], pages: dict[str, set[str]]) -> list[str]:
    """The page that a sentence is about: the subject's, or the one other page that it names; none when it names two."""
    said = set(title_terms(claim.text))
    named = [page for page, names in pages.items() if said & names]
    if len(named) > 1:
        return []
    return named if named and not said & terms else [title]


def _draft(request: MineRequest, title: str, claims: tuple[Claim, ...], hints: tuple[str, ...]) -> PatchDraft:
    related = [
        candidate.title
        for candidate in request.candidates
        if fold(candidate.title) != fold(title) and _mentions(request.text, candidate.title)
    ]
    entities = tuple(name for name in names_in([claim.text for claim in claims]) if fold(name) != fold(title))
    return PatchDraft(title=title, claims=claims, entities=entities, related=tuple(related), hints=hints)


def _subject(request: MineRequest, said: Sequence[_Said]) -> tuple[str, tuple[str, ...]] | None:
    """A reviewed topic that the leaf speaks of, else what its title says, else its first words."""
    for tag in request.reviewed:
        if tag.key == "topic" and _mentions(request.text, tag.value.replace("-", " ")):
            return tidy_title(tag.value.replace("-", " ")), ()
    if request.title:
        return _of_session(request, said)
    first = next((one.text for one in said if one.voice == "user"), None)
    if first is None:
        return None
    found = subject_of(first, request.text, request.ran_in)
    # First words alone are a guess: the rest of the leaf has to speak of it too.
    return found if found is not None and _spoken(request.text, found[0]) >= 2 else None


def _of_session(request: MineRequest, said: Sequence[_Said]) -> tuple[str, tuple[str, ...]] | None:
    """The subject of the session's title; the one that an earlier leaf of the session found, where it found one."""
    assert request.title is not None
    found = subject_of(request.title, "\n".join(one.text for one in said), request.ran_in)
    terms = set(title_terms(request.title))
    for candidate in request.candidates:
        if candidate.why == SAME_SESSION and terms & set(title_terms(candidate.title)):
            return candidate.title, found[1] if found is not None else ()
    return found


def _mentions(text: str, name: str) -> bool:
    """Whether a text speaks of a name; none speaks of one without a word."""
    return bool(title_terms(name)) and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def _spoken(text: str, title: str) -> int:
    folded = f" {fold(text.replace('/', ' '))} " if len(text) < 100 else " ".join(title_terms(text))
    return min((folded.count(term) for term in title_terms(title)), default=0)


def _about_preferences(said: Sequence[_Said]) -> PatchDraft | None:
    claims = tuple(
        Claim("preferences", one.text, one.when, 0.8) for one in said if _SHORTEST <= len(one.text) <= LONGEST_CLAIM
    )
    return PatchDraft(title=PREFERENCES_TITLE, claims=claims) if claims else None


def _claims(said: Sequence[_Said], terms: set[str]) -> tuple[Claim, ...]:
    """The weightiest sentences, in the order in which they were said."""
    found: dict[str, tuple[int, Claim]] = {}
    for place, one in enumerate(said):
        kind = _kind(one, terms)
        if kind is not None:
            section, weight = kind
            found.setdefault(one.text.casefold(), (place, Claim(section, one.text, one.when, weight)))
    best = sorted(found.values(), key=lambda item: (-item[1].weight, item[0]))[:_MOST_CLAIMS]
    return tuple(claim for _, claim in sorted(best, key=lambda item: item[0]))


def _kind(one: _Said, terms: set[str]) -> tuple[Section, float] | None:
    """The section of a sentence and its weight, None when it is not worth a page."""
    text = one.text
    if not _SHORTEST <= len(text) <= LONGEST_CLAIM or _QUESTION.search(text) or text.endswith(":"):
        return None
    decides = _DECIDES.search(text) is not None
    if (BACKWARD.match(text) and not decides) or is_filler(Statement(text, "", "", one.voice, 0, 0, 0)):
        return None
    if len(telling_words(text) - _NO_NAMES_OR_SIGNALS) < _TELLING:
        return None
    named = bool(terms & set(title_terms(text)))
    person = one.voice in {"user", "system"}
    checks: list[tuple[bool, Section, float]] = [
        (decides, "decisions", 0.9 if person else 0.7),
        (person and text.startswith(("Reason", "Because")), "decisions", 0.85),
        (
            person and not _REPEATS.search(text) and bool(PREFERENCE.search(text) or _GERMAN_WISH.search(text)),
            "preferences",
            0.8,
        ),
        (person and bool(CORRECTION.search(text)), "facts", 0.75),
        (bool(OPEN.search(text)) and not person, "open", 0.45),
        (bool(_CAUSE.search(text)) and not person, "facts", 0.6),
        (bool(STATE.search(text) or _GERMAN_STATE.search(text)) and bool(_telling(text)), "facts", 0.55),
        (named and bool(_SAYS_FIGURE.search(text)), "facts", 0.5),
    ]
    for holds, section, weight in checks:
        if holds:
            return section, round(weight + (0.05 if named else 0.0), 2)
    return None


def _telling(text: str) -> list[str]:
    return [token for token in identifiers(text) if _FACT_IDENTIFIER.search(token) or _SAYS_FIGURE.search(token)]


def names_in(texts: Sequence[str]) -> tuple[str, ...]:
    """The names that some sentences speak of: products, people, hosts, files, tickets. No figures and no dates.

    A capital at the beginning of a sentence alone makes no name.
    """
    found: dict[str, str] = {}
    for text in texts:
        german = len(_GERMAN.findall(text)) > 1
        for match in _NAME.finditer(text):
            name = match.group(0)
            simple = name[1:].islower() and " " not in name
            begins = match.start() == 0 or text[: match.start()].rstrip().endswith((".", "!", "?", ":", ";"))
            opening = begins and "#" not in name and name.split()[0].casefold() in _NO_NAME
            if german and name.replace(" ", "").isalpha() and not name.isupper():
                # Every noun has a capital.
                continue
            if fold(name) in _NO_NAME or (begins and simple) or opening:
                continue
            found.setdefault(fold(name), name)
        for token in identifiers(text):
            if _FACT_IDENTIFIER.search(token) and len(token) <= 60 and " " not in token and not token[0].isdigit():
                found.setdefault(fold(token), token)
    return tuple(name for key, name in found.items() if len(key) > 1)
