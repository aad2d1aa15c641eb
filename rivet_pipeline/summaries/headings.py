"""The heading of a topic: a phrase of its own words as somebody said them, or its strongest words when it has none.

Pure functions over texts and weights. What the topics are, and which statements they hold, stands in `extractive.py`.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rivet_pipeline.summaries.signals import DETERMINERS, HEADER_STOP_WORDS, LINKS, NO_PHRASE_WORDS, STOP_WORDS
from rivet_pipeline.summaries.terms import stem_of, terms_of

#: Words of a phrase at most, those that link others among them.
_LONGEST_PHRASE = 5

#: Characters of a heading and of a single word in it, at most.
_LONGEST, _LONGEST_WORD = 60, 40

_SURFACE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,8}|[^\W_][\w.-]*[^\W_]|[^\W_]", re.UNICODE)

#: An identifier or a name: a sign or a digit inside, a capital behind a small letter, or all capitals.
_NAME = re.compile(r"\w[._-]\w|\w\d|[a-z][A-Z]|^[A-Z]{2,}$")
_NAME_WEIGHT = 1.6

#: A word of prose, with what is written into it; everything else but white space ends a phrase.
_PROSE_WORD = re.compile(r"[^\W_](?:[\w'\u2019.+#-]*[\w+#])?")
_MARK = re.compile(r"[`*\u201c\u201d\u201e\"\u00bb\u00ab]")
#: What tells how something was done, or what became of it, and no thing.
_NO_NOUN = re.compile(r".{2,}(?:ly|ed|n't)")
_NUMBER = re.compile(r"[\d.,]+(?:st|nd|rd|th)?")

#: A call as `sentences.py` writes it: the tool, and the command or the file's name behind what only leads to it.
_CALL = re.compile(
    r"([\w.-]{1,40}): (?:cd \S+ (?:&& |; )|sudo |[A-Z_]+=\S* )*(?:[^\s;|&]*[/\\])?([^\s;|&/\\]{1,40})(?!\S)"
)

_EMPTY = frozenset(form for word in HEADER_STOP_WORDS for form in (word, stem_of(word)))
_SILENT = STOP_WORDS | NO_PHRASE_WORDS | _EMPTY


@dataclass(frozen=True, slots=True)
class Told:
    """One statement of a topic: its text, the weight of its voice, and those of its terms."""

    text: str
    voice: str
    voice_weight: float
    weights: Mapping[str, float]


def heading(told: Sequence[Told], used: set[str]) -> str:
    """The best phrase of a topic, and a second one of other words when there is room.

    `used` are the terms of earlier headings: they count for less, and those of this one are added.
    """
    forms = _spellings(told)
    strength = _strength(told, forms)
    spoken = [one.text for one in told if one.voice != "tool"]
    chosen = _phrases(spoken, strength, used) if spoken else _calls(told)
    chosen = chosen or _words(forms, strength, used)
    for phrase in chosen:
        used.update(terms_of(phrase))
    return ", ".join(chosen) or "also"


def _strength(told: Sequence[Told], forms: Mapping[str, Counter[str]]) -> dict[str, float]:
    strength: dict[str, float] = defaultdict(float)
    for one in told:
        for term, weight in one.weights.items():
            # A name tells more of a topic than a common word, however strong that is.
            named = any(_NAME.search(form) for form in forms[term])
            strength[term] += weight * one.voice_weight * (_NAME_WEIGHT if named else 1.0)
    return strength


def _spellings(told: Sequence[Told]) -> dict[str, Counter[str]]:
    """Each term and how it is written."""
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for one in told:
        for match in _SURFACE.finditer(one.text):
            for term in set(terms_of(match.group(0))):
                forms[term][match.group(0)] += 1
    return forms


# --- phrases --------------------------------------------------------------------------------------------------------


def _phrases(texts: Sequence[str], strength: Mapping[str, float], used: set[str]) -> list[str]:
    """At most two phrases without a common word, the better first."""
    scores: dict[str, float] = {}
    for text in texts:
        for phrase, worth in _candidates(text, strength, used):
            scores[phrase] = scores.get(phrase, 0.0) * 0.3 + worth
    ranked = sorted(scores, key=lambda phrase: (-round(scores[phrase], 9), phrase))
    if not ranked:
        return []
    first = ranked[0]
    # A single word tells little: it takes a weaker second one than a phrase does.
    bar = scores[first] * (0.6 if " " in first else 0.35)
    for second in ranked[1:]:
        if scores[second] < bar:
            break
        if len(first) + len(second) <= _LONGEST and set(terms_of(first)).isdisjoint(terms_of(second)):
            return [first, second]
    return [first]


def _candidates(text: str, strength: Mapping[str, float], used: set[str]) -> Iterator[tuple[str, float]]:
    """Every run of words that begins and ends with one that says something, and its worth."""
    for words in _runs(text):
        for start in range(len(words)):
            before = words[start - 1].casefold() if start else ""
            for end in range(start + 1, min(start + _LONGEST_PHRASE, len(words)) + 1):
                run = words[start:end]
                worth = _worth(run, before, strength, used)
                if worth > 0:
                    yield " ".join(run), worth


def _runs(text: str) -> Iterator[list[str]]:
    """The words between two signs, or between two words that neither say something nor link what does."""
    run: list[str] = []
    end = 0
    text = _MARK.sub("", text)
    for match in _PROSE_WORD.finditer(text):
        if text[end : match.start()].strip(" ") or match.start() - end > 1:
            yield run
            run = []
        run.append(match.group(0))
        end = match.end()
    yield run


def _worth(run: Sequence[str], before: str, strength: Mapping[str, float], used: set[str]) -> float:
    """0 for what is no heading."""
    folded = [word.casefold().replace("\u2019", "'") for word in run]
    if not all(_says(word) or word in LINKS or _NUMBER.fullmatch(word) for word in folded):
        return 0.0
    numbered = len(run) > 1 and _NUMBER.fullmatch(folded[-1]) is not None and _says(folded[-2])
    if not _says(folded[0]) or not (_says(folded[-1]) or numbered) or len(" ".join(run)) > _LONGEST_WORD:
        return 0.0
    if _NO_NOUN.fullmatch(folded[-1]) or (folded[0].endswith("ly") and before not in DETERMINERS):
        return 0.0
    terms = [term for word in run for term in terms_of(word)]
    if len(set(terms)) < len(terms):
        return 0.0
    worth = sum(strength.get(term, 0.0) * (0.3 if term in used else 1.0) for term in terms)
    worth /= math.pow(max(len(terms), 1), 0.6)
    if len(run) == 1 and not _NAME.search(run[0]):
        worth *= 0.5
    # Behind an article stands a thing; behind a pronoun or "to" what somebody does with it.
    if before in DETERMINERS:
        return worth * 1.4
    return worth * 0.6 if before and before in STOP_WORDS and before not in LINKS else worth


def _says(word: str) -> bool:
    return word not in _SILENT and _NUMBER.fullmatch(word) is None


# --- calls and words --------------------------------------------------------------------------------------------------


def _calls(told: Sequence[Told]) -> list[str]:
    """The first two different calls of a topic in which nobody speaks: the tool and what it ran or touched."""
    calls = (_CALL.match(one.text) for one in told)
    # A star would end the heading's emphasis, and nobody could tell it from a statement any more.
    told_of = ((call.group(1), call.group(2).replace("*", "")) for call in calls if call is not None)
    named = dict.fromkeys(f"{tool}: {what}" if re.search(r"\w", what) else tool for tool, what in told_of)
    return list(named)[:2]


def _words(forms: Mapping[str, Counter[str]], strength: Mapping[str, float], used: set[str]) -> list[str]:
    """The strongest terms as they are written, at most three, not those of an earlier heading."""
    words: list[str] = []
    for term in sorted(strength, key=lambda term: (-round(strength[term], 9), term)):
        if term in used or term.isdigit() or not forms[term] or term in _SILENT:
            continue
        form = min(forms[term].items(), key=lambda item: (-item[1], len(item[0]), item[0]))[0]
        covered = set(terms_of(form))
        if len(form) > _LONGEST_WORD or any(covered & set(terms_of(word)) for word in words):
            continue
        words.append(form)
        if len(words) == 3:
            break
    return words
