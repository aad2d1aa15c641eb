"""How a text of a transcript becomes part of a page: what can not be seen made visible, Markdown without its dangers.

Pure. Every text that a template prints goes through `visible`; only what this module marks as safe is not escaped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.emphasis import tokenize as tokenize_emphasis
from markupsafe import Markup

#: Sequences for a terminal: colours, titles, cursor movements. They say nothing on a page.
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]{0,60}[ -/]{0,10}[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[()*+][0-9A-Z]|[=>78DEHMNOZc])"
)

#: What changes how the text around it is read, or hides words from a person and not from a model: controls, marks of
#: direction, zero-width signs, tag characters. Joiners that scripts and emoji need are left alone.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
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


_DASH = "\N{EN DASH}"

#: What stands before a line of a summary: a bullet, and the minute and the voice; a cut may have left a part of them.
_STAMPS = re.compile(r"(?:\A|\s)[-*]\s+\d{4}-\d\d-\d\dT\d\d:\d\dZ\s+[^\s:]+:(?=\s)")
_CUT_BEFORE = re.compile(r"\A\u2026(?:[-\dT:]*Z\s+)?[^\s:/]*/\w+:\s+")
_CUT_AFTER = re.compile(r"\s+[-*](?:\s+\d{4}[-\dT:]*Z?(?:\s+[^\s:]+:?)?)?\s*\u2026\Z")
_BULLETS = re.compile(r"\A[-*]\s+(?=\S)|(?<=\*\*)\s+[-*]\s+(?=\S)")

_HEADINGS = re.compile(r"\A#\s+|(?:\A|(?<=\s))#{2,6}\s+(?=\S)")
#: Marks whose other half a cut took away.
_HALVES = re.compile(r"(?<=\S)\*\*(?=[\s.,:;!?\u2026]|\Z)|(?:\A|(?<=\s))\*\*(?=[^*\n]*\u2026\Z)|`+")


def bare(text: str) -> str:
    """A text as words, for a place where it can only be a line: without the marks of headings, emphasis and code."""
    tokens = _INLINE.parseInline(_HEADINGS.sub("", text))[0].children or []
    return "".join(_HALVES.sub("", token.content) if token.type == "text" else token.content for token in tokens)


def tidy(text: str) -> str:
    """A stretch of a summary of ours as words, without the minutes and the voices before its lines."""
    text = _CUT_BEFORE.sub("\u2026", _CUT_AFTER.sub("\u2026", text))
    words = bare(_BULLETS.sub(f" {_DASH} ", _STAMPS.sub(f" {_DASH}", text)))
    return words.strip().removeprefix(_DASH).strip()


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


def _stars_alone(state: StateInline, silent: bool) -> bool:
    # `__init__` is a name more often than it is emphasis.
    return state.src[state.pos] == "*" and tokenize_emphasis(state, silent)


def _make_inline() -> MarkdownIt:
    markdown = MarkdownIt("zero").enable(["backticks", "emphasis", "strikethrough"])
    markdown.inline.ruler.at("emphasis", _stars_alone)
    return markdown


_INLINE = _make_inline()


def markdown(text: str) -> Markup:
    """A text as HTML: headings, lists, tables, emphasis, code. Links, images and HTML are shown as they were written.

    A text that is too long for that is shown as it is.
    """
    shown = visible(text)
    if len(shown) > MOST_MARKDOWN:
        return plain(shown)
    return Markup('<div class="prose">{}</div>').format(Markup(_MARKDOWN.render(shown)))  # noqa: S704 - escaped by it


def inline(text: str) -> Markup:
    """A sentence as HTML: code, bold and emphasis by stars. Everything else is shown as it was written."""
    shown = visible(text)
    if len(shown) > MOST_MARKDOWN:
        return Markup("{}").format(shown)
    return Markup(_INLINE.renderInline(shown))  # noqa: S704 - escaped by it


_FENCE = re.compile(r"(`{3,}|~{3,})")


def typed(text: str) -> Markup:
    """What a person typed, with its lines: each as `inline` makes it, but for code, which is shown as it is."""
    if len(text) > MOST_MARKDOWN:
        return plain(text)
    lines = []
    fence = ""
    for line in visible(text).split("\n"):
        found = _FENCE.match(line.lstrip())
        is_code = bool(fence or found) or line.startswith(("    ", "\t"))
        if found is not None and not fence:
            fence = found[1]
        elif fence and line.strip().startswith(fence):
            fence = ""
        lines.append(Markup("{}").format(line) if is_code else inline(line))
    return Markup('<div class="plain">{}</div>').format(Markup("\n").join(lines))


def plain(text: str) -> Markup:
    """A text as it is, with its lines."""
    return Markup('<div class="plain">{}</div>').format(visible(text))
