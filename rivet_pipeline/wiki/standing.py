"""Tells whether a sentence can stand on a page by itself. Pure; better no than a scrap.

A reader of a page does not see what was said before. So a sentence has to be whole, must not point to another one, to
the day on which it was said or to whoever said it, and must not be a guess, an order or a complaint of the moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from rivet_pipeline.summaries.grounding import telling_words
from rivet_pipeline.summaries.sentences import ABBREVIATION, LONGEST_END, split_prose
from rivet_pipeline.wiki.contradictions import names_a_day
from rivet_pipeline.wiki.types import LONGEST_CLAIM
from rivet_pipeline.wiki.wordings import (
    ADDRESSES,
    AGENDA,
    BACKWARD,
    COMPLAINS,
    COMPLAINS_CJK,
    CONCEDES,
    DECIDES,
    DOES,
    ELSEWHERE,
    GUESS,
    GUESS_CJK,
    HABITUAL,
    LOGS,
    ORDERS,
    POLICY,
    PRONOUN,
    REFUTES,
    RELATIVE,
    RELATIVE_CJK,
    RESULT,
    SELF,
    STATES,
)

Voice = Literal["user", "assistant", "system"]

#: Characters and telling words that a sentence has at least.
_SHORTEST, _SHORTEST_CJK = 16, 8
_TELLING = 2

#: Words of the last item of a list that is whole.
_LAST_ITEM = 5

_FIGURE = re.compile(r"\d[\d.,:]*")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_WHOLE = re.compile(r"[.!\u3002\uff01][\"'\u201d\u2019\u00bb)*`]*\Z")
_CUT = re.compile(
    r"(?:[:,;\u2026\u2013\u2014-]|\.\.\.|\[\u2026\])\s*\Z|\b(?:and|or|the|a|of|to|with|und|der|die|y|de|el|la)\Z", re.I
)
_END_PRONOUN = re.compile(r"(?<!\w)(?:it|them|that|this|so|too|there)[.!]?\Z", re.IGNORECASE)
#: At the end of a clause that says when, a pronoun stands for what the clause before it names.
_OWN_PRONOUN = re.compile(
    r"\A(?:\S+ ){3,40}(?:before|until|unless|once) (?:\S+ ){2,6}(?:it|them)[.!]?\Z", re.IGNORECASE
)
#: A short sentence about a thing that was named before: "On garde cette grille."
_SHOWN = re.compile(
    r"\A(?:\S+ ){1,2}(?:this|that|these|those|cet|cette|ces|diese[nmrs]?|est[ae]|es[ae]|quest[oa]|quell[oa]|ess[ae])"
    r" [^\W\d]+[.!]?\Z",
    re.IGNORECASE,
)
#: The subject of the first clause, behind where, when or how: "In the oven they take four hours".
_LATE_PRONOUN = re.compile(
    r"\A(?:in|at|on|with|without|for|after|before|by|from|under|im|am|bei|mit|ohne|en|con|sin)\s[^,.;:]{3,60}\s"
    r"(?:they|it|he|she|sie|er|es|ellos|ellas)\s+\w",
    re.IGNORECASE,
)
#: Answers how much or how long, and leaves out what: "2 hours 40 minutes, because the disks are slow".
_ANSWER = re.compile(
    r"\A(?:about |around |nearly |some |roughly )?\d[\d.,:]*\s*(?:[^\W\d]+|%)(?: \d[\d.,:]* [^\W\d]+)?\s*,?\s"
    r"(?:because|since|due to|as|weil|da|porque)(?!\w)",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"(?<![\d:])\d{1,2}:\d\d(?![\d:])")
_HAPPENED = re.compile(r"(?<!\w)(?:ran|went|came|fell|fired|began|started|dates|resolved)(?!\w)", re.IGNORECASE)
#: What is said of a path, which makes prose of it: "/health returns 200"; and what stands between options in prose.
_SAYS = (
    rf"(?:{STATES.pattern}|(?<!\w)(?:returns?|answers?|responds?|serves?|lists?|redirects?|sends?|uses|expects|listens"
    r"|can|may|must|should|will|does)(?!\w))"
)
_BETWEEN = rf"(?:{_SAYS}|(?<!\w)(?:and|or|but|not|with|the|und|oder|mit|der|die|das|y|el|la|et|ou|le|e|o)(?!\w))"
#: No prose: a command with its options, one of a chat, or the place of code that was left out.
_MACHINE = re.compile(
    rf"\A(?:/[a-z][\w:-]*(?:\s|\Z)|(?:~|\.{{1,2}})?/\S+/\S+\s)(?!(?i:{_SAYS}))|\A(?:\S+ ){{0,2}}code: `"
    rf"|(?<!\S)--[a-z][\w-]+\b(?:(?!(?<=\s)(?i:{_BETWEEN})|,\s)[^.;`]){{0,200}}\s--[a-z]"
)
#: A day of the week, which what is said of every week does not leave open.
_WEEKDAY = re.compile(r"(?:mon|tues|wednes|thurs|fri|satur|sun)day\Z|\Ael ", re.IGNORECASE)
_QUESTION = re.compile(r"[?\uff1f][\"'\u201d\u00bb)]*\Z|\A\u00bf")
_PAIRS = (("(", ")"), ("[", "]"), ("\u00bb", "\u00ab"), ("\u201c", "\u201d"))
#: The first piece of a sentence that was read together with what follows it.
_SCRAP = re.compile(r"\A(?P<scrap>[^.!?:\u3002]{1,24}[.!?\u3002]+|\S{1,12}:)\s+(?=\S)")
#: An end of a sentence where the next one begins small, as people type.
_SMALL_END = re.compile(r"(?<=[^\W\d_]{4}[.!?])\s+(?=[a-z]+[\s,])")
_LABEL = re.compile(r"\A(?:reasons?|proposal|recommendation|fix|grund|vorschlag|motivos?|propuesta):\Z", re.IGNORECASE)
#: What is said before the point, up to a colon.
_INTRODUCTION = re.compile(r"\A(?P<before>[^:;`\"]{4,80}):\s+(?P<point>[^\s].{14,})\Z")
#: The sign before an item of a list.
_ITEM = re.compile(r"\A[\u2022\u00b7\u25aa\u2023]\s*")
_OPENING = re.compile(
    r"\A(?:(?:ok(?:ay)? then|ok(?:ay)?|good|very good|nice|right|perfect|exactly|great|fine|yes|super|done|indeed"
    r"|thanks?|got it"
    r"|hm+|ah|oui|sì|très bien|parfait|d['\u2019]accord|entendu|bonjour|perfetto|va bene|perfeito|certo|sim"
    r"|morning|vale|bien|sí|perfecto|gut|schön|ja|note|for the record)\s*[.!,:]\s+|(?:then|and|but|so|now|also"
    r"|dann|also"
    r"|und|y|pero|entonces|et|mais|donc|alors|e|ma|allora|mas|então)\s+(?=[a-zäöüßáéíóúñ]))+(?=[\w`\"\u00bb\u00bf])",
    re.IGNORECASE,
)


def points_of(text: str) -> list[str]:
    """The sentences of what was said in one breath, without scraps before them ("Nice. Fix both. Names: ...")."""
    points = []
    for sentence in (piece for prose in split_prose(text.strip()) for piece in _as_typed(prose)):
        point = _ITEM.sub("", " ".join(sentence.split()).strip())
        while (scrap := _SCRAP.match(point)) is not None and not _weighs(scrap["scrap"]):
            point = point[scrap.end() :]
        point = _OPENING.sub("", point)
        if point:
            points.append(_with_capital(point))
    return points


def _as_typed(prose: str) -> Iterator[str]:
    """The sentences of one that goes on small behind an end; behind an abbreviation there is none."""
    start = 0
    for end in _SMALL_END.finditer(prose):
        if ABBREVIATION.search(prose[max(end.start() - LONGEST_END, 0) : end.start()]) is None:
            yield prose[start : end.start()]
            start = end.end()
    yield prose[start:]


def _with_capital(point: str) -> str:
    """A sentence as sentences begin; an identifier at its beginning stays as it is written."""
    first = point.split(maxsplit=1)[0].rstrip(".,:;!?").replace("'", "").replace("\u2019", "")
    return point[0].upper() + point[1:] if first.isascii() and first.isalpha() else point


def _weighs(scrap: str) -> bool:
    """Whether a short piece belongs to what follows: a label such as `Decision:`, or one that no sentence ends."""
    # "No." is an answer here, and no number.
    if scrap != "No." and ABBREVIATION.search(scrap[-LONGEST_END:]) is not None:
        return True
    return scrap.endswith(":") and (RESULT.match(f"{scrap} x") is not None or _LABEL.match(scrap) is not None)


def without_introduction(text: str) -> str:
    """The point of a sentence whose words before the colon speak of the session alone."""
    match = _INTRODUCTION.match(text)
    if match is None or RESULT.match(text):
        return text
    before = match["before"]
    if not (SELF.search(before) or ADDRESSES.search(before) or RELATIVE.search(before) or AGENDA.match(before)):
        return text
    return _with_capital(match["point"])


def weight_of_words(text: str) -> int:
    """How many words and figures of a sentence tell something."""
    return len(telling_words(text) | set(_FIGURE.findall(text)))


def is_question(text: str) -> bool:
    """Whether a sentence asks."""
    return _QUESTION.search(text) is not None


def is_guess(text: str) -> bool:
    """Whether a sentence says that it may be wrong."""
    return GUESS.search(text) is not None or GUESS_CJK.search(text) is not None


def is_whole(text: str) -> bool:
    """Whether nothing is cut off: an end, pairs of signs, enough words."""
    shortest = _SHORTEST_CJK if _CJK.search(text) else _SHORTEST
    if not shortest <= len(text) <= LONGEST_CLAIM or is_question(text) or _CUT.search(text) or _MACHINE.search(text):
        return False
    if (
        text.count("`") % 2
        or text.count('"') % 2
        or any(text.count(left) != text.count(right) for left, right in _PAIRS)
    ):
        return False
    return ";" not in text or _WHOLE.search(text) is not None or _ends_well(text)


def _ends_well(text: str) -> bool:
    """Whether a list that has no sign at its end has an introduction and a last item that is a sentence."""
    return ":" in text.split(";", 1)[0] and len(text.rsplit(";", 1)[1].split()) >= _LAST_ITEM


def points_elsewhere(text: str) -> bool:
    """Whether a sentence needs another one, or the day on which it was said."""
    patterns = (BACKWARD, ELSEWHERE, PRONOUN, AGENDA, _SHOWN, _LATE_PRONOUN, _ANSWER)
    if any(pattern.search(text) for pattern in patterns):
        return True
    if _END_PRONOUN.search(text) is not None and _OWN_PRONOUN.match(text) is None:
        return True
    happened = _CLOCK.search(text) is not None and _HAPPENED.search(text) is not None
    days = [match[0] for match in RELATIVE.finditer(text)]
    if HABITUAL.search(text) is not None:
        # "Every day at 06:30" and "every week, on Monday" tell of no certain day; "each of 40 tickets today" does.
        happened = False
        days = [day for day in days if _WEEKDAY.search(day) is None]
    dated = happened or bool(days) or RELATIVE_CJK.search(text) is not None
    return dated and not names_a_day(text)


def _keeps_a_log(text: str, voice: str) -> bool:
    """Whether somebody tells what they do, or an agent what it has done, and not how things stand or what was decided.

    A person who begins with "added" or "removed" speaks of things.
    """
    does = DOES.match(text)
    return does is not None and DECIDES.search(text) is None and (voice == "assistant" or does[0].endswith("ing"))


def stands_alone(text: str, voice: str, *, proposal: bool = False, order: bool = False) -> bool:
    """Whether a reader who sees nothing else understands the sentence, and may take it for true.

    Args:
        text: The sentence.
        voice: Who says it: user, assistant or system.
        proposal: Somebody has agreed to it, so that it may speak of what "I would" do.
        order: It may be an order, since whoever said it wants it to be followed ever after.
    """
    if not is_whole(text) or points_elsewhere(text) or weight_of_words(text) < _TELLING:
        return False
    if REFUTES.search(text) or CONCEDES.search(text):
        return False
    if proposal:
        return True
    if (
        is_guess(text)
        or LOGS.match(text)
        or _keeps_a_log(text, voice)
        or any(map(ORDERS.match, text.split("; ")[1:]))
        or (ORDERS.match(text) and not POLICY.match(text) and not order)
    ):
        return False
    if voice == "user":
        return (
            POLICY.match(text) is not None
            or not (COMPLAINS.search(text) or COMPLAINS_CJK.search(text))
            or names_a_day(text)
        )
    return not (SELF.search(text) or ADDRESSES.search(text))
