"""How a tag is written: one spelling for each key and value, and the literal `key:value`. Pure functions.

`ros_tag_text` in `sql/` spells in the same way, for the rule that runs inside the database; a test holds both together.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from rivet_pipeline.errors import InvalidInputError

#: The longest key, value and display form, in code points.
MAX_KEY, MAX_VALUE, MAX_DISPLAY = 64, 128, 200

#: A literal is not looked at beyond this, in code points.
_MAX_LITERAL = 4_000

#: Format characters (Unicode's category Cf): they change nothing that a reader sees.
_FORMAT = re.compile(
    "[\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001-\U000e007f]+"
)
_SURROGATES = re.compile("[\ud800-\udfff]+")
#: What is left of a character that could not be read: half of it, or what every reader of bytes and JSON puts there.
_DAMAGED = re.compile("[\ud800-\udfff\ufffd]")
#: White space, control characters, slashes and hyphens: a run of them is one hyphen.
_GAPS = re.compile("[\x00-\x20\x7f-\xa0\u1680\u2028\u2029/-]+")


@dataclass(frozen=True, slots=True, order=True)
class Literal:
    """A key and a value, spelled as they are stored. `str` gives `key:value`."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}:{self.value}"


def tag_text(text: str, longest: int) -> str:
    """A text in the spelling of values, cut to so many code points; empty when nothing is left."""
    plain = _FORMAT.sub("", unicodedata.normalize("NFKC", _SURROGATES.sub("", text)))
    lowered = unicodedata.normalize("NFKC", "".join(map(_lower, plain)))
    return _GAPS.sub("-", lowered).lstrip("-")[:longest].rstrip("-")


def _lower(character: str) -> str:
    """Unicode's simple mapping, which knows no neighbours and keeps the length, as the database has it."""
    lowered = character.lower()
    return lowered if len(lowered) == 1 else "i"


def _refuse_damaged(text: str, field: str) -> None:
    if _DAMAGED.search(text):
        raise InvalidInputError(
            field, "holds half a character (a lone surrogate) or U+FFFD, which stands for one; type the tag anew"
        )


def read_value(text: str, *, field: str = "value") -> str:
    """A value as somebody typed it.

    Raises `InvalidInputError` when nothing is left of it, or too much, and for a text with damaged characters.
    """
    _refuse_damaged(text[:_MAX_LITERAL], field)
    value = tag_text(text[:_MAX_LITERAL], MAX_VALUE + 1)
    if not value:
        raise InvalidInputError(field, "is empty; write a word or a few, for instance caching")
    if len(value) > MAX_VALUE:
        raise InvalidInputError(field, f"is longer than {MAX_VALUE} characters; a tag is a word or a few")
    return value


def read_key(text: str, *, field: str = "key") -> str:
    """A key as somebody typed it; a colon in it is a hyphen. Raises `InvalidInputError` as `read_value` does."""
    _refuse_damaged(text[:_MAX_LITERAL], field)
    key = tag_text(unicodedata.normalize("NFKC", text[:_MAX_LITERAL]).replace(":", "-"), MAX_KEY + 1)
    if not key:
        raise InvalidInputError(field, "is empty; write one such as topic or project")
    if len(key) > MAX_KEY:
        raise InvalidInputError(field, f"is longer than {MAX_KEY} characters")
    return key


def read_literal(text: str, *, field: str = "tag") -> Literal:
    """`key:value` as somebody typed it, also with a full-width colon; the first colon parts the two.

    Raises `InvalidInputError` when it is none.
    """
    _refuse_damaged(text[:_MAX_LITERAL], field)
    key, colon, value = unicodedata.normalize("NFKC", text[:_MAX_LITERAL]).partition(":")
    if not colon:
        raise InvalidInputError(field, f"must be key:value, for instance topic:caching, not {text[:60]!r}")
    return Literal(read_key(key, field=field), read_value(value, field=field))


def read_pair(key: str, value: str, *, field: str = "value") -> Literal:
    """A key and a value that somebody gave apart; the value may be the whole literal, with this key before it.

    Raises `InvalidInputError` as `read_literal` does; `field` names the value.
    """
    known = read_key(key)
    return Literal(known, read_value(without_key(value, known), field=field))


def without_key(text: str, key: str) -> str:
    """A value as it was typed, without its own key and a colon before it: `caching` of `topic:caching`."""
    before, colon, _ = unicodedata.normalize("NFKC", text[:_MAX_LITERAL]).partition(":")
    value = typed_value(text[:_MAX_LITERAL]) if colon and tag_text(before, MAX_KEY) == key else ""
    return value or text


def typed_value(text: str) -> str:
    """The value's part of a literal, as it was typed: what stands behind the first colon, of whatever width."""
    for place, character in enumerate(text):
        if unicodedata.normalize("NFKC", character) == ":":
            return text[place + 1 :].strip()
    return ""


def display_of(text: str, value: str) -> str:
    """How a value is shown where that differs from its spelling: as it was typed, on one line. Else empty."""
    shown = " ".join(_FORMAT.sub("", _SURROGATES.sub("", text.replace("\x00", ""))).split())[:MAX_DISPLAY].strip()
    return "" if shown == value or tag_text(shown, MAX_VALUE) != value else shown
