"""How much a model can read at once, and how a request that is more than that is taken apart. Pure functions.

A batch is cut to fewer messages first (`cut`); what is too much by itself is asked for in parts (`parts`), whose texts
stand together in one summary (`joined`). What is asked of a model stands in `prompts/`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable
from uuid import UUID

from rivet_pipeline.models.tokens import estimated_tokens
from rivet_pipeline.summaries.prompts import MAX_TOKENS, SQUEEZES, system_prompt, user_text
from rivet_pipeline.summaries.types import Kind, SourceMessage, SourceSummary, SummaryRequest

#: A text of fewer characters is not halved because its answer would not end.
_LEAST_HALVED = 2_000

Fits = Callable[[SummaryRequest], bool]

#: Tokens that a chat template and a reminder may add around the two texts.
_AROUND = 96

#: The share of the context that an answer may take when its own budget is more.
_ANSWER_SHARE = 5 / 8

#: A batch of parents' children is never cut below this: a parent of one child would only be its copy.
_LEAST_CHILDREN = 2


@runtime_checkable
class Bounded(Protocol):
    """A summarizer that can not read everything at once."""

    def fits(self, request: SummaryRequest) -> bool:
        """Whether the request can be asked as it is."""
        ...


def fits_of(summarizer: object) -> Fits:
    """The summarizer's own bound; whatever states none reads everything."""
    return summarizer.fits if isinstance(summarizer, Bounded) else lambda _: True


@dataclass(frozen=True, slots=True)
class Window:
    """A chat model's context, in tokens: prompt, sources and answer together."""

    context_tokens: int

    def answer_tokens(self, kind: Kind) -> int:
        """The level's budget, or five eighths of the context when that is less."""
        return min(MAX_TOKENS[kind], int(self.context_tokens * _ANSWER_SHARE))

    def fits(self, request: SummaryRequest) -> bool:
        """Whether the request's text has room beside the system prompt and the answer."""
        return self._has_room(request.kind, user_text(request))

    def text(self, request: SummaryRequest) -> str:
        """The request's text, its tool traffic in shorter forms as far as it would not fit else."""
        texts = (user_text(request, squeeze=squeeze) for squeeze in range(SQUEEZES))
        return next((text for text in texts if self._has_room(request.kind, text)), user_text(request, SQUEEZES))

    def _has_room(self, kind: Kind, text: str) -> bool:
        room = self.context_tokens - self.answer_tokens(kind) - estimated_tokens(system_prompt(kind)) - _AROUND
        # No estimate is below an eighth of the characters: what is far too long need not be counted.
        return len(text) <= 8 * room and estimated_tokens(text) <= room


#: For a model whose context nobody has stated.
DEFAULT_WINDOW = Window(32_768)


def cut(request: SummaryRequest, fits: Fits) -> list[SummaryRequest]:
    """The request, or several in its place, each with as many of the oldest inputs as fit.

    A leaf holds at least one message and a parent at least two children, even if that does not fit; see `parts`.
    """
    if fits(request):
        return [request]
    count = len(request.inputs)
    pieces: list[SummaryRequest] = []
    start = 0
    while start < count:
        size = _prefix(request, start, count, fits)
        if request.children:
            size = max(size, _LEAST_CHILDREN)
            if count - start - size == 1:
                size += 1 if size == _LEAST_CHILDREN else -1
        pieces.append(_slice(request, start, min(start + size, count)))
        start += size
    return pieces


def parts(request: SummaryRequest, fits: Fits) -> list[SummaryRequest]:
    """The request as what can be asked at once: itself, groups of its inputs, or segments of one that is too long.

    Nothing is left out: the texts of an input's segments, put together, are the input's text.
    """
    if fits(request):
        return [request]
    count = len(request.inputs)
    asked: list[SummaryRequest] = []
    start = 0
    while start < count:
        size = _prefix(request, start, count, fits)
        group = _slice(request, start, start + size)
        asked += [group] if size > 1 or fits(group) else _segments(group, fits)
        start += size
    return asked


def smaller(part: SummaryRequest) -> list[SummaryRequest]:
    """A part in two or more smaller ones, or alone when it can not be divided any more.

    For a service that takes less than was reckoned, or whose answers do not end. Each holds fewer inputs, or less of
    its one input, so that dividing comes to an end.
    """
    if len(part.inputs) < 2:
        return _in_segments(part, _halves(part.inputs[0].content))
    middle = _middle(part)
    return [_slice(part, 0, middle), _slice(part, middle, len(part.inputs))]


def _middle(request: SummaryRequest) -> int:
    """How many inputs make the first half, by what is quoted of each."""
    sizes = [len(user_text(_slice(request, place, place + 1))) for place in range(len(request.inputs))]
    return min(range(1, len(sizes)), key=lambda place: max(sum(sizes[:place]), sum(sizes[place:])))


def _halves(text: str) -> list[str]:
    """Two halves that both say something. White space around the text is left out: it may be all that is too much."""
    text = text.strip()
    if len(text) < _LEAST_HALVED:
        return [text]
    middle = _boundary(text)
    return [text[:middle], text[middle:]]


def numbered(asked: Sequence[SummaryRequest]) -> list[SummaryRequest]:
    """The same parts, the segments of each message or summary counted anew."""
    counts = Counter(part.inputs[0].id for part in asked if part.inputs[0].segment)
    places: Counter[UUID] = Counter()
    found: list[SummaryRequest] = []
    for part in asked:
        whole = part.inputs[0]
        places[whole.id] += 1
        line = _segment_line(whole, places[whole.id], counts[whole.id])
        found.append(_marked(part, line) if whole.segment else part)
    return found


def joined(asked: Sequence[SummaryRequest], texts: Sequence[str]) -> str:
    """The texts of a request's parts as one, each below a line that says which part it is of."""
    if len(asked) == 1:
        return texts[0]
    return "\n\n".join(
        f"{_part_line(request, number, len(asked))}\n{text}"
        for number, (request, text) in enumerate(zip(asked, texts, strict=True), 1)
    )


def _part_line(request: SummaryRequest, number: int, count: int) -> str:
    return request.inputs[0].segment or f"[part {number} of {count}]"


def _slice(request: SummaryRequest, start: int, end: int) -> SummaryRequest:
    return replace(request, messages=request.messages[start:end], children=request.children[start:end])


def _prefix(request: SummaryRequest, start: int, end: int, fits: Fits) -> int:
    """How many inputs from `start` on fit together, at least one."""
    size = 1
    while start + size < end and fits(_slice(request, start, start + size + 1)):
        size += 1
    return size


def _segments(request: SummaryRequest, fits: Fits) -> list[SummaryRequest]:
    """One input as segments of its text, each of them as long as fits."""
    longest = _segment_line(request.inputs[0], 99_999, 99_999)
    texts = _split(request.inputs[0].content, lambda text: fits(_with_text(request, text, longest)))
    return _in_segments(request, texts)


def _in_segments(request: SummaryRequest, texts: Sequence[str]) -> list[SummaryRequest]:
    """One input as these texts; what a message's tool was asked and answered comes last, by itself."""
    whole = request.inputs[0]
    bare = [_with_text(request, text, "") for text in texts if text.strip()]
    if isinstance(whole, SourceMessage) and (whole.tool_name or (whole.tool_result or "").strip()):
        bare.append(replace(request, messages=(replace(whole, content=""),)))
    if len(bare) < 2:
        return [request]
    return [_marked(piece, _segment_line(whole, number, len(bare))) for number, piece in enumerate(bare, 1)]


def _with_text(request: SummaryRequest, text: str, segment: str) -> SummaryRequest:
    """A request of one input with another text, its tool traffic left out."""
    bare = (
        replace(message, content=text, segment=segment, tool_name=None, tool_args=None, tool_result=None)
        for message in request.messages
    )
    children = (replace(child, content=text, segment=segment) for child in request.children)
    return replace(request, messages=tuple(bare), children=tuple(children))


def _marked(request: SummaryRequest, segment: str) -> SummaryRequest:
    return replace(
        request,
        messages=tuple(replace(message, segment=segment) for message in request.messages),
        children=tuple(replace(child, segment=segment) for child in request.children),
    )


def _segment_line(whole: SourceMessage | SourceSummary, number: int, count: int) -> str:
    name = "message" if isinstance(whole, SourceMessage) else "summary"
    return f"[segment {number} of {count} of {name} {whole.id}]"


def _split(text: str, fits: Callable[[str], bool]) -> list[str]:
    """The text halved, and its halves halved, until each fits; put together they are the text."""
    if len(text) < 2 or fits(text):
        return [text]
    middle = _boundary(text)
    return _split(text[:middle], fits) + _split(text[middle:], fits)


def _boundary(text: str) -> int:
    """Where to part a text: behind the paragraph, line or word that ends nearest before the middle, else there."""
    middle = len(text) // 2
    for mark in ("\n\n", "\n", " "):
        place = text.rfind(mark, middle // 2, middle)
        if place > 0:
            return place + len(mark)
    return middle
