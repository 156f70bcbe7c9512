"""Install Debian's RabbitMQ, PostgreSQL and PgBouncer for the tests, where they are not and this
machine lets us.

    python tests/brokers/install_brokers.py

Always ends well: where one cannot be had it says so in one line, and the tests decide what that
means. Safe to run twice, and twice at once. No service is started or left enabled: the tests start
the programs themselves, on ports and data of their own. Only the standard library is imported here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOCK = Path("/run/pumphouse-brokers.lock")
POLICY = Path("/usr/sbin/policy-rc.d")
"""Asked by Debian's packages before they start a service; 101 is no."""
OUR_POLICY = (
    "#!/bin/sh\n# Of pumphouse's tests/brokers/install_brokers.py: may be removed.\nexit 101\n"
)
TIMEOUT_S = 600


@dataclass(frozen=True)
class Server:
    """One of Debian's packages, and the program that is to be had from it."""

    name: str
    package: str
    program: str
    """Where it is, as a pattern: the version may be a part of it."""
    services: tuple[str, ...]

    def is_there(self) -> bool:
        """Whether there is one already, Debian's or another."""
        found = any(Path("/").glob(self.program.lstrip("/")))
        return found or shutil.which(Path(self.program).name) is not None


SERVERS = (
    Server(
        "RabbitMQ",
        "rabbitmq-server",
        "/usr/lib/rabbitmq/bin/rabbitmq-server",
        ("rabbitmq-server.service", "epmd.socket", "epmd.service"),
    ),
    Server(
        "PostgreSQL", "postgresql", "/usr/lib/postgresql/*/bin/postgres", ("postgresql.service",)
    ),
    Server("PgBouncer", "pgbouncer", "/usr/sbin/pgbouncer", ("pgbouncer.service",)),
)


class Impossible(Exception):
    """It cannot be installed here; the message says why."""


def main(servers: Sequence[Server] = SERVERS) -> None:
    """Install each, or say in one loud line why not."""
    for server in servers:
        try:
            if not server.is_there():
                _obtain(server)
        except (Impossible, OSError) as error:
            name = server.name.upper()
            print(f"{name} IS NOT INSTALLED, and its tests will be left out: {error}", flush=True)


def obstacle(package: str, user_id: int, apt_get: str | None) -> str | None:
    """Why this user cannot install packages here, None when nothing speaks against it."""
    if apt_get is None:
        return f"there is no apt-get here; install {package} by other means"
    if user_id != 0:
        return f"only root may; run `sudo apt-get install {package}` once"
    return None


def _obtain(server: Server) -> None:
    why_not = obstacle(server.package, os.geteuid(), shutil.which("apt-get"))
    if why_not is not None:
        raise Impossible(why_not)
    with LOCK.open("ab") as lock:
        # A second run waits for the first, and then finds it done.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if server.is_there():
            return
        print(f"installing Debian's {server.package} for the tests", flush=True)
        with services_held_back(POLICY):
            _update()
            _apt_get("install", "--yes", "--no-install-recommends", server.package)
        _disable(server.services)
    if not server.is_there():
        raise Impossible(f"{server.package} was installed, but brought no {server.program}")


def _update() -> None:
    try:
        _apt_get("update")
    except Impossible as error:
        # One broken source of several need not be the one it comes from.
        print(f"{error}; going on with the lists that are there", flush=True)


@contextmanager
def services_held_back(policy: Path) -> Iterator[None]:
    """Packages that are installed meanwhile start nothing; a policy of the machine's own stays."""
    if not policy.exists():
        # At once with its contents and its mode: half a policy would be obeyed too.
        made = policy.with_name(f"{policy.name}.pumphouse")
        made.write_text(OUR_POLICY)
        made.chmod(0o755)
        made.rename(policy)
    try:
        yield
    finally:
        # Also one that a run before this left behind when it was killed.
        if policy.read_text() == OUR_POLICY:
            policy.unlink()


def _apt_get(*arguments: str) -> None:
    command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Impossible(f"`{' '.join(command)}` did not end in {TIMEOUT_S} s") from None
    if done.returncode:
        raise Impossible(f"`{' '.join(command)}` failed: {last_words(done.stdout)}")


def last_words(output: str) -> str:
    """The line of a command's output that says most about its failure."""
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E:")]
    return (errors or lines or ["it said nothing"])[-1]


def _disable(services: Sequence[str]) -> None:
    """Not started now, nor when the machine starts."""
    if shutil.which("systemctl") is not None:
        subprocess.run(
            ["systemctl", "--quiet", "disable", *services],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


if __name__ == "__main__":
    main()
    sys.exit(0)
