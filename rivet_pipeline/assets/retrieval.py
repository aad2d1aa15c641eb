"""The assets that retrieval reads: the text index and the corpus statistics of BM25."""

import time

import dagster as dg

from rivet_pipeline.assets.messages import messages
from rivet_pipeline.assets.resources import StoreResource
from rivet_pipeline.assets.summaries import branch_summaries, leaf_summaries, root_summaries
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.versions import LEXICON_VERSION


@dg.asset(
    deps=[messages, leaf_summaries, branch_summaries, root_summaries],
    group_name="retrieval",
    owners=["team:memory"],
    kinds={"postgres"},
    code_version=str(LEXICON_VERSION),
    description="The text index that BM25 is scored from, and how many messages and summaries contain each word. "
    "Takes up only what came or changed since the last time, piece by piece; search works while it is behind.",
)
def lexicon(store: StoreResource) -> dg.MaterializeResult[None]:
    """Indexes and counts the words of the rows that came or changed since the last refresh."""
    began = time.perf_counter()
    with store.connection() as connection:
        figures = refresh_lexicon(connection)
    return dg.MaterializeResult(
        metadata={
            "dagster/table_name": "ros_lexicon",
            "dagster/row_count": figures.terms,
            "documents": figures.documents,
            "messages_counted": figures.messages,
            "summaries_counted": figures.summaries,
            "rows_changed": figures.changed,
            "index_pieces": figures.pieces,
            "index_mb": round(figures.index_bytes / 1e6, 1),
            "mean_length_bytes": round(figures.mean_length, 1),
            "rows_behind": figures.behind,
            "seconds": round(time.perf_counter() - began, 3),
        }
    )
