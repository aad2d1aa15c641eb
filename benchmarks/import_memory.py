"""How much memory import takes for a session file of gigabytes with one line of 20 MB in it.

Writes a Claude Code session (snapshots and progress rows of 50 to 150 KB, every tenth row a tool call's result of
20 KB, one prompt of 20 MB in the middle), imports it in a process of its own into a fresh embedded server, and reads
that process' memory after every sixteenth of the file. The ratio is the highest figure behind the first sixteenth to
the one at its end: 1.0 is flat. It is stated without and with the long line, which must be held to be stored.

    python -m benchmarks.import_memory [--gigabytes 2.0]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import connect
from rivet_pipeline.transcripts.importer import import_paths

LONG_LINE = 20_000_000
STEPS = 16

_WORDS = ("store", "keeps", "every", "word", "that", "was", "said", "and", "finds", "it", "again", "by", "meaning")


def write_session(path: Path, size: int, *, long_line: bool) -> int:
    """Writes a session file of about `size` bytes; the number of messages it holds."""
    messages = number = written = 0
    filler = " ".join(_WORDS[n % len(_WORDS)] + str(n * 7919 % 10_007) for n in range(30_000))
    with path.open("w", encoding="utf-8") as stream:
        while written < size:
            number += 1
            row = {
                "uuid": f"u{number}", "sessionId": "big", "isSidechain": False, "cwd": "/app",
                "timestamp": f"2026-01-{1 + number // 2000 % 28:02}T{number // 100 % 24:02}:{number % 60:02}:00.000Z",
            }  # fmt: skip
            if long_line and written >= size // 2:
                text, long_line = (filler * (LONG_LINE // len(filler) + 1))[:LONG_LINE], False
                row |= {"type": "user", "message": {"role": "user", "content": text}}
                messages += 1
            elif number % 10 == 0:
                start = number * 31 % 100_000
                row |= {"type": "user", "message": {"role": "user", "content": filler[start : start + 20_000]}}
                messages += 1
            else:
                length = 50_000 + number * 7919 % 100_000
                row |= {"type": "file-history-snapshot", "snapshot": filler[:length]}
            written += stream.write(json.dumps(row) + "\n")
    return messages


def measure(url: str, path: Path) -> None:
    """Imports a file and prints this process' memory in KB after every sixteenth of it, then the new messages."""
    figures: list[int] = []

    def note(_: Path, done: int, total: int) -> None:
        if done * STEPS // max(total, 1) > len(figures):
            found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
            assert found is not None
            figures.append(int(found[1]))

    report = import_paths(url, [path], first_day=date(2022, 11, 1), max_line=1 << 28, progress=note)
    print(json.dumps({"kb": figures, "new": report.messages()["new"], "damaged": report.messages()["damaged"]}))


def main() -> None:
    """Runs the measurement and prints it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--measure", nargs=2, metavar=("URL", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], Path(options.measure[1]))
        return
    with tempfile.TemporaryDirectory(prefix="rivet-benchmark-") as folder:
        server = EmbeddedServer(Path(folder) / "postgres")
        server.start()
        try:
            for long_line in (False, True):
                _run(server, Path(folder), int(options.gigabytes * 1e9), long_line=long_line)
        finally:
            server.stop()


def _run(server: EmbeddedServer, folder: Path, size: int, *, long_line: bool) -> None:
    name = f"memory_{int(long_line)}"
    with connect(server.url("postgres")) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    with connect(server.url(name)) as connection:
        apply_migrations(connection)
    path = folder / f"{name}.jsonl"
    messages = write_session(path, size, long_line=long_line)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.import_memory", "--measure", server.url(name), str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.monotonic() - began
    found = json.loads(done.stdout)
    first, highest = found["kb"][0], max(found["kb"][1:])
    print(
        f"{'with' if long_line else 'without'} a line of 20 MB: {path.stat().st_size / 1e9:.2f} GB, "
        f"{found['new']}/{messages} messages in {seconds:.0f} s; memory {first / 1024:.0f} MB after the first "
        f"sixteenth, at most {highest / 1024:.0f} MB after: ratio {highest / first:.2f}"
    )
    path.unlink()


if __name__ == "__main__":
    main()
