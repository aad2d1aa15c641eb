"""An evaluation from beginning to end: a scratch database, filled as the product fills its own, asked, dropped.

What is asked and measured stands in `retrieval/evaluation*.py`; here the rooms are joined that do not know each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from rivet_pipeline.db.pool import Connection, Pool, open_pool
from rivet_pipeline.db.scratch import scratch_database
from rivet_pipeline.embedding.embed import embed_messages, embed_summaries
from rivet_pipeline.models.protocols import Embedder
from rivet_pipeline.retrieval.evaluation import Evaluation, Progress, evaluate
from rivet_pipeline.retrieval.evaluation_demo import demo_questions
from rivet_pipeline.retrieval.evaluation_sets import Conversation, QuestionSet
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.query_vectors import QueryVectors
from rivet_pipeline.retrieval.search import MAX_LIMIT
from rivet_pipeline.retrieval.types import Mode, Scope
from rivet_pipeline.settings import Settings
from rivet_pipeline.summaries.compact import summarize_branches, summarize_leaves, summarize_roots
from rivet_pipeline.summaries.types import Summarizer
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.ingest import write_batch
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord

_DEMO = Path(str(files("rivet_pipeline") / "demo"))

#: Called with what is being done.
Say = Callable[[str], None]


def try_questions(
    url: str,
    settings: Settings,
    questions: QuestionSet | None,
    *,
    embedder: Embedder,
    summarizer: Summarizer | None = None,
    limit: int | None = None,
    mode: Mode = "hybrid",
    hits: int = MAX_LIMIT,
    say: Say = lambda _: None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluates a question set, or None: the shipped one, in a scratch database on the server of `url`.

    Args:
        url: The store, of which nothing but the server is used.
        settings: How texts are cut and embedded.
        questions: The conversations to store and what to ask of them.
        embedder: Embeds the messages, the summaries and the questions.
        summarizer: Makes summaries of every level, which are then searched too; None: messages only.
        limit: Asks only the first so many questions; everything is stored.
        mode: The mode of search.
        hits: The length of the lists that are asked for.
        say: Told of each step.
        progress: Told of each question.
    """
    with scratch_database(url) as scratch, open_pool(scratch, max_size=4, application_name="rivet-eval") as pool:
        fill(pool, settings, questions, embedder=embedder, summarizer=summarizer, say=say)
        with pool.connection() as connection:
            asked = questions or demo_questions(connection)
            scope: Scope = "messages" if summarizer is None else "both"
            say("asking")
            return evaluate(
                connection,
                asked.head(limit),
                embed_query=QueryVectors(settings, embedder).on(connection),
                mode=mode,
                scope=scope,
                hits=hits,
                progress=progress,
            )


def fill(
    pool: Pool,
    settings: Settings,
    questions: QuestionSet | None,
    *,
    embedder: Embedder,
    summarizer: Summarizer | None = None,
    say: Say = lambda _: None,
) -> None:
    """Stores a question set's conversations in an empty store and refines them; the arguments of `try_questions`."""
    say("storing")
    if questions is None:
        _import_demo(pool, settings)
    else:
        with pool.connection() as connection:
            _store(connection, questions.conversations)
    _refine(pool, settings, embedder, summarizer, say)
    with pool.connection() as connection:
        # Young tables look empty to the planner until autovacuum has seen them.
        connection.execute("ANALYZE")


def _store(connection: Connection, conversations: Sequence[Conversation]) -> None:
    first_day = min(turn.at for one in conversations for turn in one.turns).date()
    for one in conversations:
        records = [MessageRecord(turn.event_id, turn.role, turn.content, created_at=turn.at) for turn in one.turns]
        session = SessionRecord(one.session_key, one.agent, "evaluation")
        write_batch(connection, session, records, first_day=first_day)


def _import_demo(pool: Pool, settings: Settings) -> None:
    for agent in sorted(path for path in _DEMO.iterdir() if path.is_dir()):
        import_paths(pool, [agent], first_day=settings.first_day, max_line=settings.import_max_line, agent=agent.name)


def _refine(pool: Pool, settings: Settings, embedder: Embedder, summarizer: Summarizer | None, say: Say) -> None:
    cut = {"chars_per_chunk": settings.embed_chars_per_chunk, "batch": settings.embed_batch}
    say("embedding")
    embed_messages(pool, embedder, days=None, **cut)
    if summarizer is not None:
        say("summarising")
        for level in (summarize_leaves, summarize_branches, summarize_roots):
            level(pool, days=None, summarizer=summarizer)
        embed_summaries(pool, embedder, days=None, **cut)
    say("counting words")
    with pool.connection() as connection:
        refresh_lexicon(connection)
