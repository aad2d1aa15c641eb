"""How a text of a transcript becomes part of a page: what can not be seen made visible, Markdown without its dangers.

Pure. Every text that a template prints goes through `visible`; only what this module marks as safe is not escaped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

#: Sequences for a terminal: colours, titles, cursor movements. They say nothing on a page.
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]{0,60}[ -/]{0,10}[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[()*+][0-9A-Z]|[=>78DEHMNOZc])"
)

#: What changes how the text around it is read, or hides words from a person and not from a model: controls, marks of
#: direction, zero-width signs, tag characters. Joiners that scripts and emoji need are left alone.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)

#: A longer text is shown as it is, not as Markdown, in characters.
MOST_MARKDOWN = 20_000

#: How much of a long text is shown before the whole is asked for.
FOLD_CHARACTERS, FOLD_LINES = 1_600, 28


def visible(text: str) -> str:
    """The text without sequences for a terminal, with every other unseen character as a sign that can be seen."""
    if text.isprintable():
        return text
    return _UNSEEN.sub(_sign, _ANSI.sub("", text.replace("\r\n", "\n")))


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def finish(value: Any) -> Any:
    """What Jinja does with every value before it escapes it."""
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    return visible(value) if isinstance(value, str) else value


_MARKS = re.compile(r"\*\*([^*\n]+)\*\*")
_STAMPS = re.compile(r"(?:^|\s)-\s+\d{4}-\d\d-\d\dT\d\d:\d\dZ\s+[^\s:]+/(\w+):")


def tidy(text: str) -> str:
    """A stretch of a summary of ours for a place where it can only be a line: without marks of emphasis and times."""
    return _STAMPS.sub(" \N{EN DASH} \\1:", _MARKS.sub(r"\1", text)).strip()


@dataclass(frozen=True, slots=True)
class Folded:
    """The beginning of a text; `length` is that of the whole, in characters."""

    text: str
    length: int

    @property
    def is_cut(self) -> bool:
        """Whether there is more."""
        return len(self.text) < self.length


def fold(text: str, *, characters: int = FOLD_CHARACTERS, lines: int = FOLD_LINES) -> Folded:
    """The beginning of a long text, cut at a line or word; a text that is only a little longer is left whole."""
    if len(text) <= characters * 5 // 4 and text.count("\n") <= lines * 5 // 4:
        return Folded(text, len(text))
    head = "\n".join(text[:characters].split("\n")[:lines])
    space = max(head.rfind("\n", len(head) * 3 // 4), head.rfind(" ", len(head) * 3 // 4))
    return Folded(head[:space] if space > 0 else head, len(text))


def _make_markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    # What could load, run or lead somewhere, or show other words than were written, stays the text that it is.
    markdown.disable(["html_block", "html_inline", "image", "link", "autolink", "reference", "entity", "lheading"])
    markdown.add_render_rule("heading_open", _heading_open)
    markdown.add_render_rule("heading_close", _heading_close)
    markdown.add_render_rule("fence", _code)
    markdown.add_render_rule("code_block", _code)
    return markdown


def _heading_open(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    # A page has headings of its own; those of a text must not stand among them.
    return f'<p class="heading level-{tokens[index].tag[1:]}">'


def _heading_close(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    return "</p>\n"


def _code(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    return str(Markup('<pre class="code">{}</pre>\n').format(tokens[index].content.rstrip("\n")))


_MARKDOWN = _make_markdown()


def markdown(text: str) -> Markup:
    """A text as HTML: headings, lists, tables, emphasis, code. Links, images and HTML are shown as they were written.

    A text that is too long for that is shown as it is.
    """
    shown = visible(text)
    if len(shown) > MOST_MARKDOWN:
        return plain(shown)
    return Markup('<div class="prose">{}</div>').format(Markup(_MARKDOWN.render(shown)))  # noqa: S704 - escaped by it


def plain(text: str) -> Markup:
    """A text as it is, with its lines."""
    return Markup('<div class="plain">{}</div>').format(visible(text))
