"""The MCP clients whose configuration we know: where each keeps its servers, and what our entry looks like there.

What is changed in a file is `config_files.py`'s; writing it, with a backup, is that of the hooks.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rivet_pipeline.api.mcp.config_files import ConfigFileError, change_json, change_toml, read_json, read_toml
from rivet_pipeline.errors import RivetError
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.hook_install import Change

#: The name under which clients know this server.
SERVER_NAME = "rivet"


@dataclass(frozen=True, slots=True)
class McpClient:
    """One client: its file, the object or table in it that holds servers, and how an entry is written.

    `typed` entries say `type: stdio`; `joined` ones give the program and its arguments as one list.
    """

    name: str
    folder: Path
    file: Path
    section: str = "mcpServers"
    form: Literal["json", "toml"] = "json"
    typed: bool = False
    joined: bool = False

    @property
    def is_there(self) -> bool:
        """Whether the client is installed, as far as its folder tells."""
        return self.folder.is_dir()


def clients(settings: Settings, *, platform: str = sys.platform) -> dict[str, McpClient]:
    """The clients that are known, by name."""
    home = Path("~").expanduser()
    config = settings.config_home
    claude = settings.claude_home
    # Beside its folder when that is where it stands by default, else in it.
    claude_file = home / ".claude.json" if claude == home / ".claude" else claude / ".claude.json"
    desktop = config / "Claude"
    if platform == "darwin":
        desktop = home / "Library" / "Application Support" / "Claude"
    opencode = config / "opencode"
    commented = opencode / "opencode.jsonc"
    known = (
        McpClient("claude-code", claude, claude_file, typed=True),
        McpClient("codex", settings.codex_home, settings.codex_home / "config.toml", "mcp_servers", "toml"),
        McpClient(
            "opencode",
            opencode,
            commented if commented.is_file() else opencode / "opencode.json",
            "mcp",
            joined=True,
        ),
        McpClient("cursor", home / ".cursor", home / ".cursor" / "mcp.json"),
        McpClient("gemini", home / ".gemini", home / ".gemini" / "settings.json"),
        McpClient("qwen-code", settings.qwen_home, settings.qwen_home / "settings.json"),
        McpClient("claude-desktop", desktop, desktop / "claude_desktop_config.json"),
    )
    return {client.name: client for client in known}


def server_environment(client: McpClient, settings: Settings, *, write: bool) -> dict[str, str]:
    """The variables that a client must set for our server, because it may not pass on those of a shell.

    Where the store is, in which zone times are read and shown, and which model turns a query into a vector. Never an
    address of a database or a key, and no address that holds a password.
    """
    environment = {}
    if settings.timezone != "UTC":
        environment["RIVETOS_TIMEZONE"] = settings.timezone
    if settings.embed_url and settings.embed_model and "@" not in settings.embed_url:
        environment["RIVETOS_EMBED_URL"] = settings.embed_url
        environment["RIVETOS_EMBED_MODEL"] = settings.embed_model
    if settings.home != Path("~/.rivetos").expanduser():
        environment["RIVETOS_HOME"] = str(settings.home)
    if write:
        environment["RIVETOS_MCP_ENABLE_MEMORY_WRITE"] = "1"
        environment["RIVETOS_MEMORY_AGENT"] = client.name
    return environment


def plan_install(client: McpClient, program: Path, environment: Mapping[str, str]) -> Change:
    """What telling a client of our server would change; nothing, when it knows.

    What somebody added to our entry stays. Raises `RivetError` when the file is not sound, or has a server of another
    program under our name.
    """
    before, config = _read(client)
    known = _ours(client, config)
    wanted = _entry(client, program)
    variables = "environment" if client.joined else "env"
    if environment or (known or {}).get(variables):
        wanted[variables] = {**(known or {}).get(variables, {}), **environment}
    return _change(client, before, {**(known or {}), **wanted})


def plan_uninstall(client: McpClient) -> Change | None:
    """What taking our server out would change; None without a file. Raises `RivetError` as installing does."""
    before, config = _read(client)
    if before is None:
        return None
    if _ours(client, config) is None:
        return Change(client.file, before, before)
    return _change(client, before, None)


def _entry(client: McpClient, program: Path) -> dict[str, Any]:
    if client.joined:
        return {"type": "local", "command": [str(program), "mcp"], "enabled": True}
    entry = {"command": str(program), "args": ["mcp"]}
    return {"type": "stdio", **entry} if client.typed else entry


def _read(client: McpClient) -> tuple[str | None, dict[str, Any]]:
    try:
        text = client.file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None, {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RivetError(f"{client.file} can not be read ({reason}); nothing was changed.") from error
    try:
        return text, read_toml(text) if client.form == "toml" else read_json(text)
    except ConfigFileError as error:
        raise _refusal(client, error) from error


def _refusal(client: McpClient, error: ConfigFileError) -> RivetError:
    return RivetError(f"{client.file}: {error}. Put it right, and try again; nothing was changed.")


def _ours(client: McpClient, config: Mapping[str, Any]) -> dict[str, Any] | None:
    section = config.get(client.section)
    entry = section.get(SERVER_NAME) if isinstance(section, dict) else None
    if entry is None:
        return None
    command = entry.get("command") if isinstance(entry, dict) else None
    program = command[0] if isinstance(command, list) and command else command
    if not isinstance(program, str) or Path(program.replace("\\", "/")).stem != "rivet":
        raise RivetError(
            f"{client.file} has a server called {SERVER_NAME} that is not ours; rename it there, and try again. "
            "Nothing was changed."
        )
    assert isinstance(entry, dict)
    return entry


def _change(client: McpClient, before: str | None, entry: dict[str, Any] | None) -> Change:
    change = change_toml if client.form == "toml" else change_json
    try:
        return Change(client.file, before, change(before or "", client.section, SERVER_NAME, entry))
    except ConfigFileError as error:
        raise _refusal(client, error) from error
