"""The JSON in a model's answer is found whatever stands around it, or the failure has a name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rivet_pipeline.models.json_answer import MAX_DEPTH, parse_json_answer
from rivet_pipeline.models.protocols import ModelError


def anything(_value: Any) -> bool:
    return True


def tagged(value: Any) -> bool:
    return isinstance(value, dict) and "tags" in value


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"tags": ["a"]}', {"tags": ["a"]}),
        ('Here:\n```json\n{"tags": ["a"]}\n```\nDone.', {"tags": ["a"]}),
        ('<think>{"tags": ["no"]} or so</think>{"tags": ["a"]}', {"tags": ["a"]}),
        ('so, {"tags": 0}?\n</think>\n{"tags": 1}', {"tags": 1}),
        ('{"tags": ["a", "b",], }', {"tags": ["a", "b"]}),
        ('{"tags": "a } b ] c { \\" } [", "n": -1.5e3}', {"tags": 'a } b ] c { " } [', "n": -1500.0}),
        ('See [1] and {x}: {"tags": []} [2]', {"tags": []}),
        ('The set {"a", "b"} becomes {"tags": ["a"]}', {"tags": ["a"]}),
        ('["foo] bar {"tags": ["a"]}', {"tags": ["a"]}),
        ('["foo {"tags": ["a", "b"]} bar', {"tags": ["a", "b"]}),
        ('{"result": {"tags": ["a"]}}', {"tags": ["a"]}),
        ('{"result": [{"tags": ["a"]}, {"tags": ["b"]}', {"tags": ["a"]}),
        ('{"tags": "two\nlines"}', {"tags": "two\nlines"}),
        ('{"tags": "\\ud83d\\ude00 \\ud83d \\u0000"}', {"tags": "\U0001f600 \ufffd "}),
        ('{"tags": [true, false, null, 0, -0.5, 1E2]}', {"tags": [True, False, None, 0, -0.5, 100.0]}),
        (f'{{"tags": {"9" * 400}}}', {"tags": int("9" * 400)}),
        ('{"tags": 1e999} {"tags": 2}', {"tags": 2}),
        ('{"tags": 01} {"tags": 2}', {"tags": 2}),
        ('{"tags": NaN} {"tags": 2}', {"tags": 2}),
        ('{"tags" "a"} {tags: 1} {"tags": ,} {,} {"tags": 2}', {"tags": 2}),
        ('{"tags": 1]} [{"tags": 2}', {"tags": 2}),
        ('{"tags": 1, "tags": []} {"tags": 2}', {"tags": 2}),
        ('{"tags": {"a": 1, "a": {}}} {"tags": {"a": {"a": 2}}}', {"tags": {"a": {"a": 2}}}),
    ],
)
def test_what_is_found(answer: str, value: Any) -> None:
    assert parse_json_answer(answer, tagged) == value


def test_an_empty_array_is_an_answer_when_it_fits() -> None:
    assert parse_json_answer("[]", lambda value: isinstance(value, list)) == []
    with pytest.raises(ModelError, match="wrong-shape"):
        parse_json_answer("[]", tagged)


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("", "no-json"),
        ("I found no tags.", "no-json"),
        ('{"tags": ["a"', "no-json"),
        ('<think>{"tags": ["a"]}', "no-json"),
        ("{'tags': ['a']}", "no-json"),
        ("{'tags': [1]}", "wrong-shape"),
        ('{"topics": []}', "wrong-shape"),
        ('"{}"', "wrong-shape"),
    ],
)
def test_what_is_not_found_has_a_name(answer: str, name: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_json_answer(answer, tagged)
    assert (caught.value.cause, caught.value.name) == ("content", name)


def test_an_outer_value_is_looked_at_before_its_inner_ones() -> None:
    seen: list[Any] = []

    def refuse(value: Any) -> bool:
        seen.append(value)
        return False

    with pytest.raises(ModelError):
        parse_json_answer('[{"a": [1]}, {"b": 2}]', refuse)
    assert seen == [[{"a": [1]}, {"b": 2}], {"a": [1]}, [1], {"b": 2}]


keys = st.text(st.characters(min_codepoint=32, max_codepoint=1000))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    # What can be stored: the rest is cleaned away.
    | st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.parametrize("frame", ["{}", "  {}\n", "```json\n{}\n```"])
@pytest.mark.parametrize("tag", ["</think>", "<think>", "[/THINK]", "</THINKING>"])
def test_an_answer_may_speak_of_the_tags_of_thinking(frame: str, tag: str) -> None:
    wanted = {"summary": f"the model ends its thoughts with {tag} and goes on", tag: 1}
    assert parse_json_answer(frame.format(json.dumps(wanted)), lambda found: found == wanted) == wanted


@settings(max_examples=50, deadline=None)
@given(
    st.lists(json_values) | st.dictionaries(st.text("abc"), json_values),
    st.text('ab "\\\n,:}]{['),
    st.text("ab \"\\\n,:}]{['"),
    st.sampled_from([None, 2]),
)
def test_every_value_is_found_in_any_prose(value: Any, before: str, behind: str, indent: int | None) -> None:
    wanted = {"the answer": value}
    answer = f"{before}\n{json.dumps(wanted, ensure_ascii=False, indent=indent)}{behind}"
    # Behind prose a closing tag ends what was thought.
    assume("think" not in answer.lower())
    assert parse_json_answer(answer, lambda found: found == wanted) == wanted


@settings(deadline=None)
@given(st.text('{}[]",:1a\\ \n'))
def test_it_accepts_all_that_the_standard_parser_does_but_for_keys_that_stand_twice(text: str) -> None:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key stands twice")
        return dict(pairs)

    try:
        standard = json.loads(text, object_pairs_hook=once)
    except ValueError:
        return
    if isinstance(standard, dict | list):
        assert parse_json_answer(text, anything) == standard


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 40_000, '["' * 60_000, "[1," * 60_000, '["a' * 40_000, "[" * 40_000 + "]" * 40_000,
     '{"' * 40_000 + '"}' * 40_000, "<think>" * 40_000, "<think></think>" * 40_000, "\n<think>x" * 40_000,
     " " * 100_000 + "<think>", '["\\' * 60_000],
)  # fmt: skip
def test_the_worst_answers_are_read_in_linear_time(text: str) -> None:
    # Each of these would take hours, or the whole stack, if a start were read again from every place in it.
    with pytest.raises(ModelError):
        parse_json_answer(text, lambda value: value == "never")


def test_what_is_nested_too_deeply_is_no_answer_and_its_inside_is() -> None:
    deepest = parse_json_answer("[" * 1000 + "]" * 1000, anything)
    depth = 0
    while deepest:
        deepest, depth = deepest[0], depth + 1
    assert depth < MAX_DEPTH
