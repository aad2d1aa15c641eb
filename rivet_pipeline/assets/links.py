"""Where the hub shows what an asset holds: addresses, and the descriptions of assets that name them.

The addresses are made of the settings when the definitions load. What is shown in the hub is the hub's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import dagster as dg

from rivet_pipeline.settings import get_settings

#: The hub's pages that descriptions lead to, by the name they have in its navigation.
SEARCH = ("Search", "/hub")
TIMELINE = ("Timeline", "/hub/timeline")
REVIEW = ("Review", "/hub/review")
WIKI = ("Wiki", "/hub/wiki")
HEALTH = ("Health", "/hub/health")


def in_hub(path: str) -> str:
    """The whole address of a page of the hub; `path` begins with `/hub`."""
    return f"{get_settings().api_address}{path}"


def day_in_hub(day: date) -> dg.UrlMetadataValue:
    """The hub's page of one day."""
    return dg.MetadataValue.url(in_hub(f"/hub/day/{day.isoformat()}"))


def described(text: str, *pages: tuple[str, str], table: str | None = None) -> str:
    """An asset's description: what it holds, then in which table and on which pages of the hub, as Markdown links.

    The text comes first and plain, because the graph shows only its beginning.
    """
    places = [] if table is None else [f"**Table** `{table}`"]
    places.append("**In the hub** " + ", ".join(f"[{name}]({in_hub(path)})" for name, path in pages))
    return f"{text}\n\n{' · '.join(places)}"


def stored_in(table: str) -> Mapping[str, str]:
    """The definition's metadata of an asset whose rows are in a table."""
    return {"dagster/table_name": table}
