"""Workspace files: read within bounds from their own folder, and nothing else is."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from rivet_pipeline.retrieval import workspace
from rivet_pipeline.retrieval.workspace import WORKSPACE_FILES, read_workspace
from rivet_pipeline.settings import Settings

DAY = date(2026, 3, 10)


def test_files_come_in_their_order_and_todays_notes_last(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    for name in [*reversed(WORKSPACE_FILES), "memory/2026-03-10.md", "memory/2026-03-09.md", "OTHER.md"]:
        (tmp_path / name).write_text(f"this is {name}\n")
    found = read_workspace(tmp_path, DAY)
    assert [file.name for file in found.files] == [*WORKSPACE_FILES, "memory/2026-03-10.md"]
    assert found.files[0].text == "this is SOUL.md"
    assert found.problems == []
    assert not any(file.cut for file in found.files)


def test_a_missing_folder_a_missing_and_a_blank_file_are_no_problem(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text(" \n\n")
    for folder in (None, tmp_path / "nowhere", tmp_path / "SOUL.md", tmp_path):
        found = read_workspace(folder, DAY)
        assert (found.files, found.problems) == ([], [])


def test_what_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    folder.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "2026-03-10.md").write_text("secret")
    (folder / "USER.md").symlink_to(outside / "2026-03-10.md")
    (folder / "TOOLS.md").symlink_to("../outside/2026-03-10.md")
    (folder / "memory").symlink_to(outside)
    (folder / "SOUL.md").symlink_to("SOUL.md")
    found = read_workspace(folder, DAY)
    assert found.files == []
    refused = "refused: a symbolic link leads out of the folder"
    assert [problem for problem in found.problems if problem[1] == refused] == [
        ("USER.md", refused),
        ("TOOLS.md", refused),
        ("memory/2026-03-10.md", refused),
    ]
    assert [name for name, _ in found.problems if name == "SOUL.md"] == ["SOUL.md"]


def test_links_within_the_folder_and_to_the_folder_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "notes.md").write_text("kept once")
    (folder / "MEMORY.md").symlink_to("notes.md")
    (tmp_path / "link").symlink_to(folder)
    assert [file.text for file in read_workspace(tmp_path / "link", DAY).files] == ["kept once"]


def test_what_is_no_file_is_refused_and_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").mkdir()
    os.mkfifo(tmp_path / "USER.md")
    (tmp_path / "AGENTS.md").write_text("still there")
    found = read_workspace(tmp_path, DAY)
    assert [file.name for file in found.files] == ["AGENTS.md"]
    assert [name for name, _ in found.problems] == ["SOUL.md", "USER.md"]
    assert {reason for _, reason in found.problems} == {"refused: it is no regular file"}


def test_reading_is_bounded_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "MOST_BYTES", 10)
    (tmp_path / "SOUL.md").write_text("123456789é and more")
    (tmp_path / "USER.md").write_text("1234567890")
    soul, user = read_workspace(tmp_path, DAY).files
    # The character that the bound cuts in two is left out.
    assert (soul.text, soul.cut, soul.size) == ("123456789", True, 20)
    assert (user.text, user.cut, user.size) == ("1234567890", False, 10)


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_bytes(b"\xef\xbb\xbfcaf\xe9\x00 \xff\r\nnext\xc3")
    assert read_workspace(tmp_path, DAY).files[0].text == "caf\ufffd \ufffd\nnext\ufffd"


def test_the_folder_comes_from_the_settings(tmp_path: Path) -> None:
    assert Settings(home=tmp_path).workspace_folder == tmp_path / "workspace"
    assert Settings(home=tmp_path, workspace=Path("~/notes")).workspace_folder == Path("~/notes").expanduser()
