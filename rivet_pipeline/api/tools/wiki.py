"""`wiki_search` and `wiki_read`: what they take, and how they answer in words."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.models import Filled
from rivet_pipeline.api.tools.budget import Page, clip_tokens, count, label, quote
from rivet_pipeline.api.tools.reading import Query
from rivet_pipeline.api.tools.surface import (
    DEFAULT_TOKENS,
    Arguments,
    MaxTokens,
    Tool,
    lenient,
    lenient_whole,
    register,
)
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.models.tokens import byte_tokens
from rivet_pipeline.retrieval.lineage import Lineage, read_lineage
from rivet_pipeline.wiki.markdown import page_markdown, safe_line
from rivet_pipeline.wiki.names import slugify
from rivet_pipeline.wiki.read import Citation, PageSection, TopicPage, read_topic
from rivet_pipeline.wiki.search import search_topics

ReadSection = Literal["full", "summary", "history", "citations", "names"]

#: What of a budget is kept for saying that something was cut.
_CUT_TOKENS = 60

_TO_MESSAGES = "[wiki_read with citation=<label> names the messages that a sentence stands on]"

#: A longer name of a page is cut, in characters.
_NAME = 200


class WikiSearchArguments(Arguments):
    """The arguments of wiki_search."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "how are predictions served", "limit": 5}]})

    query: Query = Field(max_length=8000, description="What to look for, in words.")
    limit: Annotated[int, Field(ge=1, le=20, description="How many pages at most."), lenient_whole(5, 1, 20)] = 5
    max_tokens: MaxTokens = DEFAULT_TOKENS


class WikiReadArguments(Arguments):
    """The arguments of wiki_read."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"slug": "storm-surge-warning"}]})

    slug: Filled = Field(max_length=200, description="The page's slug, its title or another name it goes by.")
    section: Annotated[ReadSection | None, lenient()] = Field(
        None, description="Only this part: the sentences alone, what was superseded, the citations, or the names."
    )
    citation: Annotated[str | None, lenient()] = Field(
        None,
        max_length=40,
        description="The label of a citation on the page, as `5cc5f8eb`: names the messages that it stands for, "
        "instead of the page.",
    )
    max_tokens: MaxTokens = DEFAULT_TOKENS


def _search(resources: Resources, arguments: WikiSearchArguments) -> str:
    with resources.connection() as connection:
        found = search_topics(
            connection, arguments.query, limit=arguments.limit, embed_query=resources.vectors.on(connection)
        )
    if not found.hits:
        return f"No page found: {found.reason}. memory_search looks into the conversations themselves."
    lines = [] if found.degraded is None else [f"[words alone: {found.degraded}]"]
    for hit in found.hits:
        verified = f", verified {hit.latest_at:%Y-%m-%d}" if hit.latest_at else ""
        lines.append(f"{label(hit.title)} (slug {hit.slug}{verified})\n{quote(hit.excerpt)}")
    return clip_tokens("\n\n".join([*lines, "wiki_read gives a whole page by its slug."]), arguments.max_tokens)


def _read(resources: Resources, arguments: WikiReadArguments) -> str:
    """A page, a part of it or one of its citations. Raises `NotFoundError` for what is not there."""
    with resources.connection() as connection:
        page = read_topic(connection, arguments.slug)
        if page is not None and arguments.citation is not None:
            cited = _cited(page, arguments.citation)
            return _messages(cited, read_lineage(connection, cited.leaf_id), arguments.max_tokens)
    if page is None:
        raise NotFoundError(f"There is no page {slugify(arguments.slug)!r} yet; wiki_search finds what there is.")
    text = _part(page, arguments.section or "full", arguments.max_tokens)
    if byte_tokens(text) <= arguments.max_tokens:
        return text
    cut = clip_tokens(text, arguments.max_tokens - _CUT_TOKENS)
    return f"{cut}\n\n[cut: section=summary, history, citations and names give the parts, a larger max_tokens more]"


def _cited(page: TopicPage, wanted: str) -> Citation:
    """The citation of a label, or of a summary's id. Raises `NotFoundError` when the page has none such."""
    sought = wanted.strip().strip("[]^`").lower()
    found = next((one for one in page.citations if sought in (one.label, str(one.leaf_id))), None)
    if found is None:
        labels = ", ".join(one.label for one in page.citations[:12])
        raise NotFoundError(f"The page {page.slug!r} has no citation {label(wanted, 40)!r}; it has {labels}.")
    return found


def _messages(cited: Citation, lineage: Lineage | None, budget: int) -> str:
    """The messages that a cited summary was made from, each with its id."""
    named = f", {label(cited.session_title, 120)}" if cited.session_title else ""
    answer = Page(budget)
    answer.add(
        f"{cited.label}: summary {cited.leaf_id}, {cited.at:%Y-%m-%d %H:%M} UTC, {label(cited.agent, 60)}{named}"
    )
    messages = lineage.summary.messages if lineage is not None and lineage.summary is not None else []
    shown = 0
    for one in messages:
        speaker = label(f"{one.agent}/{one.role}", 60)
        line = f"{one.id}  {one.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC  {speaker}\n{quote(one.excerpt)}"
        if not answer.add(line, reserve=_CUT_TOKENS):
            break
        shown += 1
    left = cited.messages - shown
    more = f"{count(left, 'message')} more; a larger max_tokens shows them. " if left > 0 else ""
    answer.add(f"{more}memory_get_full shows a message whole, by its id.")
    return answer.text()


def _part(page: TopicPage, section: ReadSection, budget: int) -> str:
    parts: dict[Any, str] = {
        "summary": _sections(page.sections),
        "history": _history(page),
        "citations": _citations(page),
        "names": f"aliases: {_names(page.aliases)}\nspeaks of: {_names(page.entities)}",
    }
    if section == "full":
        whole = page_markdown(page) + (f"\n{_TO_MESSAGES}\n" if page.citations else "")
        if byte_tokens(whole) <= budget:
            return whole
        section = "summary"
    return f"# {label(page.title, _NAME)}\n\n{parts[section]}"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(label(name, _NAME) for name in names) or "none"


def _sections(sections: tuple[PageSection, ...]) -> str:
    return "\n\n".join(
        f"## {section.heading}\n\n"
        + "\n".join(
            f"- {safe_line(sentence.text)} [{', '.join(citation.label for citation in sentence.citations)}]"
            for sentence in section.sentences
        )
        for section in sections
    )


def _history(page: TopicPage) -> str:
    if not page.history:
        return "Nothing on this page has been superseded."
    return "\n".join(
        f"- As of {entry.sentence.as_of:%Y-%m-%d}: {safe_line(entry.sentence.text)} "
        f"(superseded {entry.superseded_at:%Y-%m-%d} by: {safe_line(entry.superseded_by)})"
        for entry in page.history[:20]
    )


def _citations(page: TopicPage) -> str:
    lines = [
        f"- {citation.label}: summary {citation.leaf_id}, {citation.at:%Y-%m-%d %H:%M} UTC, {label(citation.agent, 60)}"
        + (f", {label(citation.session_title, 120)}" if citation.session_title else "")
        for citation in page.citations
    ]
    return "\n".join([*lines, _TO_MESSAGES])


register(
    Tool(
        "wiki_search",
        WikiSearchArguments,
        _search,
        "Finds the wiki's pages by words and by meaning: what is known for good about a project, a service, a "
        "tool or a preference, with its slug and the day of its newest sentence.",
        title="Search the wiki",
    ),
    Tool(
        "wiki_read",
        WikiReadArguments,
        _read,
        "Gives a page of the wiki as Markdown: decisions, facts, preferences, what is open, what was superseded, "
        "each sentence with the summaries that say it; with a citation the messages behind it. Redirects and other "
        "names are followed.",
        title="Read a page of the wiki",
        may_miss=True,
    ),
)
