"""Every environment variable the project reads, typed, with its default and its doc line.

This is the one place that reads the environment; everything else is handed a `Settings`. The README's configuration
table is generated from the field descriptions here (`rivet doctor --settings-table`).
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

#: The fields of a chat request that no configuration may replace: what is asked of whom, how long the answer may be
#: (the context is divided by it), and that it comes in one piece.
_REQUEST_FIELDS = frozenset({"model", "messages", "max_tokens", "max_completion_tokens", "n_predict", "stream"})

_WRITE_AN_OBJECT = 'write an object such as {"repeat_penalty": 1.2}'


class Settings(BaseSettings):
    """The configuration of one process. Raises `pydantic.ValidationError` naming the variable on a bad value."""

    # Fields can be given by name in code; without a prefix of their own the same names would be read from the
    # environment too, where HOME and TIMEZONE mean something else.
    model_config = SettingsConfigDict(
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        env_prefix="RIVETOS_FIELD_",
        env_ignore_empty=True,
        validate_default=True,
    )

    home: Annotated[Path, NoDecode] = Field(
        default=Path("~/.rivetos"),
        validation_alias="RIVETOS_HOME",
        description="Where the embedded Postgres, Dagster's files and the logs live.",
    )
    pg_url: SecretStr | None = Field(
        default=None,
        validation_alias="RIVETOS_PG_URL",
        description="A Postgres server to use instead of the embedded one: `postgresql://user:password@host/database`. "
        "Needs pgvector 0.8 or newer, pg_trgm and unaccent.",
    )
    api_host: str = Field(
        default="127.0.0.1",
        validation_alias="RIVETOS_API_HOST",
        description="The address the API listens on. Anything but loopback needs `RIVETOS_API_TOKEN`.",
    )
    api_port: int = Field(
        default=5174, ge=1, le=65535, validation_alias="RIVETOS_API_PORT", description="The API's port."
    )
    api_token: SecretStr | None = Field(
        default=None,
        validation_alias="RIVETOS_API_TOKEN",
        description="When set, every request but `/healthz` must carry `Authorization: Bearer <token>`.",
    )
    api_write_rate: int = Field(
        default=500,
        ge=1,
        validation_alias="RIVETOS_API_WRITE_RATE",
        description="How many requests that are not GET one address may send the API in a second, ten times as many "
        "at once; more answer 429.",
    )
    dagster_port: int = Field(
        default=3000, ge=1, le=65535, validation_alias="RIVETOS_DAGSTER_PORT", description="The Dagster UI's port."
    )
    first_day: date = Field(
        default=date(2022, 11, 1),
        validation_alias="RIVETOS_FIRST_DAY",
        description="The first daily partition (UTC). Older conversations belong to it.",
    )
    timezone: str = Field(
        default="UTC",
        validation_alias="RIVETOS_TIMEZONE",
        description="The IANA zone in which times are shown and named windows (`today`, `yesterday`) are cut.",
    )
    workspace: Annotated[Path | None, NoDecode] = Field(
        default=None,
        validation_alias="RIVETOS_WORKSPACE",
        description="The folder of the files that every turn's context begins with: `SOUL.md`, `IDENTITY.md`, "
        "`USER.md`, `AGENTS.md`, `TOOLS.md`, `MEMORY.md`, `memory/YYYY-MM-DD.md`. Unset: `workspace` in "
        "`RIVETOS_HOME`.",
    )
    capture_max_body: int = Field(
        default=1024 * 1024,
        ge=1024,
        validation_alias="RIVETOS_CAPTURE_MAX_BODY",
        description="The largest body, in bytes, that `POST /api/capture` takes; a larger one answers 413.",
    )
    capture_redaction: bool = Field(
        default=False,
        validation_alias="RIVETOS_CAPTURE_REDACTION",
        description="Replace what looks like a secret (keys, tokens, passwords in URLs, private keys) by "
        "`[redacted:<kind>]` before it is stored, on every way in.",
    )
    api_url: str | None = Field(
        default=None,
        validation_alias="RIVETOS_API_URL",
        description="Where hooks and the spool post captures: the base address of the API. "
        "Unset: this machine, at `RIVETOS_API_HOST` and `RIVETOS_API_PORT`.",
    )
    capture_spool: Path | None = Field(
        default=None,
        validation_alias="RIVETOS_CAPTURE_SPOOL",
        description="Where captures wait while the API is away. Unset: `capture-spool` in `RIVETOS_HOME`.",
    )
    session_key: str | None = Field(
        default=None,
        validation_alias="RIVETOS_SESSION_KEY",
        description="Set where an agent runs: its hooks store the session under this key, word for word.",
    )
    task_id: str | None = Field(
        default=None,
        validation_alias="RIVETOS_TASK_ID",
        description="Set where an agent runs: the task (a UUID) that its session belongs to.",
    )
    import_max_line: int = Field(
        default=256 * 1024 * 1024,
        ge=1024,
        validation_alias="RIVETOS_IMPORT_MAX_LINE",
        description="The longest line, in bytes, that import reads; a longer one counts as damaged.",
    )

    claude_home: Annotated[Path, NoDecode] = Field(
        default=Path("~/.claude"),
        validation_alias="CLAUDE_CONFIG_DIR",
        description="Where Claude Code keeps its settings and sessions.",
    )
    codex_home: Annotated[Path, NoDecode] = Field(
        default=Path("~/.codex"),
        validation_alias="CODEX_HOME",
        description="Where Codex keeps its settings and sessions.",
    )
    qwen_home: Annotated[Path, NoDecode] = Field(
        default=Path("~/.qwen"),
        validation_alias="QWEN_HOME",
        description="Where Qwen Code keeps its settings and sessions.",
    )
    kimi_home: Annotated[Path, NoDecode] = Field(
        default=Path("~/.kimi-code"),
        validation_alias="KIMI_CODE_HOME",
        description="Where Kimi keeps its sessions; `~/.kimi` is looked at too.",
    )
    hermes_home: Annotated[Path, NoDecode] = Field(
        default=Path("~/.hermes"), validation_alias="HERMES_HOME", description="Where Hermes keeps its sessions."
    )
    data_home: Annotated[Path, NoDecode] = Field(
        default=Path("~/.local/share"),
        validation_alias="XDG_DATA_HOME",
        description="Where OpenCode keeps its data, in the folder `opencode`.",
    )
    config_home: Annotated[Path, NoDecode] = Field(
        default=Path("~/.config"),
        validation_alias="XDG_CONFIG_HOME",
        description="Where OpenCode and Claude Desktop keep their configuration.",
    )
    opencode_db: Annotated[Path | None, NoDecode] = Field(
        default=None, validation_alias="OPENCODE_DB", description="OpenCode's database, when it stands elsewhere."
    )
    enable_memory_write: bool = Field(
        default=False,
        validation_alias="RIVETOS_MCP_ENABLE_MEMORY_WRITE",
        description="`1` offers the write tools, `memory_append` and `memory_ingest_session`; else they answer 404.",
    )
    memory_source: str | None = Field(
        default=None,
        validation_alias="RIVETOS_MEMORY_SOURCE",
        description="The source that the write tools note when a call names none. Unset: `mcp`.",
    )
    memory_agent: str | None = Field(
        default=None,
        max_length=200,
        validation_alias="RIVETOS_MEMORY_AGENT",
        description="The agent under which the write tools store when a call names none. Unset: `mcp`.",
    )
    memory_channel: str | None = Field(
        default=None,
        validation_alias="RIVETOS_MEMORY_CHANNEL",
        description="The channel under which the write tools store when a call names none. Unset: `mcp`.",
    )
    memory_persona: str | None = Field(
        default=None,
        validation_alias="RIVETOS_MEMORY_PERSONA",
        description="The persona that the write tools note in the metadata when a call names none.",
    )

    eval_file: Path | None = Field(
        default=None,
        validation_alias="RIVETOS_EVAL_FILE",
        description="A LoCoMo or LongMemEval file whose questions the asset `retrieval_quality` asks. "
        "Unset: the shipped questions over the demo sessions.",
    )

    embed_url: str | None = Field(
        default=None,
        validation_alias="RIVETOS_EMBED_URL",
        description="Base address of an OpenAI-compatible embedding server (`/v1/embeddings` is appended). "
        "Unset: WordLlama in this process.",
    )
    embed_model: str | None = Field(
        default=None,
        validation_alias="RIVETOS_EMBED_MODEL",
        description="The model name sent to the embedding server; needed with `RIVETOS_EMBED_URL`.",
    )
    embed_api_key: SecretStr | None = Field(
        default=None, validation_alias="RIVETOS_EMBED_API_KEY", description="Bearer key for the embedding server."
    )
    embed_token_command: SecretStr | None = Field(
        default=None,
        validation_alias="RIVETOS_EMBED_TOKEN_COMMAND",
        description="A command that prints the embedding server's bearer token, instead of a key; run without a shell.",
    )
    embed_token_ttl_ms: int = Field(
        default=300_000,
        ge=0,
        validation_alias="RIVETOS_EMBED_TOKEN_TTL_MS",
        description="How long, in milliseconds, its token is used before the command is asked again; at once on a 401.",
    )
    embed_chars_per_chunk: int = Field(
        default=2000,
        ge=200,
        validation_alias="EMBED_CHARS_PER_CHUNK",
        description="Texts longer than this many characters are embedded in chunks.",
    )
    embed_batch: int = Field(
        default=32,
        ge=1,
        le=2048,
        validation_alias="RIVETOS_EMBED_BATCH",
        description="Texts per request to the embedding server; it shrinks by itself when the server says too large.",
    )
    embed_dimensions: int | None = Field(
        default=None,
        ge=1,
        le=4000,
        validation_alias="EXPECTED_DIMS",
        description="The width the embedding server must answer. Unset: its first answer decides.",
    )

    compactor_url: str | None = Field(
        default=None,
        validation_alias="RIVETOS_COMPACTOR_URL",
        description="Base address of an OpenAI-compatible chat server, `/v1` included. "
        "Unset: the extractive summarizer in this process.",
    )
    compactor_model: str | None = Field(
        default=None,
        validation_alias="RIVETOS_COMPACTOR_MODEL",
        description="The model name sent to the chat server; needed with `RIVETOS_COMPACTOR_URL`.",
    )
    compactor_api_key: SecretStr | None = Field(
        default=None, validation_alias="RIVETOS_COMPACTOR_API_KEY", description="Bearer key for the chat server."
    )
    compactor_context_tokens: int = Field(
        default=32_768,
        ge=4096,
        validation_alias="RIVETOS_COMPACTOR_CONTEXT_TOKENS",
        description="How many tokens the chat server's model reads, prompt and answer together. A larger batch is "
        "cut, a single larger message summarised in segments.",
    )
    compactor_extra_body: Annotated[dict[str, Any] | None, NoDecode] = Field(
        default=None,
        repr=False,
        validation_alias="RIVETOS_COMPACTOR_EXTRA_BODY",
        description="A JSON object whose fields go into each request to the chat server and replace the ones of the "
        'same name: `{"temperature": 0.6, "repeat_penalty": 1.2}`. Not `model`, `messages`, `stream` or the length of '
        "the answer (`max_tokens` and its kin). "
        "Fallbacks at another address are not sent it.",
    )
    compactor_token_command: SecretStr | None = Field(
        default=None,
        validation_alias="RIVETOS_COMPACTOR_TOKEN_COMMAND",
        description="A command that prints the chat server's bearer token, instead of a key; run without a shell.",
    )
    compactor_token_ttl_ms: int = Field(
        default=300_000,
        ge=0,
        validation_alias="RIVETOS_COMPACTOR_TOKEN_TTL_MS",
        description="How long, in milliseconds, its token is used before the command is asked again; at once on a 401.",
    )
    compactor_fallbacks: str | None = Field(
        default=None,
        validation_alias="RIVETOS_COMPACTOR_FALLBACKS",
        description="Chat servers that stand in, in order, when the one before is down, busy or refuses the key, the "
        "payment or the model: `url` or `url|model`, separated by commas.",
    )
    compactor_fallback_keys: SecretStr | None = Field(
        default=None,
        validation_alias="RIVETOS_COMPACTOR_FALLBACK_KEYS",
        description="Bearer keys of those servers: `url|key`, separated by commas. No server is sent another's key.",
    )
    tool_text_model: str | None = Field(
        default=None,
        validation_alias="RIVETOS_TOOL_TEXT_MODEL",
        description="The model of the chat server that says in a sentence what a tool call did: one request a call. "
        "Unset: `RIVETOS_COMPACTOR_MODEL`. `none`: no model, the sentence is made of the call's name and arguments.",
    )
    session_tagging: bool = Field(
        default=True,
        validation_alias="SESSION_TAGGING",
        description="`0` proposes no tags. What was summarised meanwhile is looked at once it is on again.",
    )
    tagger_url: str | None = Field(
        default=None,
        validation_alias="RIVETOS_TAGGER_URL",
        description="The service that proposes tags: the base address of an OpenAI-compatible chat server, `/v1` "
        "included, or with `RIVETOS_TAGGER_WIRE_SHAPE=native` the whole address of a classifier. Unset: the "
        "compactor's chat server, and without one the phrases that this process finds.",
    )
    tagger_model: str | None = Field(
        default=None,
        validation_alias="RIVETOS_TAGGER_MODEL",
        description="The model that proposes tags; needed with a chat server of its own. "
        "Unset: `RIVETOS_COMPACTOR_MODEL` at the compactor's server.",
    )
    tagger_api_key: SecretStr | None = Field(
        default=None,
        validation_alias="RIVETOS_TAGGER_API_KEY",
        description="Bearer key for `RIVETOS_TAGGER_URL`. It goes to no other server, and no other key goes there.",
    )
    tagger_token_command: SecretStr | None = Field(
        default=None,
        validation_alias="RIVETOS_TAGGER_TOKEN_COMMAND",
        description="A command that prints that server's bearer token, instead of a key; run without a shell.",
    )
    tagger_token_ttl_ms: int = Field(
        default=300_000,
        ge=0,
        validation_alias="RIVETOS_TAGGER_TOKEN_TTL_MS",
        description="How long, in milliseconds, its token is used before the command is asked again; at once on a 401.",
    )
    tagger_wire_shape: Literal["openai", "native"] = Field(
        default="openai",
        validation_alias="RIVETOS_TAGGER_WIRE_SHAPE",
        description="How `RIVETOS_TAGGER_URL` is spoken to: `openai` (chat completions) or `native` (a classifier).",
    )
    tagger_timeout_seconds: float = Field(
        default=60.0,
        gt=0,
        validation_alias="RIVETOS_TAGGER_TIMEOUT_SECONDS",
        description="How long one call to the tagger may take. It is tried once more; then the leaf goes without tags.",
    )
    wiki_review: bool = Field(
        default=False,
        validation_alias="WIKI_REVIEW",
        description="`1` leaves what is mined for the wiki as proposals until a person accepts them; else it is "
        "applied at once and can be taken back.",
    )
    model_deadline_seconds: float = Field(
        default=3600.0,
        gt=0,
        validation_alias="RIVETOS_MODEL_DEADLINE_SECONDS",
        description="How long one call to the chat server, its retries and fallbacks included, may take.",
    )

    @field_validator(
        "home",
        "workspace",
        "capture_spool",
        "claude_home",
        "codex_home",
        "qwen_home",
        "kimi_home",
        "hermes_home",
        "data_home",
        "config_home",
        "opencode_db",
        "eval_file",
    )
    @classmethod
    def _expand_home(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value is not None else None

    @field_validator("compactor_extra_body", mode="before")
    @classmethod
    def _json_object(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            read = json.loads(value)
            # NaN, figures too large and halves of characters can be read, and not be sent.
            json.dumps(read, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError) as error:
            # The parser's own message names the place, never the text.
            raise ValueError(f"it can not be read as JSON ({error}); {_WRITE_AN_OBJECT}") from error
        if not isinstance(read, dict):
            raise ValueError(f"it is JSON, but no object; {_WRITE_AN_OBJECT}")
        return read

    @field_validator("compactor_extra_body", mode="after")
    @classmethod
    def _leaves_the_request_alone(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        taken = sorted(_REQUEST_FIELDS & (value or {}).keys())
        if taken:
            raise ValueError(f"it sets {', '.join(taken)}, which the pipeline decides; leave that out")
        return value

    @field_validator("api_token", mode="after")
    @classmethod
    def _can_be_sent(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        # A header loses what stands around its value, and a browser's form too.
        token = value.get_secret_value().strip()
        if not token or not token.isprintable():
            raise ValueError("it is blank, or holds characters that no header can carry; use a long random text")
        return SecretStr(token)

    @field_validator("timezone", mode="after")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"{value!r} is no IANA time zone; use a name such as Europe/Berlin or UTC") from error
        return value

    @field_validator("first_day", mode="after")
    @classmethod
    def _day_has_come(cls, value: date) -> date:
        if value > datetime.now(UTC).date():
            raise ValueError(f"{value} has not come yet; the first partition must be today (UTC) or earlier")
        return value

    @property
    def spool_folder(self) -> Path:
        """The folder in which captures wait while the API is away."""
        return self.capture_spool or self.home / "capture-spool"

    @property
    def workspace_folder(self) -> Path:
        """The folder of the workspace files; it need not exist."""
        return self.workspace or self.home / "workspace"

    @property
    def capture_url(self) -> str:
        """The base address to which captures are posted."""
        return self.api_address if self.api_url is None else self.api_url.rstrip("/")

    @property
    def captures_elsewhere(self) -> bool:
        """Whether captures go to another machine, which has not got the folders of this one."""
        return self.api_url is not None and urlsplit(self.api_url).hostname not in {"127.0.0.1", "::1", "localhost"}

    @property
    def api_address(self) -> str:
        """Where a browser on this machine finds the API and the hub; the loopback one of what listens everywhere."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.api_host, self.api_host).strip("[]")  # noqa: S104
        return f"http://[{host}]:{self.api_port}" if ":" in host else f"http://{host}:{self.api_port}"

    @property
    def loopback_only(self) -> bool:
        """Whether the API listens on this machine alone."""
        return self.api_host in {"127.0.0.1", "::1", "localhost"}


def settings_problem(error: ValidationError) -> str:
    """One line that names the first variable with a bad value, and what is wrong with it; never the value itself."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    return f"{name} is wrong: {first['msg'].removeprefix('Value error, ')}"


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The settings of this process, read once from the environment."""
    return Settings()
