"""Law 4, end to end: what cannot be read is routed to the invalid queue, whole and once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from gateways.memory import MemoryGateway
from gateways.sqs.wire import decode
from pump import App, Subscription
from pump.crypto import Encryption, Key, KeyRing
from pump.headers import REJECTION_REASON
from pump.message import Message
from pump.outcome import RejectionReason
from pump.ports import PayloadEncryption
from pump.testing import Harness, VirtualClock

from ..gateways.sqs.messages import messages
from ..mapping.kinds import Model, PlaceOrder, Tidied
from .exploring import Effort, Target, explore
from .mutations import mutated, mutated_tree
from .seeds_requests import BINARY_EVENT, BODIES, anything
from .seeds_sqs import RECEIVED, as_sqs_may

KEY = bytes(range(32))
REQUESTS = (PlaceOrder, Tidied, Model, dict)


class Office:
    """An app that takes note of what reached its handler."""

    def __init__(self, request: Any, encryption: PayloadEncryption | None) -> None:
        self.handled: list[str] = []
        self.app = App("memory://", encryption=encryption)
        self.app.subscribe(
            Subscription(
                queue="orders",
                request=request,
                invalid_queue="invalid",
                dead_letter_queue="dead",
            )
        )
        self.app.register(request, self._note)

    async def _note(self, request: Any) -> None:
        self.handled.append("")


def distinct(found: list[Message]) -> list[Message]:
    """With ids of their own: an id that comes twice means the same message, and is stored once."""
    return [
        replace(message, id=f"{number}{message.id}", deduplication_id=None)
        for number, message in enumerate(found)
    ]


def deliver(sent: list[Message], request: Any, encryption: PayloadEncryption | None = None) -> None:
    """Each is handled, or lies in the invalid queue as it was sent; none is tried twice."""

    async def run() -> None:
        clock = VirtualClock()
        office, gateway = Office(request, encryption), MemoryGateway(clock)
        async with Harness(office.app, clock=clock, gateway=gateway) as harness:
            await gateway.producer("orders").send(sent)
            await harness.run_until_idle(limit=timedelta(hours=1))
            invalid, dead = await harness.messages("invalid"), await harness.messages("dead")
        assert [outcome.attempt for outcome in harness.outcomes] == [1] * len(sent)
        assert not dead
        assert len(office.handled) + len(invalid) == len(sent)
        originals = {message.id: message for message in sent}
        for message in invalid:
            assert message.headers[REJECTION_REASON] == RejectionReason.UNACCEPTABLE
            assert as_it_was(message) == as_it_was(originals.pop(message.id))
        assert not await harness.spill.all()

    with capture_logs():
        asyncio.run(run())


def as_it_was(message: Message) -> tuple[Any, ...]:
    """What routing must not touch."""
    return (
        *(message.body, message.type, message.content_type, message.correlation_id),
        *(message.reply_to, message.group),
    )


def envelopes() -> st.SearchStrategy[Message]:
    """Sealed with the app's key, or with another, and then spoilt."""
    plain = Message(body=BODIES["application/json"][0], type="PlaceOrder", id="m", group="g")

    async def seal(key: Key) -> Message:
        encryption = Encryption(KeyRing(key))
        async with App("memory://", encryption=encryption):
            return await encryption.encrypt(plain, "orders")

    sealed = [asyncio.run(seal(Key(name, KEY))) for name in ("2026", "1999")]
    bodies = [message.body for message in sealed]
    return st.builds(
        lambda body, id_: replace(plain, body=body, id=id_),
        mutated(bodies) | st.sampled_from(bodies) | st.binary().map(b"QRE1".__add__),
        st.sampled_from(["m", "\ud800", ""]),
    )


def test_when_a_message_is_anything_then_it_is_handled_or_routed_as_it_was(effort: Effort) -> None:
    """R26, R35: of every kind, for every kind of request."""
    strangers = mutated_tree(RECEIVED).filter(as_sqs_may).map(decode)
    events = mutated_tree([BINARY_EVENT]).map(_with_headers)
    found = st.lists(messages | anything | strangers | events, min_size=1, max_size=8).map(distinct)
    target = Target(
        name="law 4",
        inputs=st.tuples(found, st.sampled_from(REQUESTS)),
        feed=lambda fed: deliver(*fed),
        share=0.5,
    )
    explore(target, effort)


def test_when_an_envelope_is_anything_then_it_is_handled_or_routed_still_sealed(
    effort: Effort,
) -> None:
    """R63, R66, R72: what does not open is rejected with its ciphertext."""

    def feed(sent: list[Message]) -> None:
        deliver(sent, PlaceOrder, Encryption(KeyRing(Key("2026", KEY))))

    found = st.lists(envelopes(), min_size=1, max_size=8).map(distinct)
    explore(Target(name="sealed", inputs=found, feed=feed, share=0.5), effort)


def _with_headers(fields: Any) -> Message:
    headers = fields if isinstance(fields, dict) else {}
    texts = {str(name): text for name, text in headers.items() if isinstance(text, str)}
    return Message(body=b'{"order_id": "o-1"}', headers=texts)
