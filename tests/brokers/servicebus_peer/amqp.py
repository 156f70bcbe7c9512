"""The AMQP side of the peer: links, deliveries and settlements, as the SDK expects them.

Everything happens on proton's one thread; the lock is for the threads of HTTP and control.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from threading import Condition, Lock
from typing import Any

from .entities import Namespace, Queue, Stored, unix_time_s
from .frames import (
    SESSION_FILTER,
    at_length,
    delivery_tag,
    encoded,
    path_of,
    patience_s,
    session_filter,
)
from .management import Management, Refused

# Only in the environment that runs this; it has no types.
proton: Any = import_module("proton")

TICK_S = 0.01
MAX_MESSAGE_BYTES = 262_144
_TICKS_AT_EPOCH = 621_355_968_000_000_000


@dataclass(eq=False)
class Outlet:
    """A link that gives out the messages of a queue."""

    link: Any
    queue: Queue
    session: str | None = None
    given: dict[bytes, Stored] = field(default_factory=dict)


@dataclass(eq=False)
class Knock:
    """A link that waits for a session."""

    link: Any
    queue: Queue
    gives_up_at: float


class AmqpSide:
    """A handler of proton's events."""

    handlers: tuple[object, ...] = ()

    def __init__(self, namespace: Namespace, lock: Lock) -> None:
        self.namespace = namespace
        self.lock = lock
        self.faults: Counter[str] = Counter()
        """How many more of these are refused because the server is busy."""
        self.losses: Counter[str] = Counter()
        """How many more of these are performed, and never answered."""
        self.requests: Counter[str] = Counter()
        self.management = Management(namespace)
        self._outlets: dict[Any, Outlet] = {}
        self._knocks: list[Knock] = []
        self._replies: dict[tuple[Any, str], Any] = {}
        self._later: list[tuple[Any, Any]] = []
        self._listeners: list[Any] = []
        """Connections whose key may only listen."""
        self._ticked = Condition(lock)
        self._tick_count = 0

    # --- connections, sessions, links ---

    def on_connection_remote_open(self, event: Any) -> None:
        event.connection.container = "peer"
        event.connection.open()

    def on_connection_remote_close(self, event: Any) -> None:
        event.connection.close()

    def on_transport_closed(self, event: Any) -> None:
        connection = event.connection
        with self.lock:
            for link in [each for each in self._outlets if each.connection == connection]:
                self._forget(link)
            self._knocks = [each for each in self._knocks if each.link.connection != connection]
            self._listeners = [each for each in self._listeners if each != connection]
            for key in [
                key for key, link in self._replies.items() if link.connection == connection
            ]:
                del self._replies[key]

    def on_session_remote_open(self, event: Any) -> None:
        event.session.open()

    def on_session_remote_close(self, event: Any) -> None:
        event.session.close()

    def on_link_remote_open(self, event: Any) -> None:
        link = event.link
        with self.lock:
            address = path_of(
                link.remote_source.address if link.is_sender else link.remote_target.address
            )
            if address == "$cbs" or address.endswith("/$management"):
                self._open_plain(link)
                if link.is_sender:
                    self._replies[(link.connection, address)] = link
            elif (queue := self.namespace.find(address)) is None:
                self._refuse(link, "amqp:not-found", f"the messaging entity {address!r} is unknown")
            elif not link.is_receiver:
                self._open_outlet(link, queue)
            elif link.connection in self._listeners:
                self._refuse(link, "amqp:unauthorized-access", "'Send' claim(s) are required")
            elif queue.is_dead_letters:
                self._refuse(link, "amqp:not-allowed", f"nobody sends to {address!r}")
            else:
                self._open_plain(link)

    def on_link_remote_close(self, event: Any) -> None:
        with self.lock:
            self._forget(event.link)
        event.link.close()

    on_link_remote_detach = on_link_remote_close

    def _open_plain(self, link: Any) -> None:
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        link.snd_settle_mode = link.remote_snd_settle_mode
        if link.is_receiver:
            link.max_message_size = MAX_MESSAGE_BYTES
        link.open()
        if link.is_receiver:
            link.flow(1_000)

    def _refuse(self, link: Any, condition: str, description: str) -> None:
        """A refusal is an attach without a terminus, and a detach one tick later."""
        link.source.type = link.target.type = proton.Terminus.UNSPECIFIED
        link.open()
        said = proton.Condition(condition, at_length(description), {"peer": "refused"})
        self._later.append((link, said))

    def _open_outlet(self, link: Any, queue: Queue) -> None:
        self.requests["attach"] += 1
        wanted = session_filter(link)
        if queue.needs_session != (wanted is not None):
            detail = "requires" if queue.needs_session else "does not support"
            self._refuse(link, "amqp:not-allowed", f"{queue.name} {detail} sessions")
        elif wanted is None:
            self._open_plain(link)
            self._outlets[link] = Outlet(link, queue)
        elif wanted[0] is None:
            self._knocks.append(Knock(link, queue, unix_time_s() + patience_s(link)))
            self._answer_knocks()
        elif queue.is_session_held(wanted[0], unix_time_s()):
            self._refuse(
                link, "com.microsoft:session-cannot-be-locked", f"session {wanted[0]} is locked"
            )
        else:
            self._open_session(link, queue, wanted[0])

    def _open_session(self, link: Any, queue: Queue, session: str) -> None:
        held = queue.hold_session(session, link, unix_time_s())
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.source.filter.clear()
        link.source.filter.put_dict({proton.symbol(SESSION_FILTER): session})
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        until = int(held.locked_until * 10_000_000) + _TICKS_AT_EPOCH
        link.properties = {proton.symbol("com.microsoft:locked-until-utc"): until}
        link.open()
        self._outlets[link] = Outlet(link, queue, session)

    def _answer_knocks(self) -> None:
        now = unix_time_s()
        for knock in list(self._knocks):
            session = knock.queue.next_session(now)
            if session is not None:
                self._knocks.remove(knock)
                self._open_session(knock.link, knock.queue, session)
            elif knock.gives_up_at <= now:
                self._knocks.remove(knock)
                self._refuse(knock.link, "com.microsoft:timeout", "no session became available")

    def _forget(self, link: Any) -> None:
        outlet = self._outlets.pop(link, None)
        self._knocks = [each for each in self._knocks if each.link != link]
        if outlet is not None and outlet.session is not None:
            held = outlet.queue.sessions[outlet.session]
            if held.holder == link:
                self.namespace.release_session(outlet.queue, outlet.session, unix_time_s())

    # --- time ---

    def on_reactor_init(self, event: Any) -> None:
        event.container.schedule(TICK_S, self)

    def on_timer_task(self, event: Any) -> None:
        with self.lock:
            self.tick()
        event.container.schedule(TICK_S, self)

    def tick(self) -> None:
        """Do what is due."""
        later, self._later = self._later, []
        for link, condition in later:
            link.condition = condition
            link.close()
        self.namespace.expire(unix_time_s())
        for outlet in list(self._outlets.values()):
            if outlet.session is not None and not self._still_holds(outlet):
                self._outlets.pop(outlet.link, None)
                outlet.link.condition = proton.Condition(
                    "com.microsoft:session-lock-lost", "the session lock is lost", {"peer": "lost"}
                )
                outlet.link.close()
        self._answer_knocks()
        self.give_out()
        self._tick_count += 1
        self._ticked.notify_all()

    def wait_for_tick(self) -> None:
        """Return when all was done that is due now."""
        with self._ticked:
            after = self._tick_count + 1
            self._ticked.wait_for(lambda: self._tick_count >= after)

    def _still_holds(self, outlet: Outlet) -> bool:
        return bool(outlet.queue.sessions[outlet.session or ""].holder == outlet.link)

    # --- messages out ---

    def on_link_flow(self, event: Any) -> None:
        with self.lock:
            self.give_out()

    def give_out(self) -> None:
        """Give available messages to the links that have credit, in turns."""
        is_giving = True
        while is_giving:
            is_giving = False
            for outlet in list(self._outlets.values()):
                if outlet.link.credit > outlet.link.queued and self._give_one(outlet):
                    is_giving = True
        for outlet in self._outlets.values():
            if outlet.link.drain_mode and outlet.link.credit > 0:
                outlet.link.drained()

    def _give_one(self, outlet: Outlet) -> bool:
        now = unix_time_s()
        stored = next(outlet.queue.available(now, outlet.session), None)
        if stored is None:
            return False
        tag = outlet.queue.lock(stored, now).bytes_le
        delivery = outlet.link.delivery(tag)
        outlet.link.stream(encoded(stored))
        outlet.link.advance()
        if outlet.link.remote_snd_settle_mode == proton.Link.SND_SETTLED:
            # Receive and delete.
            self.namespace.complete(outlet.queue, stored)
            delivery.settle()
        else:
            outlet.given[tag] = stored
        return True

    # --- messages in, and settlements ---

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        with self.lock:
            if link.is_sender:
                if delivery.updated:
                    self._settled(link, delivery)
            elif delivery.readable and not delivery.partial:
                octets = link.recv(delivery.pending)
                link.advance()
                link.flow(1)
                self._received(link, delivery, octets)
            self.give_out()

    def _received(self, link: Any, delivery: Any, octets: bytes) -> None:
        address = path_of(link.remote_target.address)
        if address == "$cbs" or address.endswith("/$management"):
            self._request(link, delivery, address, octets)
            return
        self.requests["send"] += 1
        queue = self.namespace.find(address)
        try:
            if self._strike("send"):
                raise Refused("com.microsoft:server-busy", "the server is busy", 503)
            if queue is None:
                raise Refused("amqp:not-found", f"the messaging entity {address!r} is unknown", 404)
            self.management.enqueue(queue, octets)
        except Refused as error:
            delivery.local.condition = proton.Condition(
                error.condition, at_length(str(error)), {"peer": "no"}
            )
            delivery.update(proton.Delivery.REJECTED)
        else:
            delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()

    def _settled(self, link: Any, delivery: Any) -> None:
        outlet = self._outlets.get(link)
        if delivery.link.is_receiver or (delivery.remote_state == 0 and not delivery.settled):
            return
        if outlet is None:
            delivery.settle()
            return
        self.requests["disposition"] += 1
        stored, now = outlet.given.pop(delivery_tag(delivery), None), unix_time_s()
        if stored is None or not stored.is_locked(now):
            delivery.local.condition = proton.Condition(
                "com.microsoft:message-lock-lost", "the lock is lost", {"peer": "lost"}
            )
            delivery.update(proton.Delivery.REJECTED)
        else:
            self._apply(outlet.queue, stored, delivery, now)
            delivery.update(delivery.remote_state)
        delivery.settle()

    def _apply(self, queue: Queue, stored: Stored, delivery: Any, now: float) -> None:
        match delivery.remote_state:
            case proton.Delivery.ACCEPTED:
                self.namespace.complete(queue, stored)
            case proton.Delivery.REJECTED:
                info = delivery.remote.condition.info or {}
                said = {str(name): str(text) for name, text in info.items()}
                reason = said.get("DeadLetterReason", "")
                detail = said.get("DeadLetterErrorDescription", "")
                self.namespace.dead_letter(queue, stored, reason, detail, now)
            case proton.Delivery.MODIFIED:
                self.namespace.abandon(queue, stored, now)
            case _:
                self.namespace.release(stored)

    # --- requests ---

    def _request(self, link: Any, delivery: Any, address: str, octets: bytes) -> None:
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
        request = proton.Message()
        request.decode(octets)
        said = request.properties or {}
        operation = str(said.get("operation", "")).removeprefix("com.microsoft:")
        self.requests[operation] += 1
        reply = proton.Message(correlation_id=request.id)
        if address == "$cbs":
            status = self._token_status(request)
            if "skn=listener" in str(request.body):
                self._listeners.append(link.connection)
            reply.properties = {
                "status-code": proton.int32(status),
                "status-description": "OK" if status < 300 else "the token was refused",
            }
        else:
            reply = self._managed(reply, operation, address, request.body, link.connection)
        answer = self._replies.get((link.connection, address))
        if self.losses[operation] > 0:
            self.losses[operation] -= 1
            link.connection.close()
        elif answer is not None:
            answer.send(reply)

    def _token_status(self, request: Any) -> int:
        if "skn=nobody" in str(request.body):
            return 401
        name = path_of(str((request.properties or {}).get("name", "")))
        return 202 if self.namespace.find(name) is not None else 404

    def _managed(self, reply: Any, operation: str, address: str, body: Any, connection: Any) -> Any:
        status, properties = 200, {}
        try:
            if self._strike(operation):
                raise Refused("com.microsoft:server-busy", "the server is busy", 503)
            reply.body = self.management.perform(operation, address, body, connection)
            if reply.body is None:
                status = 204
        except Refused as error:
            status = error.status
            properties = {"errorCondition": proton.symbol(error.condition)}
            reply.body = None
            properties["statusDescription"] = at_length(str(error))
        reply.properties = {
            "statusCode": proton.int32(status),
            "statusDescription": "OK",
            **properties,
        }
        return reply

    def _strike(self, operation: str) -> bool:
        if self.faults[operation] <= 0:
            return False
        self.faults[operation] -= 1
        return True
