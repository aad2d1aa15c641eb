"""Finding the harnesses' stores by their usual places."""

from __future__ import annotations

from pathlib import Path

import pytest

from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.discovery import Store, find_stores


def make(*paths: Path) -> None:
    for path in paths:
        if path.suffix:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        else:
            path.mkdir(parents=True)


def settings(home: Path) -> Settings:
    return Settings(
        claude_home=home / ".claude",
        codex_home=home / ".codex",
        qwen_home=home / ".qwen",
        kimi_home=home / ".kimi-code",
        hermes_home=home / ".hermes",
        data_home=home / ".local/share",
    )


def test_only_what_exists_is_found_and_each_once(tmp_path: Path) -> None:
    make(tmp_path / ".claude/projects", tmp_path / ".codex/sessions", tmp_path / ".cursor/projects/a/agent-transcripts")
    make(tmp_path / ".cursor/projects/b", tmp_path / ".local/share/opencode/opencode.db")
    (tmp_path / ".config/claude").mkdir(parents=True)
    (tmp_path / ".config/claude/projects").symlink_to(tmp_path / ".claude/projects")
    assert find_stores(settings(tmp_path), home=tmp_path) == [
        Store("claude-code", tmp_path / ".claude/projects"),
        Store("codex", tmp_path / ".codex/sessions"),
        Store("opencode", tmp_path / ".local/share/opencode/opencode.db"),
        Store("cursor", tmp_path / ".cursor/projects/a/agent-transcripts"),
    ]


def test_places_named_by_the_environment_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "elsewhere/projects", tmp_path / "my.db")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("OPENCODE_DB", str(tmp_path / "my.db"))
    found = {store.path for store in find_stores(Settings(), home=tmp_path)}
    assert {tmp_path / "elsewhere/projects", tmp_path / "my.db"} <= found


def test_histories_are_found_in_the_folders_agents_have_worked_in(tmp_path: Path) -> None:
    project = tmp_path / "app"
    make(project / ".aider.chat.history.md", project / ".specstory/history")
    found = find_stores(settings(tmp_path), home=tmp_path, projects=[project, tmp_path / "gone"])
    assert found == [
        Store("aider", project / ".aider.chat.history.md"),
        Store("specstory", project / ".specstory/history"),
    ]


def test_variants_of_one_store_are_all_found(tmp_path: Path) -> None:
    data, hermes = tmp_path / ".local/share/opencode", tmp_path / ".hermes"
    make(data / "opencode-dev.db", hermes / "profiles/office/state.db", hermes / "profiles/play/sessions")
    assert [store.path for store in find_stores(settings(tmp_path), home=tmp_path)] == [
        data / "opencode-dev.db",
        hermes / "profiles/office/state.db",
        hermes / "profiles/play/sessions",
    ]


def test_an_empty_home_has_none(tmp_path: Path) -> None:
    assert find_stores(settings(tmp_path), home=tmp_path) == []
