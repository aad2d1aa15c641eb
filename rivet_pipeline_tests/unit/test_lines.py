"""Reading JSON lines as they are found on disk."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rivet_pipeline.transcripts.lines import (
    CUT_SHORT,
    NOT_AN_OBJECT,
    NOT_JSON,
    TOO_DEEP,
    TOO_LONG,
    Line,
    LineItem,
    open_stream,
    read_lines,
    without_compression,
)
from rivet_pipeline.transcripts.records import Damaged, Incomplete, Paused

ONE = {"type": "user", "uuid": "1", "message": {"role": "user", "content": [{"type": "text", "text": 'a "b" {c}'}]}}
TWO = {"type": "assistant", "uuid": "2", "timestamp": "2026-01-01T00:00:00Z", "message": {"content": "two"}}
THREE = {"type": "user", "uuid": "3", "message": {"content": "three"}}


def dump(value: Any) -> bytes:
    return json.dumps(value).encode()


def read(data: bytes, max_line: int = 1 << 20) -> list[LineItem]:
    return list(read_lines(io.BytesIO(data), max_line=max_line))


def test_plain_lines_keep_their_numbers_and_blank_ones_are_ignored() -> None:
    assert read(dump(ONE) + b"\n\n  \r\n" + dump(TWO) + b"\r\n") == [Line(1, ONE), Line(4, TWO)]


def test_two_whole_records_on_one_line_are_both_given() -> None:
    assert read(dump(ONE) + dump(TWO) + b" " + dump(THREE) + b"\n") == [Line(1, ONE), Line(1, TWO), Line(1, THREE)]


@pytest.mark.parametrize("cut", range(1, len(dump(ONE))))
def test_a_cut_record_loses_itself_only_wherever_it_was_cut(cut: int) -> None:
    data = dump(THREE) + b"\n" + dump(ONE)[:cut] + dump(TWO) + b"\n" + dump(THREE) + b"\n"
    assert read(data) == [Line(1, THREE), Damaged(2, CUT_SHORT), Line(2, TWO), Line(3, THREE)]


@pytest.mark.parametrize("cut", range(1, len(dump(TWO))))
def test_a_cut_record_before_two_whole_ones_gives_both(cut: int) -> None:
    data = dump(TWO)[:cut] + dump(TWO) + dump(ONE) + b"\n"
    assert read(data) == [Damaged(1, CUT_SHORT), Line(1, TWO), Line(1, ONE)]


def test_two_cut_records_in_a_row_count_as_one_stretch() -> None:
    assert read(dump(ONE)[:60] + dump(THREE)[:30] + dump(TWO) + b"\n") == [Damaged(1, CUT_SHORT), Line(1, TWO)]


def test_the_parts_of_a_cut_record_are_not_taken_for_records() -> None:
    data = b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"x"}]}\n'
    assert read(data) == [Damaged(1, CUT_SHORT)]


def test_nuls_before_and_inside_a_record_are_stripped() -> None:
    assert read(b"\x00" * 700 + dump(ONE) + b"\n" + dump(TWO) + b"\n") == [Line(1, ONE), Line(2, TWO)]
    assert read(dump(ONE) + b"\n" + b"\x00" * 300) == [Line(1, ONE)]


def test_a_line_over_the_limit_is_counted_and_its_neighbours_are_kept() -> None:
    long = dump({"text": "x" * 5000})
    assert read(dump(ONE) + b"\n" + long + b"\n" + dump(TWO) + b"\n", 1000) == [
        Line(1, ONE),
        Damaged(2, TOO_LONG),
        Line(3, TWO),
    ]
    assert read(dump(ONE) + b"\n" + long, 1000) == [Line(1, ONE), Damaged(2, TOO_LONG)]


def test_a_line_of_exactly_the_limit_is_read() -> None:
    assert read(dump(ONE) + b"\n" + dump(TWO), len(dump(ONE))) == [Line(1, ONE), Line(2, TWO)]


def test_a_huge_line_is_never_held() -> None:
    class Huge(io.RawIOBase):
        """Two small records with 200 MB between them, made as they are read."""

        def __init__(self) -> None:
            self.left = [dump(ONE) + b"\n", *[b"x" * 1_000_000] * 200, b"\n" + dump(TWO) + b"\n"]

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            if not self.left:
                return 0
            part = self.left.pop(0)
            size = min(len(part), len(buffer))
            buffer[:size] = part[:size]
            if part[size:]:
                self.left.insert(0, part[size:])
            return size

    tracemalloc.start()
    try:
        items = list(read_lines(io.BufferedReader(Huge()), max_line=1 << 20))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert items == [Line(1, ONE), Damaged(2, TOO_LONG), Line(3, TWO)]
    assert peak < 10_000_000


def test_bytes_that_are_not_utf8_are_replaced_and_lone_surrogates_survive() -> None:
    items = read(b'{"a":"caf\xe9","b":"\\ud83d"}\n')
    assert items == [Line(1, {"a": "caf\ufffd", "b": "\ud83d"})]


def test_a_byte_order_mark_and_control_characters_in_strings_are_no_damage() -> None:
    assert read(b'\xef\xbb\xbf{"a":"x\ty"}\n') == [Line(1, {"a": "x\ty"})]


def test_what_is_no_object_counts_as_damaged() -> None:
    assert read(b'"text"\n42\n[1]\nnull\nwords\n') == [
        *[Damaged(number, NOT_AN_OBJECT) for number in (1, 2, 3, 4)],
        Damaged(5, NOT_JSON),
    ]


def test_a_number_that_python_refuses_is_kept_as_text_and_such_nesting_is_damage() -> None:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    assert read(b'{"a":' + b"9" * 5000 + b"}\n" + deep + b"\n" + dump(ONE) + b"\n") == [
        Line(1, {"a": "9" * 5000}),
        Damaged(2, TOO_DEEP),
        Line(3, ONE),
    ]


def test_an_unterminated_last_line_is_given_when_whole_and_incomplete_when_not() -> None:
    assert read(dump(ONE) + b"\n" + dump(TWO)) == [Line(1, ONE), Line(2, TWO)]
    assert read(dump(ONE) + b"\n" + dump(TWO)[:20]) == [Line(1, ONE), Incomplete(2)]
    assert read(dump(ONE) + dump(TWO)[:20]) == [Line(1, ONE), Incomplete(1)]
    assert read(dump(ONE)[:20] + dump(TWO)) == [Damaged(1, CUT_SHORT), Line(1, TWO)]


def test_progress_adds_up_to_the_size() -> None:
    data = dump(ONE) + b"\n" + b"y" * 5000 + b"\n" + dump(TWO)
    steps: list[int] = []
    list(read_lines(io.BytesIO(data), max_line=1000, advance=steps.append))
    assert sum(steps) == len(data)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=8), st.booleans())
def test_no_input_raises_and_whole_neighbours_are_always_there(parts: list[bytes], ended: bool) -> None:
    garbage = b"".join(parts).replace(b"\n", b"")
    items = read(dump(ONE) + b"\n" + garbage + b"\n" + dump(TWO) + (b"\n" if ended else b""))
    assert items[0] == Line(1, ONE)
    assert items[-1] == Line(3, TWO)


@pytest.mark.parametrize(
    "hopeless",
    [b'{"k":' * 300_000, b'{"k":"x' * 200_000, b'{"k":1,' * 200_000, b'[{"k":1},' * 150_000, b"{" * 1_000_000],
    ids=["nested", "strings", "keys", "lists", "braces"],
)
@pytest.mark.timeout(20)
def test_a_hopeless_line_is_given_up_in_bounded_time(hopeless: bytes) -> None:
    items = read(hopeless + b"\n" + dump(ONE) + b"\n", 1 << 24)
    assert items[-1] == Line(2, ONE)
    assert all(isinstance(item, Damaged | Line) for item in items)


def test_following_goes_on_where_the_last_whole_line_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(dump(ONE) + b"\n" + dump(TWO)[:20])
    read_bytes = 0

    def advance(size: int) -> None:
        nonlocal read_bytes
        read_bytes += size

    with path.open("rb") as stream:
        items = read_lines(stream, max_line=1 << 20, advance=advance, follow=True)
        assert [next(items), next(items), next(items)] == [Line(1, ONE), Paused(), Paused()]
        assert read_bytes == len(dump(ONE)) + 1
        with path.open("ab") as writer:
            writer.write(dump(TWO)[20:] + b"\n" + dump(THREE))
        assert [next(items), next(items)] == [Line(2, TWO), Paused()]
        with path.open("ab") as writer:
            writer.write(b"\n")
        assert [next(items), next(items)] == [Line(3, THREE), Paused()]


def test_following_steps_over_a_line_that_is_too_long_in_whatever_pieces_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"x": "' + b"y" * 5000)
    with path.open("rb") as stream:
        items = read_lines(stream, max_line=1000, follow=True)
        assert next(items) == Paused()
        with path.open("ab") as writer:
            writer.write(b"z" * 3000)
        assert next(items) == Paused()
        with path.open("ab") as writer:
            writer.write(b'"}\n' + dump(TWO) + b"\n")
        assert [next(items), next(items)] == [Damaged(1, TOO_LONG), Line(2, TWO)]


def test_compressed_files_are_read_through_all_their_frames(tmp_path: Path) -> None:
    import zstandard

    path = tmp_path / "a.jsonl.zst"
    pack = zstandard.ZstdCompressor().compress
    path.write_bytes(pack(dump(ONE) + b"\n") + pack(dump(TWO) + b"\n" + dump(THREE)))
    with open_stream(path) as stream:
        assert list(read_lines(stream, max_line=1 << 20)) == [Line(1, ONE), Line(2, TWO), Line(3, THREE)]
    assert without_compression(path).name == "a.jsonl"


def test_a_file_that_only_claims_to_be_compressed_can_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(dump(ONE))
    with open_stream(path) as stream, pytest.raises(OSError, match="zstd"):
        list(read_lines(stream, max_line=1 << 20))
