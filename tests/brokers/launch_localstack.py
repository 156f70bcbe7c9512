"""Run LocalStack on loopback, out of one folder, for as long as somebody holds `owner.lock`.

    .venv-localstack/bin/python -P tests/brokers/launch_localstack.py FOLDER

Returns once the port is open and written to FOLDER/port; the server goes on in a process group
of its own and answers as soon as it has loaded. Only the standard library and LocalStack are
imported here: this is the one file that LocalStack's environment runs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import sys
import threading
from ipaddress import ip_address
from pathlib import Path
from typing import Any

SERVICES = ("sqs", "s3", "sns")
# Each waiting client is a long poll away from being accepted, so the queue for it is long.
BACKLOG = 1_024


def main(folder: Path) -> None:
    """Open the port, detach, and serve until the owner is gone."""
    alive = (folder / "server.lock").open("wb")
    # The lock is the process's sign of life: the kernel drops it however the process ends.
    fcntl.flock(alive, fcntl.LOCK_EX)
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    port = listener.getsockname()[1]
    (folder / "port").write_text(str(port))
    _detach()
    threading.Thread(target=_end_with_owner, args=(folder,), daemon=True).start()
    _configure(folder, port)
    _stay_on_this_machine()
    _serve_on(listener)


def _detach() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()


def _end_with_owner(folder: Path) -> None:
    """Leave no trace once `owner.lock` is free: the owner has let go of it, or was killed."""
    with (folder / "owner.lock").open("rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _configure(folder: Path, port: int) -> None:
    """Tell LocalStack where it is; it reads the environment when it is imported."""
    address = f"127.0.0.1:{port}"
    for name in ("root", "config", "tmp"):
        (folder / name).mkdir()
    os.environ.update(
        SERVICES=",".join(SERVICES),
        STRICT_SERVICE_LOADING="1",
        EAGER_SERVICE_LOADING="1",
        # The default provider needs moto, which this installation does without.
        PROVIDER_OVERRIDE_SNS="v2",
        GATEWAY_LISTEN=address,
        LOCALSTACK_HOST=address,
        # Queue URLs then name the server itself and need no resolver.
        SQS_ENDPOINT_STRATEGY="off",
        SQS_DISABLE_CLOUDWATCH_METRICS="1",
        DISABLE_EVENTS="1",
        SKIP_SSL_CERT_DOWNLOAD="1",
        DNS_ADDRESS="0",
        # Left empty, Docker's bridge is looked for with a ping.
        DOCKER_BRIDGE_IP="127.0.0.1",
        FILESYSTEM_ROOT=str(folder / "root"),
        CONFIG_DIR=str(folder / "config"),
        TMPDIR=str(folder / "tmp"),
    )


def _stay_on_this_machine() -> None:
    """Refuse to look up any name but this machine's, so that no packet leaves it."""
    find_address, find_addresses = socket.gethostbyname, socket.getaddrinfo

    def gethostbyname(name: str) -> str:
        _check_local(name)
        return find_address(name)

    def getaddrinfo(host: Any, *args: Any, **options: Any) -> list[Any]:
        _check_local(host)
        return find_addresses(host, *args, **options)

    socket.gethostbyname = gethostbyname
    socket.getaddrinfo = getaddrinfo


def _check_local(host: object) -> None:
    name = host.decode() if isinstance(host, bytes) else host
    if name is None or name in ("", "localhost"):
        return
    try:
        ip_address(str(name))
    except ValueError:
        raise socket.gaierror(socket.EAI_NONAME, f"{name} is not looked up in tests") from None


def _serve_on(listener: socket.socket) -> None:
    """Let LocalStack serve the socket we hold: left to itself it listens on all interfaces."""
    from twisted.internet import endpoints

    def ours(reactor: Any, port: int) -> Any:
        return endpoints.AdoptedStreamServerEndpoint(
            reactor, listener.fileno(), socket.AddressFamily.AF_INET
        )

    endpoints.TCP4ServerEndpoint = ours

    from localstack.runtime.main import main as serve

    serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
