"""Serve until the standard input ends: then nobody is left who could want the peer.

The first line of output says where: `{"amqp": 12345, "http": 12346}`. Each line of input is a
command, and is answered with one line:

    {"do": "throttle", "operation": "send", "count": 3}    refuse the next three, as busy
    {"do": "lose", "operation": "update-disposition", "count": 1}    apply, and hang up unanswered
    {"do": "settle_in_part"}   a lost lock keeps none of its request but itself from being applied
    {"do": "expire_locks"}     every lock is over
    {"do": "travel", "seconds": 30.0}    so much time has passed, and what was due is done
    {"do": "counts"}           how often each operation was asked for
    {"do": "delete", "part": "7f3a"}    the queues with this in their names
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from importlib import import_module
from typing import Any

from . import atom
from .amqp import AmqpSide
from .entities import Namespace, travel
from .management import id_of

# Only in the environment that runs this; it has no types.
reactor: Any = import_module("proton.reactor")


class Peer:
    """The whole of it: one namespace, its AMQP side and its administration."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.namespace = Namespace(id_of)
        self.amqp = AmqpSide(self.namespace, self.lock)
        self.http = atom.serve(self.namespace, self.lock, 0, self._strikes)
        self.container = reactor.Container(self.amqp)
        self.injector = reactor.EventInjector()
        self.container.selectable(self.injector)

    def run(self) -> None:
        """Serve."""
        port = _free_port()
        acceptor = self.container.listen(f"127.0.0.1:{port}")
        assert acceptor is not None
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        threading.Thread(target=self._obey, daemon=True).start()
        _say({"amqp": port, "http": self.http.server_address[1]})
        self.container.run()

    def _strikes(self, operation: str) -> bool:
        if self.amqp.faults[operation] <= 0:
            return False
        self.amqp.faults[operation] -= 1
        return True

    def _obey(self) -> None:
        for line in sys.stdin:
            command = json.loads(line)
            with self.lock:
                answer = self._do(command)
            if command["do"] == "travel":
                self.amqp.wait_for_tick()
            _say(answer)
        os._exit(0)

    def _do(self, command: dict[str, Any]) -> object:
        match command["do"]:
            case "throttle":
                self.amqp.faults[command["operation"]] += command["count"]
            case "lose":
                self.amqp.losses[command["operation"]] += command["count"]
            case "settle_in_part":
                self.amqp.management.settles_in_part = True
            case "expire_locks":
                for queue in self.namespace.queues.values():
                    for stored in queue.messages.values():
                        stored.locked_until = 0.0
                    for lock in queue.sessions.values():
                        lock.locked_until = 0.0
            case "travel":
                travel(command["seconds"])
            case "counts":
                return dict(self.amqp.requests)
            case "delete":
                for name in [name for name in self.namespace.queues if command["part"] in name]:
                    del self.namespace.queues[name]
            case other:
                return {"error": f"unknown command {other!r}"}
        return {}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _say(value: object) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    Peer().run()
