"""Which sentences of a page can not hold together, so that the newer one stands and the older becomes history. Pure.

Only what can be told from the words alone: the same sentence with another figure, a decision that is taken back by its
date, what rests on a thing that a later decision ends, and what a patch itself says it replaces. Order does not matter:
the result depends on the set.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from rivet_pipeline.summaries.titles import GENERIC_WORDS
from rivet_pipeline.wiki.names import fold, stem, title_terms
from rivet_pipeline.wiki.types import LONGEST_CLAIM, Bullet, Section

#: The sections in which a decision can be taken back.
_DECIDED: frozenset[Section] = frozenset({"summary", "decisions"})

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january januar enero janvier gennaio janeiro", "february februar febrero février febbraio fevereiro",
            "march märz marzo mars março", "april abril avril aprile", "may mai mayo maggio maio",
            "june juni junio juin giugno junho", "july juli julio juillet luglio julho", "august agosto août",
            "september septiembre septembre settembre setembro", "october oktober octubre octobre ottobre outubro",
            "november noviembre novembre novembro", "december dezember diciembre décembre dicembre dezembro",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
_DAY = re.compile(rf"\b(\d{{1,2}})\.?(?:st|nd|rd|th)?\s+(?:of\s+|de\s+)?({'|'.join(_MONTHS)})\b", re.IGNORECASE)
_ISO_DAY = re.compile(r"\b\d{4}-(\d\d)-(\d\d)\b")

_MONTH_FIRST = re.compile(rf"\b({'|'.join(_MONTHS)})\s+(\d{{1,2}})(?:st|nd|rd|th)?\b", re.IGNORECASE)
_KANJI_DAY = re.compile(r"(\d{1,2})月(\d{1,2})日")

_ANNULLED = (
    r"(?:cancell?ed|annulée?s?|abandonnée?s?|annullat[aoei]|revogad[ao]s?|revocad[ao]s?|anulad[ao]s?|cancelad[ao]s?)"
)
_ADVERB = (
    r"(?: (?:now|later|then|since|also|again|therefore|ya|luego|después|ensuite|donc|poi|già|também|já|depois"
    r"|[^\W\d_]{2,}(?:ly|ment|mente)))"
)
_TAKEN_BACK = re.compile(
    r"\b(?:reversed?|revoked?|withdrawn|overturned|taken back|no longer (?:holds|valid|stands)|aufgehoben"
    r"|zurückgenommen"
    r"|revocada|revocamos|anulada|anulamos|sin efecto|revertida"
    # Not what is said of something else: "cancelled orders are refunded".
    r"|(?:is|are|was|were|been|est|sont|été|è|sono|stat[aoei]|é|foi|fica|está|queda)"
    rf"{_ADVERB}{{0,2}} {_ANNULLED}|{_ANNULLED}(?=\s?:)"
    rf"|(?:we|i)(?: have)?{_ADVERB}? cancel(?:l?ed)? (?:the|that|this|our|it)|(?:nous avons|on a){_ADVERB}? annulé"
    r"|(?:hemos|abbiamo) (?:cancelado|anulado|revocado|annullato|revocato)|cancelamos|revogamos"
    r"|(?:decision|plan|agreement|décision|accord|decisión|acuerdo|decisione|accordo|decisão|acordo|plano)"
    # "Decision of 1 September cancelled", and not one that was not.
    r"(?: (?:of|from|du|del?|di|do)(?: (?!(?:not?|non|never|pas|não|nunca)\b)[\w.]+){1,4}?)?"
    rf"{_ADVERB}? {_ANNULLED})\b|撤回|取り消",
    re.IGNORECASE,
)
#: What a verb takes or drops: a name, or up to three words to the end of the phrase.
_THING = (
    r"(?:the |our |all |die |den |das |el |la |los |las |le |les |il |lo |gli |os )?"
    r"(?P<object>`[^`]+`|(?-i:[A-Z])[\w.+-]*(?:\s(?:(?-i:[A-Z])|v?\d)[\w.+-]*){0,2}(?=\W|\Z)"
    r"|[\w.+-]+(?: [\w.+-]+){0,3}?(?=[,.;:!)]|\Z"
    r"| (?:from|for|in|on"
    r"|at|and|as|with|because|since|again|altogether|entirely|completely|de|del|por|para|y|porque|von|aus|für|und)\b))"
    r"(?: (?:for|para|für) (?!(?:good|now|ever)\b)(?P<whose>[\w.+-]+(?: [\w.+-]+)?))?"
)
#: A verb that ends the use of what follows it.
_ENDS = re.compile(
    r"(?<!\w)(?:drop|dropped|dropping|remove|removed|abandon|abandoned|retire|retired|stop using|stopped using"
    r"|no longer use|get rid of|switch off|move away from|replace|replaced|no more|instead of"
    r"|wir (?:entfernen|streichen|verwerfen|ersetzen)|statt|quitamos|eliminamos|retiramos|descartamos|abandonamos"
    r"|dejamos de usar|ya no usamos|sustituimos|reemplazamos|en vez de|en lugar de"
    r"|(?:on|nous) (?:supprime|abandonne|remplace|enlève|supprimons|abandonnons|remplaçons)|au lieu d[eu]"
    r"|(?:eliminiamo|togliamo|abbandoniamo|sostituiamo|invece d(?:i|el|ella|ello)|al posto d(?:i|el|ella|ello))"
    r"|(?:removemos|substituímos|em vez d[aeo]|no lugar d[aeo]))\s+" + _THING,
    re.IGNORECASE,
)
#: The end of something that stands before its verb.
_GONE = re.compile(
    r"(?P<object>(?<![\w.+-])[A-Z][\w.+-]{0,40}(?:\s(?:[A-Z]|v?\d)[\w.+-]{0,40})?|`[^`]{1,80}`)"
    r" (?:is|are) (?:gone|dropped|removed|retired|history)\b"
    r"|(?P<object_cjk>(?<![A-Za-z0-9.+-])[A-Za-z][A-Za-z0-9_.+-]{0,40}|[\u30a0-\u30ff\u4e00-\u9fff]{2,8})"
    r"(?:の使用)?(?:(?:を|は)(?:やめ|廃止|外|撤去)|は使わな)"
    r"|(?i:(?<!\w)(?:the|der|die|das|el|la|le|il|o|a) (?P<object_whole>[^\W\d_][\w.+-]{0,40}(?: [\w.+-]{1,40}){0,4})"
    r" (?:is|are|ist|sind|est|sont|queda|está|è|é) (?:gone|dropped|removed|retired|cancell?ed|gestrichen"
    r"|(?:annulé|supprimé|abandonné)e?s?|(?:anulad|cancelad|eliminad|annullat|eliminat)[oa])(?=[,.;!]|\Z))"
)
#: A clause that says when something happens: what is dropped there is dropped again and again. "After the review" and
#: "once it is done" name the one time as well, and say nothing of it.
_WHENEVER = re.compile(
    r"(?<!\w)(?:when|whenever|if|as soon as|unless|wenn|falls|sobald|cuando|quand|lorsque|dès que|quando"
    r"|after (?:each|every|any|[\w.]+ (?:ms|s|seconds?|minutes?|hours?|days?)))(?!\w)|(?:\A|,)\s*(?:si|se)\s",
    re.IGNORECASE,
)
#: A decision against something. Fonts are called "sans serif" and "Noto Sans".
_AGAINST = re.compile(
    r"(?<!\w)(?:no|kein|keine|keinen|sin|ni|(?-i:(?:s|\AS)(?:ans(?! [Ss]erif)|enza|em)))"
    r" (?P<object>[\w.+-]+(?: [\w.+-]+){0,1})(?=[,.;!]|\Z| any more)"
    r"|(?<!\w)not (?:on |at |by |until )?(?P<figure>\d[\d.:]*)(?: (?P<unit>(?!any more)[^\W\d]+))?(?=[,.;!]|\Z"
    r"| any ?more)",
    re.IGNORECASE,
)
_FIGURE = re.compile(r"(?<![\w#])\d+(?:[.,:]\d+)*")
#: A unit of one letter behind its figure, which is no word of a title: 30 s.
_LETTER = re.compile(r"(?<=\d)\s?([^\W\d_])(?!\w)")
#: Between a figure and the unit that is written right behind it: 30ms.
_GLUED = re.compile(r"(?<=\d)(?=[^\W\d_])")
_DATES = re.compile(
    rf"{_ISO_DAY.pattern}(?:T[\d:]+Z?)?|{_DAY.pattern}(?:,?\s+(?:de\s+)?\d{{4}})?"
    rf"|{_MONTH_FIRST.pattern}|{_KANJI_DAY.pattern}",
    re.IGNORECASE,
)
_SPACE = re.compile(r"[^\w#]+", re.UNICODE)

#: Words that name nothing by themselves: whoever wants "no rush" ends no rush, and "no data is lost" ends no data.
_COMMON = frozenset(
    """data use usage line file files comment comments rush doubt worry worries need needs keep hold run set day days
    hour minute second eile zweifel frage sorge änderung änderungen daten prisa preocupación datos uso""".split()  # noqa: SIM905
)
_GENERIC = frozenset(stem(fold(word)) for word in GENERIC_WORDS | _COMMON)

#: A sentence of fewer words than this says too little beside its figures.
_LEAST_WORDS = 3

#: Letters by which forms of a word are known: "calibrate", "calibration".
_ROOT = 7


def superseded(
    claims: Mapping[UUID, tuple[Section, Bullet]], replaces: Iterable[tuple[UUID, UUID]]
) -> dict[UUID, UUID]:
    """The sentences that no longer hold, each with the one that took its place.

    Args:
        claims: The sentences by key, with their sections.
        replaces: Pairs (newer, older) that patches name; the one said last wins, whichever that is.
    """
    pairs = [pair for pair in replaces if pair[0] in claims and pair[1] in claims and pair[0] != pair[1]]
    pairs += _other_figures(claims)
    pairs += _taken_back(claims)
    gone: dict[UUID, UUID] = {}
    for first, second in sorted(set(pairs), key=lambda pair: (str(pair[0]), str(pair[1]))):
        older, newer = sorted((first, second), key=lambda key: (claims[key][1].as_of, str(key)))
        if claims[older][1].as_of == claims[newer][1].as_of:
            # Said at once: the patch that named the pair knows which is which.
            newer, older = first, second
        best = gone.get(older)
        if best is None or _rank(claims, newer) > _rank(claims, best):
            gone[older] = newer
    return _without_circles(gone, claims)


def _rank(claims: Mapping[UUID, tuple[Section, Bullet]], key: UUID) -> tuple[object, str]:
    return claims[key][1].as_of, str(key)


def _without_circles(gone: dict[UUID, UUID], claims: Mapping[UUID, tuple[Section, Bullet]]) -> dict[UUID, UUID]:
    """Two sentences of one moment that replace each other both hold."""
    return {
        older: newer
        for older, newer in gone.items()
        if not (gone.get(newer) == older and claims[older][1].as_of == claims[newer][1].as_of)
    }


def skeleton(text: str) -> str | None:
    """A sentence without its figures and dates; None when it has none or says too little without them."""
    undated = _DATES.sub(" ", text)
    if _FIGURE.search(undated) is None:
        return None
    words = _SPACE.sub(" ", _FIGURE.sub(" ", undated).casefold()).split()
    return " ".join(words) if len(words) >= _LEAST_WORDS else None


def _other_figures(claims: Mapping[UUID, tuple[Section, Bullet]]) -> list[tuple[UUID, UUID]]:
    """Pairs of sentences that differ in nothing but their figures."""
    groups: dict[tuple[Section, str], list[UUID]] = {}
    for key, (section, bullet) in claims.items():
        bare = skeleton(bullet.text)
        if bare is not None and section in {"summary", "facts", "decisions"}:
            groups.setdefault((section, bare), []).append(key)
    pairs = []
    for keys in groups.values():
        keys.sort(key=lambda key: _rank(claims, key))
        pairs += [(keys[-1], older) for older in keys[:-1]]
    return pairs


def _taken_back(claims: Mapping[UUID, tuple[Section, Bullet]]) -> list[tuple[UUID, UUID]]:
    """Pairs of a decision that ends something, and what was said before on the page for it or of it."""
    decisions = [(key, bullet) for key, (section, bullet) in claims.items() if section in _DECIDED]
    pairs = []
    for newer, later in decisions:
        days = _days(later.text) if _TAKEN_BACK.search(later.text) else set()
        pairs += [
            (newer, older)
            for older, earlier in decisions
            if earlier.as_of < later.as_of and (earlier.as_of.month, earlier.as_of.day) in days
        ]
        ended = _ended(later.text)
        pairs += [
            (newer, older)
            for older, (_, earlier) in claims.items()
            if ended and earlier.as_of < later.as_of and _rests_on(earlier.text, later.text, ended)
        ]
    return pairs


@dataclass(frozen=True, slots=True)
class _Ended:
    """A thing whose use ends: the roots of its words, and its figures. A figure alone has no words.

    `unit`: the roots of what a figure alone counts; `days`: the days of the calendar that it names, (month, day).
    """

    words: frozenset[str]
    figures: frozenset[str]
    unit: frozenset[str] = frozenset()
    days: frozenset[tuple[int, int]] = frozenset()

    def within(self, other: _Ended) -> bool:
        """Whether the other thing is this one, named as closely."""
        return (
            self.words <= other.words
            and self.figures <= other.figures
            and self.unit <= other.words | other.unit
            and self.days <= other.days
        )


def _ended(text: str) -> list[_Ended]:
    """The things whose use a decision ends or forbids. A word that names nothing by itself is none."""
    text = text[:LONGEST_CLAIM]
    found = []
    for match in [*_ENDS.finditer(text), *_gone(text), *_AGAINST.finditer(text)]:
        parts = match.groupdict()
        unit = _unit(parts.pop("unit", None) or "")
        name = " ".join(part.strip("`") for part in parts.values() if part)
        words = _named(name)
        figures = frozenset(_FIGURE.findall(name))
        days = frozenset(_days(match[0])) if figures and not words else frozenset()
        if days:
            found.append(_Ended(frozenset(), frozenset(), days=days))
        elif words - _GENERIC or (figures and not words):
            found.append(_Ended(_roots(words), figures, unit))
    return found


def _gone(text: str) -> Iterator[re.Match[str]]:
    """The ends that stand before their verbs, without those of a thing that is called by a common word now and then."""
    for match in _GONE.finditer(text):
        sentence = text[max(text.rfind(sign, 0, match.start()) for sign in ".;:!") + 1 : match.start()]
        behind = text[match.end() :].lstrip(", ")
        whenever = _WHENEVER.search(sentence) is not None or _WHENEVER.match(behind) is not None
        if match["object_whole"] is None or not whenever:
            yield match


def _named(text: str) -> set[str]:
    """The words of a text that carry it, without its figures."""
    return {word for word in title_terms(text) if not word.isdigit()}


def _unit(text: str) -> frozenset[str]:
    """The roots of what a figure counts, or the one letter of it."""
    return frozenset(text.casefold()) if len(text) == 1 else _roots(_named(text))


def _roots(words: Collection[str]) -> frozenset[str]:
    return frozenset(word[:_ROOT] for word in words)


def _rests_on(text: str, decision: str, ended: list[_Ended]) -> bool:
    """Whether a sentence speaks of one of the things, and does not itself say that it goes."""
    words = _named(text) | _named(_GLUED.sub(" ", text))
    letters = frozenset(map(str.casefold, _LETTER.findall(text)))
    said = _Ended(_roots(words), frozenset(_FIGURE.findall(text)), letters, frozenset(_days(text)))
    # Two things of the same figure are told apart by what else both sentences speak of.
    related = _roots((_named(text) & _named(decision)) - _GENERIC - _MONTHS.keys())
    return any(
        one.within(said) and (one.words or related - one.unit) and not any(one.within(other) for other in _ended(text))
        for one in ended
    )


def ends_what(decision: str, earlier: str, named: Collection[str]) -> bool:
    """Whether a decision ends the use of a thing that goes by one of these words, and an earlier sentence rests on it.

    Only for what is said to be dropped or replaced: who wants "no index" may well speak of another one.
    """
    roots = _roots(named)
    text = decision[:LONGEST_CLAIM]
    ends = [*_ENDS.finditer(text), *_gone(text)]
    words = [_named(" ".join(part for part in match.groupdict().values() if part)) for match in ends]
    ended = [_Ended(_roots(one), frozenset()) for one in words if one - _GENERIC]
    return any(one.words & roots for one in ended) and _rests_on(earlier, decision, ended)


def names_a_day(text: str) -> bool:
    """Whether a text names a day of the calendar, so that a reader knows of which time it speaks."""
    return _DATES.search(text) is not None


def _days(text: str) -> set[tuple[int, int]]:
    """The days that a text names, as (month, day)."""
    named = {(_MONTHS[match[2].casefold()], int(match[1])) for match in _DAY.finditer(text)}
    named |= {(_MONTHS[match[1].casefold()], int(match[2])) for match in _MONTH_FIRST.finditer(text)}
    named |= {(int(match[1]), int(match[2])) for match in _KANJI_DAY.finditer(text)}
    return named | {(int(match[1]), int(match[2])) for match in _ISO_DAY.finditer(text)}
