"""What of the memory can be read under an address: conversations, messages and, once there is one, pages of the wiki.

An address is answered by a tool of the table, so that it says what the tool says, within the same budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.tools import is_offered
from rivet_pipeline.api.tools.budget import label, when
from rivet_pipeline.retrieval.stats import recent_conversations
from rivet_pipeline.settings import Settings

#: Resources are read whole by clients, so they get the most that a tool's answer may hold.
_TOKENS = 25_000


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of address, and the tool that answers it: `argument` takes what stands in the address."""

    prefix: str
    parameter: str
    title: str
    description: str
    tool: str
    argument: str
    fixed: Mapping[str, Any]

    @property
    def template(self) -> str:
        """The address as a URI template."""
        return f"{self.prefix}{{{self.parameter}}}"


_KINDS = (
    Kind(
        "memory://conversation/",
        "id",
        "Conversation",
        "A conversation from its start, by the id that search results give.",
        "memory_browse",
        "conversation_id",
        {"order": "asc", "limit": 200, "max_tokens": _TOKENS},
    ),
    Kind(
        "memory://message/",
        "id",
        "Message",
        "The whole of one message.",
        "memory_get_full",
        "id",
        {"max_tokens": _TOKENS},
    ),
    Kind("memory://wiki/", "slug", "Wiki page", "A page of the wiki.", "wiki_read", "slug", {}),
)


def kinds(settings: Settings) -> list[Kind]:
    """The kinds of addresses whose tool is offered."""
    return [kind for kind in _KINDS if is_offered(settings, kind.tool)]


def find(settings: Settings, address: str) -> tuple[Kind, dict[str, Any]] | None:
    """The kind of an address and the arguments of its tool's call; None for an address that is none of ours."""
    for kind in kinds(settings):
        if address.startswith(kind.prefix) and len(address) > len(kind.prefix):
            return kind, {kind.argument: unquote(address[len(kind.prefix) :]), **kind.fixed}
    return None


def recent(resources: Resources) -> list[tuple[str, str, str]]:
    """The conversations last active, each as its address, its title and a line about it."""
    with resources.connection() as connection:
        rows = recent_conversations(connection)
    return [
        (
            f"memory://conversation/{row['id']}",
            label(row["title"] or row["session_key"]),
            f"{label(row['agent'], 60)}, last active {when(row['updated_at'], resources.zone)}",
        )
        for row in rows
    ]
