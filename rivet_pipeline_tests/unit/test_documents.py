"""Reading one JSON document piece by piece."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rivet_pipeline.transcripts.documents import DocumentItem, Element, Member, read_document
from rivet_pipeline.transcripts.records import Damaged, Incomplete

DOCUMENT = {
    "id": "s1",
    "messages": [{"id": 1, "text": 'a "b" [c] {d}'}, {"id": 2, "text": "ü\\u0000 \U0001f600"}, {"id": 3, "n": -1.5e3}],
    "empty": [],
    "meta": {"list": [1, 2]},
    "count": 12,
}


class Slow(io.BytesIO):
    """Gives a few bytes at a time, whatever is asked for."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(7, size) if size is not None and size > 0 else 7)


def read(data: bytes | str, **options: Any) -> list[DocumentItem]:
    stream = Slow(data.encode() if isinstance(data, str) else data)
    return list(read_document(stream, **options))


def values(items: list[DocumentItem]) -> list[Any]:
    return [item.value for item in items if isinstance(item, Element | Member)]


def test_arrays_are_given_element_by_element_and_members_whole() -> None:
    items = read(json.dumps(DOCUMENT, indent=1), arrays=["messages"])
    assert [(item.key, item.index) for item in items if isinstance(item, Element)] == [
        ("messages", 0), ("messages", 1), ("messages", 2),
    ]  # fmt: skip
    assert [item.key for item in items if isinstance(item, Member)] == ["id", "empty", "meta", "count"]
    assert values(items) == ["s1", *DOCUMENT["messages"], [], {"list": [1, 2]}, 12]  # type: ignore[misc]


@pytest.mark.parametrize("text", ["[]", " [ ] ", "{}", "\ufeff[]", "", "  \n"])
def test_what_holds_nothing_gives_nothing(text: str) -> None:
    assert read(text) == []


def test_an_array_at_the_top_is_read_piece_by_piece() -> None:
    assert read("[1, 23, [4], null]") == [Element(1, "", n, value) for n, value in enumerate([1, 23, [4], None])]


@pytest.mark.parametrize("cut", range(1, len(json.dumps(DOCUMENT))))
def test_what_stands_before_a_cut_is_given(cut: int) -> None:
    text = json.dumps(DOCUMENT)
    whole, part = read(text), read(text[:cut])
    assert isinstance(part[-1], Incomplete)
    given_ = part[:-1]
    assert given_ == whole[: len(given_)]
    # Only the one that was cut, and a number that could go on, are missing.
    ends = [text.index(json.dumps(value)) + len(json.dumps(value)) for value in values(whole)]
    assert len(given_) >= sum(1 for end in ends if end < cut) - 1


def test_a_damaged_element_does_not_touch_its_neighbours() -> None:
    items = read('[{"id": 1, "t": "a"}, {"id": 2, "t": oops}, {"id": 3, "t": "c"}, {"id": 4}]')
    assert [item.value["id"] for item in items if isinstance(item, Element)] == [1, 3, 4]
    assert sum(isinstance(item, Damaged) for item in items) == 1


def test_bytes_that_are_no_utf_8_and_nuls_do_not_stop_it() -> None:
    assert values(read(b'{"a": "x\xff\x00y", "b": ["\xc3"]}')) == ["x\ufffdy", "\ufffd"]


@pytest.mark.parametrize("text", ["nonsense", '{"a": 1 2}', "{1: 2}", '{"a": 1} {"b": 2}', "[" * 100_000])
def test_what_is_no_document_is_damaged_or_unfinished(text: str) -> None:
    assert isinstance(read(text)[-1], Damaged | Incomplete)


def test_a_value_over_the_limit_is_damaged() -> None:
    items = list(read_document(io.BytesIO(json.dumps(["a", "b" * 300_000]).encode()), max_value=100_000))
    assert [type(item) for item in items] == [Element, Damaged]


def test_memory_is_bounded_by_the_largest_element() -> None:
    element = json.dumps({"text": "x" * 1000}) + ","
    data = ("[" + element * 30_000).rstrip(",") + "]"
    stream = io.BytesIO(data.encode())
    tracemalloc.start()
    count = sum(1 for _ in read_document(stream))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 30_000
    assert peak < 2_000_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), json_values, max_size=5), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_document_comes_out_as_it_went_in(document: dict[str, Any], ascii_only: bool) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only)
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        return
    found: dict[str, Any] = {key: [] for key, value in document.items() if isinstance(value, list)}
    for item in read(text):
        if isinstance(item, Element):
            found[item.key].append(item.value)
        elif isinstance(item, Member):
            found[item.key] = item.value
    expected = json.loads(text.replace("\x00", ""))
    assert found == expected
