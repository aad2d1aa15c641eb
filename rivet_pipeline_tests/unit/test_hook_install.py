"""Hooks in a user's own configuration: put in, taken out, and everything else left as it was."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.hook_install import (
    Harness,
    HookConfigError,
    apply_change,
    harnesses,
    hook_command,
    plan_install,
    plan_uninstall,
    state_of,
)

PROGRAM = Path("/opt/a folder/bin/rivet")

#: Somebody's settings, with hooks of their own, indented by four.
FOREIGN: dict[str, Any] = {
    "model": "opus",
    "env": {"NAME": "Zoë"},
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
        "PostToolUse": [{"matcher": "Edit|Write", "hooks": [{"type": "command", "command": "fmt", "timeout": 5}]}],
        "PreToolUse": [],
    },
    "permissions": {"allow": ["Bash(ls:*)"]},
}


@pytest.fixture
def known(tmp_path: Path) -> dict[str, Harness]:
    claude, codex, qwen = homes = [tmp_path / name for name in ("claude", "codex", "qwen")]
    for home in homes:
        home.mkdir()
    return harnesses(Settings(home=tmp_path / "home", claude_home=claude, codex_home=codex, qwen_home=qwen))


@pytest.fixture
def claude(known: dict[str, Harness]) -> Harness:
    return known["claude-code"]


def install(harness: Harness, program: Path = PROGRAM) -> Path | None:
    return apply_change(plan_install(harness, program))


@pytest.mark.parametrize(
    ("name", "file", "events", "timeout"),
    [
        ("claude-code", "settings.json", ["UserPromptSubmit", "PostToolUse", "Stop", "SubagentStop", "SessionEnd"], 10),
        ("codex", "hooks.json", ["UserPromptSubmit", "Stop", "SessionEnd"], 10),
        ("qwen-code", "settings.json", ["UserPromptSubmit", "Stop", "SessionEnd"], 10_000),
    ],
)
def test_a_first_configuration(
    known: dict[str, Harness], name: str, file: str, events: list[str], timeout: int
) -> None:
    harness = known[name]
    assert state_of(harness, PROGRAM) == "not installed"
    assert install(harness) is None
    assert harness.file.name == file
    hooks = json.loads(harness.file.read_text())["hooks"]
    assert list(hooks) == events
    for groups in hooks.values():
        assert groups[0]["hooks"] == [{"type": "command", "command": hook_command(PROGRAM, name), "timeout": timeout}]
    assert stat.S_IMODE(harness.file.stat().st_mode) == 0o600
    assert state_of(harness, PROGRAM) == "installed"


def test_everything_else_stays_and_uninstalling_restores_the_meaning(claude: Harness) -> None:
    before = json.dumps(FOREIGN, indent=4, ensure_ascii=False)
    claude.file.write_text(before, encoding="utf-8")
    claude.file.chmod(0o640)
    backup = install(claude)
    assert backup is not None
    assert backup.read_text(encoding="utf-8") == before
    after = claude.file.read_text(encoding="utf-8")
    assert '\n    "model"' in after
    assert "Zoë" in after
    assert not after.endswith("\n")
    assert stat.S_IMODE(claude.file.stat().st_mode) == 0o640
    changed = json.loads(after)
    assert {key: value for key, value in changed.items() if key != "hooks"} == {
        key: value for key, value in FOREIGN.items() if key != "hooks"
    }
    for event, groups in FOREIGN["hooks"].items():
        assert changed["hooks"][event][: len(groups)] == groups
    removal = plan_uninstall(claude)
    assert removal is not None
    apply_change(removal)
    assert json.loads(claude.file.read_text(encoding="utf-8")) == FOREIGN
    assert claude.file.read_text(encoding="utf-8") == before


def test_twice_is_no_change_in_any_style(claude: Harness) -> None:
    install(claude)
    assert not plan_install(claude, PROGRAM).is_one
    compact = json.dumps(json.loads(claude.file.read_text()), separators=(",", ":"))
    claude.file.write_text(compact)
    assert not plan_install(claude, PROGRAM).is_one
    assert state_of(claude, PROGRAM) == "installed"


def test_another_path_is_outdated_and_installing_replaces_it(claude: Harness) -> None:
    install(claude, Path("/old/bin/rivet"))
    assert state_of(claude, PROGRAM) == "outdated"
    install(claude)
    assert "/old/bin" not in claude.file.read_text()
    assert json.loads(claude.file.read_text())["hooks"]["Stop"][0]["hooks"][0]["timeout"] == 10
    claude.file.write_text(claude.file.read_text().replace('"SessionEnd"', '"SessionEnded"'))
    assert state_of(claude, PROGRAM) == "outdated"


def test_ours_beside_theirs_in_one_group_leaves_theirs(claude: Harness) -> None:
    ours = {"type": "command", "command": hook_command(PROGRAM, "claude-code")}
    theirs = {"type": "command", "command": "my-rivet hook claude-code-fan --log rivet"}
    claude.file.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [ours, theirs, ours]}]}}))
    removal = plan_uninstall(claude)
    assert removal is not None
    assert json.loads(removal.after) == {"hooks": {"Stop": [{"hooks": [theirs]}]}}


def test_uninstalling_nothing_changes_nothing(claude: Harness) -> None:
    assert plan_uninstall(claude) is None
    for text in ('{"hooks": {}}', "{}", '{"hooks":{"Stop":[{"hooks":[]}]}}'):
        claude.file.write_text(text)
        removal = plan_uninstall(claude)
        assert removal is not None
        assert not removal.is_one


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,}', "not plain JSON"),
        ('{\n  // mine\n  "a": 1\n}', "comments"),
        ('{"a": 1} x', "not plain JSON"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[]", "shape"),
        ('{"hooks": []}', "shape"),
        ('{"hooks": null}', "shape"),
        ('{"hooks": {"Stop": {}}}', "shape"),
        ('{"hooks": {"Stop": ["x"]}}', "shape"),
        ('{"hooks": {"Other": [{"hooks": "x"}]}}', "shape"),
        ("\ud83d", "not plain JSON"),
    ],
)
def test_a_file_that_is_not_sound_is_refused_and_left_alone(claude: Harness, text: str, said: str) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    claude.file.write_bytes(raw)
    said = "not UTF-8" if text == "\ud83d" else said
    for action in (plan_install, lambda harness, _: plan_uninstall(harness), state_of):
        with pytest.raises(HookConfigError, match=said) as refused:
            action(claude, PROGRAM)
        assert "\n" not in str(refused.value)
        assert "nothing was changed" in str(refused.value)
    assert claude.file.read_bytes() == raw


def test_a_link_stays_a_link(claude: Harness, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "claude.json"
    real.parent.mkdir()
    real.write_text("{}\n")
    claude.file.symlink_to(real)
    install(claude)
    assert claude.file.is_symlink()
    assert "hooks" in json.loads(real.read_text())


def test_tabs_line_ends_escapes_and_a_mark_of_order_stay(claude: Harness) -> None:
    claude.file.write_bytes('\ufeff{\r\n\t"name": "Zo\\u00eb"\r\n}\r\n'.encode())
    install(claude)
    raw = claude.file.read_bytes().decode()
    assert raw.startswith('\ufeff{\r\n\t"name": "Zo\\u00eb",\r\n\t"hooks"')
    assert raw.endswith("}\r\n")
    assert raw.count("\n") == raw.count("\r\n")


def test_numbers_stay_as_they_are_written(claude: Harness) -> None:
    before = (
        '{\n  "a": 1.10,\n  "b": [\n    1E5,\n    -0,\n    1e400\n  ],\n  "c": 123456789012345678901234567890,\n'
        '  "d": "number-1.10"\n}\n'
    )
    claude.file.write_text(before)
    install(claude)
    assert claude.file.read_text().startswith(before.removesuffix("\n}\n"))
    removal = plan_uninstall(claude)
    assert removal is not None
    assert removal.after == before


def test_what_is_laid_out_anew(claude: Harness) -> None:
    claude.file.write_text('{"a":[1.0,{}]}')
    install(claude)
    removal = plan_uninstall(claude)
    assert removal is not None
    assert removal.after == '{\n  "a": [\n    1.0,\n    {}\n  ]\n}'


def test_a_file_changed_meanwhile_is_not_overwritten(claude: Harness) -> None:
    claude.file.write_text("{}")
    change = plan_install(claude, PROGRAM)
    claude.file.write_text('{"mine": 1}')
    with pytest.raises(HookConfigError, match="meanwhile"):
        apply_change(change)
    assert claude.file.read_text() == '{"mine": 1}'


def test_the_diff_shows_what_is_added(claude: Harness) -> None:
    claude.file.write_text("{}")
    diff = plan_install(claude, PROGRAM).diff
    assert f"--- {claude.file}" in diff
    assert '+  "hooks"' in diff


@pytest.mark.parametrize("there", [True, False])
def test_the_command_calls_the_program_and_can_not_fail(tmp_path: Path, there: bool) -> None:
    program = tmp_path / "it's a folder" / "rivet"
    program.parent.mkdir()
    if there:
        program.write_text('#!/bin/sh\ncat > "$(dirname "$0")/took"; echo "$@" >> "$(dirname "$0")/took"; exit 3\n')
        program.chmod(0o755)
    ran = subprocess.run(
        ["/bin/sh", "-c", hook_command(program, "codex")], input=b"payload ", capture_output=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    assert [path.read_text() for path in program.parent.glob("took")] == (["payload hook codex\n"] if there else [])
