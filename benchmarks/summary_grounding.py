"""What the configured summarizer makes of the demo sessions, and what grounding catches of it.

Asks the chat service of RIVETOS_COMPACTOR_URL (the extractive default without one) for the leaves of some of the demo
sessions, through the pipeline's own stage and a store of its own, and prints for each how much of what it names stands
in its sources, and what it invented. Nothing leaves the machine but what is sent to that service.

    export RIVETOS_COMPACTOR_URL=http://127.0.0.1:8000/v1 RIVETOS_COMPACTOR_MODEL=small
    python -m benchmarks.summary_grounding [--sessions 4] [--show]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.settings import get_settings
from rivet_pipeline.summaries.compact import summarize_leaves
from rivet_pipeline.summaries.factory import build_summarizer
from rivet_pipeline.transcripts.importer import import_paths

_DEMO = Path(str(files("rivet_pipeline") / "demo"))

#: Failed conversations come first again after their rest; a small model is asked for each of them so often at most.
_ROUNDS = 3


def days_with_work(connection: Connection) -> list[date]:
    """The days that hold conversations, oldest first."""
    rows = connection.execute("SELECT DISTINCT day FROM ros_conversations ORDER BY day").fetchall()
    return [row["day"] for row in rows]


def run(sessions: int) -> tuple[list[dict[str, Any]], Counter[str], int]:
    """The stored leaves, what the conversations without one failed of, and the calls that were made."""
    settings = get_settings()
    summarizer = build_summarizer(settings)
    calls = 0
    failed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="rivet-bench-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedServer(Path(folder) / "postgres")
        server.start()
        try:
            url = server.url("postgres")
            with connect(url) as connection:
                apply_migrations(connection)
            with open_pool(url, max_size=2) as pool, connect(url) as connection:
                import_paths(pool, [_DEMO], first_day=settings.first_day, max_line=settings.import_max_line)
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
        finally:
            server.stop()
    return leaves, failed, calls


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=4, help="how many of the demo's days")
    parser.add_argument("--show", action="store_true", help="print the summaries too")
    arguments = parser.parse_args()
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
