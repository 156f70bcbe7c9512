"""Contexts: what a message comes with, what becomes of it when it is sent on, and where it ends."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from pump import headers
from pump.errors import ConnectionFailed
from pump.observability.otel import OpenTelemetry
from pump.observability.otel.tracing import Propagation
from pump.subscription import dead_letter
from pump.testing.builders import a_message
from tests.core.rig import Rig, Work

from .shop import PlaceOrder, Shop, Spans, id_of, linked_from, parent_of, trace_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_when_a_message_comes_with_a_context_then_it_keeps_it_and_the_send_links_to_it(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R28, R59: what a program put into a message is not overwritten."""
    shop = Shop("memory://", tracing)

    async with shop.open() as dispatcher:
        await shop.app.post(PlaceOrder(), headers={headers.TRACE_PARENT: PARENT})
        await dispatcher.wait_until_empty()

    sent, handled = spans.one("send orders"), spans.one("process orders")
    assert linked_from(sent) == [0xB7AD6B7169203331]
    assert sent.kind is SpanKind.CLIENT
    assert parent_of(handled) == 0xB7AD6B7169203331
    assert trace_of(sent) == trace_of(handled) == 0x0AF7651916CD43DD8448EB211C80319C


async def test_when_one_message_of_a_batch_comes_with_a_context_then_the_others_get_their_own(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R28, R59."""
    rig = Rig()
    rig.app.telemetry = tracing
    foreign = a_message('{"n": 1}', type="Work", headers={headers.TRACE_PARENT: PARENT})
    async with rig:
        await rig.start()
        await rig.app.post_all([foreign, a_message('{"n": 2}', type="Work")], queue="orders")
        await rig.clock.settle()

        await rig.finish()

    created = spans.one("create orders")
    assert linked_from(spans.one("send orders")) == [0xB7AD6B7169203331, id_of(created)]
    parents = [parent_of(each) for each in spans.named("process orders")]
    assert parents == [0xB7AD6B7169203331, id_of(created)]
    assert rig.record.sent[0][1] == foreign


@pytest.mark.parametrize("nonsense", ["", "00-zz", "x" * 2_000, "00-" + "0" * 32 + "-" + "0" * 16])
async def test_when_a_message_comes_with_nonsense_for_a_context_then_a_new_trace_begins(
    nonsense: str, spans: Spans, tracing: OpenTelemetry
) -> None:
    """Even where the pump was started inside of a span."""
    rig = Rig()
    rig.app.telemetry = tracing
    strange = a_message('{"n": 1}', type="Work", headers={headers.TRACE_PARENT: nonsense})
    with spans.provider.get_tracer("shop").start_as_current_span("the program"):
        async with rig:
            await rig.start()
            await rig.send_raw(strange)
            await rig.clock.settle()

            await rig.finish()

    assert rig.ended == [1]
    assert parent_of(spans.one("process orders")) is None


async def test_when_the_program_is_inside_a_span_then_only_what_it_posts_there_belongs_to_it(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """A message without a context does not belong to whoever happened to start the pump."""
    rig = Rig()
    rig.app.telemetry = tracing
    with spans.provider.get_tracer("shop").start_as_current_span("the program"):
        async with rig:
            await rig.start()
            await rig.send_raw(a_message('{"n": 1}', type="Work"))
            await rig.send(2)
            await rig.clock.settle()

            await rig.finish()

    [stranger, own] = spans.named("process orders")
    assert parent_of(stranger) is None
    assert trace_of(own) == trace_of(spans.one("the program"))


async def test_when_the_program_sets_baggage_then_the_next_handler_has_it(
    tracing: OpenTelemetry,
) -> None:
    """R59: whatever the program's propagators carry travels along."""
    shop = Shop("memory://", tracing)
    seen: list[object] = []
    shop.on_shipping = lambda request: seen.append(baggage.get_baggage("tenant"))

    async with shop.open() as dispatcher:
        token = context.attach(baggage.set_baggage("tenant", "ada"))
        await shop.app.post(PlaceOrder())
        context.detach(token)
        await dispatcher.wait_until_empty()

    assert seen == ["ada"]


async def test_when_a_span_is_not_sampled_then_neither_are_those_of_its_message() -> None:
    spans = Spans()
    unsampled = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False).get_tracer("shop")
    shop = Shop("memory://", OpenTelemetry(tracer_provider=spans.provider, metrics=False))

    async with shop.open() as dispatcher:
        with unsampled.start_as_current_span("a request nobody looks at"):
            await shop.app.post(PlaceOrder(order=5))
        await dispatcher.wait_until_empty()

    assert shop.shipped == [5]
    assert spans.all() == ()


# -- rejection, spill ----------------------------------------------------------------------------


async def test_when_a_message_is_rejected_then_the_dead_letter_keeps_the_context_of_the_original(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R28: and the copy has a span of its own, in the same trace."""

    async def fail(work: Work) -> None:
        raise ValueError(work.n)

    rig = Rig(fail, failure=dead_letter())
    rig.app.telemetry = tracing
    async with rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.settle()
        [dead] = await rig.messages("dead")

        await rig.finish()

    sent, copied = spans.one("send orders"), spans.one("send dead")
    assert dead.headers[headers.TRACE_PARENT].split("-")[1:3] == [
        f"{trace_of(sent):032x}",
        f"{id_of(sent):016x}",
    ]
    assert linked_from(copied) == [id_of(sent)]
    assert trace_of(copied) == trace_of(sent)


async def test_when_a_spilled_message_is_sent_at_last_then_that_belongs_to_its_trace(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R28, T1."""

    async def fail(work: Work) -> None:
        raise ValueError(work.n)

    rig = Rig(fail, failure=dead_letter())
    rig.app.telemetry = tracing
    async with rig:
        await rig.start()
        await rig.send(1)
        rig.gateway.fail("send", ConnectionFailed("broker", "gone"), times=1)
        await rig.clock.advance(60)
        assert len(await rig.messages("dead")) == 1

        await rig.finish()

    failed, sent_at_last = spans.named("send dead")
    original = spans.one("send orders")
    assert (failed.attributes or {})["error.type"] == "ConnectionFailed"
    assert trace_of(failed) == trace_of(sent_at_last) == trace_of(original)
    assert linked_from(sent_at_last) == [id_of(original)]


# -- cancellation --------------------------------------------------------------------------------


async def test_when_a_lease_is_lost_while_the_handler_runs_then_its_span_ends_as_cancelled(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R59: and the worker that ran it is in nobody's trace afterwards."""

    async def wait_once(work: Work) -> None:
        if rig.attempts[1] == 1:
            await asyncio.Event().wait()

    rig = Rig(wait_once, concurrency=1, renew=False)
    rig.app.telemetry = tracing
    async with rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.advance(rig.subscription.lease.total_seconds() + 1)
        assert rig.cancelled == [1]
        await rig.clock.advance(60)
        await rig.send_raw(a_message('{"n": 2}', type="Work"))
        await rig.clock.settle()

        await rig.finish()

    [lost, again, stranger] = spans.named("process orders")
    assert (lost.attributes or {})["error.type"] == "cancelled"
    assert lost.status.status_code is StatusCode.ERROR
    assert parent_of(again) == parent_of(lost)
    assert again.status.is_unset
    assert parent_of(stranger) is None


@pytest.mark.parametrize("name", ["traceparent", "tracestate", "baggage"])
def test_when_a_context_is_not_even_text_then_the_message_has_none(name: str) -> None:
    """R59: half a surrogate pair, which SQS's packed headers can hold."""
    assert Propagation().origin_of(a_message(headers={name: "\ud800"}))[1] is None
