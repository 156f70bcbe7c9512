"""Specimens: one valid instance of any of our value classes, found by introspection."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
from msgspec import Struct

import pump
from pump.aws_lambda import LambdaOptions
from pump.backoff import Backoff
from pump.capabilities import Capabilities, OrderingMode
from pump.dispatcher import Swept
from pump.errors import Throttled
from pump.events import (
    BestEffortOrderEvent,
    LeaseLostEvent,
    OutcomeEvent,
    PlaintextAcceptedEvent,
    PumpStateEvent,
    RedrivenEvent,
    Status,
)
from pump.exit_codes import ExitCode
from pump.findings import Finding, HandlerTimes, Level
from pump.headers import ContentType, parse_content_type
from pump.loop.processing import DeliveryResult
from pump.loop.receiving import AttemptBudget
from pump.loop.reporting import PumpStats, RunTimes
from pump.message import Delivery, Message
from pump.outcome import (
    ACK,
    Abandon,
    Ack,
    Defer,
    DeferMessage,
    InvalidMessage,
    Refusal,
    Reject,
    RejectionReason,
    RejectMessage,
    Settlement,
    Signal,
)
from pump.ports import PushedRecord, QueueStats
from pump.posting import PostOptions
from pump.processor import Command, Event
from pump.queue_browser import Seen
from pump.rejection import Copied, Routed
from pump.serving import MappingStats, ServerOptions
from pump.stores.spill import SpilledMessage
from pump.subscription import DeadLetter, Hybrid, QueueSpec, Retry, Subscription, UnacceptableLimit
from pump.testing.builders import a_delivery, a_message
from pump.versions import Packages


class PlaceOrder(Command):
    """A user's command."""

    order_id: str
    quantity: int = 1


class OrderPlaced(Event):
    """A user's event."""

    order_id: str


def core_modules() -> Iterator[ModuleType]:
    """Every module of `pump` itself, of the loop, the stores and the observability."""
    for folder in ("", "loop", "stores", "observability", "mapping", "aws_lambda"):
        package = f"pump.{folder}".rstrip(".")
        path = Path(pump.__file__).parent / folder
        yield importlib.import_module(package)
        for found in pkgutil.iter_modules([str(path)]):
            if not found.ispkg and not found.name.startswith("__"):
                yield importlib.import_module(f"{package}.{found.name}")


def own_classes() -> list[type]:
    """Every class that one of these modules defines."""
    return [
        value
        for module in core_modules()
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ]


def error_classes() -> list[type[BaseException]]:
    """Every exception of ours, signals included; not those that stay inside `mapping`."""
    return [
        each
        for each in own_classes()
        if issubclass(each, BaseException) and not each.__module__.startswith("pump.mapping")
    ]


def value_classes() -> list[type]:
    """Every public attrs class and struct of `pump` and `pump.loop` that is no exception."""
    return [
        each
        for each in own_classes()
        if (attrs.has(each) or issubclass(each, Struct))
        and not issubclass(each, BaseException | Command | Event)
        and not each.__name__.startswith("_")
        and each.__module__.rpartition(".")[0] in ("pump", "pump.loop")
    ]


_BY_ANNOTATION: dict[str, Any] = {
    "str": "text",
    "int": 3,
    "float": 1.5,
    "float | None": 2.5,
    "ExitCode": ExitCode.BROKER,
    "object": 42,
    "BaseException": SystemExit(2),
    "tuple[str, ...]": ("a", "b"),
    "tuple[tuple[str, Exception], ...]": (("m-1", Throttled("queue", 1.0)),),
    "timedelta | None": timedelta(seconds=5),
}


def an_error(kind: type[BaseException]) -> BaseException:
    """An instance whose fields all hold something."""
    if "__init__" not in vars(kind):
        return kind("what happened")
    _, *parameters = inspect.signature(kind.__init__).parameters.values()
    return kind(*(_BY_ANNOTATION[str(parameter.annotation)] for parameter in parameters))


_DELIVERY = a_delivery(
    a_message(
        b"\x00body",
        type="Order",
        correlation_id="c",
        reply_to="r",
        group="g",
        deduplication_id="d",
        created_at_s=1.5,
        headers={"a": "b"},
    )
)
VALUES: dict[type, Any] = {
    AttemptBudget: AttemptBudget(3, 5),
    Ack: ACK,
    Abandon: Abandon(),
    Defer: Defer(2.5),
    Reject: Reject(RejectionReason.UNACCEPTABLE, "why"),
    Message: _DELIVERY.message,
    Delivery: _DELIVERY,
    Settlement: Settlement(_DELIVERY, ACK),
    Refusal: Refusal(_DELIVERY, Throttled("q", 1.0)),
    DeliveryResult: DeliveryResult(
        _DELIVERY, ACK, Reject(RejectionReason.DELIVERY_ERROR), 1.0, "dead", None
    ),
    Backoff: Backoff(initial=timedelta(seconds=3)),
    Capabilities: Capabilities(gateway="x", ordering_modes=frozenset(OrderingMode)),
    ContentType: parse_content_type("text/plain; charset=latin-1"),
    Retry: Retry(max_retries=2),
    DeadLetter: DeadLetter(queue="dead"),
    Hybrid: Hybrid(max_retries=2, queue="dead"),
    UnacceptableLimit: UnacceptableLimit(count=3),
    QueueSpec: QueueSpec(name="orders", options={"a": 1}),
    Subscription: Subscription(
        queue="orders",
        request=PlaceOrder,
        failure=Hybrid(queue="dead"),
        unacceptable_limit=UnacceptableLimit(count=1),
        options={"a": 1},
    ),
    PostOptions: PostOptions(group="g", headers={"a": "b"}, delay=timedelta(seconds=1)),
    OutcomeEvent: OutcomeEvent(
        message_id="m", status=Status.RETRYING, attempt=2, queue="q", subscription="s"
    ),
    LeaseLostEvent: LeaseLostEvent(message_id="m", queue="q", subscription="s", attempt=1),
    RedrivenEvent: RedrivenEvent(message_id="m", queue="dead", destination="q", attempt=1),
    BestEffortOrderEvent: BestEffortOrderEvent(queue="q", subscription="s", detail="d"),
    PumpStateEvent: PumpStateEvent(subscription="s", state="running"),
    PlaintextAcceptedEvent: PlaintextAcceptedEvent(message_id="m", queue="q", message_type="t"),
    PushedRecord: PushedRecord(id="m", source="q", raw={"body": "b"}),
    QueueStats: QueueStats(name="q", visible=1, in_flight=2),
    Seen: Seen(message=a_message(), attempt=2, broker_id="b"),
    LambdaOptions: LambdaOptions(margin=timedelta(seconds=3)),
    MappingStats: MappingStats(
        queue="q", function="m:f", invocations=1, succeeded=2, failed=3, filtered=4
    ),
    ServerOptions: ServerOptions(data=Path("data"), queues=("q",)),
    Packages: Packages(extra="sqs", versions={"boto3": ">=1.35"}),
    PumpStats: PumpStats(received=3),
    RunTimes: RunTimes(sum_s=1.5),
    HandlerTimes: HandlerTimes(
        count=3, mean_s=0.5, p50_s=0.4, p99_s=0.9, max_s=0.9, lost_count=1, observed_at_s=1.5
    ),
    Finding: Finding(Level.WARNING, "gateway", "what", "do this"),
    Copied: Copied(Reject(RejectionReason.DELIVERY_ERROR, "why"), Routed(ACK, "dead")),
    Routed: Routed(ACK, "dead"),
    SpilledMessage: SpilledMessage(message=_DELIVERY.message, destination="dead", spilled_at_s=1.5),
    Swept: Swept(1, 2),
}
"""What may cross a process, with an instance each."""

SIGNALS: tuple[Signal, ...] = (
    DeferMessage(timedelta(seconds=3)),
    RejectMessage("no"),
    InvalidMessage("?"),
)

REQUESTS: tuple[object, ...] = (PlaceOrder(order_id="1", quantity=2), OrderPlaced(order_id="1"))
