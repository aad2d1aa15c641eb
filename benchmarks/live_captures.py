"""Captures at a steady rate while something else is measured, in a process of their own as agents' hooks are.

The same process refreshes the index and the codes now and then, as the pipeline would: were it the one that measures,
its work would stand between an answer and the clock.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection as Pipe
from uuid import uuid4

from benchmarks.capture_rate import posting
from benchmarks.corpus import Corpus
from rivet_pipeline.db.pool import connect
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.vector_pieces import refresh_vector_pieces

CAPTURES_PER_SECOND = 50

#: Seconds between two refreshes of the index, about what Dagster's sensor makes of it.
REFRESH_EVERY = 30.0

_CLIENTS = 4


@contextmanager
def captures(port: int, url: str) -> Iterator[list[float]]:
    """Captures go on within the block; afterwards the list has the milliseconds of each."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_capture, args=(port, url, theirs), daemon=True)
    process.start()
    # With this end open here too, nothing would tell that the process has ended.
    theirs.close()
    times: list[float] = []
    try:
        # It says when it begins.
        ours.recv()
        yield times
        ours.send("stop")
        times += ours.recv()
        failures = ours.recv()
        if failures:
            raise RuntimeError(f"not all that was to happen meanwhile did: {failures}")
    finally:
        process.terminate()
        process.join()


def _capture(port: int, url: str, pipe: Pipe) -> None:
    stop, times, run = threading.Event(), list[float](), uuid4().hex[:8]
    failures: list[str] = []
    texts = [f"{message.content}\n{message.tool_result or ''}" for message in Corpus(2_000, seed=99)]

    def post(number: int) -> None:
        store = posting(port, texts, f"bench-live:{run}:{number}")
        sent, begun = 0, time.perf_counter()
        while not stop.is_set():
            at = time.perf_counter()
            store(number * 1_000_000 + sent)
            times.append(1000 * (time.perf_counter() - at))
            sent += 1
            stop.wait(max(0.0, begun + sent * _CLIENTS / CAPTURES_PER_SECOND - time.perf_counter()))

    def refresh() -> None:
        with connect(url) as connection:
            while not stop.wait(REFRESH_EVERY):
                refresh_lexicon(connection)
                refresh_vector_pieces(connection)

    def kept(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=kept, args=(partial(post, number),)) for number in range(_CLIENTS)]
    threads.append(threading.Thread(target=kept, args=(refresh,)))
    for thread in threads:
        thread.start()
    pipe.send("begun")
    pipe.recv()
    stop.set()
    for thread in threads:
        thread.join()
    pipe.send(times)
    pipe.send(failures)
