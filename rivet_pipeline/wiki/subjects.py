"""Finds what a session is about in its title: the noun phrases, and of them the one that its text is about. Pure.

There is no grammar here, only lists of the words at which a noun phrase ends, in English, German, Spanish, French,
Italian and Portuguese; a Japanese title ends where its subject is marked. One in another language is cut at its signs
alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.resources import files

from rivet_pipeline.summaries.signals import HEADER_STOP_WORDS, NUMBERED, STOP_WORDS
from rivet_pipeline.summaries.titles import (
    ARTICLES,
    ENGLISH_WORDS,
    FUNCTION_WORDS,
    GENERIC_WORDS,
    is_function_word,
    plain_title,
)
from rivet_pipeline.wiki.names import fold, is_subject, stem, tidy_title, title_terms

_WORDS = files(__package__)

#: Words at which a noun phrase ends, or before which it begins.
_BOUNDARIES = (
    frozenset(_WORDS.joinpath("boundary_words.txt").read_text(encoding="utf-8").split())
    | STOP_WORDS
    | HEADER_STOP_WORDS
)

#: Boundaries that are part of many names and end no phrase inside one.
_KEPT = frozenset(
    {"code", "test", "tests", "file", "files", "line", "error", "edit", "report", "review", "order", "note"}
)

#: Boundaries that begin many a name of things.
_HEADS = frozenset({"order", "code"})

#: What of a title in a script without spaces is said of its subject: what stands behind the mark of a case.
_MARKED = re.compile(
    r"\A(?P<subject>.*?[^\u3040-\u309f\s])(?:を|が|は|について|に関する)(?=[^\u3040-\u309f\s])(?=.{2})", re.DOTALL
)
#: What only says that something was done about the subject, in a script without spaces.
_ABOUT = re.compile(r"(?<=.)の(?:変更|修正|問題|追加|対応|更新|件|相談)\Z")
_HIRAGANA = re.compile(r"[\u3040-\u309f]+")

#: Who stands before one of these only tells of the subject.
_SPEECH = frozenset(
    """reports report says said tells told asks asked writes wrote wants wanted thinks woke wakes""".split()  # noqa: SIM905
)

#: What stands behind one of these is said of the subject, or is somebody's.
_ASIDE = frozenset(
    """is are was were my your his her our their ist sind war mein dein sein ihr unser""".split()  # noqa: SIM905
)

#: What stands behind one of these goes, and something else takes its place.
_ENDED = frozenset(["dropping", "removing", "replacing", "retiring", "abandoning"])

#: Joins a phrase to the name behind it.
_LINKS = frozenset(
    """of on for to in dans nel nella em de del du di da do about für über por para pour sur sobre per su""".split()  # noqa: SIM905
)
#: Those without which the phrase before them is none.
_ROMANCE = frozenset({"de", "del", "du", "di", "da", "do"})
_GENITIVES = _ROMANCE | {"of"}
#: Those that say of a common word in which of many it is: duplicates in what?
_INSIDE = frozenset({"dans", "nel", "nella", "em"})
#: What is done about something, or what is wrong with it: of the phrase behind their genitive the title tells.
_ACTS = frozenset(
    """choix scelta escolha elección refonte mise réunion riunione reunión reunião problème problèmes problema problemas
    problemi erreur erreurs error errore erro erros question duda dúvida cambio changement mudança""".split()  # noqa: SIM905
)
#: Those without which a common word before them is none: a menu for whom?
_PURPOSES = frozenset({"for", "für", "pour", "para", "per"})
#: Those behind which the subject stands when a common word is before them: notes about what?
_TOPICS = frozenset({"about", "über", "sur", "sobre", "su"})
_POSSESSIVE = re.compile(r"\A[A-Z][\w-]*['\u2019]s\Z")

_SIGNS = r":;,!?()\[\]{}<>«»\"\u201c\u201d\u201e|\u2013\u2014\u2192"
_TOKEN = re.compile(rf"[^\s{_SIGNS}]+|[{_SIGNS}]")
_SIGN = re.compile(r"\A\W+\Z")
_NUMBER = re.compile(r"\Av?\d[\d.:,%-]*\Z", re.IGNORECASE)
_ADDRESS = re.compile(r"[/\\?=&@]|\.{2,}")
_FILE = re.compile(r"\w\.[A-Za-z]\w{0,4}\Z")
_ENDING = re.compile(r"(?:ly|ed)\Z")
_NAMED = re.compile(r"[A-Z0-9]|\w[._-]\w")

_MOST_WORDS = 4
_MOST_CHUNKS = 12


@dataclass(frozen=True, slots=True)
class Chunk:
    """A noun phrase of a title. `link`: the word that joins it to the phrase before it.

    `aside`: it only tells of the subject, is said of it, or belongs to somebody. `definite`: an article is before it.
    """

    words: tuple[str, ...]
    link: str | None = None
    aside: bool = False
    definite: bool = False

    @property
    def text(self) -> str:
        """The phrase as it stands in the title."""
        return " ".join(self.words)

    @property
    def generic(self) -> bool:
        """Whether it names no subject by itself."""
        return all(word.casefold() in GENERIC_WORDS or stem(word.casefold()) in GENERIC_WORDS for word in self.words)

    @property
    def headless(self) -> bool:
        """Whether its last word names nothing by itself: a plan, a review."""
        return stem(self.words[-1].casefold()) in GENERIC_WORDS

    @property
    def named(self) -> bool:
        """Whether it holds a name: a capital that no sentence begins with, a digit, a sign inside."""
        return any(
            _NAMED.search(word[1:]) or (place > 0 and word[:1].isupper()) for place, word in enumerate(self.words)
        )


def chunks(title: str) -> list[Chunk]:
    """The noun phrases of a title, in order."""
    found: list[Chunk] = []
    current: list[str] = []
    link: str | None = None
    before = ""
    definite = False

    def close(after: str = "") -> None:
        nonlocal link, before, definite
        joins = bool(current)
        if current:
            aside = after in _SPEECH or before in _ASIDE or before in _ENDED
            found.append(Chunk(tuple(current[:_MOST_WORDS]), link, aside=aside, definite=definite))
            current.clear()
        definite = False
        # "instead of" joins nothing: its "of" does not stand right behind a thing.
        link = after if joins and after in _LINKS and not found[-1].aside else None
        before = after

    tokens = _TOKEN.findall(plain_title(title))
    for place, token in enumerate(tokens):
        word = token.strip(".'\u2019`*_~-")
        lower = word.casefold()
        if not word or _SIGN.match(token) or _ADDRESS.search(token):
            close()
        elif _is_boundary(word, first=not current) and not _belongs_to_it(tokens, place, current, link):
            if lower in ARTICLES and not current:
                definite = True
                continue
            close(lower)
        elif _NUMBER.match(word):
            if current and word.isdigit() and (current[-1].casefold() in NUMBERED or _ends_there(tokens, place)):
                # The number is part of the name; what follows is said of it.
                current.append(word)
            close()
        else:
            current.append(word)
            if token.endswith("."):
                close()
    close()
    return found[:_MOST_CHUNKS]


def _belongs_to_it(tokens: Sequence[str], place: int, current: Sequence[str], link: str | None) -> bool:
    """Whether a word at which phrases end is part of one: "order cutoff", and whose it is that something is for."""
    word = tokens[place]
    if word.casefold() in _HEADS:
        return _joins(tokens, place)
    if _is_romance(tokens, place):
        return True
    whose = not current and link in _PURPOSES and _POSSESSIVE.match(word) is not None
    return whose and not _is_boundary(word[:-2], first=True)


def _is_romance(tokens: Sequence[str], place: int) -> bool:
    """Whether a word of English stands before a French "de" or its kin, and so is another one: a file d'attente."""
    word, following = tokens[place].casefold(), tokens[place + 1 : place + 2]
    romance = bool(following) and following[0].casefold() in _ROMANCE
    return romance and word.isalpha() and len(word) > 2 and word not in FUNCTION_WORDS | ENGLISH_WORDS


def _ends_there(tokens: Sequence[str], place: int) -> bool:
    """Whether a number stands at the end of a phrase and counts nothing: "Bed 2: slugs"."""
    following = tokens[place + 1 : place + 2]
    return (not following or _SIGN.match(following[0]) is not None) and not tokens[place - 1].endswith("s")


def _joins(tokens: Sequence[str], place: int) -> bool:
    """Whether the word behind a place belongs to the same noun phrase: "order cutoff"."""
    following = tokens[place + 1] if place + 1 < len(tokens) else ""
    return following[:1].isalpha() and not _is_boundary(following, first=True)


def _is_boundary(word: str, *, first: bool) -> bool:
    if "'s" in word or "\u2019s" in word:
        return True
    lower = word.casefold()
    if lower in _BOUNDARIES or is_function_word(word):
        return first or lower not in _KEPT
    return not first and _ENDING.search(lower) is not None and "-" not in lower


def telling_terms(title: str) -> list[str]:
    """The words of a page's title that tell it from others; all of them where none does."""
    terms = [part for term in title_terms(title) for part in _HIRAGANA.split(term) if len(part) > 1]
    return [term for term in terms if term not in GENERIC_WORDS and not term.isdigit()] or title_terms(title)


def others_after(title: str) -> list[str]:
    """The phrases behind the colon of a title: what of its subject a text is about."""
    head, colon, rest = title.partition(": ")
    return [chunk.text for chunk in chunks(rest) if not chunk.generic] if colon and chunks(head) else []


def subject_of(
    title: str, body: str, ran_in: Collection[str] = (), names: Sequence[str] = ()
) -> tuple[str, tuple[str, ...]] | None:
    """What a text under this title is about, and the title's other phrases; None when that can not be told.

    Args:
        title: The session's title, or its first words.
        body: The text, in which the subject is spoken of more than what stands beside it.
        ran_in: The names of the directory in which the session ran: of two equal phrases that one. Alone it is no
            subject.
        names: Names that the text speaks of more than once, the most frequent first.
    """
    marked = _MARKED.match(title)
    phrases = [chunk for chunk in chunks(marked["subject"] if marked else title) if any(map(str.isalpha, chunk.text))]
    if not phrases:
        return None
    spoken = _counts(body)
    home = {fold(name) for name in ran_in}
    first = next((place for place, chunk in enumerate(phrases) if not chunk.aside), -1)
    best = max(
        range(len(phrases)),
        key=lambda place: (_score(phrases[place], spoken, home, first=place == first), -place),
    )
    text = _whole(phrases, best, spoken, home, body)
    if text is not None and fold(text) in home:
        text = _within(title, text, phrases[best + 1 :], names)
    if text is not None:
        text = _as_written(_ABOUT.sub("", text), title)
    if text is None or not is_subject(text) or _is_lone(text, title, body):
        return None
    used = set(title_terms(text))
    others = tuple(chunk.text for chunk in phrases if not used & set(title_terms(chunk.text)) and not chunk.generic)
    return tidy_title(text), others


def _counts(body: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in re.findall(r"[^\W_]+", body.casefold()):
        counts[stem(word)] = counts.get(stem(word), 0) + 1
    return counts


def _score(chunk: Chunk, spoken: dict[str, int], home: set[str], *, first: bool) -> float:
    """How well a phrase names the subject. The first one that does not stand aside nearly always does."""
    terms = title_terms(chunk.text)
    if not terms:
        return -10.0
    score = sum(min(spoken.get(term, 0), 2) for term in terms) / len(terms)
    score += (3.0 if first else 0.0) + (0.5 if len(terms) > 1 else 0.0)
    score += 0.25 if fold(chunk.text) in home else 0.0
    score -= 2.0 if any(_FILE.search(word) for word in chunk.words) else 0.0
    return score - (4.0 if chunk.aside else 0.0) - (0.5 if chunk.generic else 0.0)


def _within(title: str, project: str, following: Sequence[Chunk], names: Sequence[str]) -> str | None:
    """What of its own project a session is about: a release, a name that it often speaks of, or the next phrase.

    None for all of it: a page about everything in a project is about nothing.
    """
    release = re.search(rf"(?<!\w){re.escape(project)}\s+v?(\d+(?:\.\d+)+)", title, re.IGNORECASE)
    if release is not None:
        return f"{project} {release.group(1)}"
    for name in names:
        if fold(name) != fold(project) and _FILE.search(name) is None and is_subject(name):
            return f"{project} {name}"
    for chunk in following:
        if (
            fold(chunk.text) != fold(project)
            and not chunk.aside
            and not chunk.generic
            and not any(map(_FILE.search, chunk.words))
        ):
            return f"{project} {chunk.text}"
    return None


def _is_common(word: str, body: str) -> bool:
    """Whether a word is no name: nowhere inside a sentence does the text write it with a capital."""
    return word[1:].islower() and re.search(rf"(?<=[\w,;] ){re.escape(word)}(?!\w)", body) is None


def _linked(phrases: Sequence[Chunk], *, least: int = 1) -> str:
    """The first phrase with what is joined to it: a banco de dados is one thing, that of the shop is said of it.

    `least`: so many phrases are taken however they are joined.
    """
    text = phrases[0].text
    for place, chunk in enumerate(phrases[1:3]):
        compound = chunk.link in _ROMANCE and not chunk.definite and chunk.text[:1].islower()
        if chunk.link is None or (place >= least and not compound):
            break
        text = f"{text} {chunk.link} {chunk.text}"
    return text


def _as_written(text: str, title: str) -> str:
    """A phrase of a Romance language as the title has it: "file d'attente", with an article inside where it has one."""
    links = _ROMANCE | _INSIDE
    if links.isdisjoint(text.split()):
        return text
    words = [rf"(?:{word}|{word[0]}['\u2019])" if word in links else re.escape(word) for word in text.split()]
    pattern = r"\s*(?:(?:l['\u2019]|(?:la|le|les|el|los|las|il|lo|gli|os|as)\s)\s*)?".join(words)
    written = re.search(pattern, title, re.IGNORECASE)
    return written[0] if written is not None else text


def _is_lone(text: str, title: str, body: str) -> bool:
    """Whether a phrase is one common word out of a longer title: "group" of what somebody wants done with groups.

    What a sign stands behind is what the title is about, and so is what a question asks of; a name is one wherever it
    stands.
    """
    if " " in text or not text[1:].islower() or not text.isalpha() or not text.isascii():
        return False
    head, colon, _ = title.partition(":")
    before = text in head and len(head.split()) <= _MOST_WORDS if colon else len(title.split()) < _MOST_WORDS
    behind = rf"(?<!\w){re.escape(text)}\s*(?:[;,(\[|\u2013\u2014]|- |\Z)|: {re.escape(text)}(?!\w)"
    asked = rf"\A(?:how|why|when|where) (?:do|does|did|is|are) (?:the |our )?{re.escape(text)}(?!\w)"
    if before or re.search(behind, title) is not None or re.match(asked, title, re.IGNORECASE) is not None:
        return False
    if text.islower():
        return _is_common(text[0].upper() + text[1:], body)
    return title.startswith(text) and re.search(rf"(?<!\w){re.escape(text.lower())}(?!\w)", body) is not None


def _whole(phrases: Sequence[Chunk], best: int, spoken: dict[str, int], home: set[str], body: str) -> str | None:
    """The phrase, with the name that makes it a subject where it is none by itself."""
    chunk = phrases[best]
    following = phrases[best + 1] if best + 1 < len(phrases) else None
    if following is not None and following.link is not None:
        lone = len(chunk.words) == 1 and _is_common(chunk.text, body)
        about = following.link in _TOPICS and (lone or chunk.generic)
        # "Choix de la file d'attente": what is chosen.
        about = about or (following.link in _ROMANCE and chunk.text.casefold() in _ACTS)
        if about and not following.generic:
            return _linked(phrases[best + 1 :], least=0)
        short = chunk.generic or (len(chunk.words) == 1 and len(chunk.text) <= 3)
        # A plan for what? One of anything else is a name: a backup plan.
        meant = lone and following.link == "for"
        meant = meant or (following.link in _INSIDE and chunk.text.islower() and not following.generic)
        meant = meant or (following.link in _PURPOSES and chunk.headless and following.text[:1].isupper())
        if short or meant or following.link in _GENITIVES:
            return _linked(phrases[best:])
    if not chunk.generic:
        return chunk.text
    others = [other for other in phrases if not other.generic and not other.aside]
    if not others:
        return None
    name = max(
        others,
        key=lambda other: (
            other.text[:1].isupper(),
            fold(other.text) not in home,
            _score(other, spoken, set(), first=False),
        ),
    )
    if len(name.words) > 1 and not name.headless and name is following:
        # "Incident review: checkout outage": the thing that is reviewed.
        return name.text
    words = [word for word in chunk.words if word.casefold() not in {"day", "time", "times", "morning"}] or chunk.words
    return f"{name.text} {' '.join(words).lower()}"
