"""A miner that needs no model: it takes from a leaf what was decided, agreed, wanted, committed and found.

What a session is about comes from its title (`subjects.py`), who said what and what came of it from `turns.py`, whether
a sentence can stand by itself from `standing.py`. Deterministic: it quotes and never rewords, and says less rather than
a scrap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from uuid import UUID

from rivet_pipeline.summaries.grounding import identifiers, telling_words
from rivet_pipeline.summaries.signals import OPEN
from rivet_pipeline.wiki.contradictions import ends_what
from rivet_pipeline.wiki.names import fold, names_another_number, numbered_apart, speaks_of, tidy_title, title_terms
from rivet_pipeline.wiki.standing import stands_alone, without_introduction
from rivet_pipeline.wiki.subjects import others_after, subject_of, telling_terms
from rivet_pipeline.wiki.turns import Message, read_turns
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
from rivet_pipeline.wiki.wordings import (
    ADDRESSES,
    CAUSE,
    DECIDES,
    FROM_NOW_ON,
    LACKS,
    MINE,
    ORDERS,
    PLANS,
    POLICY,
    PREFERS_HERE,
    REPAIRED,
    RESULT,
    REVISES,
    RULES,
    STANDING,
    STATES,
    WANTS,
)

MODEL = "extractive-wiki-1"

#: The page of what a person wants everywhere and always.
PREFERENCES_TITLE = "Standing preferences"

#: Sentences that one leaf brings to a page, the weightiest first.
_MOST_CLAIMS = 6

#: Words that a sentence has at least that does not name the subject of its page.
_TELLING = 3

#: Words that only say that something was decided.
_SIGNALS = frozenset(
    """agreed decided decision reason reasons today never always entschieden beschlossen decisión decidido acordado
    date décision decisione deciso decisão january february march april june july august september october
    november december monday tuesday wednesday thursday friday saturday sunday""".split()  # noqa: SIM905
)
_REASON = re.compile(r"\A(?:reasons?|because|weil|grund|motivos?|porque)\b", re.IGNORECASE)
#: A decision that says so itself is no wish for ever, even when it holds from now on.
_SAYS_DECIDED = re.compile(
    r"\A(?:decision|decided|decisión|decidido|entscheidung|décision|decisione|decisão|決定)\b[^:.;]{0,40}:",
    re.IGNORECASE,
)
#: A person's first word that settles what stands behind its colon: "OK: a house with three bedrooms from 1 August".
_SETTLES = re.compile(
    r"\A(?:ok(?:ay)?|good|fine|right|gut|vale|bien|bon|va bene|certo)(?: then| dann| entonces| alors| allora)? ?: +",
    re.IGNORECASE,
)
#: Words before a colon that name whom they are said to: "Summary for your notes: …".
_LABEL = re.compile(r"\A(?P<label>[^:;`\"]{4,60}):\s+(?=\S.{14})")
#: Names a thing and an order about it.
_TO_DO = re.compile(r"\A[A-Z][\w' -]{3,40}: (?=[a-z])" + ORDERS.pattern.removeprefix(r"\A"), re.IGNORECASE)
#: Names a thing and says what it is.
_DEFINES = re.compile(r"\A[A-Z][\w' -]{3,40}: \S(?!.*[;])")
_PAST = re.compile(
    r"(?<!\w)(?:was|were|had|has been|have been|came|war|waren|hatte|era|fue|fueron|estaba)(?!\w)", re.IGNORECASE
)
#: The writer tells what he did himself.
_TELLS = re.compile(r"\A(?:I|We|Ich|Wir|Yo)(?!\w)")

_GERMAN = re.compile(
    r"\b(?:der|die|das|dem|den|und|ist|sind|für|ich|nicht|mit|auf|ein|eine|einen|wie|nur|kein|von|muss|sein|sonst|wird"
    r"|werden|hat|bei|im|als|nach|aus)\b"
)
_SAYS_FIGURE = re.compile(r"\d")

_NAME = re.compile(
    r"(?<![\w/.@-])(?:(?:PR|MR) #\d+|[A-Z][A-Za-z0-9]*(?:(?:[._-]|['\u2019](?=[A-Z]))[A-Za-z0-9]+)+"
    r"|[A-Z]{2,}[A-Z0-9]*(?:-\d+)?|[A-Z][a-z]+[A-Z]\w*(?:\s[A-Z][a-zäöüß]{2,})?"
    r"|[A-Z][a-zäöüß]{2,}(?:\s[A-Z][a-zäöüß]{2,}){0,2})(?![\w/-])"
)
_NO_NAME = frozenset(files(__package__).joinpath("no_names.txt").read_text(encoding="utf-8").split())
_FACT_IDENTIFIER = re.compile(r"[A-Za-z].*[._/#-]|[a-z][A-Z]|[A-Z]+-\d")


class DeterministicMiner:
    """Quotes what a leaf says of its session's subject. The same request always gives the same answer."""

    @property
    def model(self) -> str:
        """`extractive-wiki-1`."""
        return MODEL

    def mine(self, request: MineRequest) -> MineAnswer:
        """A patch for the session's subject, and one for what the person wants everywhere, where they are said."""
        turns = read_turns(request)
        standing = list(_standing(turns))
        wished = {one.text for one in standing}
        drafts = _about_subject(request, turns, wished)
        if standing:
            claims = tuple(Claim("preferences", one.point, one.when, 0.8) for one in standing)
            drafts = [*drafts[: MOST_PATCHES - 1], PatchDraft(title=PREFERENCES_TITLE, claims=claims)]
        said = [text for turn in turns for text in turn.said]
        return MineAnswer(tuple(drafts[:MOST_PATCHES]), mentions=names_in(said))


# --- what somebody wants always -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wish:
    """A sentence of a person's and the point of it."""

    text: str
    point: str
    when: datetime


def _standing(turns: Sequence[Message]) -> Iterator[_Wish]:
    """What a person wants everywhere and always, and the rules that follow in the same breath."""
    for turn in turns:
        if turn.voice != "user":
            continue
        rules = False
        for text in turn.held:
            if _SAYS_DECIDED.match(text):
                continue
            rules = rules or RULES.search(text) is not None
            point = without_introduction(text)
            # The point begins with a capital that it may not have in the sentence, so it is told by its length.
            introduced = point != text and STANDING.search(text[: -len(point)]) is not None
            wants = STANDING.search(text) is not None or (rules and len(telling_words(point)) >= _TELLING)
            # "From now on I prefer … the charts" is wanted always, "I prefer … the charts, as always" of these.
            here = PREFERS_HERE.search(text) is not None and FROM_NOW_ON.search(text) is None
            # "For next time: ask before …" is an order that is never done.
            if wants and not here and stands_alone(point, "user", order=introduced):
                yield _Wish(text, point, turn.when)


# --- what is said of the subject ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """A sentence that is worth a page. `free`: it need not name the page's subject; `passing`: a change outdates it."""

    section: Section
    text: str
    when: datetime
    weight: float
    free: bool = False
    passing: bool = False
    commit: bool = False


def _about_subject(request: MineRequest, turns: Sequence[Message], wished: set[str]) -> list[PatchDraft]:
    """A patch for the session's subject, and one for each other page that some of its sentences are about instead."""
    found = _subject(request, turns)
    if found is None:
        return []
    title, others = found
    found_claims = list(_findings(turns, wished))
    own = next((one for one in _earlier(request) if fold(one.title) == fold(title)), None)
    if own is None and (own := _overturned(request, title, found_claims)) is not None:
        title = own.title
    terms = {term for name in (title, *(own.aliases if own else ())) for term in telling_terms(name)}
    aspects = {term for name in others_after(request.title or "") for term in telling_terms(name)}
    pages = _page_names([one for one in _earlier(request) if one is not own])
    homes: dict[str, list[_Found]] = {title: []}
    for one in _as_it_ended(found_claims, turns):
        home = _home(one.text, title, terms, pages)
        if home is not None and _belongs(one, home, title, terms | aspects, request.title or ""):
            homes.setdefault(home, []).append(one)
    return [
        _draft(request, home, claims, others if home == title else ())
        for home, kept in homes.items()
        if (claims := _claims(kept, own if home == title else None))
        and (home != title or own is not None or _is_worth_a_page(claims, terms | aspects))
    ]


def _is_worth_a_page(claims: Sequence[Claim], terms: set[str]) -> bool:
    """Whether a new page says something of its subject: a decision or a change, or a sentence that names it."""
    return any(
        claim.section == "decisions" or claim.text.startswith("Committed: ") or speaks_of(claim.text, terms)
        for claim in claims
    )


def _earlier(request: MineRequest) -> list[Candidate]:
    """The pages that stood when the leaf was said: mining it again must not find others, and say something else."""
    return [page for page in request.candidates if page.page.stood_at(request.latest_at)]


def _overturned(request: MineRequest, title: str, found: Sequence[_Found]) -> Candidate | None:
    """The one page on which stands the decision that a session about its end takes back.

    Else the old decision would hold on its page for ever, and the new one stand on a page of its own. Once that is done
    it stands in the page's history, where mining again has to find it. What ends is the session's subject, or something
    that its title names on the subject's page: the importer that drops Redis says nothing of who else uses it.
    """
    own, named = set(title_terms(title)), set(title_terms(request.title or ""))
    pages = [
        page
        for page in _earlier(request)
        if not (numbered_apart(title, page.title) or names_another_number(request.title or "", page.title))
        and any(
            ends_what(one.text, bullet.text, named if speaks_of(" ".join((page.title, *page.aliases)), own) else own)
            for one in found
            if one.section == "decisions"
            for bullet in (*page.page.sections.get("decisions", ()), *(entry.bullet for entry in page.page.history))
            if bullet.first_at < one.when
        )
    ]
    return pages[0] if len(pages) == 1 else None


def _belongs(one: _Found, home: str, title: str, terms: set[str], session: str) -> bool:
    """Whether a page's reader sees what a sentence is about: it names the subject, or is a decision of its session."""
    if home != title:
        # A wish is of its session; elsewhere only what was found or decided stays true.
        return one.section in {"facts", "decisions"}
    if names_another_number(one.text, title) or (one.commit and len(telling_words(one.text)) < _TELLING + 1):
        return False
    if speaks_of(one.text, terms):
        return True
    if one.commit:
        return speaks_of(one.text, set(title_terms(session)))
    least = _TELLING - 1 if one.section == "decisions" else _TELLING
    return one.free and len(telling_words(one.text) - _SIGNALS) >= least


def _home(text: str, title: str, terms: set[str], pages: dict[str, set[str]]) -> str | None:
    """The page that a sentence is about: the subject's, or the one other page that it names; none when it names two."""
    if speaks_of(text, terms):
        return title
    named = [page for page, names in pages.items() if speaks_of(text, names) and not names_another_number(text, page)]
    if len(named) > 1:
        return None
    return named[0] if named else title


def _as_it_ended(found: Sequence[_Found], turns: Sequence[Message]) -> list[_Found]:
    """What was found, without what something did not do before it was changed or mended in the same leaf.

    Whichever page that would stand on: the change is often said in other words, and on another one.
    """
    changed = [one.when for one in found if one.commit]
    changed += [turn.when for turn in turns if turn.voice == "assistant" and any(map(REPAIRED.search, turn.said))]
    last = max(changed, default=None)
    return [one for one in found if last is None or one.when >= last or not one.passing or not LACKS.search(one.text)]


def _findings(turns: Sequence[Message], wished: set[str]) -> Iterator[_Found]:
    """What the messages say that is worth a page, in the order of time."""
    opening = next((turn for turn in turns if turn.voice == "user"), None)
    for turn in turns:
        yield from (
            _Found("facts", f"Committed: \u201c{text}\u201d.", turn.when, 0.65, commit=True) for text in turn.commits
        )
        before: _Found | None = None
        for text in turn.held:
            if text in wished:
                continue
            if before is not None and _REASON.match(text) and len(before.text) + len(text) < LONGEST_CLAIM:
                before = _Found(before.section, f"{before.text} {text}", before.when, before.weight, before.free)
                continue
            if before is not None:
                yield before
            before = _finding(text, turn, opens=turn is opening)
        if before is not None:
            yield before


def _finding(text: str, turn: Message, *, opens: bool) -> _Found | None:
    """What a sentence is to a page; None when it is not worth one or can not stand by itself.

    `opens`: a person's first words say what is to be changed, not what holds.
    """
    yes = turn.agreed.get(text)
    if yes is not None:
        if not stands_alone(text, turn.voice, proposal=True):
            return None
        return _Found("decisions", f"{text} Agreed: \u201c{yes}\u201d", turn.when, 0.85, free=True)
    point = _unaddressed(text)
    if not stands_alone(point, turn.voice) or (turn.voice == "system" and POLICY.match(text)):
        return None
    person = turn.voice in {"user", "system"}
    planned = PLANS.search(text) is not None or any(map(DECIDES.search, turn.said))
    passing = _PAST.search(text) is None and not planned
    revises = REVISES.search(text) is not None and STATES.search(text) is not None
    # What somebody begins with of his own is what he wants to be helped with.
    told = _PAST.search(text) is not None and not _TELLS.match(text) and not (opens and MINE.search(text))
    checks: list[tuple[bool, Section, float, bool]] = [
        (_decides(text), "decisions", 0.9 if person else 0.7, person),
        (turn.voice == "user" and _is_settled(text, turn), "decisions", 0.85, True),
        (RESULT.match(text) is not None, "facts", 0.75, True),
        (turn.voice == "user" and POLICY.match(text) is not None, "decisions", 0.85, True),
        (person and revises, "decisions", 0.85, False),
        (person and WANTS.search(text) is not None, "preferences", 0.75, PREFERS_HERE.search(text) is not None),
        (OPEN.search(text) is not None and not person, "open", 0.45, False),
        (CAUSE.search(text) is not None, "facts", 0.6, False),
        (person and told, "facts", 0.5, turn.voice == "user"),
        (not person and WANTS.search(text) is not None, "facts", 0.55, False),
        (not person and _TO_DO.match(text) is not None, "open", 0.5, False),
        (not person and _DEFINES.match(text) is not None, "facts", 0.55, False),
        (
            STATES.search(text) is not None and (not opens or planned),
            "facts",
            0.55 if _SAYS_FIGURE.search(text) else 0.5,
            False,
        ),
    ]
    for holds, section, weight, free in checks:
        if holds:
            return _Found(
                section,
                point,
                turn.when,
                weight,
                free,
                passing=passing and section in {"facts", "open"} and not _DEFINES.match(text),
            )
    return None


def _is_settled(text: str, turn: Message) -> bool:
    """Whether a person has said it behind the colon of an OK."""
    said = ((raw, _SETTLES.match(raw)) for raw in turn.raw)
    return any(ok is not None and raw[ok.end() :].casefold().startswith(text.casefold()[:40]) for raw, ok in said)


def _unaddressed(text: str) -> str:
    """A result without a label that speaks to somebody: the reader of a page has no such notes."""
    label = _LABEL.match(text)
    if label is None or RESULT.match(text) is None or ADDRESSES.search(label["label"]) is None:
        return text
    return text[label.end() :]


def _decides(text: str) -> bool:
    return DECIDES.search(text) is not None and len(telling_words(text) - _SIGNALS) >= 2


def _claims(found: Sequence[_Found], page: Candidate | None) -> tuple[Claim, ...]:
    """The weightiest sentences, in the order in which they were said; what was found before a change is no claim.

    What an earlier leaf of the same day has said of the state before a change, the commit supersedes.
    """
    change = max((one.when for one in found if one.commit), default=None)
    kept = [one for one in found if change is None or not one.passing or one.when >= change]
    distinct = list({one.text.casefold(): one for one in reversed(kept)}.values())[::-1]
    best = sorted(distinct, key=lambda one: -one.weight)[:_MOST_CLAIMS]
    last = max((one for one in best if one.commit), key=lambda one: one.when, default=None)
    return tuple(
        Claim(one.section, one.text, one.when, one.weight, _outdated(page, one) if one is last else ())
        for one in distinct
        if one in best
    )


def _outdated(page: Candidate | None, change: _Found) -> tuple[UUID, ...]:
    """The facts of the same day and session that speak of how things were before a change."""
    if page is None or page.why != SAME_SESSION:
        return ()
    return tuple(
        bullet.key
        for section in ("facts", "open")
        for bullet in page.page.sections.get(section, ())
        if bullet.as_of.date() == change.when.date()
        and bullet.as_of <= change.when
        and not bullet.text.startswith("Committed: ")
        and _PAST.search(bullet.text) is None
        and PLANS.search(bullet.text) is None
        and _DEFINES.match(bullet.text) is None
        and RESULT.match(bullet.text) is None
    )


def _page_names(pages: Sequence[Candidate]) -> dict[str, set[str]]:
    """For each page the names that are its own: what it is called, where that is a name and no common word."""
    names: dict[str, set[str]] = {}
    for page in pages:
        if page.title == PREFERENCES_TITLE:
            continue
        spoken = {fold(entity) for entity in page.page.entities}
        called = [telling_terms(name) for name in (page.title, *page.aliases)]
        names[page.title] = {term for terms in called for term in terms if term in spoken or len(terms) == 1}
    return names


def _draft(request: MineRequest, title: str, claims: tuple[Claim, ...], hints: tuple[str, ...]) -> PatchDraft:
    related = [
        candidate.title
        for candidate in _earlier(request)
        if fold(candidate.title) != fold(title) and _mentions(request.text, candidate.title)
    ]
    entities = tuple(name for name in names_in([claim.text for claim in claims]) if fold(name) != fold(title))
    return PatchDraft(title=title, claims=claims, entities=entities, related=tuple(related), hints=hints)


def _subject(request: MineRequest, turns: Sequence[Message]) -> tuple[str, tuple[str, ...]] | None:
    """A reviewed topic that the leaf speaks of, else what its title says, else its first words."""
    for tag in request.reviewed:
        if tag.key == "topic" and _mentions(request.text, tag.value.replace("-", " ")):
            return tidy_title(tag.value.replace("-", " ")), ()
    if request.title:
        return _of_session(request, turns)
    first = next((text for turn in turns if turn.voice == "user" for text in turn.raw), None)
    if first is None:
        return None
    found = subject_of(first, request.text, request.ran_in)
    # First words alone are a guess: the rest of the leaf has to speak of it too.
    return found if found is not None and _spoken(request.text, found[0]) >= 2 else None


def _of_session(request: MineRequest, turns: Sequence[Message]) -> tuple[str, tuple[str, ...]] | None:
    """The subject of the session's title; the one that an earlier leaf of the session found, where it found one."""
    assert request.title is not None
    body = "\n".join(text for turn in turns for text in turn.said)
    found = subject_of(request.title, body, request.ran_in, _frequent_names(turns))
    terms = set(title_terms(request.title))
    for candidate in _earlier(request):
        if candidate.why == SAME_SESSION and terms & set(title_terms(candidate.title)):
            return candidate.title, found[1] if found is not None else ()
    return found


def _frequent_names(turns: Sequence[Message]) -> list[str]:
    """The names that several sentences speak of, those of most sentences first."""
    counts: dict[str, int] = {}
    for turn in turns:
        for text in turn.said:
            for name in names_in([text]):
                counts[name] = counts.get(name, 0) + 1
    return sorted((name for name, count in counts.items() if count > 1), key=lambda name: -counts[name])


def _mentions(text: str, name: str) -> bool:
    """Whether a text speaks of a name; none speaks of one without a word."""
    return bool(title_terms(name)) and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def _spoken(text: str, title: str) -> int:
    folded = f" {fold(text.replace('/', ' '))} " if len(text) < 100 else " ".join(title_terms(text))
    return min((folded.count(term) for term in title_terms(title)), default=0)


# --- names -----------------------------------------------------------------------------------------------------------


def names_in(texts: Sequence[str]) -> tuple[str, ...]:
    """The names that some sentences speak of: products, people, hosts, files, tickets. No figures and no dates.

    A capital at the beginning of a sentence alone makes no name.
    """
    found: dict[str, str] = {}
    for text in texts:
        # A capital is of a name, and not of one of these words: MIT, Red Hat. The first word has one in any language.
        german = len(_GERMAN.findall(text[:1].lower() + text[1:])) > 1
        for match in _NAME.finditer(text):
            name = match.group(0)
            simple = name[1:].islower() and " " not in name
            before = text[: match.start()].rstrip()
            begins = not before or before.endswith((".", "!", "?", ":", ";", "\u201c", "\u00bb", '"', "("))
            opening = begins and "#" not in name and name.split()[0].casefold() in _NO_NAME
            if german and name.replace(" ", "").isalpha() and not name.isupper():
                # Every noun has a capital.
                continue
            if fold(name) in _NO_NAME or (begins and simple) or opening:
                continue
            found.setdefault(fold(name), name)
        for token in identifiers(text):
            if len(token) <= 60 and _FACT_IDENTIFIER.search(token) and " " not in token and not token[0].isdigit():
                found.setdefault(fold(token), token)
    return tuple(name for key, name in found.items() if len(key) > 1)
