"""A tagger that needs no model: it looks for known subjects and for the phrases of the title in what the leaf says.

First the accepted vocabulary, then the subjects of `subjects.txt`, then phrases of the title that the text comes back
to. Deterministic: the same request always gives the same tags. It would rather say too little than guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import groupby, pairwise
from typing import Literal as OneOf

from rivet_pipeline.summaries.signals import HEADER_STOP_WORDS, NUMBERED, STOP_WORDS
from rivet_pipeline.summaries.titles import (
    CJK,
    ENGLISH_WORDS,
    FUNCTION_WORDS,
    GENERIC_WORDS,
    SCRIPT_RUN,
    is_function_word,
    plain_title,
    without_elisions,
)
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

#: A title in words of its own has a subject before its colon of no more words than this.
_LONGEST_LABEL = 5

#: Characters of a title by which a statement is told that it was made of.
_QUOTED = 40

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
#: A name that a program gives to a thing of three words or more, `days_since_last_invoice`, or a path: it is not about
#: invoices. Names with capitals are said one beside the other: Docker/Podman, CI/CD.
_NAMED = r"[A-Z][A-Za-z0-9]*"
_IDENTIFIER = re.compile(
    r"(?<!\w)[A-Za-z0-9]+(?:_[A-Za-z0-9]+){2,}(?!\w)"
    rf"|(?<![\w./-])(?!{_NAMED}(?:/{_NAMED}){{1,2}}(?![\w/]|[.-]\w))[\w.-]*(?:/[\w.-]+)+"
)
#: A letter or a digit of a Latin word, which Japanese may write around without a space.
_LATIN = r"[A-Za-z0-9_\u00c0-\u024f]"
_HIRAGANA = re.compile(r"[\u3041-\u309f]+")
#: Names that folders have in many a project: the word alone speaks of none of them.
_FOLDERS = frozenset(
    """app apps api backend bin build claude client code codex core demo dev docs example frontend home lib main package
    packages project projects repo repository sandbox scripts server site src temp test tests tmp tools web work
    workspace""".split()  # noqa: SIM905
)
_BULLET = re.compile(r"\A\s*[-*]\s+(?:\S+T\S+Z\s+)?(?:[^\s:]+/(?P<role>\w+):\s+)?")
#: Where a phrase ends, beside at stop words: at signs other than a hyphen between words.
_BREAK = re.compile(r"[^\w\s'\u2019-]+|\s-+\s|\d[\w.]*")
#: Words of phrases that tell how, or what somebody did, and not of what.
_NO_NOUN = re.compile(r".+(?:ly|ed|error|exception)|.+[^r]ing")


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
    #: The words that stand by themselves somewhere, and not only inside an identifier; stems of them too.
    free: frozenset[str]
    #: Said by somebody, and no command or its output.
    voiced: bool = True

    @classmethod
    def of(cls, text: str) -> _Line:
        bullet = _BULLET.match(text)
        said = text[bullet.end() :] if bullet else text
        words = tuple(_words(said))
        free = _words(_IDENTIFIER.sub(" ", said))
        stems = tuple(_stem(word) for word in words)
        return cls(words, stems, frozenset([*free, *map(_stem, free)]), not bullet or bullet["role"] != "tool")

    def has(self, trigger: _Trigger) -> bool:
        """Whether the trigger stands here; one without a word (signs, emoji) stands nowhere."""
        if not trigger.words:
            return False
        if len(trigger.words) == 1:
            return trigger.words[0] in self.free and trigger.words[0] in (self.words if trigger.exact else self.stems)
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

    def without_title(self, title: str) -> _Text:
        """The text without the statement that the title was made of, which says nothing more than the title does."""
        # Where it is cut, a word may be.
        begins = tuple(_words(title)) if len(title) <= _QUOTED else tuple(_words(title[:_QUOTED]))[:-1]
        if not begins:
            return self
        for place, line in enumerate(self.statements):
            if line.words[: len(begins)] == begins:
                return replace(self, statements=self.statements[:place] + self.statements[place + 1 :])
        return self

    def titled(self, triggers: Sequence[_Trigger]) -> bool:
        """Whether one of them stands in the title."""
        return any(self.title.has(trigger) for trigger in triggers)


def _known(text: _Text, request: TagRequest) -> Iterator[Proposal]:
    """What the accepted vocabulary has of the leaf. A project is proposed only to a session that has none."""
    has_project = any(literal.key == "project" for literal in request.current)
    for literal in request.vocabulary:
        if literal.key == "project" and (has_project or literal.value in _FOLDERS):
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
    title, label = _naming(request.title)
    if title is None:
        return
    text = text.without_title(request.title)
    own = [tuple(map(_stem, _words(literal.value))) for literal in request.current]
    found = []
    for place, whole in enumerate(_numbered(title, _title_phrases(title, own))):
        phrase, spoken = _spoken_part(text, whole)
        value = tag_text(_joined(phrase, title), 60)
        if not spoken or _subject_words() >= {_stem(word) for word in phrase}:
            continue
        labels = place == 0 and label and phrase == whole
        if len(phrase) > 1 or spoken >= _least(phrase[0], title, request.text, labels=labels):
            named = _is_name(phrase[0], title, request.text)
            found.append((-len(phrase), not named, place, value, spoken))
    for *_, value, spoken in sorted(found)[:_MOST_PHRASES]:
        yield _proposal(Literal("topic", value), True, spoken, "a phrase of the title")


def _naming(title: str) -> tuple[str | None, bool]:
    """What of a title names something, and whether it has a subject before a colon; none of somebody's first words."""
    head, colon, _ = title.partition(": ")
    label = bool(colon) and len(head.split()) <= _LONGEST_LABEL and _SENTENCE.search(head) is None
    if len(title) <= _LONGEST_TITLE and not _SENTENCE.search(title):
        return title, label
    return (head, True) if label and _SENTENCE.search(title[:-1]) is None else (None, False)


def _least(word: str, title: str, body: str, *, labels: bool) -> int:
    """In how many statements a single word of the title must stand: one may mean anything, a name does not."""
    if word in GENERIC_WORDS or _stem(word) in GENERIC_WORDS:
        return _INSISTENT + 1
    if labels:
        return 1
    return _RECURRING if CJK.search(word) or _is_name(word, title, body) else _INSISTENT


def _is_name(word: str, title: str, body: str) -> bool:
    """Whether a word has a capital wherever it stands, inside sentences too."""
    alone = rf"(?<!{_LATIN}){re.escape(word)}(?!{_LATIN})"
    written = re.search(alone, title, re.IGNORECASE)
    if written is None or not written[0][:1].isupper():
        return False
    # A sentence of a script without capitals does not begin with one.
    inside = r"(?<![A-Za-z])" if CJK.search(title) else r"(?<=[\w,;] )"
    named = re.search(rf"{inside}{re.escape(written[0])}(?!{_LATIN})", body)
    return named is not None and re.search(alone, body) is None


def _spoken_part(text: _Text, phrase: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """The longest part of a phrase of which the text speaks, and in how many statements."""
    if not _JOINTS.isdisjoint(phrase):
        spoken = text.spoken([_Trigger(tuple(map(_stem, _words(" ".join(phrase)))), exact=False)])
        if spoken:
            return phrase, spoken
        runs = [tuple(run) for joint, run in groupby(phrase, key=_JOINTS.__contains__) if not joint]
        return max((_spoken_part(text, run) for run in runs), key=lambda part: part[1])
    counts = [text.spoken([_Trigger(tuple(map(_stem, _words(word))), exact=False)]) for word in phrase]
    for size in range(len(phrase), 0, -1):
        parts = [(min(counts[at : at + size]), -at) for at in range(len(phrase) - size + 1)]
        spoken, at = max(parts)
        if spoken:
            return phrase[-at : -at + size], spoken
    return phrase, 0


def _joined(phrase: Sequence[str], title: str) -> str:
    """The words of a phrase as a value; those of a script without spaces stand together."""
    value = phrase[0]
    for before, word in pairwise(phrase):
        value += word if CJK.search(before[-1]) and CJK.search(word[0]) else f"-{word}"
    elided = re.search(rf"(?<!\w)d['\u2019]{re.escape(phrase[-1])}(?!\w)", title, re.IGNORECASE)
    return value.replace(f"-de-{phrase[-1]}", f"-d'{phrase[-1]}") if elided is not None else value


def _numbered(title: str, phrases: Iterator[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The phrases with the number that belongs to them: chapter 3 is another subject than chapter 4."""
    for phrase in phrases:
        last = re.escape(phrase[-1])
        number = re.search(rf"(?<!\w)({last})([ -])(\d{{1,4}}(?:\.\d{{1,4}})*)(?!\.?\w)", title, re.IGNORECASE)
        named = number is not None and (
            not NUMBERED.isdisjoint(phrase[-2:]) or (number[1].isupper() and number[2] == "-")
        )
        yield (*phrase, number[3]) if number is not None and named else phrase


def _title_phrases(title: str, own: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Runs of words that may name something, without those that name the project itself."""
    for part in _BREAK.split(plain_title(title)):
        run: list[str] = []
        pieces = [*_pieces(part), ""]
        for word, following in zip(pieces, [*pieces[1:], ""], strict=True):
            if word in _JOINTS and run and _may_name(following, own):
                run.append(word)
                continue
            plain = word.casefold().strip("-'\u2019")
            # A word in -ing is a doing at the beginning of a phrase (dropping caches), a thing at its end.
            names = not _NO_NOUN.fullmatch(plain) or (run and plain.endswith("ing"))
            # An English word before a French "de" is another one: a file d'attente.
            french = plain not in FUNCTION_WORDS | ENGLISH_WORDS
            romance = following in _JOINTS and plain.isalpha() and french and len(plain) > 2
            if names and (romance or _may_name(word.strip("-'\u2019"), own)):
                run.append(plain)
                continue
            if run and tuple(map(_stem, run)) not in own:
                joined = sum(one in _JOINTS for one in run)
                yield tuple(run[-_LONGEST_PHRASE - joined :])
            run = []


def _may_name(word: str, own: Sequence[tuple[str, ...]]) -> bool:
    """Whether a word of a title may be part of what something is called, and is not what the project is called."""
    silent = word.casefold() in _STOP | _VERBS or is_function_word(word)
    return len(word) > 1 and not silent and (_stem(word),) not in own


def _pieces(part: str) -> Iterator[str]:
    """The words of a title; in a script without spaces a word ends where another script begins, or hiragana do."""
    for word in part.split():
        if not CJK.search(word):
            yield word
            continue
        for piece in SCRIPT_RUN.findall(word):
            yield "" if _HIRAGANA.fullmatch(piece) else piece


def _proposal(literal: Literal, titled: bool, spoken: int, why: str) -> Proposal:
    confidence = min(0.5 + 0.25 * titled + 0.05 * spoken, 0.95)
    where = "in the title and " if titled else ""
    statements = f"{spoken} statement{'' if spoken == 1 else 's'}"
    return Proposal(literal, confidence=round(confidence, 2), reason=f"{why}: {where}in {statements} of the leaf")


#: Between two words that name one thing together: a copia de seguridad, a banco de dados.
_JOINTS = frozenset({"de", "du", "di", "do", "da", "del", "des"})

_STOP = STOP_WORDS | HEADER_STOP_WORDS
#: What a thing does in a title is none of its names.
_VERBS = frozenset(
    """moves move drops drop stops fails breaks crashes hangs dies adds uses runs starts goes gets makes takes needs
    shows comes becomes loses keeps returns sends doesnt dont cant wont isnt didnt
    ate broke came fell froze gave got held hung kept lost made ran sank sent shut threw took tore went woke
    won""".split()  # noqa: SIM905
)


def _words(text: str) -> list[str]:
    found = (
        piece
        for word in _WORD.findall(without_elisions(text))
        for piece in (SCRIPT_RUN.findall(word) if CJK.search(word) else [word])
    )
    return [word if word.isupper() else word.casefold() for word in found]


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
