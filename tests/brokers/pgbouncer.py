"""PgBouncer before a PostgreSQL server: in transaction mode each has another connection."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .nats_server import free_port
from .postgres_server import START_TIMEOUT_S, PostgresFailed, PostgresServer

DEBIAN = Path("/usr/sbin/pgbouncer")


def installed_pooler() -> str | None:
    """The program, None when it is not installed."""
    return str(DEBIAN) if DEBIAN.exists() else shutil.which("pgbouncer")


@contextmanager
def pooler(server: PostgresServer, *, mode: str = "transaction", size: int = 2) -> Iterator[int]:
    """The port of a pooler of the caller's own."""
    folder, port = Path(tempfile.mkdtemp(prefix="pgbouncer-")), free_port()
    config = folder / "pgbouncer.ini"
    config.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = any\npool_mode = {mode}\ndefault_pool_size = {size}\n"
    )
    user = None
    if os.geteuid() == 0:
        user = "postgres"
        for path in (folder, config):
            os.chown(path, pwd.getpwnam(user).pw_uid, -1)
    program = installed_pooler()
    if program is None:
        raise PostgresFailed("PgBouncer is not installed")
    process = subprocess.Popen(
        [program, "-q", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user,
        cwd="/",
    )
    try:
        _wait_until_ready(process, port)
        yield port
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(START_TIMEOUT_S * 20):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            break
    raise PostgresFailed("PgBouncer did not start")
