"""A tagger that needs no model: it looks for known subjects and for the phrases of the title in what the leaf says.

First the accepted vocabulary, then the subjects of `subjects.txt`, then phrases of the title that the text comes back
to. Deterministic: the same request always gives the same tags. It would rather say too little than guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal as OneOf

from rivet_pipeline.summaries.signals import HEADER_STOP_WORDS, NUMBERED, STOP_WORDS
from rivet_pipeline.tags.literals import Literal, tag_text
from rivet_pipeline.tags.types import MAX_PROPOSALS, Proposal, TagAnswer, TagRequest

MODEL = "keyphrases-1"

#: Subjects and phrases of one leaf, beside what the vocabulary has; more of them would be guesses.
_MOST_SUBJECTS, _MOST_PHRASES = 4, 2

#: In so many of a leaf's statements a subject must be spoken of when the title does not name it, and in so many a value
#: of the vocabulary or a single word of the title, which may mean anything.
_RECURRING, _INSISTENT = 2, 3

#: A title longer than this, in characters, is the first sentence of a talk: it names more than a subject.
_LONGEST_TITLE = 70

#: Words of a phrase, at most.
_LONGEST_PHRASE = 3

#: A title that is a sentence, or several, was somebody's first words.
_SENTENCE = re.compile(r"[.!?](?:\s|\Z)")

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_BULLET = re.compile(r"\A\s*[-*]\s+(?:\S+T\S+Z\s+)?(?:[^\s:]+/(?P<role>\w+):\s+)?")
#: Where a phrase ends, beside at stop words: at signs other than a hyphen between words.
_BREAK = re.compile(r"[^\w\s'\u2019-]+|\s-+\s|\d[\w.]*")
#: Words of phrases that tell how, or what somebody did, and not of what.
_NO_NOUN = re.compile(r".+(?:ly|ed)|.+[^r]ing")


class KeyphraseTagger:
    """Finds tags in this process."""

    source: OneOf["keyphrases"] = "keyphrases"

    @property
    def name(self) -> str:
        """`keyphrases-1`."""
        return MODEL

    def propose(self, request: TagRequest) -> TagAnswer:
        """The tags that the leaf's words stand for, the surest first."""
        text = _Text.of(request)
        found: dict[Literal, Proposal] = {}
        for proposal in (*_known(text, request), *_subjects(text), *_phrases(text, request)):
            if proposal.literal not in request.current:
                found.setdefault(proposal.literal, proposal)
        return TagAnswer(list(found.values())[:MAX_PROPOSALS])


@dataclass(frozen=True, slots=True)
class _Trigger:
    """Words that speak of a subject: stems in a row, or one word exactly as it is written."""

    words: tuple[str, ...]
    exact: bool

    @classmethod
    def of(cls, text: str) -> _Trigger:
        exact = text.isupper() and len(text) <= 6
        return cls((text,) if exact else tuple(_stem(word) for word in _words(text)), exact)


@dataclass(frozen=True, slots=True)
class _Line:
    """One statement: its words as they are written, and their stems."""

    words: tuple[str, ...]
    stems: tuple[str, ...]
    #: Said by somebody, and no command or its output.
    voiced: bool = True

    @classmethod
    def of(cls, text: str) -> _Line:
        bullet = _BULLET.match(text)
        words = tuple(_words(text[bullet.end() :] if bullet else text))
        return cls(words, tuple(_stem(word) for word in words), not bullet or bullet["role"] != "tool")

    def has(self, trigger: _Trigger) -> bool:
        """Whether the trigger stands here; one without a word (signs, emoji) stands nowhere."""
        if not trigger.words:
            return False
        line, size = (self.words if trigger.exact else self.stems), len(trigger.words)
        return any(line[start : start + size] == trigger.words for start in range(len(line) - size + 1))


@dataclass(frozen=True, slots=True)
class _Text:
    """A leaf: its title, and its statements (its lines, when it has no bullets)."""

    title: _Line
    statements: tuple[_Line, ...]

    @classmethod
    def of(cls, request: TagRequest) -> _Text:
        lines = [line for line in request.text.splitlines() if line.strip() and not line.startswith("Period ")]
        bullets = [line for line in lines if _BULLET.match(line)]
        return cls(_Line.of(request.title), tuple(_Line.of(line) for line in bullets or lines))

    def spoken(self, triggers: Sequence[_Trigger]) -> int:
        """In how many statements one of the triggers stands; none counts when nobody has said one of them."""
        lines = [line for line in self.statements if any(line.has(trigger) for trigger in triggers)]
        return len(lines) if any(line.voiced for line in lines) else 0

    def titled(self, triggers: Sequence[_Trigger]) -> bool:
        """Whether one of them stands in the title."""
        return any(self.title.has(trigger) for trigger in triggers)


def _known(text: _Text, request: TagRequest) -> Iterator[Proposal]:
    """What the accepted vocabulary has of the leaf. A project is proposed only to a session that has none."""
    has_project = any(literal.key == "project" for literal in request.current)
    for literal in request.vocabulary:
        if literal.key == "project" and has_project:
            continue
        triggers = _triggers_of(literal.value)
        spoken = text.spoken(triggers)
        if (text.titled(triggers) and spoken) or spoken >= _INSISTENT:
            yield _proposal(literal, text.titled(triggers), spoken, "in the vocabulary")


def _subjects(text: _Text) -> Iterator[Proposal]:
    """The subjects of `subjects.txt` that the leaf is about, the most spoken of first."""
    found = []
    for value, triggers in _catalogue().items():
        spoken, titled = text.spoken(triggers), text.titled(triggers)
        if (titled and spoken) or spoken >= _RECURRING:
            found.append((not titled, -spoken, value))
    for place in sorted(found)[:_MOST_SUBJECTS]:
        yield _proposal(Literal("topic", place[2]), not place[0], -place[1], "a known subject")


def _phrases(text: _Text, request: TagRequest) -> Iterator[Proposal]:
    """Phrases of a short title that the text comes back to."""
    if len(request.title) > _LONGEST_TITLE or _SENTENCE.search(request.title):
        return
    own = {_stem(word) for literal in request.current for word in _words(literal.value)}
    found = []
    for place, phrase in enumerate(_numbered(request.title, _title_phrases(request.title, own))):
        # A number with points, 3.1, is several words of a statement.
        spoken = min(text.spoken([_Trigger(tuple(map(_stem, _words(word))), exact=False)]) for word in phrase)
        value = tag_text("-".join(phrase), 60)
        if spoken and not _subject_words() >= {_stem(word) for word in phrase}:
            found.append((-len(phrase), place, value, spoken))
    for size, _, value, spoken in sorted(found)[:_MOST_PHRASES]:
        if size < -1 or spoken >= _INSISTENT:
            yield _proposal(Literal("topic", value), True, spoken, "a phrase of the title")


def _numbered(title: str, phrases: Iterator[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The phrases with the number that belongs to them: chapter 3 is another subject than chapter 4."""
    for phrase in phrases:
        last = re.escape(phrase[-1])
        number = re.search(rf"(?<!\w)({last})([ -])(\d{{1,4}}(?:\.\d{{1,4}})*)(?!\.?\w)", title, re.IGNORECASE)
        named = number is not None and (
            not NUMBERED.isdisjoint(phrase[-2:]) or (number[1].isupper() and number[2] == "-")
        )
        yield (*phrase, number[3]) if number is not None and named else phrase


def _title_phrases(title: str, own: set[str]) -> Iterator[tuple[str, ...]]:
    """Runs of words that may name something, without those that name the project itself."""
    for part in _BREAK.split(title):
        run: list[str] = []
        for word in [*part.split(), ""]:
            plain = word.casefold().strip("-'\u2019")
            # A word in -ing is a doing at the beginning of a phrase (dropping caches), a thing at its end.
            names = not _NO_NOUN.fullmatch(plain) or (run and plain.endswith("ing"))
            if len(plain) > 1 and plain not in _STOP | _VERBS and _stem(plain) not in own and names:
                run.append(plain)
                continue
            if run:
                yield tuple(run[-_LONGEST_PHRASE:])
            run = []


def _proposal(literal: Literal, titled: bool, spoken: int, why: str) -> Proposal:
    confidence = min(0.5 + 0.25 * titled + 0.05 * spoken, 0.95)
    where = "in the title and " if titled else ""
    statements = f"{spoken} statement{'' if spoken == 1 else 's'}"
    return Proposal(literal, confidence=round(confidence, 2), reason=f"{why}: {where}in {statements} of the leaf")


_STOP = STOP_WORDS | HEADER_STOP_WORDS
#: What a thing does in a title is none of its names.
_VERBS = frozenset(
    """moves move drops drop stops fails breaks crashes hangs dies adds uses runs starts goes gets makes takes needs
    shows comes becomes loses keeps returns sends""".split()  # noqa: SIM905
)


def _words(text: str) -> list[str]:
    return [word if word.isupper() else word.casefold() for word in _WORD.findall(text)]


def _stem(word: str) -> str:
    """Plural and the commonest verb endings folded, so that `sessions` meets `session` and `cached` `cache`."""
    plain = word.casefold()
    if len(plain) > 4 and plain.isascii() and plain.isalpha():
        for ending, put in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")):
            if plain.endswith(ending) and len(plain) - len(ending) >= 3 and not plain.endswith(("ss", "us", "is")):
                return plain[: len(plain) - len(ending)] + put
    return plain


def _triggers_of(value: str) -> tuple[_Trigger, ...]:
    """What speaks of a value: its own words, and its catalogue entry's where it has one."""
    return _catalogue().get(value) or (_Trigger.of(value.replace("-", " ")),)


@cache
def _catalogue() -> dict[str, tuple[_Trigger, ...]]:
    text = files(__package__).joinpath("subjects.txt").read_text(encoding="utf-8")
    entries = (line.partition(":") for line in text.splitlines() if line and not line.startswith("#"))
    return {
        value: tuple(_Trigger.of(trigger.strip()) for trigger in triggers.split(",")) for value, _, triggers in entries
    }


@cache
def _subject_words() -> frozenset[str]:
    """The stems of one-word triggers: a phrase of nothing else is a subject of the catalogue already."""
    return frozenset(
        _stem(trigger.words[0]) for triggers in _catalogue().values() for trigger in triggers if len(trigger.words) == 1
    )
