"""A PostgreSQL server as a child process: a free loopback port, a throw-away cluster.

`initdb` refuses root, so root's tests run it as the user `postgres` that Debian's package made.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from .nats_server import free_port

DEBIAN = Path("/usr/lib/postgresql")
START_TIMEOUT_S = 60
FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
"""For tests that kill nothing."""


class PostgresFailed(Exception):
    """The server did not start; the message says why."""


def installed_programs() -> Path | None:
    """The folder of `initdb` and `postgres`, of the newest version there is; None when none is."""
    versions = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


@attrs.define(eq=False)
class PostgresServer:
    """One server on one cluster. It can be killed, and started again on it at the same port."""

    folder: Path
    settings: tuple[str, ...] = FAST
    port: int = 0
    _process: subprocess.Popen[bytes] | None = attrs.field(init=False, default=None)
    _guard: subprocess.Popen[bytes] | None = attrs.field(init=False, default=None)

    def url(self, database: str = "postgres", *, port: int | None = None, user: str = "") -> str:
        """Where it is to be reached, or by which other port it is."""
        return f"postgres://{user or 'postgres'}@127.0.0.1:{port or self.port}/{database}"

    def start(self) -> None:
        """Return when it takes connections."""
        self.port = self.port or free_port()
        data = self.folder / "data"
        if not data.exists():
            self._make_cluster(data)
        settings = (f"port={self.port}", "listen_addresses=127.0.0.1", *self.settings)
        options = [
            *(f"-c{setting}" for setting in settings),
            *("-cmax_connections=200", f"-cunix_socket_directories={self.folder}"),
        ]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program("postgres"), "-D", str(data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                user=_user(),
                cwd="/",
            )
        # Gone with us, however we go: without a word from here, the guard ends it.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", 'read word || kill -QUIT "$0"', str(self._process.pid)],
            stdin=subprocess.PIPE,
        )
        self._wait_until_ready()

    def kill(self) -> None:
        """End it as `pg_ctl -m immediate stop` does: no checkpoint, nothing said to clients."""
        process = self._process
        assert process is not None, "PostgreSQL is not running"
        process.send_signal(3)
        process.wait(START_TIMEOUT_S)
        self._process = None
        if self._guard is not None:
            self._guard.communicate(b"dismissed\n", START_TIMEOUT_S)

    def close(self) -> None:
        """Leave no process and no files behind."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_cluster(self, data: Path) -> None:
        made = subprocess.run(
            [
                *(self._program("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust"),
                *("--no-sync", "--encoding=UTF8", "--locale=C"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            user=_user(),
            cwd="/",
        )
        if made.returncode:
            raise PostgresFailed(made.stdout.decode(errors="replace"))

    def _wait_until_ready(self) -> None:
        command = [self._program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        process, waited_s = self._process, 0.0
        assert process is not None
        while subprocess.run(command, check=False).returncode:
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                waited_s += 0.05
            else:
                waited_s = START_TIMEOUT_S
            if waited_s >= START_TIMEOUT_S:
                raise PostgresFailed((self.folder / "server.log").read_text(errors="replace"))

    @staticmethod
    def _program(name: str) -> str:
        programs = installed_programs()
        if programs is None:
            raise PostgresFailed("PostgreSQL is not installed")
        return str(programs / name)


@contextmanager
def postgres_server(settings: tuple[str, ...] = FAST) -> Iterator[PostgresServer]:
    """A server of the caller's own; killed at the end, its cluster removed."""
    # Of its own: the folders of pytest are closed to the user that the server runs as.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    server = PostgresServer(folder, settings)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _user() -> str | None:
    return "postgres" if os.geteuid() == 0 else None
