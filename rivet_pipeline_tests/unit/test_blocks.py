"""Content blocks as parts, prompts without what was put in front of them, calls and their ids."""

from __future__ import annotations

from typing import Any

import pytest

from rivet_pipeline.transcripts.readers.blocks import (
    Call,
    Calls,
    Result,
    file_text,
    parts_of,
    result_text,
    split_prompt,
)
from rivet_pipeline.transcripts.readers.shared import Said


def test_blocks_become_parts_in_their_order() -> None:
    parts, passed = parts_of(
        [
            "a",
            {"type": "text", "text": "b"},
            {"type": "text", "text": " "},
            {"type": "thinking", "thinking": "c", "signature": "zz"},
            {"type": "redacted_thinking", "data": "zz"},
            {"type": "tool_use", "id": "t", "name": "Read", "input": {"p": 1}},
            {"type": "tool-result", "tool_use_id": "t", "content": [{"type": "text", "text": "d"}], "is_error": True},
            {"type": "function_call", "function": {"name": "f", "arguments": "{"}},
            {"type": "novelty", "text": "e"},
            {"type": "novelty", "payload": 1},
            None,
            5,
        ],
        "assistant",
    )
    assert parts == [
        Said("assistant", "speech", "a\nb"),
        Said("assistant", "thinking", "c"),
        Call("Read", {"p": 1}, "t"),
        Result("d", "t", None, {"is_error": True}),
        Call("f", "{"),
        Said("assistant", "speech", "e"),
    ]
    assert passed == ["redacted_thinking block", "novelty block", "shapeless block"]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, "[image image/png, 3 bytes]"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            "[image image/png, 3 bytes]",
        ),
        ({"type": "image_url", "image_url": {"url": "data:image/webp;base64,AAAA"}}, "[image image/webp, 3 bytes]"),
        ({"type": "input_image", "image_url": "data:image/webp;base64,AAAA"}, "[image image/webp, 3 bytes]"),
        ({"type": "image", "url": "https://example.com/a.png"}, "[image https://example.com/a.png]"),
        ({"type": "video_url", "videoUrl": {"url": "ms://1"}}, "[video ms://1]"),
        ({"type": "document"}, "[document]"),
    ],
)
def test_files_are_named_and_never_held(block: dict[str, Any], expected: str) -> None:
    assert file_text(block) == expected
    assert result_text([block]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hi", [("speech", "hi")]),
        ("<system-reminder>x</system-reminder>", [("injected", "<system-reminder>x</system-reminder>")]),
        (
            "<user_info>\na\n</user_info>\n<git_status>b</git_status>\n\nhi <b>x</b>",
            [("injected", "<user_info>\na\n</user_info>\n<git_status>b</git_status>"), ("speech", "hi <b>x</b>")],
        ),
        ("<task>mine</task> please", [("speech", "<task>mine</task> please")]),
        ("explain <system-reminder>x</system-reminder>", [("speech", "explain <system-reminder>x</system-reminder>")]),
        ("<user_query>\nhi\n</user_query>", [("speech", "hi")]),
        ("what is <user_query>?", [("speech", "what is <user_query>?")]),
        (" ", []),
    ],
)
def test_prompts(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(said.kind, said.text) for said in split_prompt(text)] == expected


def test_calls_are_answered_once_and_by_name() -> None:
    calls = Calls()
    assert calls.answer("t") == "tool:t"
    assert [calls.open("t"), calls.open("t"), calls.answer("t")] == ["tool:t", "tool:t:2", "tool:t:2"]
    calls.open_nameless("a", "Read")
    calls.open_nameless("b", "Grep")
    assert [calls.answer_nameless("Grep"), calls.answer_nameless("Grep")] == ["b", None]
    assert [calls.answer_nameless(None), calls.answer_nameless(None)] == ["a", None]
    calls.open_nameless("c", "Read")
    calls.forget_nameless()
    assert calls.answer_nameless(None) is None
