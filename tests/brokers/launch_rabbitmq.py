"""Run RabbitMQ on loopback, out of one folder, for as long as somebody holds `owner.lock`.

    python tests/brokers/launch_rabbitmq.py FOLDER SERVER

Returns at once; the server goes on in a process group of its own, with an epmd of its own in it.
Ports are written to FOLDER/ports, and taken from there when the server is started again: its data
is where it was. Only the standard library is imported here.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

VHOSTS = ("/", *(f"gw{number}" for number in range(8)))
"""One for each worker of a run, so that none sees the queues of another."""
CONFIG = """
listeners.tcp.1 = 127.0.0.1:{port}
load_definitions = {folder}/definitions.json
vm_memory_high_watermark.absolute = 512MB
disk_free_limit.absolute = 10MB
raft.wal_max_size_bytes = 16000000
log.file.level = warning
"""
ADVANCED = "[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 5000}]}]."
"""What a killed server could not hand on at once, a delay above all, it hands on again after three
minutes unless it is told otherwise: longer than a test waits."""


def main(folder: Path, server: str) -> None:
    """Write down the ports, detach, and serve until the owner is gone."""
    alive = (folder / "server.lock").open("ab")
    # The lock is the process's sign of life: the kernel drops it however the process ends.
    fcntl.flock(alive, fcntl.LOCK_EX)
    ports = _ports(folder / "ports")
    _configure(folder, ports["amqp"])
    if os.fork():
        os._exit(0)
    os.setsid()
    (folder / "group").write_text(str(os.getpgrp()))
    threading.Thread(target=_end_with_owner, args=(folder,), daemon=True).start()
    variables = environment(folder, ports)
    # Started by hand: left to itself, Erlang starts one that outlives it.
    subprocess.Popen(["epmd", "-port", str(ports["epmd"]), "-address", "127.0.0.1"], env=variables)
    subprocess.run([server], env=variables, stdin=subprocess.DEVNULL, check=False)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _end_with_owner(folder: Path) -> None:
    """Leave no trace once `owner.lock` is free: the owner has let go of it, or was killed."""
    with (folder / "owner.lock").open("rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _ports(path: Path) -> dict[str, int]:
    if not path.exists():
        sockets = {name: _bound() for name in ("amqp", "dist", "epmd")}
        ports = {name: held.getsockname()[1] for name, held in sockets.items()}
        for held in sockets.values():
            held.close()
        path.write_text(json.dumps(ports))
    found: dict[str, int] = json.loads(path.read_text())
    return found


def _bound() -> socket.socket:
    """A socket on a port that no outgoing connection is given: below the range those come from. It
    is free for seconds, before the server takes it and while it is started again.
    """
    while True:
        try:
            return socket.create_server(("127.0.0.1", 20_000 + secrets.randbelow(12_000)))
        except OSError:
            continue


def _configure(folder: Path, port: int) -> None:
    (folder / "rabbitmq.conf").write_text(CONFIG.format(port=port, folder=folder))
    (folder / "advanced.config").write_text(ADVANCED)
    (folder / "plugins").write_text("[].")
    (folder / "env.conf").write_text("")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    definitions = {
        "users": [
            {"name": "guest", "password": "guest", "tags": "administrator"},
            {"name": "nobody", "password": "n0body-s3cret", "tags": ""},
        ],
        "vhosts": [{"name": name} for name in VHOSTS],
        "permissions": [
            *({"user": "guest", "vhost": name, **everything} for name in VHOSTS),
            {"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""},
        ],
    }
    (folder / "definitions.json").write_text(json.dumps(definitions))


def environment(folder: Path, ports: dict[str, int]) -> dict[str, str]:
    """Nothing of the developer's own settings but the path."""
    return {
        "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin",
        # Erlang's cookie is put there.
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "ERL_EPMD_PORT": str(ports["epmd"]),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"pump{ports['amqp']}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(ports["amqp"]),
        "RABBITMQ_DIST_PORT": str(ports["dist"]),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "env.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        # Two schedulers that sleep when there is nothing to do: tests share the machine.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none "
            "-kernel inet_dist_use_interface {127,0,0,1}"
        ),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
