"""What tests of mined pages ask of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, open_pool
from rivet_pipeline.summaries.compact import summarize_leaves
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.wiki.extract import mine_leaves
from rivet_pipeline.wiki.miner import DeterministicMiner
from rivet_pipeline.wiki.read import TopicPage, read_topic
from rivet_pipeline_tests.api_server import module_store
from rivet_pipeline_tests.wiki_sessions import Session, store_sessions

#: Words that hold, words that are history, and words that stand nowhere.
Says = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


@contextmanager
def mined(server: EmbeddedServer, name: str, sessions: tuple[Session, ...]) -> Iterator[str]:
    """The address of a store in which the sessions were summarised and mined in the process."""
    with module_store(server, name) as url, open_pool(url, max_size=3) as pool:
        with pool.connection() as connection:
            store_sessions(connection, sessions)
        summarize_leaves(pool, days=None, summarizer=ExtractiveSummarizer())
        assert mine_leaves(pool, days=None, miner=DeterministicMiner()).failures == 0
        yield url


def texts(found: TopicPage) -> list[str]:
    """What holds on a page, sentence by sentence."""
    return [sentence.text for section in found.sections for sentence in section.sentences]


def check_page(wiki: Connection, title: str, says: Says) -> None:
    """Fails unless a page says what it should, where it should."""
    found = read_topic(wiki, title)
    assert found is not None
    holds, history, nowhere = says
    told, former = texts(found), [entry.sentence.text for entry in found.history]
    assert [words for words in holds if not any(words in text for text in told)] == []
    assert [words for words in history if any(words in text for text in told)] == []
    assert [words for words in history if not any(words in text for text in former)] == []
    assert [(words, text) for words in nowhere for text in told if words in text] == []
