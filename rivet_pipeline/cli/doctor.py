"""`rivet doctor`: looks at everything the memory needs and says, for each, whether it is well and what to do if not.

It changes nothing: an embedded server that is stopped stays stopped.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
import typer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from rivet_pipeline.cli.output import console, one_line, print_json
from rivet_pipeline.db.inspection import server_facts
from rivet_pipeline.db.migrations import MIN_PGVECTOR
from rivet_pipeline.db.pool import connect
from rivet_pipeline.db.store import embedded_server, store_url
from rivet_pipeline.errors import RivetError, StoreUnavailableError
from rivet_pipeline.models.embedder import PROBE
from rivet_pipeline.models.factory import build_chat, build_embedder, compactor_credential
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.settings import Settings
from rivet_pipeline.shipped import shipped
from rivet_pipeline.transcripts.spool import Spool

Verdict = Literal["ok", "warn", "fail"]

_STYLES: dict[Verdict, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}

#: Less free space than this, in bytes, is worth a warning before it stops a write.
_LOW_DISK = 1024**3

#: How long, in seconds, a service may take to answer a look.
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    verdict: Verdict
    detail: str
    action: str = ""


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
    settings_table: Annotated[
        bool, typer.Option("--settings-table", help="Print the table of environment variables (Markdown) and exit.")
    ] = False,
) -> None:
    """Check what the memory needs, and say what to do about what is wrong.

    Exits with 1 when a check fails; warnings alone exit with 0.

    Example: [bold]rivet doctor --json[/bold]
    """
    if settings_table:
        sys.stdout.write(render_settings_table())
        return
    checks = run_checks()
    if as_json:
        print_json({"ok": all(check.verdict != "fail" for check in checks), "checks": checks})
    else:
        _print(checks)
    if any(check.verdict == "fail" for check in checks):
        raise typer.Exit(1)


def _print(checks: list[Check]) -> None:
    table = Table.grid(padding=(0, 2))
    for check in checks:
        about = Text(one_line(check.detail))
        if check.action:
            about.append(f"\n→ {one_line(check.action)}", style="bold")
        table.add_row(Text(check.verdict, style=_STYLES[check.verdict]), Text(check.name), about)
    console().print(table)


def run_checks() -> list[Check]:
    """All checks, in the order in which a fault in one explains the ones after it."""
    checks = [_python()]
    try:
        settings = Settings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0])
        problem = first["msg"].removeprefix("Value error, ")
        return [*checks, Check("settings", "fail", f"{name}: {problem}", f"set {name} right, or unset it")]
    checks.append(Check("settings", "ok", f"times are shown in {settings.timezone}"))
    for name, look in _LOOKS:
        checks.extend(_guarded(name, look, settings))
    return checks


def _guarded(name: str, look: Callable[[Settings], Iterator[Check]], settings: Settings) -> list[Check]:
    """The checks of one look; one that breaks down is a failed check, not the end of the report."""
    done: list[Check] = []
    try:
        done.extend(look(settings))
    except Exception as error:
        done.append(Check(name, "fail", str(error) or type(error).__name__))
    return done


def _python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if (3, 11) <= sys.version_info[:2] < (3, 14):
        return Check("python", "ok", version)
    return Check("python", "fail", version, "use Python 3.11, 3.12 or 3.13")


def _home(settings: Settings) -> Iterator[Check]:
    home = settings.home
    nearest = next(folder for folder in (home, *home.parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK) or _read_only(nearest):
        yield Check("home", "fail", f"{home} can not be written", "set RIVETOS_HOME to a folder that can")
        return
    free = shutil.disk_usage(nearest).free
    if free < _LOW_DISK:
        yield Check("home", "warn", f"{home}: {free / 1024**2:,.0f} MiB free", "make room on its disk")
    else:
        made = "" if home.exists() else ", made by `rivet up`"
        yield Check("home", "ok", f"{home}{made}: {free / 1024**3:,.0f} GiB free")


def _read_only(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def _ports(settings: Settings) -> Iterator[Check]:
    api = (settings.api_host, settings.api_port)
    yield _port("API port", *api, "/healthz", _is_our_api, "RIVETOS_API_PORT")
    dagster = ("127.0.0.1", settings.dagster_port)
    yield _port("Dagster port", *dagster, "/server_info", _is_dagster, "RIVETOS_DAGSTER_PORT")
    if not settings.loopback_only and settings.api_token is None:
        yield Check(
            "API address",
            "fail",
            f"{settings.api_host} can be reached by other machines and no token is set",
            "set RIVETOS_API_TOKEN, or leave RIVETOS_API_HOST at 127.0.0.1",
        )


def _is_our_api(answer: Any) -> bool:
    return bool(answer == {"status": "ok"})


def _is_dagster(answer: Any) -> bool:
    return isinstance(answer, dict) and "dagster_webserver_version" in answer


def _port(name: str, host: str, port: int, path: str, ours: Callable[[Any], bool], variable: str) -> Check:
    action = f"stop what uses it, or set {variable}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
        return Check(name, "ok", f"{port} is free")
    except PermissionError:
        return Check(name, "fail", f"{port} may not be used by this account", f"set {variable} to 1024 or more")
    except OSError:
        pass
    reach = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared with, not bound to
    try:
        bracketed = f"[{reach}]" if ":" in reach else reach
        answer = httpx.get(f"http://{bracketed}:{port}{path}", timeout=_PATIENCE, trust_env=False).json()
    except (httpx.HTTPError, ValueError):
        return Check(name, "fail", f"{port} is used by another program", action)
    if ours(answer):
        return Check(name, "ok", f"{port} answers: it is running")
    return Check(name, "fail", f"{port} is used by another program", action)


def _database(settings: Settings) -> Iterator[Check]:
    where = "the server of RIVETOS_PG_URL" if settings.pg_url else "the embedded server"
    if settings.pg_url is None and not embedded_server(settings).is_running():
        made = embedded_server(settings).data.exists()
        state = "is not running" if made else "has not been set up yet"
        yield Check("database", "warn", f"{where} {state}", "start it with `rivet up`")
        return
    try:
        with connect(store_url(settings), application_name="rivet-doctor") as connection:
            facts = server_facts(connection)
    except StoreUnavailableError as error:
        yield Check("database", "fail", str(error))
        return
    yield Check("database", "ok", f"{where} answers: Postgres {facts.version}, {facts.size / 1024**2:,.0f} MiB")
    missing = [name for name in ("vector", "pg_trgm", "unaccent") if name not in facts.extensions]
    if missing:
        yield Check("extensions", "warn", f"not installed yet: {', '.join(missing)}", "start `rivet up` once")
    else:
        listed = ", ".join(f"{name} {facts.extensions[name]}" for name in ("vector", "pg_trgm", "unaccent"))
        old = tuple(int(part) for part in facts.extensions["vector"].split(".")[:2]) < MIN_PGVECTOR
        action = "upgrade pgvector to 0.8 or newer (ALTER EXTENSION vector UPDATE)" if old else ""
        yield Check("extensions", "fail" if old else "ok", listed, action)
    if facts.unapplied:
        yield Check("migrations", "warn", f"to be applied: {', '.join(facts.unapplied)}", "start `rivet up` once")
    else:
        yield Check("migrations", "ok", "the schema is current")


def _embedder(settings: Settings) -> Iterator[Check]:
    try:
        embedder = build_embedder(settings, timeout=_PATIENCE)
        vectors = embedder.embed([PROBE])
    except ModelError as error:
        yield Check("embedding model", "fail", str(error), "check RIVETOS_EMBED_URL, _MODEL and _API_KEY")
    except RivetError as error:
        yield Check("embedding model", "fail", str(error))
    else:
        yield Check("embedding model", "ok", f"{embedder.name} answers with {vectors.shape[1]} dimensions")


def _chat(settings: Settings) -> Iterator[Check]:
    if settings.compactor_url is None:
        yield Check("chat server", "ok", "none configured: summaries are made in this process")
        return
    if settings.compactor_model is None:
        yield Check("chat server", "fail", "RIVETOS_COMPACTOR_MODEL is not set", "name a model that the server offers")
        return
    try:
        build_chat(settings)
        token = compactor_credential(settings, timeout=_PATIENCE).token()
    except ModelError as error:
        yield Check("chat server", "fail", str(error), "check RIVETOS_COMPACTOR_TOKEN_COMMAND and _API_KEY")
        return
    except RivetError as error:
        yield Check("chat server", "fail", str(error))
        return
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        address = settings.compactor_url.rstrip("/") + "/models"
        answer = httpx.get(address, headers=headers, timeout=_PATIENCE)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        yield Check("chat server", "fail", f"does not answer: {reason}", "check RIVETOS_COMPACTOR_URL")
        return
    if answer.status_code in {401, 403}:
        action = "check RIVETOS_COMPACTOR_API_KEY, or what RIVETOS_COMPACTOR_TOKEN_COMMAND prints"
        yield Check("chat server", "fail", f"refuses the key ({answer.status_code})", action)
    elif settings.compactor_model in answer.text:
        yield Check("chat server", "ok", f"answers and offers {settings.compactor_model}")
    else:
        found = f"answers {answer.status_code} and does not list {settings.compactor_model}"
        yield Check("chat server", "warn", found, "check RIVETOS_COMPACTOR_URL and _MODEL, unless it lists no models")


def _spool(settings: Settings) -> Iterator[Check]:
    status = Spool(settings.spool_folder).status()
    if status.complaints:
        yield Check("capture spool", "warn", "; ".join(status.complaints))
    else:
        waiting = f"{status.depth} waiting" if status.depth else "nothing waits"
        yield Check("capture spool", "ok", f"{waiting} in {settings.spool_folder}")


def _dagster_home(settings: Settings) -> Iterator[Check]:
    try:
        instance = shipped("dagster.yaml")
    except FileNotFoundError as error:
        yield Check("Dagster home", "fail", str(error))
        return
    folder = settings.home / "dagster"
    if not folder.exists():
        yield Check("Dagster home", "warn", f"{folder} has not been made yet", "start `rivet up` once")
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Check("Dagster home", "fail", f"{folder} can not be written", "give it to this account, or remove it")
    else:
        yield Check("Dagster home", "ok", f"{folder}, configured by {instance}")


_LOOKS: tuple[tuple[str, Callable[[Settings], Iterator[Check]]], ...] = (
    ("home", _home),
    ("ports", _ports),
    ("database", _database),
    ("embedding model", _embedder),
    ("chat server", _chat),
    ("Dagster home", _dagster_home),
    ("capture spool", _spool),
)


def render_settings_table() -> str:
    """Every environment variable with its default and its meaning, as a Markdown table."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for field in Settings.model_fields.values():
        default = "" if field.default is None else f"`{field.default}`"
        meaning = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{field.validation_alias}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"
