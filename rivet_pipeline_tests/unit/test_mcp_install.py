"""Our server in the configuration of MCP clients: put in, taken out, and everything else left as it was."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import SecretStr

from rivet_pipeline.api.mcp.clients import (
    McpClient,
    clients,
    plan_install,
    plan_uninstall,
    server_environment,
)
from rivet_pipeline.api.mcp.config_files import ConfigFileError, change_json, change_toml, read_json
from rivet_pipeline.errors import RivetError
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.hook_install import apply_change
from rivet_pipeline_tests.integration.rivet_command import rivet_command

PROGRAM = Path("/opt/a folder/bin/rivet")

COMMENTED = """{
    // The theme is for the evening.
    "theme": "dark", /* really */
    "mcpServers": {
        "other": { "command": "node", "args": ["a // b", "c"], "n": 1.10 }, // keep me
        /* and me */
    },
    "last": [1, 2,],
}
"""

CODEX = """# Codex
model = "o9"   # the good one

[mcp_servers.docs]
command = "npx"
args = ["-y", "docs # no comment"]

# About the rest
[projects."/home/zoë"]
trust_level = "trusted"
"""


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, McpClient]:
    monkeypatch.setenv("HOME", str(tmp_path))
    return clients(
        Settings(
            home=tmp_path / ".rivetos",
            claude_home=tmp_path / ".claude",
            codex_home=tmp_path / ".codex",
            qwen_home=tmp_path / ".qwen",
            config_home=tmp_path / ".config",
        ),
        platform="linux",
    )


def install(client: McpClient, **environment: str) -> str:
    apply_change(plan_install(client, PROGRAM, environment))
    return client.file.read_text()


def said(client: McpClient, text: str) -> Any:
    return tomllib.loads(text) if client.form == "toml" else read_json(text)


def write(client: McpClient, text: str) -> None:
    client.file.parent.mkdir(parents=True, exist_ok=True)
    client.file.write_text(text)


@pytest.mark.parametrize(
    ("name", "file", "section", "entry"),
    [
        (
            "claude-code",
            ".claude.json",
            "mcpServers",
            {"type": "stdio", "command": str(PROGRAM), "args": ["mcp"]},
        ),
        ("codex", ".codex/config.toml", "mcp_servers", {"command": str(PROGRAM), "args": ["mcp"]}),
        (
            "opencode",
            ".config/opencode/opencode.json",
            "mcp",
            {"type": "local", "command": [str(PROGRAM), "mcp"], "enabled": True},
        ),
        ("cursor", ".cursor/mcp.json", "mcpServers", {"command": str(PROGRAM), "args": ["mcp"]}),
        ("gemini", ".gemini/settings.json", "mcpServers", {"command": str(PROGRAM), "args": ["mcp"]}),
        ("qwen-code", ".qwen/settings.json", "mcpServers", {"command": str(PROGRAM), "args": ["mcp"]}),
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
            "mcpServers",
            {"command": str(PROGRAM), "args": ["mcp"]},
        ),
    ],
)
def test_each_client_gets_its_own_form_once(
    known: dict[str, McpClient], tmp_path: Path, name: str, file: str, section: str, entry: dict[str, Any]
) -> None:
    client = known[name]
    assert client.file == tmp_path / file
    first = install(client)
    assert said(client, first) == {section: {"rivet": entry}}
    assert client.file.stat().st_mode & 0o777 == 0o600
    assert not plan_install(client, PROGRAM, {}).is_one
    moved = plan_install(client, Path("/usr/bin/rivet"), {})
    assert "/usr/bin/rivet" in moved.after
    change = plan_uninstall(client)
    assert change is not None
    apply_change(change)
    assert said(client, client.file.read_text()) in ({}, {section: {}})


def test_a_missing_file_has_nothing_to_take_out(known: dict[str, McpClient]) -> None:
    assert [plan_uninstall(client) for client in known.values()] == [None] * len(known)


def test_comments_commas_and_spacing_stay(known: dict[str, McpClient]) -> None:
    client = known["gemini"]
    write(client, COMMENTED)
    after = install(client)
    kept = [line for line in COMMENTED.splitlines() if line.strip() not in {"}", "},"}]
    assert [line for line in kept if line not in after.splitlines()] == []
    assert said(client, after)["mcpServers"] == {
        "other": {"command": "node", "args": ["a // b", "c"], "n": 1.1},
        "rivet": {"command": str(PROGRAM), "args": ["mcp"]},
    }
    assert '        "rivet": {\n            "command"' in after
    change = plan_uninstall(client)
    assert change is not None
    assert change.after == COMMENTED


def test_codex_keeps_its_tables_and_notes(known: dict[str, McpClient]) -> None:
    client = known["codex"]
    write(client, CODEX)
    after = install(client, RIVETOS_HOME="/srv/rivet")
    assert after.startswith(CODEX)
    assert said(client, after)["mcp_servers"]["rivet"]["env"] == {"RIVETOS_HOME": "/srv/rivet"}
    change = plan_uninstall(client)
    assert change is not None
    assert change.after.rstrip("\n") == CODEX.rstrip("\n")


def test_what_somebody_added_to_our_entry_stays(known: dict[str, McpClient]) -> None:
    codex, cursor = known["codex"], known["cursor"]
    write(
        codex,
        'a = 1\n\n[mcp_servers.rivet]\ncommand = "/old/rivet"\nargs = ["mcp"]\nstartup_timeout_sec = 30\n\n'
        '[mcp_servers.rivet.env]\nRIVETOS_PG_URL = "postgresql://x"\n\n# b\n[other]\nb = 2\n',
    )
    after = said(codex, install(codex, RIVETOS_HOME="/h"))
    assert after["mcp_servers"]["rivet"] == {
        "command": str(PROGRAM),
        "args": ["mcp"],
        "startup_timeout_sec": 30,
        "env": {"RIVETOS_PG_URL": "postgresql://x", "RIVETOS_HOME": "/h"},
    }
    assert (after["a"], after["other"]) == (1, {"b": 2})
    assert "# b\n[other]" in codex.file.read_text()
    write(cursor, '{"mcpServers": {"rivet": {"command": "rivet", "disabled": true}}}')
    assert said(cursor, install(cursor))["mcpServers"]["rivet"]["disabled"] is True


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"mcpServers": []}',
        '{"a": 1, "a": 2}',
        '{"mcpServers": {}} x',
        "{'a': 1}",
        '{"a": 01}',
        '{"a": "\n"}',
        '{"a" 1}',
        "[" * 100_000,
        '{"mcpServers": {"rivet": {"command": "node"}}}',
        '{"mcpServers": {"rivet": "rivet"}}',
    ],
)
def test_a_file_that_is_not_sound_is_left_alone(known: dict[str, McpClient], text: str) -> None:
    client = known["cursor"]
    write(client, text)
    with pytest.raises(RivetError) as caught:
        plan_install(client, PROGRAM, {})
    assert str(client.file) in str(caught.value)
    assert "nothing was changed" in str(caught.value).lower()
    if text != '{"mcpServers": []}':
        with pytest.raises(RivetError):
            plan_uninstall(client)
    assert client.file.read_text() == text


def test_toml_that_is_not_sound_or_of_another_form_is_left_alone(known: dict[str, McpClient]) -> None:
    client = known["codex"]
    for text in (
        "a = ",
        'mcp_servers = "x"',
        '[mcp_servers]\nrivet = { command = "rivet", args = [] }\n',
        'mcp_servers.rivet.command = "rivet"\n',
        '[mcp_servers.rivet]\ncommand = "node"\n',
    ):
        write(client, text)
        with pytest.raises(RivetError, match="othing was changed"):
            plan_install(client, PROGRAM, {})


def test_writing_is_told_to_the_client_and_no_address_of_a_database(
    known: dict[str, McpClient], tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path / "elsewhere")
    assert server_environment(known["codex"], settings, write=True) == {
        "RIVETOS_HOME": str(tmp_path / "elsewhere"),
        "RIVETOS_MCP_ENABLE_MEMORY_WRITE": "1",
        "RIVETOS_MEMORY_AGENT": "codex",
    }
    assert server_environment(known["codex"], Settings(home=tmp_path / ".rivetos"), write=False) == {}


def test_a_client_is_told_the_zone_and_the_model_of_queries_but_no_secret(
    known: dict[str, McpClient], tmp_path: Path
) -> None:
    settings = Settings(
        home=tmp_path / ".rivetos",
        timezone="Europe/Berlin",
        embed_url="http://127.0.0.1:8080",
        embed_model="bge-m3",
        embed_api_key=SecretStr("a-secret-key"),
        pg_url=SecretStr("postgresql://u:a-secret@h/d"),
        api_token=SecretStr("a-secret-token"),
    )
    told = server_environment(known["codex"], settings, write=False)
    assert told == {
        "RIVETOS_TIMEZONE": "Europe/Berlin",
        "RIVETOS_EMBED_URL": "http://127.0.0.1:8080",
        "RIVETOS_EMBED_MODEL": "bge-m3",
    }
    hidden = settings.model_copy(update={"embed_url": "http://u:a-secret@127.0.0.1:8080"})
    assert "a-secret" not in str(server_environment(known["codex"], hidden, write=True))


def test_a_claude_folder_of_its_own_holds_its_file(tmp_path: Path) -> None:
    known = clients(Settings(claude_home=tmp_path / "work"), platform="linux")
    assert known["claude-code"].file == tmp_path / "work" / ".claude.json"
    mac = clients(Settings(), platform="darwin")
    assert "Application Support" in str(mac["claude-desktop"].file)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
SERVERS = st.dictionaries(st.text(max_size=5), JSON, max_size=3).map(
    lambda found: {key: value for key, value in found.items() if key != "rivet"}
)
ENTRY = {"command": "/usr/bin/rivet", "args": ["mcp"]}


@hypothesis_settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    st.dictionaries(st.text(max_size=5), JSON, max_size=3),
    st.none() | SERVERS,
    st.sampled_from([None, 2, "\t"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_json_keeps_what_it_said(
    config: dict[str, Any], servers: dict[str, Any] | None, indent: int | str | None, newline: str
) -> None:
    config = {key: value for key, value in config.items() if key != "mcpServers"}
    before = config if servers is None else {**config, "mcpServers": servers}
    text = json.dumps(before, indent=indent, ensure_ascii=False).replace("\n", newline)
    after = change_json(text, "mcpServers", "rivet", ENTRY)
    assert read_json(after) == {**config, "mcpServers": {**(servers or {}), "rivet": ENTRY}}
    assert change_json(after, "mcpServers", "rivet", ENTRY) == after
    assert read_json(change_json(after, "mcpServers", "rivet", None)) in (before, config)


@pytest.mark.parametrize("text", ["", "\n", "# only\n", "a = 1", "a = 1\r\n", 'a = """\n[mcp_servers.rivet]\n"""\n'])
def test_any_toml_keeps_what_it_said(text: str) -> None:
    entry = {"command": 'C:\\Program "Files"\\rivet', "args": ["mcp"], "env": {"A B": "\x7fé\n"}}
    after = change_toml(text, "mcp_servers", "rivet", entry)
    expected = {**tomllib.loads(text.replace("\r\n", "\n")), "mcp_servers": {"rivet": entry}}
    assert tomllib.loads(after.replace("\r\n", "\n")) == expected
    assert change_toml(after, "mcp_servers", "rivet", entry) == after
    if '"""' in text:
        with pytest.raises(ConfigFileError, match="safely"):
            change_toml(after, "mcp_servers", "rivet", None)


def test_the_command_shows_writes_and_takes_out(
    known: dict[str, McpClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "QWEN_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    cursor, gemini = known["cursor"], known["gemini"]
    write(cursor, "{}")
    write(gemini, "{")
    with rivet_command("postgresql://unused", tmp_path, monkeypatch, capsys, before=("mcp", "install")) as run:
        shown = run("cursor", "--dry-run")
        assert (shown.code, cursor.file.read_text()) == (0, "{}")
        assert '+    "rivet": {' in shown.out
        both = run("--yes", "--write")
        assert both.code == 1
        assert "gemini" in both.err
        assert "is not JSON from line 1 on" in both.err
        entry = read_json(cursor.file.read_text())["mcpServers"]["rivet"]
        assert entry["env"]["RIVETOS_MEMORY_AGENT"] == "cursor"
        assert Path(entry["command"]).name == "rivet"
        assert "cursor: nothing to change." in run("cursor").out
        assert run("cursor", "--uninstall", "--yes").code == 0
        assert read_json(cursor.file.read_text()) == {}
        assert run("vim").code == 2
    assert len(list(cursor.file.parent.glob("mcp.json.*.backup"))) == 2
