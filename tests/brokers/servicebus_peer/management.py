"""What the management links of a queue are asked, and how messages are taken in."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from .entities import Namespace, Queue, Stored, unix_time_s
from .frames import encoded

# Only in the environment that runs this; it has no types.
proton: Any = import_module("proton")

_SCHEDULED = "x-opt-scheduled-enqueue-time"
MAX_ID_CHARS = 128
MAX_HEADERS = 65_536
_DATA_SECTION = 0x75
_MESSAGE_STARTS = {b"\x00\x53" + bytes([section]) for section in range(0x70, 0x79)}


class Refused(Exception):
    """A request is refused with this condition."""

    def __init__(self, condition: str, description: str, status: int) -> None:
        super().__init__(description)
        self.condition = condition
        self.status = status


class Management:
    """Answers requests about one queue, named by the link's address."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._asker: Any = None
        self.settles_in_part = False
        """Whether a lost lock leaves the rest of its request applied, or nothing of it."""

    def perform(self, operation: str, address: str, body: Any, connection: Any) -> Any:
        """The body of the answer to what was asked on a connection."""
        queue = self._namespace.find(address.removesuffix("/$management"))
        if queue is None:
            raise Refused("amqp:not-found", f"{address!r} is unknown", 404)
        asked = {str(name): value for name, value in (body or {}).items()}
        handlers: dict[str, Callable[[Queue, dict[str, Any]], Any]] = {
            "renew-lock": self._renew,
            "update-disposition": self._dispose,
            "peek-message": self._peek,
            "schedule-message": self._schedule,
            "cancel-scheduled-message": self._cancel,
            "renew-session-lock": self._renew_session,
            "get-session-state": self._get_state,
            "set-session-state": self._set_state,
        }
        if operation not in handlers:
            raise Refused("amqp:not-implemented", f"the peer knows no {operation!r}", 501)
        self._asker = connection
        return handlers[operation](queue, asked)

    def enqueue(self, queue: Queue, octets: bytes) -> list[Stored]:
        """Take in a transfer: one message, or a batch of whole messages."""
        messages = _batch(octets) or [octets]
        read = [(each, decoded(each)) for each in messages]
        if queue.needs_session and any(message.group_id is None for _, message in read):
            detail = f"the SessionId was not set on a message, and {queue.name} requires sessions"
            raise Refused("amqp:not-allowed", detail, 400)
        for _, message in read:
            _check_sizes(message)
        return [self._add(queue, each, message) for each, message in read]

    def _add(self, queue: Queue, octets: bytes, message: Any) -> Stored:
        annotations = {str(key): value for key, value in (message.annotations or {}).items()}
        due = annotations.get(_SCHEDULED)
        return queue.add(
            octets,
            now=unix_time_s(),
            message_id=None if message.id is None else str(message.id),
            session=message.group_id,
            due_at=0.0 if due is None else float(due) / 1000,
        )

    def _renew(self, queue: Queue, asked: dict[str, Any]) -> Any:
        now, expirations = unix_time_s(), []
        for stored in self._locked(queue, asked, now):
            stored.locked_until = now + queue.lock_s
            expirations.append(proton.timestamp(int(stored.locked_until * 1000)))
        return {
            "expirations": proton.Array(proton.UNDESCRIBED, proton.Data.TIMESTAMP, *expirations)
        }

    def _dispose(self, queue: Queue, asked: dict[str, Any]) -> Any:
        now = unix_time_s()
        self._require_session(queue, asked, now)
        for stored in self._to_settle(queue, asked, now):
            match str(asked["disposition-status"]):
                case "completed":
                    self._namespace.complete(queue, stored)
                case "abandoned":
                    _modify(stored, asked.get("properties-to-modify"))
                    self._namespace.abandon(queue, stored, now)
                case "suspended":
                    reason = str(asked.get("deadletter-reason", ""))
                    detail = str(asked.get("deadletter-description", ""))
                    self._namespace.dead_letter(queue, stored, reason, detail, now)
                case other:
                    raise Refused("com.microsoft:argument-error", f"unknown {other!r}", 400)
        return {}

    def _to_settle(self, queue: Queue, asked: dict[str, Any], now: float) -> Iterator[Stored]:
        """Whether Azure applies the rest of a request with a lost lock is not documented."""
        if not self.settles_in_part:
            yield from self._locked(queue, asked, now)
            return
        found = [queue.find(_uuid(token), now) for token in asked["lock-tokens"].elements]
        yield from (stored for stored in found if stored is not None)
        if None in found:
            raise _lock_lost()

    def _locked(self, queue: Queue, asked: dict[str, Any], now: float) -> list[Stored]:
        """All or none."""
        found = []
        for token in asked["lock-tokens"].elements:
            stored = queue.find(_uuid(token), now)
            if stored is None:
                raise _lock_lost()
            found.append(stored)
        return found

    def _peek(self, queue: Queue, asked: dict[str, Any]) -> Any:
        first, count = int(asked["from-sequence-number"]), int(asked["message-count"])
        session = asked.get("session-id")
        seen = [
            stored
            for sequence, stored in sorted(queue.messages.items())
            if sequence >= first and (session is None or stored.session == session)
        ]
        if not seen:
            return None
        return {"messages": [{"message": encoded(stored)} for stored in seen[:count]]}

    def _schedule(self, queue: Queue, asked: dict[str, Any]) -> Any:
        numbers = [
            self.enqueue(queue, bytes(each["message"]))[0].sequence for each in asked["messages"]
        ]
        return {"sequence-numbers": proton.Array(proton.UNDESCRIBED, proton.Data.LONG, *numbers)}

    def _cancel(self, queue: Queue, asked: dict[str, Any]) -> Any:
        for number in asked["sequence-numbers"].elements:
            stored = queue.messages.get(int(number))
            if stored is None or stored.due_at <= unix_time_s():
                raise Refused("com.microsoft:message-not-found", f"no {number} is scheduled", 404)
            del queue.messages[int(number)]
        return {}

    def _renew_session(self, queue: Queue, asked: dict[str, Any]) -> Any:
        now = unix_time_s()
        session = self._require_session(queue, asked, now)
        lock = queue.sessions[session]
        lock.locked_until = now + queue.lock_s
        return {"expiration": proton.timestamp(int(lock.locked_until * 1000))}

    def _get_state(self, queue: Queue, asked: dict[str, Any]) -> Any:
        session = self._require_session(queue, asked, unix_time_s())
        return {"session-state": queue.sessions[session].state}

    def _set_state(self, queue: Queue, asked: dict[str, Any]) -> Any:
        session = self._require_session(queue, asked, unix_time_s())
        state = asked["session-state"]
        queue.sessions[session].state = None if state is None else bytes(state)
        return {}

    def _require_session(self, queue: Queue, asked: dict[str, Any], now: float) -> str:
        """Who asks must hold it, by a link of the same connection."""
        session = str(asked.get("session-id") or "")
        is_held = queue.is_session_held(session, now)
        if queue.needs_session and not (
            is_held and queue.sessions[session].holder.connection == self._asker
        ):
            raise Refused("com.microsoft:session-lock-lost", "the session lock is lost", 410)
        return session


def decoded(octets: bytes) -> Any:
    """A message, read."""
    message = proton.Message()
    message.decode(octets)
    return message


def _modify(stored: Stored, changes: dict[str, Any] | None) -> None:
    """Change the properties of a message that is handed back, where it was asked for."""
    if changes:
        message = decoded(stored.message)
        message.properties = {**(message.properties or {}), **changes}
        stored.message = message.encode()


def id_of(octets: bytes) -> str | None:
    """The id that a message is known by where duplicates are looked for."""
    found = decoded(octets).id
    return None if found is None else str(found)


def _batch(octets: bytes) -> list[bytes] | None:
    """The messages of a batch; None for what is no batch.

    Proton does not tell the format of a message. In a batch every data section holds a whole
    message; no test sends a body that looks like one.
    """
    parts: list[bytes] = []
    rest = octets
    while rest:
        data = proton.Data()
        rest = rest[data.decode(rest) :]
        data.rewind()
        data.next()
        section = data.get_object()
        if int(section.descriptor) == _DATA_SECTION:
            parts.append(bytes(section.value))
    return parts if parts and all(each[:3] in _MESSAGE_STARTS for each in parts) else None


def _check_sizes(message: Any) -> None:
    """What Azure refuses of ids, and of all that is not the body."""
    for name, text in (("MessageId", message.id), ("SessionId", message.group_id)):
        if text is not None and len(str(text)) > MAX_ID_CHARS:
            raise Refused("com.microsoft:argument-error", f"the {name} is too long", 400)
    properties = message.properties or {}
    if sum(len(str(key)) + len(str(value)) for key, value in properties.items()) > MAX_HEADERS:
        raise Refused("com.microsoft:argument-error", "the properties are too large", 400)


def _lock_lost() -> Refused:
    return Refused("com.microsoft:message-lock-lost", "the lock is lost", 410)


def _uuid(value: object) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))
