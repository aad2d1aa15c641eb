"""How subjects are named: slugs, folded keys, and what may be the title of a page. Pure functions."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable

from rivet_pipeline.summaries.signals import NUMBERED, STOP_WORDS
from rivet_pipeline.summaries.titles import is_function_word, unshouted
from rivet_pipeline.wiki.types import LONGEST_TITLE

#: Characters of a slug, as the addresses of pages have them.
LONGEST_SLUG = 80

_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "ae", "œ": "oe", "ø": "o", "Ø": "o", "ł": "l", "Ł": "l", "đ": "d", "þ": "th"}
)
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

#: What makes a title a sentence: somebody who speaks, a verb that is bent, an end that is none of a name.
_SENTENCE = re.compile(
    r"\b(?:i|we|you|he|she|they|it|is|are|was|were|am|has|have|had|will|would|should|must|can|could|does|did|don't"
    r"|doesn't|didn't|please|let's|let us|ich|wir|ist|sind|war|wurde|wird|soll|muss)\b"
    r"|[.!?;:,\u2026\u3002]\s*\Z|[\n\r\t]",
    re.IGNORECASE,
)
_MOST_WORDS = 8

#: Words that only stand between others in Spanish or French, and are things in English.
_THINGS = frozenset({"hay", "sin", "era", "son", "mover"})

#: A number with the letters that it is written together with: TG-04, node01, 3a.
_NUMBER = re.compile(r"(?<![\w.])(?:v\.? ?|([a-z]{1,20})-?)?(\d+(?:[.,]\d+)*[a-z]?)(?!\w)", re.IGNORECASE)
#: A number that may have a letter, but none that is a unit: 3b, and neither 30s nor 5k.
_COUNT = r"\d{1,4}(?:\.\d+)*[a-c]?(?!\w)"
#: The sign of a range. With spaces around it a dash goes on with something else: "Chapter 3 - 20 pages".
_TO = r"(?:[-\u2013]|\s(?:to|bis)\s)"
_PART = rf"{_COUNT}(?:{_TO}{_COUNT})?"
#: A word with its number, or its numbers: chapters 2, 3 and 4, nodes 1 to 3. A comma alone makes no list.
_NUMBERED = re.compile(
    rf"(?<!\w)([^\W\d_]{{3,20}})[\s#-]{{0,3}}"
    rf"({_PART}(?:(?:(?:,\s?{_PART}){{1,8}},?)?\s?(?:/|&|and|or|und|oder|y|o)\s?{_PART}){{0,9}})",
    re.IGNORECASE,
)
_LISTED = re.compile(_COUNT, re.IGNORECASE)
_RANGE = re.compile(rf"(\d{{1,4}}){_TO}(\d{{1,4}})(?![.\w])", re.IGNORECASE)
#: Between a number and its letter.
_LETTERED = re.compile(r"(?<=\d)(?=[a-c])")
#: Numbers between the ends of a range that are read.
_WIDEST = 50

#: Letters of the last part of a compound that is a name of the whole.
_COMPOUND_HEAD = 6


def slugify(title: str) -> str:
    """A title as an address: `receipt-scanner`. A title without Latin letters or digits gets a hash of itself."""
    plain = unicodedata.normalize("NFKD", _CAMEL.sub(" ", title).translate(_LETTERS))
    folded = "".join(character for character in plain if not unicodedata.combining(character)).casefold()
    slug = re.sub(r"[^a-z0-9]+", "-", folded).strip("-")
    if _CJK.search(title) or not slug:
        digest = hashlib.sha256(unicodedata.normalize("NFKC", title).casefold().encode("utf-8", "replace")).hexdigest()
        slug = f"{slug}-{digest[:8]}".strip("-") if slug else f"topic-{digest[:8]}"
    if len(slug) <= LONGEST_SLUG:
        return slug
    digest = hashlib.sha256(slug.encode()).hexdigest()[:8]
    return f"{slug[: LONGEST_SLUG - 9].rstrip('-')}-{digest}"


def fold(name: str) -> str:
    """A name as it is compared: `Fly.io Deploys` and `fly io deploy` are the same. Empty when nothing is left."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).translate(_LETTERS)).casefold()
    words = _WORD.findall("".join(character for character in plain if not unicodedata.combining(character)))
    if words:
        words[-1] = stem(words[-1])
    return " ".join(words)[:100].strip()


def stem(word: str) -> str:
    """A word without the ending of a plural."""
    if len(word) > 3 and word.isascii() and word.isalpha() and not word.endswith(("ss", "us", "is")):
        if word.endswith("ies"):
            return f"{word[:-3]}y"
        if word.endswith(("ches", "shes", "sses", "xes")):
            return word[:-2]
        return word.removesuffix("s")
    return word


def title_terms(title: str) -> list[str]:
    """The words of a title that carry it, folded; stop words and lone signs left out."""
    words = _WORD.findall(unicodedata.normalize("NFKC", _CAMEL.sub(" ", unshouted(title))))
    terms = dict.fromkeys(
        stem(word)
        for word in _WORD.findall(fold(" ".join(word for word in words if not _is_silent(word))))
        if word not in STOP_WORDS and (len(word) > 1 or _CJK.match(word))
    )
    return list(terms)


def _is_silent(word: str) -> bool:
    """Whether a word, with its accents and capitals, carries no title."""
    return is_function_word(word) and word.casefold() not in _THINGS


def speaks_of(text: str, terms: Collection[str]) -> bool:
    """Whether a text has one of these folded words; one of a script without spaces anywhere in it."""
    if not set(title_terms(text)).isdisjoint(terms):
        return True
    folded = unicodedata.normalize("NFKC", text).casefold()
    if any(term in folded for term in terms if _CJK.match(term)):
        return True
    # The head of a German compound: the report of a morning report.
    words = [word for word in title_terms(text) if len(word) >= _COMPOUND_HEAD]
    return any(term.endswith(word) and len(term) > len(word) + 2 for term in terms for word in words)


def numbered_apart(one: str, other: str) -> bool:
    """Whether two titles name things of different numbers: chapter 3 and chapter 4, gauge TG-04 and gauge TG-07."""
    mine, yours = _codes(one), _codes(other)
    return bool(mine and yours) and not (_all_among(mine, yours) or _all_among(yours, mine))


def _codes(title: str) -> set[tuple[str, str]]:
    """The numbers of a title, each with the letters before it; a word such as chapter is none of them."""
    found = ((letters.casefold(), number.casefold().lstrip("0")) for letters, number in _NUMBER.findall(title))
    return {("" if stem(letters) in NUMBERED else letters, number) for letters, number in found}


def _all_among(codes: set[tuple[str, str]], others: set[tuple[str, str]]) -> bool:
    """Whether the other ones hold all of these; TG-04 may be called 4."""
    return all(
        any(number == other and (not letters or not before or letters == before) for before, other in others)
        for letters, number in codes
    )


def names_another_number(text: str, title: str) -> bool:
    """Whether a text speaks of another thing of the title's kind, and not of the title's own: of chapter 4."""
    own, said = _numbers(title, named=True), _numbers(text)
    return any(
        word in said and not any(_is_release_of(one, other) for one in said[word] for other in numbers)
        for word, numbers in own.items()
    )


def _is_release_of(one: str, other: str) -> bool:
    """Whether two numbers are the same, or one is a later part of the other: 0.11 and 0.11.2, 3 and 3b."""
    one, other = (f"{_LETTERED.sub('.', number)}." for number in (one, other))
    return one.startswith(other) or other.startswith(one)


def _numbers(text: str, *, named: bool = False) -> dict[str, set[str]]:
    """The numbered things of a text: the numbers by the words before them. What counts or measures is none of them.

    `named`: the text is a title, which has a release behind its first word alone: kelpie 0.10, and no limit of 0.5.
    """
    found: dict[str, set[str]] = {}
    for match in _NUMBERED.finditer(text):
        word, first = stem(match[1].casefold()), _LISTED.findall(match[2])[0]
        if word not in NUMBERED and ("." not in first or (named and match.start() > 0)):
            continue
        numbers = found.setdefault(word, set())
        numbers.update(number.casefold().lstrip("0") for number in _LISTED.findall(match[2]))
        for start, end in _RANGE.findall(match[2]):
            numbers.update(map(str, range(int(start), min(int(end), int(start) + _WIDEST) + 1)))
    return found


def keys_of(title: str, names: Iterable[str]) -> list[str]:
    """What identifies a page beside its own name: the words of its title, and the names it speaks of."""
    keys = dict.fromkeys([*title_terms(title), *(fold(name) for name in names)])
    return [key for key in keys if key]


def tidy_title(text: str) -> str:
    """A title on one line, without quotes around it, beginning with a capital where a plain word begins it."""
    title = " ".join(text.split()).strip(" \"'`*#»«\u201c\u201d\u201e").strip()
    first = title.split(" ", 1)[0]
    if first.isalpha() and first.islower() and " " in title:
        title = title[0].upper() + title[1:]
    return title


def is_subject(title: str) -> bool:
    """Whether a text can be the title of a page: a thing, and no sentence about it."""
    return (
        0 < len(title) <= LONGEST_TITLE
        and len(title.split()) <= _MOST_WORDS
        and _SENTENCE.search(title) is None
        and _WORD.search(title) is not None
        and bool(fold(title))
    )
