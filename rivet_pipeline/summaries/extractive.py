"""A summarizer that needs no model: it chooses the statements that carry a batch and quotes them.

Deterministic and from numpy alone. Centrality is LexRank's (Erkan and Radev 2004: power iteration over cosine
similarities), redundancy is held down by maximal marginal relevance (Carbonell and Goldstein 1998), topics come from
average-linkage clustering. How texts become statements stands in `sentences.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.summaries.grounding import identifiers
from rivet_pipeline.summaries.headings import Told, heading
from rivet_pipeline.summaries.sentences import Statement, from_messages, from_summaries
from rivet_pipeline.summaries.signals import (
    BACKWARD,
    CORRECTION,
    DECISION,
    DONE,
    FILLER,
    OPEN,
    PREFERENCE,
    PROBLEM,
    PROPOSAL,
    STATE,
)
from rivet_pipeline.summaries.terms import terms_of
from rivet_pipeline.summaries.types import Kind, SummaryDraft, SummaryRequest, minute

MODEL = "extractive-2"

#: The share of the statements' characters that a summary keeps.
_SHARE: dict[Kind, float] = {"leaf": 0.34, "branch": 0.32, "root": 0.40}

#: The share of a leaf's statements' characters that what people typed may take beside that.
_TYPED_SHARE = 0.30

#: A longer message was pasted, not typed, in characters.
_TYPED_LENGTH = 1_500

#: Characters a summary may have: the seeds' 7k, 14k and 20k tokens at four characters each.
_CEILING: dict[Kind, int] = {"leaf": 28_000, "branch": 56_000, "root": 80_000}

#: A batch this small is kept nearly whole: a summary of it would save nobody anything.
_FLOOR = 900

#: So many characters are read at once, about a second's work; nothing bounds them but that.
MOST_CHARACTERS = 1_000_000

#: More statements than this are thinned by their own weight first, so that the similarity matrix stays small.
_MOST = 600

_DAMPING = 0.85
_RELEVANCE = 0.75
_SAME_TOPIC = 0.16

#: A root's last statements say how things stand.
_ENDING = 3

Matrix = NDArray[np.float64]

_VOICE_WEIGHT = {"user": 1.6, "system": 1.2, "assistant": 1.0, "tool": 0.6, "thinking": 0.45}


class ExtractiveSummarizer:
    """Chooses and quotes. The same request always gives the same text."""

    @property
    def model(self) -> str:
        """`extractive-2`."""
        return MODEL

    def fits(self, request: SummaryRequest) -> bool:
        """Whether the sources are short enough for one reading."""
        read = sum(len(message.content) for message in request.messages)
        return read + sum(len(child.content) for child in request.children) <= MOST_CHARACTERS

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        """The chosen statements by topic, or by section for a root.

        Raises `ModelError` (content, `nothing-to-say`) when the sources hold no statement at all.
        """
        statements = from_messages(request.messages) if request.kind == "leaf" else from_summaries(request.children)
        if not statements:
            raise ModelError("content", "nothing-to-say", "the sources hold no sentence, list or tool call")
        ranked = _rank(_without_announcements(_distinct(statements)))
        groupings: list[Sequence[int | str]] = [ranked.topics]
        if request.kind == "root":
            groupings.insert(0, [_section(statement, at_end=False) for statement in ranked.statements])
        chosen = _choose(ranked, groupings, _budget(request.kind, ranked.statements), _typed(request, ranked))
        body = _sections(ranked, chosen) if request.kind == "root" else _topics(ranked, chosen)
        return SummaryDraft(text=f"{_frame(request)}\n\n{body}")


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Statements, their scores (0 and up), pairwise similarities with a unit diagonal, term weights and topics."""

    statements: list[Statement]
    scores: Matrix
    similarity: Matrix
    weights: list[dict[str, float]]
    topics: list[int]


def _frame(request: SummaryRequest) -> str:
    count = f"{request.message_count} message{'' if request.message_count == 1 else 's'}"
    agents = ", ".join(request.agents) or request.conversation.agent
    title = " ".join((request.conversation.title or "").split())
    told = f" · {title}" if title else ""
    return f"Period {minute(request.earliest_at)} → {minute(request.latest_at)} · agents {agents} · {count}{told}"


def _distinct(statements: Iterable[Statement]) -> list[Statement]:
    """Without statements that repeat an earlier one of the same voice; a repeated tool call counts where it ended."""
    kept: dict[tuple[str, str], Statement] = {}
    for statement in statements:
        key = (statement.voice, " ".join(statement.text.casefold().split()))
        if statement.voice == "tool":
            kept.pop(key, None)
        kept.setdefault(key, statement)
    return sorted(kept.values(), key=lambda statement: statement.order)


def _without_announcements(statements: list[Statement]) -> list[Statement]:
    """Without sentences that only say what is done next: the calls that follow show it. All of them if nothing else."""
    kept = [
        statement
        for statement in statements
        if not is_filler(statement)
        or not (statement.text.endswith((":", "!", "?")) or len(statement.text) < 100)
        or DECISION.search(statement.text)
    ]
    return kept or statements


# --- weights --------------------------------------------------------------------------------------------------------


def _vectors(texts: Sequence[str]) -> tuple[Matrix, list[dict[str, float]]]:
    """Unit TF-IDF rows, shape (texts, terms), and the same weights by term."""
    counts = [Counter(terms_of(text)) for text in texts]
    frequency = Counter(term for count in counts for term in count)
    vocabulary = {term: column for column, term in enumerate(sorted(frequency))}
    matrix = np.zeros((len(texts), max(len(vocabulary), 1)))
    for row, count in enumerate(counts):
        for term, times in count.items():
            matrix[row, vocabulary[term]] = (1 + np.log(times)) * np.log(1 + len(texts) / frequency[term])
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix = np.divide(matrix, norms, out=np.zeros_like(matrix), where=norms > 0)
    weights = [{term: float(matrix[row, vocabulary[term]]) for term in count} for row, count in enumerate(counts)]
    return matrix, weights


def weight_of(statement: Statement) -> float:
    """How much a statement matters by itself: who says it, and whether it corrects, decides, states or reports."""
    text, voice = statement.text, statement.voice
    weight = 1.0
    if voice in {"user", "system"}:
        weight += 0.9 * bool(CORRECTION.search(text)) + 0.7 * bool(PREFERENCE.search(text))
    if voice in {"user", "system", "assistant"}:
        weight += 0.6 * bool(DECISION.search(text))
        weight += 0.5 * (voice == "assistant" and bool(PROPOSAL.search(text)))
        weight += 0.3 * bool(DONE.search(text)) + 0.25 * bool(OPEN.search(text))
    # What a tool failed with is why the work went on as it did.
    weight += (1.0 if voice == "tool" else 0.4) * bool(PROBLEM.search(text))
    weight += min(0.12 * len(identifiers(text)), 0.6)
    if is_filler(statement):
        weight *= 0.35
    if BACKWARD.match(text):
        weight *= 0.8
    says_little = len(terms_of(text)) < 3 and not identifiers(text)
    if says_little and voice != "tool" and not (CORRECTION.search(text) or DECISION.search(text)):
        weight *= 0.45
    if voice == "tool" and " → " not in text:
        weight *= 0.8
    return weight * _VOICE_WEIGHT.get(voice, 1.0)


def is_filler(statement: Statement) -> bool:
    """Whether a statement only announces or greets."""
    if statement.voice == "user" or FILLER.match(statement.text) is None:
        return False
    return statement.text.endswith(":") or PROPOSAL.search(statement.text) is None


def _rank(statements: list[Statement]) -> _Ranked:
    own = np.array([weight_of(statement) for statement in statements])
    if len(statements) > _MOST:
        kept = sorted(np.argsort(-np.round(own, 9), kind="stable")[:_MOST].tolist())
        statements, own = [statements[number] for number in kept], own[kept]
    vectors, weights = _vectors([statement.text for statement in statements])
    similarity = np.clip(vectors @ vectors.T, 0.0, 1.0)
    np.fill_diagonal(similarity, 1.0)
    central = _centrality(similarity)
    scores = np.round((own + _answers(statements, similarity)) * (0.4 + 0.6 * central), 9)
    return _Ranked(statements, scores, similarity, weights, _clusters(statements, similarity))


def _answers(statements: Sequence[Statement], similarity: Matrix) -> Matrix:
    """Extra weight for what answers a user's question: shared words within the same turn."""
    extra = np.zeros(len(statements))
    for number, asked in enumerate(statements):
        if asked.voice != "user" or not asked.text.rstrip().endswith(("?", "\uff1f")):
            continue
        for other in range(number + 1, len(statements)):
            if statements[other].turn == asked.turn and statements[other].voice == "assistant":
                extra[other] = max(extra[other], min(float(similarity[number, other]) * 2, 0.6))
    return extra


def _centrality(similarity: Matrix) -> Matrix:
    """LexRank, scaled so that the most central statement has 1."""
    transition = similarity / similarity.sum(axis=1, keepdims=True)
    count = len(similarity)
    rank = np.full(count, 1.0 / count)
    for _ in range(100):
        following = (1 - _DAMPING) / count + _DAMPING * (transition.T @ rank)
        settled = bool(np.abs(following - rank).max() < 1e-9)
        rank = following
        if settled:
            break
    scaled: Matrix = rank / rank.max()
    return scaled


# --- topics and choice ----------------------------------------------------------------------------------------------


def _clusters(statements: Sequence[Statement], similarity: Matrix) -> list[int]:
    """A topic number for each statement, by average linkage; nearness in the talk counts beside shared words."""
    count = len(statements)
    turns = np.array([statement.turn for statement in statements])
    sources = np.array([statement.source for statement in statements])
    near = 0.10 * (turns[:, None] == turns[None, :]) + 0.08 * (np.abs(sources[:, None] - sources[None, :]) <= 1)
    linked = np.round(similarity + near, 9)
    np.fill_diagonal(linked, -1.0)
    sizes = np.ones(count)
    member = list(range(count))
    while True:
        best = int(linked.argmax())
        left, right = divmod(best, count)
        if linked[left, right] < _SAME_TOPIC + _crowding(len(set(member))):
            return member
        left, right = min(left, right), max(left, right)
        joined = (linked[left] * sizes[left] + linked[right] * sizes[right]) / (sizes[left] + sizes[right])
        joined[(linked[left] < 0) | (linked[right] < 0)] = -1.0
        linked[left], linked[:, left] = joined, joined
        linked[right], linked[:, right] = -1.0, -1.0
        linked[left, left] = -1.0
        sizes[left] += sizes[right]
        member = [left if topic == right else topic for topic in member]


def _crowding(topics: int) -> float:
    """The bar for joining falls while there are many topics: nobody reads forty headers."""
    return 0.0 if topics <= 8 else -min(0.09, 0.006 * (topics - 8))


def _budget(kind: Kind, statements: Sequence[Statement]) -> int:
    total = sum(len(statement.text) for statement in statements)
    return int(min(max(_SHARE[kind] * total, _FLOOR), _CEILING[kind]))


def _typed(request: SummaryRequest, ranked: _Ranked) -> list[int]:
    """What people typed into the messages of a leaf, the best first, as far as its own allowance goes.

    It is little beside what agents and tools say, and it is where decisions, corrections and wishes stand, in wordings
    that no list of signals knows.
    """
    short = [len(message.content) <= _TYPED_LENGTH for message in request.messages]
    numbers = [
        number
        for number, statement in enumerate(ranked.statements)
        if request.kind == "leaf" and statement.voice == "user" and short[statement.source]
    ]
    allowance = _TYPED_SHARE * sum(len(statement.text) for statement in ranked.statements)
    kept: list[int] = []
    for number in sorted(numbers, key=lambda number: (-ranked.scores[number], number)):
        allowance -= len(ranked.statements[number].text)
        if allowance < 0:
            break
        kept.append(number)
    return kept


def _choose(ranked: _Ranked, groupings: Sequence[Sequence[int | str]], budget: int, typed: Sequence[int]) -> list[int]:
    """Statement numbers: `typed`, and within the budget the best of each group, then by score less redundancy."""
    chosen: list[int] = []
    spent = 0
    closest = np.zeros(len(ranked.statements))

    def take(number: int) -> None:
        nonlocal spent
        chosen.append(number)
        spent += len(ranked.statements[number].text)
        np.maximum(closest, ranked.similarity[number], out=closest)

    for number in typed:
        take(number)
    spent = 0
    typical = float(np.median(ranked.scores))
    for number in (number for grouping in groupings for number in _best_of_each(ranked, grouping)):
        # A topic of one passing remark is none.
        remark = is_filler(ranked.statements[number]) or ranked.scores[number] < 0.6 * typical
        if number not in chosen and spent < budget and (not remark or not chosen):
            take(number)
    top = float(ranked.scores.max()) or 1.0
    while spent < budget and len(chosen) < len(ranked.statements):
        gain = _RELEVANCE * ranked.scores / top - (1 - _RELEVANCE) * closest
        gain[chosen] = -np.inf
        number = int(np.argmax(np.round(gain, 9)))
        if ranked.scores[number] < 0.12 * top and spent > budget // 2:
            break
        take(number)
    return sorted(chosen, key=lambda item: ranked.statements[item].order)


def _best_of_each(ranked: _Ranked, grouping: Sequence[int | str]) -> list[int]:
    """The best statement of each group, the best of all first."""
    best: dict[int | str, int] = {}
    for number, group in enumerate(grouping):
        if group not in best or ranked.scores[number] > ranked.scores[best[group]]:
            best[group] = number
    return sorted(best.values(), key=lambda number: (-ranked.scores[number], number))


# --- layout ---------------------------------------------------------------------------------------------------------


def _topics(ranked: _Ranked, chosen: Sequence[int]) -> str:
    groups: dict[int, list[int]] = defaultdict(list)
    for number in chosen:
        groups[ranked.topics[number]].append(number)
    _join_singles(ranked, groups)
    used: set[str] = set()
    parts = []
    for numbers in groups.values():
        header = heading([_told(ranked, number) for number in numbers], used)
        parts.append("\n".join([f"**{header}**", *_bullets(ranked, numbers)]))
    return "\n\n".join(parts)


def _told(ranked: _Ranked, number: int) -> Told:
    statement = ranked.statements[number]
    voice_weight = _VOICE_WEIGHT.get(statement.voice, 1.0)
    return Told(statement.text, statement.voice, voice_weight, ranked.weights[number])


def _join_singles(ranked: _Ranked, groups: dict[int, list[int]]) -> None:
    """Puts a topic of one statement to the nearest topic of the same turn: an ask stands with what came of it."""
    for topic in [topic for topic, numbers in groups.items() if len(numbers) == 1]:
        if len(groups[topic]) > 1:
            continue
        number = groups[topic][0]
        statement = ranked.statements[number]
        near = {
            other: max(
                float(ranked.similarity[number, member])
                - 0.02 * abs(statement.source - ranked.statements[member].source)
                for member in members
                if ranked.statements[member].turn == statement.turn
            )
            for other, members in groups.items()
            if other != topic and any(ranked.statements[member].turn == statement.turn for member in members)
        }
        if near and len(groups) > 1:
            target = max(near, key=lambda other: (round(near[other], 9), -other))
            groups[target] = sorted([*groups[target], number])
            del groups[topic]
    for topic in sorted(groups, key=lambda topic: groups[topic][0]):
        groups[topic] = groups.pop(topic)


def _sections(ranked: _Ranked, chosen: Sequence[int]) -> str:
    sections: dict[str, list[int]] = {
        "Decisions": [],
        "Completed": [],
        "Current state": [],
        "Open items": [],
        "Also": [],
    }
    ends = set(chosen[-_ENDING:]) if len(chosen) > 2 * _ENDING else set()
    for number in chosen:
        sections[_section(ranked.statements[number], at_end=number in ends)].append(number)
    return "\n\n".join(
        "\n".join([f"**{name}**", *_bullets(ranked, numbers)]) for name, numbers in sections.items() if numbers
    )


def _section(statement: Statement, *, at_end: bool) -> str:
    text, voice = statement.text, statement.voice
    if voice in {"user", "system"} and (CORRECTION.search(text) or PREFERENCE.search(text) or DECISION.search(text)):
        return "Decisions"
    if voice == "assistant" and DECISION.search(text) and not DONE.search(text):
        return "Decisions"
    if voice != "tool" and OPEN.search(text):
        return "Open items"
    if at_end or (voice != "user" and STATE.search(text) and not DONE.search(text)):
        return "Current state"
    return "Completed" if voice != "user" and DONE.search(text) else "Also"


def _bullets(ranked: _Ranked, numbers: Sequence[int]) -> list[str]:
    """One bullet a statement; neighbours of one message share theirs."""
    bullets: list[str] = []
    previous: Statement | None = None
    for number in numbers:
        statement = ranked.statements[number]
        follows = (
            previous is not None
            and statement.order == previous.order + 1
            and (statement.when, statement.who, statement.source) == (previous.when, previous.who, previous.source)
            and "tool" not in (statement.voice, previous.voice)
            and len(bullets[-1]) + len(statement.text) < 500
        )
        if follows:
            bullets[-1] += f" {statement.text}"
        else:
            bullets.append(f"- {statement.when} {statement.who}: {statement.text}")
        previous = statement
    return bullets
