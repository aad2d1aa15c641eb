"""What is taken off a text on its way to a chat model and back. Pure functions, linear in the text's length.

Whether what is left is a good answer is judged by the rooms that ask.
"""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")

#: A tag of thinking, with the white space that makes it stand on lines of its own.
_THOUGHT_TAG = re.compile(
    r"(?P<first>^[ \t]*+)?(?P<quoted>`)?(?:<(?P<end>/?)think(?:ing)?>|\[(?P<end_>/?)THINK\])"
    r"(?:(?P<last>[ \t]*+$\n?)|`)?",
    re.IGNORECASE | re.MULTILINE,
)

#: How a JSON answer begins, which thinking does not: a closing tag in it is part of a string.
_JSON_BEGINS = re.compile(r"\s*+(?:```(?:json)?\s*+)?+(?:\{\s*+\"|\[\s*+[\[{\"])")


def clean_outgoing(text: str) -> str:
    """Text that every JSON parser takes: surrogate pairs joined, lone ones replaced, control characters removed."""
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROLS.sub("", joined)


def strip_thinking(text: str) -> str:
    """The answer without the model's thinking.

    A block at the start goes whether it is closed or not (some templates open it in the prompt, so that only the
    closing tag is in the answer); a later one goes when it stands on lines of its own and is closed. Tags are
    `<think>`, `<thinking>` and `[THINK]`; in an answer that begins as JSON they are words like others.
    """
    if _JSON_BEGINS.match(text):
        return text.strip()
    tags = list(_THOUGHT_TAG.finditer(text))
    position, at = 0, 0
    while at < len(tags):
        tag = tags[at]
        if _closes(tag):
            if tag["quoted"]:
                break
            position, at = tag.end(), at + 1
        elif not text[position : tag.start()].strip() and not tag["quoted"]:
            at = _closing(tags, at)
            position = tags[at].end() if at < len(tags) else len(text)
            at += 1
        else:
            break
    return _without_later_thoughts(text, position, tags[at:]).strip()


def _closes(tag: re.Match[str]) -> bool:
    return bool(tag["end"] or tag["end_"])


def _closing(tags: list[re.Match[str]], at: int) -> int:
    """The place of the next closing tag, `len(tags)` when there is none."""
    return next((place for place in range(at + 1, len(tags)) if _closes(tags[place])), len(tags))


def _without_later_thoughts(text: str, position: int, tags: list[re.Match[str]]) -> str:
    kept: list[str] = []
    opened: re.Match[str] | None = None
    for tag in tags:
        if not _closes(tag):
            # Blocks do not nest: what opens inside one belongs to it.
            opened = opened or (tag if tag["first"] is not None and not tag["quoted"] else None)
        elif opened is not None:
            if tag["last"] is not None:
                kept.append(text[position : opened.start()])
                position = tag.end()
            opened = None
    return "".join(kept) + text[position:]
