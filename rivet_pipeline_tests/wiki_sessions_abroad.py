"""Sessions of other lives in six languages, and the tags that a person expects of them.

They and their gold tags were written before the rules had seen them: a marathon and its coach, an outage and what came
of it, a teacher's lessons, a tax adviser's export, a bathroom, a database, a garden. Several come in pairs, of which
the second one takes back what the first one decided. The texts stand in `wiki_sessions_abroad.txt`: of a session its
day, folder and title, the expected tags (of the spellings between two bars one), those that are no mistakes, and what
was said.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rivet_pipeline_tests.wiki_sessions import Session


@dataclass(frozen=True, slots=True)
class Told:
    """A session with its gold tags: of each group of `expected` one is wanted, and `also` are no mistakes."""

    session: Session
    expected: tuple[tuple[str, ...], ...]
    also: tuple[str, ...]


def _told(block: str) -> Told:
    head, expected, also, *said = block.strip().splitlines()
    day, folder, title = head.split(" | ", 2)
    voices = (line.split(": ", 1) for line in said)
    return Told(
        Session(day, title, folder, tuple((voice, text) for voice, text in voices)),
        tuple(tuple(group.split()) for group in expected.removeprefix("expected: ").split(" | ")),
        tuple(also.removeprefix("also:").split()),
    )


ABROAD = tuple(
    _told(block)
    for block in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").removeprefix("# ").split("\n# ")
)
