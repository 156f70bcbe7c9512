"""The doctor of SQS queues: asks SQS about them, changes nothing, and hands on the diagnosis."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pump.errors import AccessDenied, ConfigurationError, PumpError, QueueNotFound
from pump.findings import Finding
from pump.handler_times import HandlerTimes
from pump.subscription import Subscription

from .._aws.transport import Transport
from .address import QueueAddress, QueueUrls
from .calls import QueueCalls
from .diagnosis import Case, findings_of
from .permissions import DELETE, EXTEND, SEND
from .queue_facts import QueueFacts

_NEVER_ISSUED = {"Id": "doctor", "ReceiptHandle": "pump-doctor"}
_PROBES: Mapping[str, tuple[str, list[dict[str, Any]]]] = {
    DELETE: ("delete_message_batch", [_NEVER_ISSUED]),
    EXTEND: ("change_message_visibility_batch", [{**_NEVER_ISSUED, "VisibilityTimeout": 0}]),
    # Nothing is in it: not even a server that checks nothing has anything to send.
    SEND: ("send_message_batch", []),
}
"""Calls that can change nothing on any server, and show whether they are allowed."""


async def examine(
    transport: Transport,
    urls: QueueUrls,
    subscriptions: Sequence[Subscription],
    observed: Mapping[str, HandlerTimes],
) -> list[Finding]:
    """What a person should know about these queues. Sends, receives and changes nothing.

    Raises `GatewayError` when SQS cannot be asked at all: out of reach, or no valid credentials.
    """
    if not subscriptions:
        await _knock(transport)
    examination = _Examination(transport, urls)
    facts = await examination.facts_of(subscriptions)
    return [
        finding
        for each in subscriptions
        for finding in findings_of(
            Case(subscription=each, facts=facts, times=observed.get(each.name))
        )
    ]


async def _knock(transport: Transport) -> None:
    try:
        await transport.call("sqs", "list_queues", {"MaxResults": 1})
    except AccessDenied:
        return  # An answer all the same.


class _Examination:
    """One round of questions; each queue is asked once, however many subscriptions name it."""

    def __init__(self, transport: Transport, urls: QueueUrls) -> None:
        self._transport = transport
        self._urls = urls

    async def facts_of(self, subscriptions: Sequence[Subscription]) -> dict[str, QueueFacts]:
        wanted: dict[str, set[str]] = {}
        for subscription in subscriptions:
            for queue, actions in _uses(subscription):
                wanted.setdefault(queue, set()).update(actions)
        facts = await self._ask_all(wanted)
        arns = {redrive.target_arn for each in facts.values() if (redrive := each.redrive)}
        known = {each.resource: each for each in facts.values() if each.attributes is not None}
        others = await self._ask_all(dict.fromkeys(arns - known.keys(), ()))
        return {**facts, **{arn: known[arn] for arn in arns & known.keys()}, **others}

    async def _ask_all(self, wanted: Mapping[str, Collection[str]]) -> dict[str, QueueFacts]:
        try:
            async with asyncio.TaskGroup() as group:
                asked = [
                    group.create_task(self._ask(queue, actions), name=f"examine {queue}")
                    for queue, actions in wanted.items()
                ]
        except ExceptionGroup as failures:
            # The others were cancelled, or failed of the same cause.
            raise failures.exceptions[0] from None
        return {task.result().queue: task.result() for task in asked}

    async def _ask(self, queue: str, actions: Collection[str]) -> QueueFacts:
        try:
            await self._urls.url_of(queue)
        except ConfigurationError as fault:
            return QueueFacts(queue=queue, trouble=fault)
        except QueueNotFound:
            is_ours = self._urls.owner_of(QueueAddress.parse(queue)) is None
            return QueueFacts(queue=queue, exists=False, is_ours=is_ours)
        except AccessDenied as fault:
            return QueueFacts(queue=queue, denied=frozenset({fault.operation}))
        return await self._look(queue, actions)

    async def _look(self, queue: str, actions: Collection[str]) -> QueueFacts:
        calls = QueueCalls(self._transport, self._urls, queue)
        attributes: dict[str, str] | None = None
        granted: set[str] = set()
        denied: set[str] = set()
        try:
            reply = await calls.call("get_queue_attributes", {"AttributeNames": ["All"]})
            attributes = dict(reply.get("Attributes", {}))
        except QueueNotFound:
            # It was given by its URL, which nobody had to look up.
            return QueueFacts(queue=queue, exists=False, is_ours=False)
        except AccessDenied as fault:
            denied.add(fault.operation)
        for action in sorted(actions):
            await _try(calls, action, granted, denied)
        return QueueFacts(
            queue=queue,
            attributes=attributes,
            granted=frozenset(granted),
            denied=frozenset(denied),
        )


async def _try(calls: QueueCalls, action: str, granted: set[str], denied: set[str]) -> None:
    """Enter an action where its probe shows that it belongs; in neither when it shows nothing."""
    operation, entries = _PROBES[action]
    try:
        await calls.call(operation, {"Entries": entries})
    except AccessDenied as fault:
        denied.add(fault.operation)
    except PumpError:
        return
    else:
        # An answer for each entry proves it; to a batch without any, a lax server says nothing.
        if entries:
            granted.add(action)


def _uses(subscription: Subscription) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield subscription.queue, (DELETE, EXTEND)
    for target in (subscription.dead_letter_queue, subscription.invalid_queue):
        if target is not None:
            yield target, (SEND,)
