"""Writes a page as Markdown: front matter, sections, history, and a footnote for every citation. Pure functions.

The same page always gives the same text, line by line, so that a folder of pages is small to compare. Links are those
that Obsidian follows; words of a transcript can not become markup of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from rivet_pipeline.retrieval.quoting import clean
from rivet_pipeline.wiki.read import Citation, Link, Sentence, TopicPage

#: Characters of a session's title in a footnote.
TITLE_LIMIT = 70

#: Names that Windows keeps for devices: a page of such a name gets a file of another one.
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))})

_FIRST_SENTENCE = re.compile(r"\A.{12,69}?[.!?](?=\s)")
#: Signs at the beginning of a text that Markdown would take for a heading, a list, a quote or a rule.
_OPENING = re.compile(r"\A(\d*)([.)](?=\s)|[#>|+*-]|~~~)")

_CODE = re.compile(r"(`[^`]+`)")
_MARKUP = re.compile(r"(?<!\\)(\[\[|\]\]|\[\^|<(?=[a-zA-Z/!?])|%%|\^(?=[\w-]+\s*$))")


def note_name(slug: str) -> str:
    """The name of a page's file without its ending, by which links lead to it: safe on every system.

    No slug has an underscore, so no other page can want the same name.
    """
    return f"{slug}_" if slug in _DEVICES else slug


def page_markdown(page: TopicPage) -> str:
    """The page as one Markdown document that ends with a line break."""
    parts = [_front_matter(page), f"# {safe_line(page.title)}"]
    for section in page.sections:
        bullets = [f"- {_sentence(sentence)}" for sentence in section.sentences]
        parts.append(f"## {section.heading}\n\n" + "\n".join(bullets))
    if page.history:
        entries = [
            f"- As of {_day(entry.sentence.as_of)}: {_sentence(entry.sentence)}\n"
            f"  Superseded {_day(entry.superseded_at)}"
            + (f" by: {safe_line(entry.superseded_by)}" if entry.superseded_by else "")
            for entry in page.history
        ]
        parts.append("## History\n\n" + "\n".join(entries))
    if page.archived:
        parts.append(f"{page.archived} older sentences stand in this page's revisions.")
    if page.related:
        parts.append("## See also\n\n" + "\n".join(f"- {_link(link)}" for link in page.related))
    if page.citations:
        parts.append("\n".join(_footnote(citation) for citation in page.citations))
    return "\n\n".join(parts) + "\n"


def _front_matter(page: TopicPage) -> str:
    lines = ["---", f"title: {_scalar(page.title)}", f"slug: {page.slug}"]
    for name, values in (("aliases", page.aliases), ("entities", page.entities)):
        lines += [f"{name}:", *(f"  - {_scalar(value)}" for value in values)] if values else [f"{name}: []"]
    lines.append(f"first: {_day(page.first_at) if page.first_at else ''}".rstrip())
    lines.append(f"verified: {_day(page.latest_at) if page.latest_at else ''}".rstrip())
    return "\n".join([*lines, "---"])


def _line(text: str) -> str:
    """A text on one line, without signs that hide or break what stands there."""
    return " ".join(clean(text).split())


def _scalar(value: str) -> str:
    """A text as YAML reads it for certain: as JSON writes it."""
    return json.dumps(_line(value), ensure_ascii=False)


def _sentence(sentence: Sentence) -> str:
    notes = "".join(f"[^{citation.label}]" for citation in sentence.citations)
    return f"{safe_line(sentence.text)} {notes}".rstrip()


def safe_line(text: str) -> str:
    """A text on one line, in which nothing links, opens a block or hides."""
    parts = _CODE.split(_line(text))
    # Every second part is code, in which nothing is markup.
    parts[::2] = [_MARKUP.sub(lambda match: "\\" + match.group(1), part) for part in parts[::2]]
    return _OPENING.sub(r"\1\\\2", "".join(parts))


def _link(link: Link) -> str:
    if link.slug is None:
        return safe_line(link.title)
    title = _line(link.title).replace("|", "/").replace("[", "(").replace("]", ")")
    return f"[[{note_name(link.slug)}|{title}]]"


def _footnote(citation: Citation) -> str:
    named = f" · {safe_line(short_title(citation.session_title))}" if citation.session_title else ""
    agent = safe_line(citation.agent)
    return f"[^{citation.label}]: {_minute(citation.at)} · {agent}{named} · summary `{citation.leaf_id}`"


def short_title(title: str) -> str:
    """A session's title for a line: a long one, which is somebody's first words, to the end of its first sentence.

    What has no such end within `TITLE_LIMIT` characters is cut at a word, and shows it.
    """
    plain = _line(title)
    if len(plain) <= TITLE_LIMIT:
        return plain
    first = _FIRST_SENTENCE.match(plain)
    if first is not None:
        return first.group(0)
    return f"{plain[:TITLE_LIMIT].rsplit(' ', 1)[0].rstrip(',;:')} \u2026"


def _day(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d")


def _minute(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def index_markdown(pages: Sequence[TopicPage]) -> str:
    """The list of all pages, by title."""
    lines = [f"- {_link(Link(page.title, page.slug))}" for page in pages]
    return "\n".join(["# Wiki", "", *(lines or ["No page yet."])]) + "\n"
