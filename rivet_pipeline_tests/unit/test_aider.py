"""What becomes of Aider's chat history."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rivet_pipeline.transcripts.readers.aider import AiderReader
from rivet_pipeline.transcripts.reading import HEAD_BYTES, Head, Reading
from rivet_pipeline.transcripts.records import (
    Damaged,
    Incomplete,
    Message,
    MessageRecord,
    ReadItem,
    SessionUpdate,
    Skipped,
)

NAME = ".aider.chat.history.md"

#: As the program writes it: marked lines end in two blanks.
RUN = """
# aider chat started at 2026-01-02 10:00:00

> /usr/bin/aider app.py  
> Aider v0.80.1  
> Main model: sonnet with diff edit format  

#### add a test  
####   
#### and run it  

Here it is:

app_test.py
```python
<<<<<<< SEARCH
=======
def test(): ...
>>>>>>> REPLACE
```

> Tokens: 10 sent, 20 received.  
> Applied edit to app_test.py  

#### /run pytest  
> ===== test session starts =====
one.py:1: 
>       assert False
E       AssertionError

===== 1 failed =====  
> Add the output to the chat? n  
"""  # noqa: W291


def read(tmp_path: Path, text: str, *, settled: bool = True, name: str = NAME) -> list[ReadItem]:
    path = tmp_path / name
    path.write_text(text)
    return list(AiderReader().read(path, Reading("rivet-aider", settled=settled)))


def messages(items: list[ReadItem]) -> list[MessageRecord]:
    return [item.record for item in items if isinstance(item, Message)]


def said(items: list[ReadItem]) -> list[tuple[str, str, str]]:
    return [
        (record.role, record.metadata.get("kind", "speech"), record.content or record.tool_result or "")
        for record in messages(items)
    ]


def keys(items: list[ReadItem]) -> list[str]:
    return list(dict.fromkeys(item.session.session_key for item in items if isinstance(item, Message)))


def counts(items: list[ReadItem]) -> Counter[tuple[str, str]]:
    return Counter((role, kind) for role, kind, _ in said(items))


def test_a_run_becomes_prompts_answers_and_prints(tmp_path: Path) -> None:
    items = read(tmp_path, RUN)
    answer = RUN[RUN.index("Here it is") : RUN.index("\n\n> Tokens")]
    output = (
        "===== test session starts =====\none.py:1: \n>       assert False\nE       AssertionError\n\n"
        "===== 1 failed =====  \nAdd the output to the chat? n"
    )
    assert said(items) == [
        (
            "system",
            "notice",
            "/usr/bin/aider app.py\nAider v0.80.1\nMain model: sonnet with diff edit format",
        ),
        ("user", "speech", "add a test\n\nand run it"),
        ("assistant", "speech", answer),
        ("tool", "tool", "Tokens: 10 sent, 20 received.\nApplied edit to app_test.py"),
        ("user", "speech", "/run pytest"),
        ("tool", "tool", output),
    ]
    records = messages(items)
    assert [record.created_at for record in records] == [datetime(2026, 1, 2, 10, tzinfo=UTC), *[None] * 5]
    assert records[0].metadata["time_source"] == "local, zone unknown"
    assert (records[3].content, records[3].tool_name) == ("", "aider")
    session = next(item.session for item in items if isinstance(item, Message))
    assert session.session_key.startswith("aider:2026-01-02T10:00:00-")
    assert session.settings == {
        "source": "aider",
        "session_id": session.session_key.removeprefix("aider:"),
        "cwd": str(tmp_path),
        "file": str(tmp_path / NAME),
        "version": "0.80.1",
        "model": "sonnet",
    }
    assert [item.session.title for item in items if isinstance(item, SessionUpdate)] == ["add a test and run it"]


def test_a_session_keeps_its_key_wherever_the_file_goes(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    first = read(tmp_path, RUN)
    moved = read(tmp_path / "elsewhere", RUN, name="old.md")
    assert keys(moved) == keys(first)
    assert [record.event_id for record in messages(moved)] == [record.event_id for record in messages(first)]
    assert all("cwd" not in item.session.settings for item in moved if isinstance(item, Message))


def test_runs_of_the_same_second_are_sessions_of_their_own(tmp_path: Path) -> None:
    assert len(keys(read(tmp_path, RUN + RUN))) == 2
    assert keys(read(tmp_path, RUN + RUN))[:1] == keys(read(tmp_path, RUN))
    other = RUN.replace("app.py", "other.py")
    assert keys(read(tmp_path, other)) != keys(read(tmp_path, RUN))


def test_a_run_in_which_nothing_was_said_is_no_session(tmp_path: Path) -> None:
    header = "# aider chat started at 2026-01-01 00:00:00\n\n"
    assert read(tmp_path, header + "\n" + header) == []


def test_marks_in_a_code_block_are_text(tmp_path: Path) -> None:
    answer = """The history looks like this:

````markdown

# aider chat started at 2020-01-01 00:00:00

#### quoted prompt  

> quoted print  
```
nested
```

````

That is all.
"""  # noqa: W291
    items = read(tmp_path, f"{RUN}\n#### how does it look?  \n\n{answer}\n> Tokens: 1 sent  \n")
    assert len(keys(items)) == 1
    assert said(items)[-2] == ("assistant", "speech", answer.strip())


def test_marks_in_an_edit_are_text(tmp_path: Path) -> None:
    answer = (
        "<<<<<<< SEARCH\n\n#### not a prompt  \n```\n=======\n\n> not a print  \n>>>>>>> REPLACE"  # no fence around it
    )
    items = read(tmp_path, f"{RUN}\n#### edit  \n\n{answer}\n\n> Applied edit to x  \n")
    assert said(items)[-2:] == [("assistant", "speech", answer), ("tool", "tool", "Applied edit to x")]


def test_an_answer_that_was_cut_off_in_a_code_block_hides_nothing(tmp_path: Path) -> None:
    cut = "\n#### go  \n\nSure:\n```python\ndef half(\n\n> ^C KeyboardInterrupt  \n"
    items = read(tmp_path, RUN + cut + RUN)
    assert len(keys(items)) == 2
    assert ("assistant", "speech", "Sure:\n```python\ndef half(") in said(items)
    assert ("system", "notice", "^C KeyboardInterrupt") in said(items)


def test_another_code_block_is_not_the_end_of_one_that_was_cut_off(tmp_path: Path) -> None:
    cut = "\n#### go  \n\nSure:\n```\nhalf of\n"
    again = "\n#### again  \n\nSure:\n```\nall of it\n```\n\n> Tokens: 1 sent  \n"
    assert said(read(tmp_path, RUN + cut + RUN + again))[-3:] == [
        ("user", "speech", "again"),
        ("assistant", "speech", "Sure:\n```\nall of it\n```"),
        ("system", "notice", "Tokens: 1 sent"),
    ]
    assert len(keys(read(tmp_path, RUN + cut + RUN + again))) == 2


def test_a_models_headings_and_quotations_are_its_own(tmp_path: Path) -> None:
    answer = "#### Step one\n\nAs you said:\n\n> a quotation\n> of two lines\n\nDone."
    items = read(tmp_path, f"{RUN}\n#### plan  \n\n{answer}\n\n> Tokens: 1 sent  \n")
    assert said(items)[-2:] == [("assistant", "speech", answer), ("system", "notice", "Tokens: 1 sent")]


def test_a_print_goes_on_until_its_last_line(tmp_path: Path) -> None:
    command = "> aider --message # Task\n\n**Files**:  \n- `a.py`\n\nDo it.  \n> Aider v1.0  \n"
    items = read(tmp_path, f"# aider chat started at 2026-01-01 00:00:00\n\n{command}\n#### # Task  \n")
    assert said(items) == [
        ("system", "notice", "aider --message # Task\n\n**Files**:  \n- `a.py`\n\nDo it.  \nAider v1.0"),
        ("user", "speech", "# Task"),
    ]


def test_an_editor_may_have_taken_the_blanks_away(tmp_path: Path) -> None:
    lines = "".join(line.rstrip() + "\n" for line in RUN.splitlines())
    text = f"{lines}\n#### again\nYes.\n> Applied edit to a.py\n\n#### once more\n\nNo.\n"
    assert said(read(tmp_path, text))[-4:] == [
        ("user", "speech", "again"),
        ("assistant", "speech", "Yes.\n> Applied edit to a.py"),
        ("user", "speech", "once more"),
        ("assistant", "speech", "No."),
    ]


def test_commands_made_up_prompts_and_repeated_questions_are_told_apart(tmp_path: Path) -> None:
    prompts = ["/undo", "<blank>", "/add a.py", "/ask why?", " why?", "why?", "# Fix any errors below, if possible."]
    text = RUN + "".join(f"\n#### {prompt}  \n" for prompt in prompts)
    assert [(kind, words) for role, kind, words in said(read(tmp_path, text)) if role == "user"][2:] == [
        ("notice", "/undo"),
        ("notice", "<blank>"),
        ("speech", "/add a.py"),
        ("speech", "/ask why?"),
        ("replay", " why?"),
        ("speech", "why?"),
        ("injected", "# Fix any errors below, if possible."),
    ]


def test_a_command_names_a_session_only_by_what_it_asks(tmp_path: Path) -> None:
    header = "# aider chat started at 2026-01-01 00:00:00\n"
    items = read(tmp_path, f"{header}\n#### /add a.py  \n\n#### /ask  why so?  \n")
    assert [item.session.title for item in items if isinstance(item, SessionUpdate)] == ["why so?"]


def test_a_models_thoughts_stand_apart(tmp_path: Path) -> None:
    text = f"{RUN}\n#### hm  \n\n<thinking-content-7bb>\nlet me see\n</thinking-content-7bb>\n\nSo.\n"
    assert said(read(tmp_path, text))[-2:] == [("assistant", "thinking", "let me see"), ("assistant", "speech", "So.")]


def test_what_stands_before_the_first_header_is_a_session(tmp_path: Path) -> None:
    head = "-*- mode: fundamental -*-\n> old print  \n\n#### old prompt  \n\nOld answer.\n"
    items = read(tmp_path, head + RUN)
    assert said(items)[:3] == [
        ("system", "notice", "old print"),
        ("user", "speech", "old prompt"),
        ("assistant", "speech", "Old answer."),
    ]
    assert keys(items)[0].startswith("aider:head-")
    assert messages(items)[0].created_at == datetime(2026, 1, 2, 10, tzinfo=UTC)
    assert messages(items)[0].metadata["time_source"] == "before the next session"
    assert [item.reason for item in items if isinstance(item, Skipped)] == ["an editor's mode line"]
    assert keys(read(tmp_path, head + RUN + RUN))[0] == keys(items)[0]


def test_a_head_waits_for_the_header_that_dates_it(tmp_path: Path) -> None:
    head = "#### old prompt  \n\nOld answer.\n"
    assert read(tmp_path, head, settled=False) == [Incomplete(1)]
    assert [record.created_at for record in messages(read(tmp_path, head))] == [None, None]


def test_the_last_part_waits_while_the_file_is_written(tmp_path: Path) -> None:
    items = read(tmp_path, RUN, settled=False)
    assert messages(items) == messages(read(tmp_path, RUN))[:-1]
    assert isinstance(items[-1], Incomplete)


@pytest.mark.parametrize("cut", range(0, len(RUN) * 2 + 60, 7))
def test_a_beginning_gives_what_the_whole_gives(tmp_path: Path, cut: int) -> None:
    text = f"> old  \n{RUN}\n#### code  \n\n```\n\n#### quoted  \n```\n{RUN}"
    whole = messages(read(tmp_path, text))
    begun = messages(read(tmp_path, text[:cut], settled=False))
    assert begun == whole[: len(begun)]


def test_damaged_lines_touch_no_other(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(
        b"\xef\xbb\xbf" + RUN.encode().replace(b"and run it", b"and \xff\x00 it") + b"\n" + b"x" * 500 + b"\n"
    )
    advanced: list[int] = []
    items = list(AiderReader().read(path, Reading("a", max_line=400, advance=advanced.append)))
    assert said(items)[1][2] == "add a test\n\nand \ufffd it"
    assert [item.reason for item in items if isinstance(item, Damaged)] == ["line too long"]
    assert sum(advanced) == path.stat().st_size


def test_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(RUN.replace("\n", "\r\n").encode())
    assert messages(list(AiderReader().read(path, Reading("a")))) == messages(read(tmp_path, RUN))


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        (NAME, RUN, True),
        ("history.md", RUN, True),
        ("cut.md", f"end of an answer\n\n> Tokens: 1 sent  \n{RUN}", True),
        ("cut.md", "end\n\n> Tokens: 1 sent, 2 received.  \n\n#### go  \n\nYes.\n", True),
        (NAME, "#### go\n", True),
        (NAME, "", False),
        ("README.md", f"# Tool\n\nIt reads this:\n\n````\n{RUN.strip()}\n", False),
        ("README.md", "# Tool\n\nSee below.\n\n# aider chat started at 2026-01-01 00:00:00\n", False),
        ("CHANGELOG.md", "# Changes\n\n#### Fixed  \n\n> Note: all of it  \n", False),
    ],
)
def test_it_is_recognised_by_name_and_content(tmp_path: Path, name: str, text: str, known: bool) -> None:
    assert AiderReader().sniff(Head(tmp_path / name, text.encode()[:HEAD_BYTES], whole=True)) is known


def test_the_real_history(shared_data: Path) -> None:
    path = shared_data / "transcripts/aider/chat-history_middle.md"
    items = list(AiderReader().read(path, Reading("rivet-aider")))
    # 84 prompts: 30 bare commands and empty ones, 2 made up by the linter, 4 questions that /ask had asked.
    assert {kind: count for (role, kind), count in counts(items).items() if role == "user"} == {
        "speech": 48,
        "notice": 30,
        "injected": 2,
        "replay": 4,
    }
    # 41 answers with a report of tokens behind them, and two that were interrupted.
    assert counts(items)["assistant", "speech"] == 43
    assert counts(items)["assistant", "thinking"] == 0
    # 41 headers, of which 8 are followed by nothing.
    assert len(keys(items)) == 33
    assert len(
        {(item.session.session_key, item.record.event_id) for item in items if isinstance(item, Message)}
    ) == len(messages(items))
    [output] = [
        words for role, _, words in said(items) if role == "tool" and words.startswith("=") and "(y/n/instr" in words
    ][:1]
    assert "(y/n/instructions) does self.scrape_with_playwright always return the tuple?" in output


def test_the_real_history_that_begins_in_the_middle(shared_data: Path) -> None:
    path = shared_data / "transcripts/aider/chat-history_head_no-header.md"
    items = list(AiderReader().read(path, Reading("rivet-aider")))
    assert {key: count for key, count in counts(items).items() if key[0] != "system"} == {
        ("user", "speech"): 9,
        ("user", "notice"): 2,
        ("user", "injected"): 1,
        ("assistant", "speech"): 5,
        ("tool", "tool"): 6,
    }
    assert keys(items)[0].startswith("aider:head-")
    assert next(words for role, _, words in said(items) if role == "system").startswith("isort....")
    repo_map = next(words for _, _, words in said(items) if "summaries of some files" in words)
    assert repo_map.endswith("tests/scrape/test_scrape.py")


def test_the_small_sample(shared_data: Path) -> None:
    path = shared_data / "transcripts/aider/agentsview_small.aider.chat.history.md"
    items = list(AiderReader().read(path, Reading("rivet-aider")))
    assert counts(items) == {("user", "speech"): 3, ("assistant", "speech"): 3, ("tool", "tool"): 2}
    assert len(keys(items)) == 2
