"""Text out of the store as it may stand in a prompt: on quoted lines, so that none of it can pose as ours. Pure.

What was said in a transcript is data: it may hold headings, fences, system messages and orders, somebody's or an
attacker's. A mark before each of its lines is what no text can take off itself.
"""

from __future__ import annotations

import re

from rivet_pipeline import shortening
from rivet_pipeline.models.texts import clean_outgoing

#: Marks that reorder or hide text, signs without a width, and the tags and variation selectors of plane 14, which show
#: nothing and spell anything. The joiners and the selectors that scripts and emoji need are left alone.
HIDDEN = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_MARK = ">"
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)\Z")


def clean(text: str) -> str:
    """The text without control characters, lone surrogates and marks that hide or reorder what is written."""
    return HIDDEN.sub("", clean_outgoing(text))


def one_line(text: str, limit: int) -> str:
    """The clean text on one line, cut with an ellipsis after `limit` characters."""
    return shortening.one_line(clean(text[: 4 * limit + 100]), limit)


def quoted(text: str) -> str:
    """The clean text with `>` before each line, whatever ends a line in it; blank lines at its ends are left out."""
    lines = clean(text).splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    while lines and not lines[0].strip():
        lines.pop(0)
    return "\n".join(f"{_MARK} {line}".rstrip() for line in lines)


def fences_closed(text: str) -> str:
    """The Markdown with its last code fence closed, so that what follows it is not code."""
    fence: str | None = None
    for line in text.splitlines():
        found = _FENCE.match(line)
        if found is None:
            continue
        marks, rest = found.groups()
        if fence is None:
            # Behind backticks a backtick makes it inline code.
            fence = marks if marks[0] == "~" or "`" not in rest else None
        elif marks[0] == fence[0] and len(marks) >= len(fence) and not rest.strip():
            fence = None
    return text if fence is None else f"{text.rstrip()}\n{fence}"
