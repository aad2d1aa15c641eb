"""The ids of messages that bring none: what tells two messages apart tells their ids apart, and nothing else does."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.transcripts.append import (
    NewMessage,
    ToolCall,
    append_event_id,
    attribute,
    ingest_event_id,
)
from rivet_pipeline.transcripts.cleaning import clean_json, clean_text

_TEXTS = st.text(max_size=40) | st.sampled_from(["", "\x00", "append", "user", "null", '""', "🚀" * 9_000])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_OBJECTS = st.none() | st.dictionaries(st.text(max_size=5), _JSON, max_size=3)
_MESSAGES = st.builds(
    NewMessage,
    role=st.sampled_from(["user", "assistant", "system", "tool"]),
    content=_TEXTS,
    tool_name=st.none() | st.text(min_size=1, max_size=8),
    tool_args=_OBJECTS,
    tool_result=st.none() | _TEXTS,
)


def said(message: NewMessage) -> str:
    """All that a message says, written in another way than the ids are."""
    parts = [message.role, message.content, message.tool_name, message.tool_args, message.tool_result]
    return json.dumps(clean_json(parts), sort_keys=True)


@given(_MESSAGES, _MESSAGES)
def test_two_messages_share_an_id_only_when_they_say_the_same(one: NewMessage, other: NewMessage) -> None:
    same = said(one) == said(other)
    assert (append_event_id("s", "a", one) == append_event_id("s", "a", other)) is same
    assert (ingest_event_id("s", "a", 3, one) == ingest_event_id("s", "a", 3, other)) is same


@given(_MESSAGES, st.none() | _TEXTS, st.none() | _TEXTS)
def test_another_tool_result_is_another_message(message: NewMessage, one: str | None, other: str | None) -> None:
    ids = [append_event_id("s", "a", replace(message, tool_result=result)) for result in (one, other)]
    cleaned = [None if result is None else clean_text(result) for result in (one, other)]
    assert (ids[0] == ids[1]) is (cleaned[0] == cleaned[1])


@given(_MESSAGES, st.dictionaries(st.text(max_size=5), _JSON, min_size=2, max_size=5), st.randoms())
def test_the_order_of_arguments_is_no_difference(
    message: NewMessage, arguments: dict[str, Any], shuffler: random.Random
) -> None:
    items = list(arguments.items())
    shuffler.shuffle(items)
    one, other = replace(message, tool_args=arguments), replace(message, tool_args=dict(items))
    assert append_event_id("s", "a", one) == append_event_id("s", "a", other)


@given(_MESSAGES, st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_repeated_line_has_the_id_of_its_place(message: NewMessage, one: int, other: int) -> None:
    ids = [ingest_event_id("s", "a", ordinal, message) for ordinal in (one, other)]
    assert (ids[0] == ids[1]) is (one == other)


@given(_MESSAGES)
def test_an_id_belongs_to_its_session_agent_and_way_in(message: NewMessage) -> None:
    ids = {
        append_event_id("s", "a", message),
        append_event_id("t", "a", message),
        append_event_id("s", "b", message),
        ingest_event_id("s", "a", 0, message),
    }
    assert len(ids) == 4
    assert {len(identity) for identity in ids} == {len("sha256:") + 64}


def test_the_tail_beyond_the_cap_tells_messages_apart() -> None:
    ids = {append_event_id("s", "a", NewMessage("user", "x" * 20_000 + tail)) for tail in ("a", "b")}
    assert len(ids) == 2


def test_other_tool_calls_are_another_message() -> None:
    calls = [ToolCall("Bash", {"command": "ls"}, "c1"), ToolCall("Bash", {"command": "pwd"}, "c2")]
    ids = {ingest_event_id("s", "a", 0, NewMessage("assistant", tool_calls=calls[:count])) for count in range(3)}
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("arguments", "defaults", "expected"),
    [
        ({}, {}, ("mcp", "mcp", "mcp", None)),
        ({"agent": " "}, {"agent": " grok "}, ("mcp", "grok", "mcp", None)),
        (
            {"agent": "opus", "persona": "pirate", "source": "s", "channel": "c"},
            {"agent": "grok", "persona": "clown"},
            ("s", "opus", "c", "pirate"),
        ),
        ({}, {"source": "a", "agent": "b", "channel": "c", "persona": "d"}, ("a", "b", "c", "d")),
        ({"persona": "pirate"}, {}, ("mcp", "mcp", "mcp", "pirate")),
    ],
)
def test_who_speaks_is_said_by_the_call_then_the_process_then_nobody(
    arguments: dict[str, str], defaults: dict[str, str | None], expected: tuple[str, str, str, str | None]
) -> None:
    found = attribute(defaults, **arguments)
    assert (found.source, found.agent, found.channel, found.persona) == expected


def test_an_agents_name_is_bounded() -> None:
    with pytest.raises(InvalidInputError, match="agent: must have at most 200 characters"):
        attribute({}, agent="x" * 201)
