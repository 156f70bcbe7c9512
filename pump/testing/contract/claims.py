"""Contract: what a gateway's `Capabilities` say in numbers is so, neither more nor less."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from importlib.metadata import entry_points

import attrs
import pytest

from ...capabilities import Capabilities, OrderingMode
from ...errors import (
    ConfigurationError,
    PumpError,
    QueueMismatch,
    QueueNotFound,
    UnsupportedOperation,
)
from ...gateway_url import ENTRY_POINT_GROUP
from ...outcome import Refusal
from ...ports import SessionGateway
from ...subscription import MakeChannels, QueueSpec
from ..builders import a_message, ack, defer
from .ordering import needs_lifo
from .rig import ContractTests, Rig

MOST_RECEIVED = 1_100
MOST_SETTLED = 25_000
"""More than this many are sent for no claim: of a larger one, this much must be so."""
AT_ONCE = 500
LONG_S = 400 * 24 * 3600.0
"""A delay that no provider with a limit takes."""
FIELDS_BYTES = 4_096
"""Space for what travels beside a body, where a provider counts both."""


class ClaimContract(ContractTests):
    """The fields of `Capabilities` that are numbers, and what is said of unknown options."""

    async def test_when_its_claims_are_read_then_they_agree_with_one_another(
        self, rig: Rig
    ) -> None:
        """R76: a scheme that a URL can have, limits above zero, nothing that needs what is not."""
        assert contradictions(rig.capabilities) == []

    async def test_when_it_is_called_by_a_scheme_then_no_other_package_has_that_scheme(
        self, rig: Rig
    ) -> None:
        """Port: `Capabilities.gateway`; errors and telemetry call the broker by it."""
        scheme = rig.capabilities.gateway
        makers = {
            point.value.partition(":")[0]
            for point in entry_points(group=ENTRY_POINT_GROUP)
            if point.name == scheme
        }
        modules = {kind.__module__ for kind in type(rig.gateway).__mro__}

        assert all(
            any(f"{each}.".startswith(f"{maker}.") for each in modules) for maker in makers
        ), f"it declares gateway={scheme!r}, but that is the scheme of {', '.join(makers)}"

    async def test_when_more_are_asked_for_then_one_receive_returns_as_many_as_it_says(
        self, rig: Rig
    ) -> None:
        """Port: `Capabilities.receive_batch`, by which the pump counts what is on its way."""
        batch = rig.capabilities.receive_batch
        count = min(batch + 1, rig.most_messages(MOST_RECEIVED))
        queue = await rig.open_queue()
        for start in range(0, count, AT_ONCE):
            some = range(start, min(start + AT_ONCE, count))
            await queue.send(*(a_message(str(number)) for number in some))

        received = await queue.receive(count)

        assert 1 <= len(received) <= batch, (
            f"it declares receive_batch={batch}, but one receive returned {len(received)}"
        )
        if rig.slack_s == 0:
            assert len(received) == min(batch, count), (
                f"it declares receive_batch={batch}, but of {count} messages that wait one "
                f"receive returned {len(received)}"
            )

    async def test_when_settled_in_bulk_then_a_request_takes_as_many_as_it_says(
        self, rig: Rig
    ) -> None:
        """Port: `Capabilities.settle_batch`, which decides how large the pump's calls are."""
        count = rig.settle_requests
        if count is None:
            pytest.skip("the rig does not count requests (settle_requests)")
        batch = rig.capabilities.settle_batch
        # Of a batch that is too large to be tried whole, as much as can be sent is one request.
        total = min(2 * batch + 1, rig.most_messages(MOST_SETTLED))
        whole = min(batch, total)
        queue = await rig.open_queue()
        await queue.send(*(a_message() for _ in range(total)))
        received = await queue.take(total)

        before = count()
        await queue.settle(*map(ack, received[:whole]))
        for_one_batch = count() - before
        if received[whole:]:
            await queue.settle(*map(ack, received[whole:]))
        for_the_rest = count() - before - for_one_batch

        rest = total - whole
        assert (for_one_batch, for_the_rest) == (1, -(-rest // batch)), (
            f"it declares settle_batch={batch}, but {whole} settlements took {for_one_batch} "
            f"requests and {rest} took {for_the_rest}"
        )

    async def test_when_a_delay_is_longer_than_it_says_then_the_send_is_refused(
        self, rig: Rig
    ) -> None:
        """R76: the gateway refuses it, before anything is sent; the core does not look."""
        limit_s = rig.capabilities.max_delay_s
        if limit_s is None:
            pytest.skip("any delay is taken")
        queue = await rig.open_queue()

        with pytest.raises(UnsupportedOperation, match="delay"):
            await queue.send(a_message(), a_message(), delay_s=limit_s + 1)

        assert await queue.find_nothing()
        if rig.capabilities.has_exact_stats:
            assert (await rig.admin.stats(queue.name)).delayed == 0

    async def test_when_a_delay_is_as_long_as_it_says_then_it_is_taken(self, rig: Rig) -> None:
        """Port: `Capabilities.max_delay_s`; None means that there is no limit."""
        limit_s = rig.capabilities.max_delay_s
        delay_s = LONG_S if limit_s is None else limit_s
        queue = await rig.open_queue()

        await queue.send(a_message(), delay_s=delay_s)

        if delay_s > rig.tick_s:
            await rig.clock.advance(rig.tick_s)
            assert await queue.find_nothing()
        if rig.slack_s == 0:
            await rig.clock.advance(delay_s)
            assert len(await queue.receive()) == 1

    async def test_when_deferred_for_as_long_as_it_says_then_hidden_until_then_and_no_longer(
        self, rig: Rig
    ) -> None:
        """Port: `Capabilities.max_defer_s`. More the pump does not ask for; asked by hand, a
        gateway defers for as long as it can.
        """
        limit_s = rig.capabilities.max_defer_s
        delay_s = LONG_S if limit_s is None else limit_s
        queue = await rig.open_queue()
        await queue.send(a_message("at the limit"), a_message("beyond"))
        at_limit, beyond = await queue.take(2)
        asked_s = delay_s if limit_s is None else delay_s + 10 * rig.tick_s

        refused = await queue.settle(
            defer(at_limit, seconds=delay_s), defer(beyond, seconds=asked_s)
        )

        assert list(refused) == []
        if delay_s > rig.tick_s:
            await rig.clock.advance(rig.tick_s)
            assert await queue.find_nothing()
        if rig.slack_s == 0:
            await rig.clock.advance(delay_s - 2 * min(rig.tick_s, delay_s / 4))
            was_hidden = await queue.find_nothing()
            await rig.clock.advance(2 * rig.tick_s)
            assert was_hidden
            assert len(await queue.take(2)) == 2, f"max_defer_s={limit_s}, deferred by {asked_s} s"

    async def test_when_extended_again_and_again_then_held_for_as_long_as_it_says(
        self, rig: Rig
    ) -> None:
        """Port: `Capabilities.max_lease_s`; None means that a delivery can be held for ever."""
        limit_s = rig.capabilities.max_lease_s
        total_s = (2 if rig.slack_s else 20) * rig.lease_s if limit_s is None else limit_s
        if rig.slack_s and total_s > 2 * rig.lease_s:
            pytest.skip(f"would have to wait for {total_s:g} s")
        queue = await rig.open_queue()
        await queue.send(a_message())
        [held] = await queue.receive()
        ends_at_s = rig.clock.now_s() + total_s
        # Where it is hours, longer leases take it there in some hundred extensions.
        lease_s = max(rig.lease_s, total_s / 100)

        refused: list[Refusal] = []
        await queue.extend(held, lease_s=lease_s)
        while rig.clock.now_s() + 4 / 3 * lease_s <= ends_at_s:
            await rig.clock.advance(lease_s / 3)
            refused += await queue.extend(held, lease_s=lease_s)

        assert refused == [], f"max_lease_s={limit_s}, but an extension within it was refused"
        assert await queue.find_nothing()
        if limit_s is not None:
            await queue.extend(held, lease_s=rig.lease_s + total_s)
            await rig.advance(max(0.0, ends_at_s - rig.clock.now_s()))
            assert len(await queue.receive()) == 1, f"held for longer than max_lease_s={limit_s}"

    async def test_when_a_body_is_as_large_as_it_says_then_it_arrives(self, rig: Rig) -> None:
        """R58: `Capabilities.max_body_bytes`, less what the other fields take on the way."""
        rig.needs("max_body_bytes")
        limit = rig.capabilities.max_body_bytes or 0
        queue = await rig.open_queue()
        sent = a_message(b"x" * max(1, limit - FIELDS_BYTES))

        await queue.send(sent)

        [received] = await queue.receive()
        assert len(received.message.body) == len(sent.body)

    async def test_when_as_many_poll_as_it_says_then_each_returns_what_it_took(
        self, rig: Rig
    ) -> None:
        """R53: `Capabilities.max_pollers` receives at once, by one consumer, help."""
        pollers = rig.capabilities.max_pollers
        queue = await rig.open_queue()
        polling = [queue.start_receive(wait_s=rig.long_s) for _ in range(pollers)]
        await rig.settle()
        sent = [a_message() for _ in range(pollers)]

        await queue.send(*sent)
        assert await rig.ends(*polling), rig.late(*polling)
        received = [each for batch in await asyncio.gather(*polling) for each in batch]

        assert sorted(each.message.id for each in received) == sorted(each.id for each in sent)

    async def test_when_as_many_settle_at_once_as_it_says_then_each_is_applied(
        self, rig: Rig
    ) -> None:
        """R53: `Capabilities.max_settle_calls` settle calls at once, by one consumer, help."""
        calls = rig.capabilities.max_settle_calls
        queue = await rig.open_queue()
        await queue.send(*(a_message() for _ in range(2 * calls)))
        received = await queue.take(2 * calls)

        pairs = zip(received[:calls], received[calls:], strict=True)
        refused = await asyncio.gather(*(queue.settle(*map(ack, pair)) for pair in pairs))

        assert [refusal for batch in refused for refusal in batch] == []
        await rig.advance(rig.lease_s)
        assert await queue.find_nothing()

    @pytest.mark.parametrize("capability", ["has_peek", "has_purge"])
    async def test_when_it_says_it_cannot_then_asking_for_it_is_refused_with_the_reason(
        self, rig: Rig, capability: str
    ) -> None:
        """R76."""
        if getattr(rig.capabilities, capability):
            pytest.skip(f"has {capability}, and is tested with it")
        queue = await rig.open_queue()
        admin = rig.admin

        with pytest.raises(UnsupportedOperation) as caught:
            await (admin.peek if capability == "has_peek" else admin.purge)(queue.name)

        assert caught.value.gateway == rig.capabilities.gateway
        assert caught.value.why

    async def test_when_it_says_that_it_knows_no_groups_then_nothing_waits_for_its_group(
        self, rig: Rig
    ) -> None:
        """Port: `Capabilities.has_groups`; what is ordered without a word keeps workers idle."""
        if rig.capabilities.has_groups:
            pytest.skip("has groups, and is tested with them")
        queue = await rig.open_queue()
        await queue.send(a_message("first", group="g"), a_message("second", group="g"))

        first = await queue.receive()
        second = await queue.receive()

        assert first
        assert second, "it declares no groups, but the second of one waits for the first"

    async def test_when_it_says_that_it_knows_no_duplicates_then_each_arrives_or_is_refused(
        self, rig: Rig
    ) -> None:
        """Port: `Capabilities.has_deduplication`; nothing is dropped without a word."""
        if rig.capabilities.has_deduplication:
            pytest.skip("has de-duplication, and is tested with it")
        queue = await rig.open_queue()
        try:
            await queue.send(a_message(deduplication_id="order-1"))
            await queue.send(a_message(deduplication_id="order-1"))
        except UnsupportedOperation:
            return

        assert len(await queue.take(2)) == 2, "it declares no de-duplication, but drops duplicates"

    async def test_when_it_says_that_it_has_no_sessions_then_none_can_be_accepted(
        self, rig: Rig
    ) -> None:
        """R76: `Capabilities.has_sessions`."""
        if rig.capabilities.has_sessions:
            pytest.skip("has sessions, and is tested with them")
        queue = await rig.open_queue()
        await queue.send(a_message(group="g"))
        if not isinstance(rig.gateway, SessionGateway):
            return

        with pytest.raises(UnsupportedOperation) as caught:
            await rig.gateway.accept_session(queue.subscription, None, wait_s=rig.poll_s)

        assert caught.value.why

    async def test_when_it_says_that_no_lease_ends_then_what_is_held_stays_hidden(
        self, rig: Rig
    ) -> None:
        """R6: `Capabilities.has_lease_expiry`."""
        if rig.capabilities.has_lease_expiry:
            pytest.skip("ends leases, and is tested for it")
        queue = await rig.open_queue()
        await queue.send(a_message())
        await queue.receive()

        await rig.advance(2 * rig.lease_s)

        assert await queue.find_nothing()

    async def test_when_it_says_that_it_moves_nothing_then_a_message_stays_in_its_queue(
        self, rig: Rig
    ) -> None:
        """R20: `Capabilities.has_native_redrive`; refused, or left to the pump."""
        if rig.capabilities.has_native_redrive:
            pytest.skip("moves dead letters, and is tested for it")
        try:
            queue = await rig.open_queue(dead_letter_queue=rig.name("dead"), max_receive_count=1)
        except (UnsupportedOperation, ConfigurationError):
            return
        await queue.send(a_message())
        [received] = await queue.receive()
        await queue.settle(defer(received))

        assert await queue.receive(), "it declares no redrive, but the message is gone"
        assert await queue.dead_letters.find_nothing()

    async def test_when_a_queue_has_an_option_it_does_not_know_then_it_is_named(
        self, rig: Rig
    ) -> None:
        """R56: a misspelt option is an error, never ignored, and no queue is made."""
        options = {**rig.options, "no_such_option": 1}
        spec = QueueSpec(name=rig.name("odd"), options=options)

        with pytest.raises(ConfigurationError, match="no_such_option") as caught:
            await rig.admin.ensure(spec, MakeChannels.CREATE)

        assert caught.value.remedy
        assert await rig.stats(spec.name) is None

    async def test_when_stored_bytes_cannot_be_read_then_they_are_delivered_as_they_are(
        self, rig: Rig
    ) -> None:
        """R35, law 4: what another program stored is routed by the pump, so it must come out."""
        if rig.store_raw is None:
            pytest.skip("no other program can store anything (store_raw)")
        queue = await rig.open_queue()
        raw, sent = b"\xff\x00{not of this gateway", a_message("ours")
        await rig.store_raw(queue.name, raw)
        await queue.send(sent)

        received = await queue.take(2)

        [stranger] = [each for each in received if each.message.id != sent.id]
        assert (stranger.message.body, stranger.message.type) == (raw, "")
        assert stranger.attempt == 1
        assert not await queue.settle(*map(ack, received))


def contradictions(claimed: Capabilities) -> list[str]:
    """What cannot be so, whatever the gateway: a pump that believed it would be misled."""
    limits = ("receive_batch", "settle_batch", "max_settle_calls", "max_pollers")
    bounds = ("max_delay_s", "max_defer_s", "max_lease_s", "max_body_bytes")
    found = [f"{name} is below 1" for name in limits if getattr(claimed, name) < 1]
    found += [f"{name} is not above zero" for name in bounds if _is_naught(getattr(claimed, name))]
    found += [
        f"{name} is emulated, but not there"
        for name in sorted(claimed.emulated)
        if getattr(claimed, name) is False
    ]
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", claimed.gateway):
        found.append(f"gateway={claimed.gateway!r} is no URL scheme")
    if not 0 <= claimed.settle_linger_s <= 1:
        found.append("settle_linger_s is not between 0 and 1: every ack waits for it")
    if claimed.spans_machines and not claimed.is_shared:
        found.append("spans_machines without is_shared")
    if claimed.has_session_choice and not claimed.has_sessions:
        found.append("has_session_choice without has_sessions")
    if not claimed.ordering_modes:
        found.append("ordering_modes is empty")
    return found


def _is_naught(bound: float | None) -> bool:
    return bound is not None and bound <= 0


# Contract: queues are made, checked and looked at without touching what is in them.


class AdministrationContract(ContractTests):
    """Ensure, list, peek, purge (R2, R22, R56)."""

    async def test_when_a_queue_is_made_then_it_is_listed_and_empty(self, rig: Rig) -> None:
        """R2."""
        spec = QueueSpec(name=rig.name("orders"), options=rig.options)

        await rig.admin.ensure(spec, MakeChannels.CREATE)

        stats = await rig.stats(spec.name)
        assert stats is not None
        assert (stats.visible, stats.in_flight, stats.delayed) == (0, 0, 0)

    async def test_when_a_queue_is_made_again_then_it_keeps_its_messages(self, rig: Rig) -> None:
        """R2: a second worker that starts must not empty the queue."""
        queue = await rig.open_queue()
        await queue.send(a_message())

        await rig.open_queue()

        assert len(await queue.take_and_ack(2)) == 1

    async def test_when_a_queue_is_assumed_then_nothing_is_made_or_asked(self, rig: Rig) -> None:
        """R2."""
        spec = QueueSpec(name=rig.name("missing"), options=rig.options)

        await rig.admin.ensure(spec, MakeChannels.ASSUME)

        assert await rig.stats(spec.name) is None

    async def test_when_validating_a_missing_queue_then_it_is_named_and_not_made(
        self, rig: Rig
    ) -> None:
        """R2, R56."""
        spec = QueueSpec(name=rig.name("missing"), options=rig.options)

        with pytest.raises(QueueNotFound) as caught:
            await rig.admin.ensure(spec, MakeChannels.VALIDATE)

        assert caught.value.queue == spec.name
        assert await rig.stats(spec.name) is None

    async def test_when_validating_a_queue_that_fits_then_all_is_well(self, rig: Rig) -> None:
        """R56."""
        queue = await rig.open_queue()
        await queue.send(a_message())

        for spec in queue.subscription.queue_specs():
            await rig.admin.ensure(spec, MakeChannels.VALIDATE)

        assert len(await queue.take_and_ack(2)) == 1

    async def test_when_validating_a_queue_of_another_order_then_the_difference_is_an_error(
        self, rig: Rig
    ) -> None:
        """R36, R56."""
        needs_lifo(rig)
        queue = await rig.open_queue()
        [spec] = queue.subscription.queue_specs()

        with pytest.raises(QueueMismatch) as caught:
            await rig.admin.ensure(
                attrs.evolve(spec, ordering=OrderingMode.LIFO), MakeChannels.VALIDATE
            )

        assert caught.value.queue == queue.name

    async def test_when_queues_are_listed_then_by_name_and_with_what_they_hold(
        self, rig: Rig
    ) -> None:
        """R2."""
        rig.needs("has_exact_stats")
        orders = await rig.open_queue("orders")
        invoices = await rig.open_queue("invoices")
        await invoices.send(a_message(), a_message(), a_message())
        await invoices.send(a_message(), delay_s=rig.lease_s)
        await invoices.receive()

        listed = {stats.name: stats for stats in await rig.admin.queues()}

        assert {orders.name, invoices.name} <= set(listed)
        assert list(listed) == sorted(listed)
        full = listed[invoices.name]
        assert (full.visible, full.in_flight, full.delayed) == (2, 1, 1)
        assert listed[orders.name].visible == 0

    async def test_when_one_queue_is_asked_about_then_it_and_no_other_is_told_of(
        self, rig: Rig
    ) -> None:
        """R2."""
        await rig.open_queue("invoices")
        orders = await rig.open_queue("orders")
        missing = rig.name("missing")

        stats = await rig.admin.stats(orders.name)
        with pytest.raises(QueueNotFound) as caught:
            await rig.admin.stats(missing)

        assert (stats.name, stats.visible) == (orders.name, 0)
        assert caught.value.queue == missing

    async def test_when_messages_come_and_go_then_the_counts_follow(self, rig: Rig) -> None:
        """R5, R8."""
        rig.needs("has_exact_stats")
        rig.needs("has_lease_expiry")
        queue = await rig.open_queue()
        await queue.send(a_message(), a_message())
        await queue.send(a_message(), delay_s=rig.tick_s)
        [done, _] = await queue.take(2)

        await queue.settle(ack(done))
        await rig.advance(rig.lease_s)

        stats = await rig.stats(queue.name)
        assert stats is not None
        assert (stats.visible, stats.in_flight, stats.delayed) == (2, 0, 0)

    async def test_when_a_message_waits_then_its_age_is_that_of_the_oldest(self, rig: Rig) -> None:
        """Port: `QueueStats.oldest_age_s`, which operators scale by."""
        rig.needs("has_exact_stats")
        queue = await rig.open_queue()
        await queue.send(a_message())
        await rig.clock.advance(rig.tick_s)
        await queue.send(a_message())

        stats = await rig.stats(queue.name)

        assert stats is not None
        if stats.oldest_age_s is not None:
            assert stats.oldest_age_s == pytest.approx(rig.tick_s, abs=rig.slack_s + 1e-6)

    async def test_when_peeked_at_then_nothing_is_leased_or_counted(self, rig: Rig) -> None:
        """R3."""
        rig.needs("has_peek")
        queue = await rig.open_queue()
        sent = [a_message("A"), a_message("B"), a_message("C")]
        await queue.send(*sent)

        seen = [*await rig.admin.peek(queue.name), *await rig.admin.peek(queue.name)]

        assert seen == [*sent, *sent]
        received = await queue.take(4)
        assert [(each.message.id, each.attempt) for each in received] == [
            (each.id, 1) for each in sent
        ]

    async def test_when_peeked_at_then_no_more_are_shown_than_asked_for(self, rig: Rig) -> None:
        """R3."""
        rig.needs("has_peek")
        queue = await rig.open_queue()
        await queue.send(*map(a_message, "ABCDE"))

        seen = await rig.admin.peek(queue.name, max_count=2)

        assert [message.body for message in seen] == [b"A", b"B"]

    async def test_when_peeking_at_a_missing_queue_then_it_is_named_and_not_made(
        self, rig: Rig
    ) -> None:
        """R2."""
        rig.needs("has_peek")
        missing = rig.name("missing")

        with pytest.raises(QueueNotFound) as caught:
            await rig.admin.peek(missing)

        assert caught.value.queue == missing
        assert await rig.stats(missing) is None

    async def test_when_purged_then_every_message_is_gone_and_counted(self, rig: Rig) -> None:
        """R5: visible, delayed and in flight alike."""
        rig.needs("has_purge")
        queue = await rig.open_queue()
        other = await rig.open_queue("other")
        await queue.send(a_message(), a_message(), a_message())
        await queue.send(a_message(), delay_s=rig.tick_s)
        await other.send(a_message())
        [held] = await queue.receive()

        count = await rig.admin.purge(queue.name)

        if rig.capabilities.has_exact_stats:
            assert count == 4
            # Exact also means that a receipt of a purged message is known to be void.
            [refusal] = await queue.settle(ack(held))
            assert refusal.is_final
        await rig.advance(rig.lease_s)
        assert await queue.find_nothing()
        assert len(await other.take_and_ack(2)) == 1

    async def test_when_purged_then_the_queue_goes_on_working(self, rig: Rig) -> None:
        """R5."""
        rig.needs("has_purge")
        queue = await rig.open_queue()
        await queue.send(a_message())
        await rig.admin.purge(queue.name)
        sent = a_message()

        await queue.send(sent)

        assert [each.id for each in await queue.take_and_ack(2)] == [sent.id]

    async def test_when_purging_a_missing_queue_then_it_is_named_and_not_made(
        self, rig: Rig
    ) -> None:
        """R2."""
        rig.needs("has_purge")
        missing = rig.name("missing")

        with pytest.raises(QueueNotFound) as caught:
            await rig.admin.purge(missing)

        assert caught.value.queue == missing
        assert await rig.stats(missing) is None

    async def test_when_a_queues_name_has_half_a_surrogate_pair_then_the_error_is_one_of_ours(
        self, rig: Rig
    ) -> None:
        """R2: such a name can come from the command line, and no UTF-8 carries it. The gateway goes
        on working.
        """
        queue = await rig.open_queue()
        odd = rig.name("odd") + "\ud800"
        asks: list[Callable[[], Awaitable[object]]] = [
            lambda: rig.gateway.producer(odd).send([a_message()]),
            lambda: rig.admin.stats(odd),
        ]
        if rig.capabilities.has_peek:
            asks.append(lambda: rig.admin.peek(odd))
        if rig.capabilities.has_purge:
            asks.append(lambda: rig.admin.purge(odd))

        for ask in asks:
            with pytest.raises(PumpError):
                await ask()

        sent = a_message()
        await queue.send(sent)
        assert [each.id for each in await queue.take_and_ack(1)] == [sent.id]
