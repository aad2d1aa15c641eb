"""The part of a text that shows why it was found. Pure functions."""

from __future__ import annotations

import re
import unicodedata

from rivet_pipeline.retrieval.postings import UNSPACED

#: The longest snippet, in characters, the ellipses included.
SNIPPET_CHARACTERS = 300

#: What is looked through; the tail of a longer text is found, but not shown.
_LOOKED_THROUGH = 200_000

_MAX_WORDS = 32
_MAX_PLACES = 500

#: The scripts whose words are looked for in pairs of signs, anywhere in a run.
_PAIRED = f"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff{UNSPACED}"
_WORD = re.compile(rf"[{_PAIRED}]+|(?:(?![{_PAIRED}])\w)+")
_CJK = re.compile(f"[{_PAIRED}]")


class _Fold(dict[int, str]):
    """Maps each character to exactly one: lower case, without its accent, so that places stay what they are."""

    def __missing__(self, code: int) -> str:
        base = unicodedata.normalize("NFKD", chr(code))[0].lower()
        folded = base if len(base) == 1 else chr(code)
        self[code] = folded
        return folded


_FOLD = _Fold()


def _fold(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_FOLD)


def _stems(query: str) -> list[str]:
    """The query's words as beginnings to look for: an English ending may differ, a CJK run is looked for in pairs."""
    stems: dict[str, None] = {}
    for word in _WORD.findall(_fold(unicodedata.normalize("NFC", query))):
        if _CJK.match(word):
            stems.update(dict.fromkeys([word] if len(word) < 3 else [word[i : i + 2] for i in range(len(word) - 1)]))
        elif len(word) > 1 or word.isdigit():
            stems[word[: max(4, 2 * len(word) // 3)]] = None
    return list(stems)[:_MAX_WORDS]


def make_snippet(query: str, text: str, *, limit: int = SNIPPET_CHARACTERS, lines: bool = False) -> str:
    """The stretch of `text` with most of the query's words, at most `limit` characters.

    White space is collapsed, unless `lines` asks for the lines as they are. It begins with a line where one begins
    shortly before the words, and else is cut at word boundaries where there are some, with `…` where something is left
    out. The beginning of the text when none of the words stands in it.
    """
    text = text[:_LOOKED_THROUGH]
    if len(text) <= limit:
        return text.strip() if lines else " ".join(text.split())
    best = _best_start(_fold(text), _stems(query), limit)
    # Of what stands near the end of a text, as much as there is room for.
    start = min(best, len(text) - limit + 2)
    if start > 0:
        start = _begin(text, start, start + limit // 6)
    end = min(len(text), start + limit - 2)
    if end < len(text):
        space = re.search(r"\s\S*$", text[end - 20 : end])
        end -= 20 - space.start() if space else 0
    body = text[start:end].strip() if lines else " ".join(text[start:end].split())
    return ("…" if start > 0 else "") + body + ("…" if end < len(text) else "")


#: What our own summaries begin with: whom and when they are about, which stands beside them anyway.
_FRAME = re.compile(
    r"\A(?:\[(?:part|segment) \d+ of \d+[^\]\n]*\]\s*\n\s*)?(?:Period \d{4}-\d\d-\d\dT[^\n]*\n\s*)?(?=\S)"
)


def without_frame(text: str) -> str:
    """A summary without the lines that name its period and, of one that was made in parts, the first of them."""
    return _FRAME.sub("", text)


def shorten(text: str, limit: int) -> str:
    """A text of at most `limit` characters, cut after a word where one ends in its last third, then with `…`."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    space = -1 if text[limit - 1].isspace() else head.rfind(" ", limit * 2 // 3)
    return f"{(head[:space] if space > 0 else head).rstrip()}…"


def snippet_around(text: str, start: int, end: int, *, limit: int = SNIPPET_CHARACTERS) -> str:
    """A part of at most `limit` characters on one line, a third of it before what stands from `start` to `end`."""
    first = max(0, min(start - limit // 3, len(text) - limit + 2))
    if first > 0:
        first = _begin(text, first, min(start, first + limit // 6))
    last = min(len(text), max(first + limit - 2, 0))
    if last < len(text) and (space := re.search(r"\s\S*\Z", text[max(end, last - 20) : last])):
        last = max(end, last - 20) + space.start()
    body = " ".join(text[first:last].split())
    return ("…" if first > 0 else "") + body + ("…" if last < len(text) else "")


def _begin(text: str, first: int, latest: int) -> int:
    """Where a part that may begin at `first`, and at `latest` at the latest, begins: with a line, else with a word."""
    line = text.find("\n", first, latest)
    if line >= 0:
        return line + 1
    space = re.search(r"\s", text[first : min(first + 20, latest)])
    return first + space.end() if space else first


def _best_start(folded: str, stems: list[str], limit: int) -> int:
    """Where the window begins that holds the most different words, longer words counting more; the first such."""
    ordered = sorted(stems, key=len, reverse=True)
    places = _places(folded, ordered)
    counts = [0] * len(ordered)
    best, best_start = 0, 0
    value = first = 0
    for place, word in places:
        value += 0 if counts[word] else len(ordered[word])
        counts[word] += 1
        while place - places[first][0] > limit * 2 // 3:
            gone = places[first][1]
            counts[gone] -= 1
            value -= 0 if counts[gone] else len(ordered[gone])
            first += 1
        if value > best:
            best, best_start = value, places[first][0]
    return max(0, best_start - limit // 6)


def _places(folded: str, stems: list[str]) -> list[tuple[int, int]]:
    """Where words begin with one of the stems, and with which; CJK is found anywhere."""
    places: list[tuple[int, int]] = []
    # One find a word is many times as quick as a pattern of all words, which is tried at every character.
    for index, stem in enumerate(stems):
        anywhere = _CJK.match(stem) is not None
        place, found = folded.find(stem), 0
        while place >= 0 and found < _MAX_PLACES:
            if anywhere or place == 0 or not folded[place - 1].isalnum():
                places.append((place, index))
                found += 1
            place = folded.find(stem, place + len(stem))
    return sorted(places)


def mark_words(query: str, text: str) -> list[tuple[str, bool]]:
    """A short text in pieces, in order: those that hold a word of the query, to its end, are marked True."""
    pieces: list[tuple[str, bool]] = []
    done = 0
    for place, stem in _marks(_fold(text), _stems(query)):
        end = place + len(stem)
        if place < done:
            # Pairs of signs overlap.
            if end > done:
                pieces[-1] = (pieces[-1][0] + text[done:end], True)
                done = end
            continue
        while _CJK.match(stem) is None and end < len(text) and (text[end].isalnum() or text[end] == "_"):
            end += 1
        pieces += [(text[done:place], False)] if place > done else []
        pieces.append((text[place:end], True))
        done = end
    return [*pieces, (text[done:], False)] if done < len(text) else pieces


def _marks(folded: str, stems: list[str]) -> list[tuple[int, str]]:
    return [(place, stems[index]) for place, index in _places(folded, stems)]
