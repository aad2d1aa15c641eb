"""What a writer of tool-call texts is asked and what it answers. Plain data and one protocol, no work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

#: No text is longer, in characters.
LONGEST = 400


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call without words of its own. `result` may be the beginning and the end of a long one; None: none came."""

    name: str
    args: Any = None
    result: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int | None:
        """The exit code that the capture noted."""
        code = self.metadata.get("exit_code")
        return code if isinstance(code, int) and not isinstance(code, bool) else None

    @property
    def failed(self) -> bool:
        """Whether the capture says so: as an error, or as an exit code other than 0."""
        return self.metadata.get("is_error") is True or bool(self.exit_code)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text that may be stored. Tokens are the model's own count, 0 when it gives none."""

    text: str
    tokens: int = 0


class Writer(Protocol):
    """Says in one past-tense sentence what a tool call did."""

    @property
    def name(self) -> str:
        """What is stored as `content_made_by`."""
        ...

    @property
    def asks_a_model(self) -> bool:
        """Whether a sentence costs a model call, so that a pass has to be bounded."""
        ...

    def write(self, call: ToolCall) -> Sentence:
        """The sentence. Raises `ModelError` when there is none: never a filler."""
        ...
