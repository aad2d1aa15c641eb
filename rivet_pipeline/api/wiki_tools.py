"""The wiki's tools as agents call them: what they take, and how they answer in words. Entered in `tools.py`."""

from __future__ import annotations

from typing import Any, Literal

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.wiki.markdown import page_markdown
from rivet_pipeline.wiki.names import slugify
from rivet_pipeline.wiki.read import PageSection, TopicPage, read_topic
from rivet_pipeline.wiki.search import search_topics

ReadSection = Literal["full", "summary", "history", "citations", "names"]

#: Characters of a page that are given at once; a longer one is given without its history and footnotes.
LONGEST_PAGE = 24_000


def wiki_search(resources: Resources, query: str, limit: int) -> str:
    """The pages found, one a paragraph."""
    with resources.connection() as connection:
        found = search_topics(connection, query, limit=limit, embed_query=resources.vectors.on(connection))
    if not found.hits:
        return f"No page found: {found.reason}. memory_search looks into the conversations themselves."
    lines = [] if found.degraded is None else [f"[words alone: {found.degraded}]"]
    for hit in found.hits:
        verified = f", verified {hit.latest_at:%Y-%m-%d}" if hit.latest_at else ""
        lines.append(f"{hit.title} (slug {hit.slug}{verified})\n{hit.excerpt}")
    return "\n\n".join([*lines, "wiki_read gives a whole page by its slug."])


def wiki_read(resources: Resources, slug: str, section: ReadSection | None) -> str:
    """A page, or a part of it, as Markdown. Raises `NotFoundError` for a page that is not there."""
    with resources.connection() as connection:
        page = read_topic(connection, slug)
    if page is None:
        raise NotFoundError(f"There is no page {slugify(slug)!r} yet; wiki_search finds what there is.")
    if section in (None, "full"):
        whole = page_markdown(page)
        if len(whole) <= LONGEST_PAGE:
            return whole
        return _short(page)
    parts: dict[Any, str] = {
        "summary": _sections(page.sections),
        "history": _history(page),
        "citations": _citations(page),
        "names": f"aliases: {', '.join(page.aliases) or 'none'}\nspeaks of: {', '.join(page.entities) or 'none'}",
    }
    return f"# {page.title}\n\n{parts[section]}"


def _short(page: TopicPage) -> str:
    text = f"# {page.title}\n\n{_sections(page.sections)}"
    return f"{text[:LONGEST_PAGE]}\n\n[long page; section=history and section=citations give the rest]"


def _sections(sections: tuple[PageSection, ...]) -> str:
    return "\n\n".join(
        f"## {section.heading}\n\n"
        + "\n".join(
            f"- {sentence.text} [{', '.join(citation.label for citation in sentence.citations)}]"
            for sentence in section.sentences
        )
        for section in sections
    )


def _history(page: TopicPage) -> str:
    if not page.history:
        return "Nothing on this page has been superseded."
    return "\n".join(
        f"- As of {entry.sentence.as_of:%Y-%m-%d}: {entry.sentence.text} "
        f"(superseded {entry.superseded_at:%Y-%m-%d} by: {entry.superseded_by})"
        for entry in page.history[:20]
    )


def _citations(page: TopicPage) -> str:
    lines = [
        f"- {citation.label}: summary {citation.leaf_id}, {citation.at:%Y-%m-%d %H:%M} UTC, {citation.agent}"
        + (f", {citation.session_title[:120]}" if citation.session_title else "")
        for citation in page.citations
    ]
    return "\n".join([*lines, "/api/memory/lineage/<summary id> gives the messages of a summary."])
