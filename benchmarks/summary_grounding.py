"""What the configured summarizer makes of the demo sessions, and what grounding catches of it.

Asks the chat service of RIVETOS_COMPACTOR_URL (the extractive default without one) for the leaves of some of the demo
sessions, through the pipeline's own stage and a store of its own, and prints for each how much of what it names stands
in its sources, and what it invented. Nothing leaves the machine but what is sent to that service.

    export RIVETOS_COMPACTOR_URL=http://127.0.0.1:8000/v1 RIVETOS_COMPACTOR_MODEL=small
    python -m benchmarks.summary_grounding [--sessions 4] [--show]

`--plain` is for models too small for the pipeline's prompts: it asks a short question of its own about a few messages
at a time, and holds each answer against them with the pipeline's client, checks and grounding. Nothing is stored and
nothing asked twice. With `--show`, sources and answers stand there for a reader to judge.

    python -m benchmarks.summary_grounding --plain --sessions 12 --show
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

from benchmarks.temporary import temporary_server
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, Pool, connect, open_pool
from rivet_pipeline.models.chat import OpenAIChat
from rivet_pipeline.models.factory import build_chat
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.settings import get_settings
from rivet_pipeline.summaries.batches import due_conversations, next_leaf, read_rules, read_state, read_trust_floor
from rivet_pipeline.summaries.chat_summarizer import checked
from rivet_pipeline.summaries.compact import summarize_leaves
from rivet_pipeline.summaries.factory import build_summarizer
from rivet_pipeline.summaries.grounding import identifiers
from rivet_pipeline.summaries.sources import held_against_sources, source_texts
from rivet_pipeline.summaries.types import SourceMessage, SummaryRequest
from rivet_pipeline.summaries.window import cut
from rivet_pipeline.transcripts.importer import import_paths

_DEMO = Path(str(files("rivet_pipeline") / "demo"))

#: What `--plain` asks: about so many characters at a time, so many of each message, for an answer of so many tokens.
_PLAIN_RULES = "You summarize conversations."
_PLAIN_QUESTION = (
    "Summarize the conversation above in three sentences. Name the files, figures, dates and people that it is about."
)
_PLAIN_CHARACTERS = 1_500
_PLAIN_MESSAGE = 500
_PLAIN_TOKENS = 300


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """One answer of `--plain`: what was asked, what came, how many identifiers it has, and those in no source."""

    asked: str
    text: str
    share: float | None
    named: int
    missing: list[str]


#: Failed conversations come first again after their rest; a small model is asked for each of them so often at most.
_ROUNDS = 3


def days_with_work(connection: Connection) -> list[date]:
    """The days that hold conversations, oldest first."""
    rows = connection.execute("SELECT DISTINCT day FROM ros_conversations ORDER BY day").fetchall()
    return [row["day"] for row in rows]


@contextmanager
def imported() -> Iterator[tuple[Pool, Connection]]:
    """A store of its own with the demo sessions."""
    settings = get_settings()
    with temporary_server() as server:
        url = server.url("postgres")
        with connect(url) as connection:
            apply_migrations(connection)
        with open_pool(url, max_size=2) as pool, connect(url) as connection:
            import_paths(pool, [_DEMO], first_day=settings.first_day, max_line=settings.import_max_line)
            yield pool, connection


def run(sessions: int) -> tuple[list[dict[str, Any]], Counter[str], int]:
    """The stored leaves, what the conversations without one failed of, and the calls that were made."""
    summarizer = build_summarizer(get_settings())
    calls = 0
    failed: Counter[str] = Counter()
    with imported() as (pool, connection):
        chosen = days_with_work(connection)[:sessions]
        for _ in range(_ROUNDS):
            report = summarize_leaves(pool, days=chosen, summarizer=summarizer)
            calls += sum(day.model_calls for day in report.days.values())
            failures = connection.execute("SELECT item, cause, error FROM ros_failures").fetchall()
            failed.update(f"{row['cause']}: {row['error'].split(':')[0]}" for row in failures)
            if not failures or any(row["item"] == "service" for row in failures):
                break
            connection.execute("UPDATE ros_failures SET next_attempt_at = now()")
        leaves = connection.execute(
            """SELECT s.content, s.grounding, s.ungrounded, s.coverage, ros_is_trusted(s) AS trusted,
                      (s.metadata ->> 'identifiers')::integer AS identifiers,
                      (s.metadata ->> 'retried')::boolean AS retried
               FROM ros_summaries AS s WHERE s.kind = 'leaf' ORDER BY s.earliest_at"""
        ).fetchall()
    return leaves, failed, calls


def plain_text(request: SummaryRequest) -> str:
    """A request as a short question, without the pipeline's rules."""
    said = "\n".join(f"{message.agent}: {_short(message)}" for message in request.messages)
    return f"{said}\n\n{_PLAIN_QUESTION}"


def _short(message: SourceMessage) -> str:
    told = message.content or f"{message.tool_name or ''} {message.tool_result or ''}"
    return " ".join(told[:_PLAIN_MESSAGE].split())


def ask_plainly(chat: OpenAIChat, request: SummaryRequest) -> PlainAnswer:
    """The model's answer about a few messages, held against them. Raises `ModelError` when it is no summary."""
    text = plain_text(request)
    answer = chat.complete(system=_PLAIN_RULES, user=text, max_tokens=_PLAIN_TOKENS)
    summary = checked(answer.text, text, rules=_PLAIN_RULES, material="\n".join(source_texts(request)))
    share, missing = held_against_sources(summary, request)
    return PlainAnswer(text, summary, share, len(identifiers(summary)), missing)


def run_plain(sessions: int, pieces: int, show: bool) -> None:
    """Asks about the beginning of each conversation's first batch, `pieces` times, and prints what came of it."""
    chat = build_chat(get_settings())
    if chat is None:
        raise SystemExit("RIVETOS_COMPACTOR_URL is not set; name a chat server.")
    failed: Counter[str] = Counter()
    answers: list[PlainAnswer] = []
    requests, floor = first_batches(sessions)
    for request in requests:
        for piece in cut(request, lambda some: len(plain_text(some)) <= _PLAIN_CHARACTERS)[:pieces]:
            try:
                answer = ask_plainly(chat, piece)
            except ModelError as error:
                failed[f"{error.cause}: {error.name}"] += 1
                continue
            answers.append(answer)
            print(f"## {len(answers)}: names {answer.named}, invented: {', '.join(answer.missing) or '-'}")
            if show:
                print(f"\n{answer.asked}\n\n-> {answer.text}\n")
    named, missing = sum(answer.named for answer in answers), sum(len(answer.missing) for answer in answers)
    low = sum(answer.share is not None and answer.share < floor for answer in answers)
    print(f"\n{len(answers)} answers, {named} identifiers, {missing} in no source; {low} answers below {floor};")
    print(f"failures: {dict(failed) or 'none'}")


def first_batches(sessions: int) -> tuple[list[SummaryRequest], float]:
    """The first batch of each demo conversation, oldest first, and the share below which a summary is not trusted."""
    with imported() as (_, connection):
        rules = read_rules(connection)
        due = due_conversations(connection, "leaf", days_with_work(connection)[:sessions])
        requests = [next_leaf(connection, read_state(connection, one.conversation_id), rules) for one in due]
        floor = read_trust_floor(connection)
    return sorted((request for request in requests if request), key=lambda request: request.earliest_at), floor


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=4, help="how many of the demo's days")
    parser.add_argument("--show", action="store_true", help="print the summaries too")
    parser.add_argument("--plain", action="store_true", help="a short question in place of the pipeline's prompts")
    parser.add_argument("--pieces", type=int, default=2, help="how many questions about a conversation, with --plain")
    arguments = parser.parse_args()
    if arguments.plain:
        run_plain(arguments.sessions, arguments.pieces, arguments.show)
        return
    began = time.perf_counter()
    leaves, failed, calls = run(arguments.sessions)
    print(f"{'named':>6}{'grounding':>11}{'trusted':>9}{'asked twice':>13}  invented")
    for leaf in leaves:
        share = "-" if leaf["grounding"] is None else f"{leaf['grounding']:.2f}"
        trusted = "yes" if leaf["trusted"] else "no"
        twice = "yes" if leaf["retried"] else ""
        invented = ", ".join(leaf["ungrounded"][:6])
        print(f"{leaf['identifiers']:>6}{share:>11}{trusted:>9}{twice:>13}  {invented}")
        if arguments.show:
            print(leaf["content"], "\n")
    shares = [leaf["grounding"] for leaf in leaves if leaf["grounding"] is not None]
    mean = sum(shares) / len(shares) if shares else 0.0
    kept_out = sum(not leaf["trusted"] for leaf in leaves)
    seconds = time.perf_counter() - began
    print(f"\n{len(leaves)} leaves by {calls} calls in {seconds:.0f} s, grounding {mean:.2f} on average,")
    print(f"{kept_out} kept out of parents; failures: {dict(failed) or 'none'}")


if __name__ == "__main__":
    main()
