"""Traced orders: one trace from the post to the last handler, across two queues.

Run it:   python -m samples.traced_orders        (pip install 'pumphouse[otel]')
Expect:   send orders
            receive orders
            process orders
              send parcels
                receive parcels
                process parcels
                settle parcels
            settle orders
          handled: 2

The spans go to memory here. `OpenTelemetry.otlp()` sends them to a collector instead, and so does
`pump run module:app --telemetry otlp`, without a change to the app.
"""

import asyncio

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pump import App, Command, Subscription
from pump.observability.otel import OpenTelemetry

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
app = App("memory://", telemetry=OpenTelemetry(tracer_provider=provider))


class PlaceOrder(Command):
    order_id: int


class SendParcel(Command):
    order_id: int


@app.handler
async def place(request: PlaceOrder) -> None:
    await app.post(SendParcel(request.order_id))


@app.handler
def send(request: SendParcel) -> None:
    """A blocking handler, in a thread, in the same trace."""


for queue, request in (("orders", PlaceOrder), ("parcels", SendParcel)):
    app.subscribe(Subscription(queue=queue, request=request, dead_letter_queue="dead"))


def show(found: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    for span in found:
        own = span.get_span_context()
        if own and (span.parent and span.parent.span_id) == parent:
            print("  " * depth + span.name)
            show(found, own.span_id, depth + 1)


async def main() -> None:
    async with app, app.pumping() as dispatcher:
        await app.post(PlaceOrder(1))
        await dispatcher.wait_until_empty()
    show(sorted(spans.get_finished_spans(), key=lambda span: span.end_time or 0))
    print("handled:", app.counters.value("pump_messages_completed"))


if __name__ == "__main__":
    asyncio.run(main())
