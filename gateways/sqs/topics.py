"""Topics: subscribing a queue to an SNS topic, so that what is published arrives in it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import attrs

from pump.errors import AccessDenied, ConfigurationError, QueueNotFound

from .._aws.sdk_transport import Transport
from .calls import FIFO_SUFFIX

SID_PREFIX = "pumphouse-"

_NAME = re.compile(r"(?=.{1,256}\Z)[A-Za-z0-9_-]+(\.fifo)?", re.ASCII)
_ARN = re.compile(r"arn:aws[a-z-]*:sns:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):(?P<name>.+)")
_DEFAULTS = {
    "RawMessageDelivery": "false",
    "FilterPolicyScope": "MessageAttributes",
    "FilterPolicy": "{}",
}
_MAX_SHOWN = 100
_SCOPES = {"attributes": "MessageAttributes", "body": "MessageBody"}


@attrs.frozen(kw_only=True)
class TopicSubscription:
    """What a queue takes from which topic."""

    given: str
    name: str
    arn: str | None = None
    is_raw: bool = True
    filter_policy: Mapping[str, Any] | None = None
    """None leaves the filter of an existing subscription as it is; an empty one removes it."""
    filter_scope: str | None = None
    """None leaves it as it is, too: SNS filters by attributes unless told otherwise."""

    @classmethod
    def parse(
        cls,
        topic: str,
        *,
        is_raw: bool = True,
        filter_policy: Mapping[str, Any] | None = None,
        filter_scope: str | None = None,
    ) -> TopicSubscription:
        """Understand a topic's name or ARN; `ConfigurationError` for what is neither."""
        arn = _ARN.fullmatch(topic)
        name = arn["name"] if arn else topic
        if not _NAME.fullmatch(name):
            raise _bad_topic(topic, "give a topic's name, or arn:aws:sns:REGION:ACCOUNT:NAME")
        return cls(
            given=topic,
            name=name,
            arn=topic if arn else None,
            is_raw=is_raw,
            filter_policy=None if filter_policy is None else dict(filter_policy),
            filter_scope=filter_scope,
        )

    @property
    def is_fifo(self) -> bool:
        """Whether it is the name of a FIFO topic."""
        return self.name.endswith(FIFO_SUFFIX)

    @property
    def attributes(self) -> dict[str, str]:
        """What the subscription must have, in SNS's words."""
        asked = {"RawMessageDelivery": "true" if self.is_raw else "false"}
        if self.filter_scope is not None:
            # Before the policy: one for bodies may be wrong for attributes.
            asked["FilterPolicyScope"] = _SCOPES[self.filter_scope]
        if self.filter_policy is not None:
            asked["FilterPolicy"] = json.dumps(self.filter_policy, sort_keys=True)
        return asked

    def arn_for(self, queue_arn: str) -> str:
        """The topic's ARN; one given by name is in the queue's account and region."""
        partition, region, account = _home(queue_arn)
        if self.arn is None:
            return f"arn:{partition}:sns:{region}:{account}:{self.name}"
        if _home(self.arn)[1] != region:
            raise _bad_topic(self.given, f"the queue is in {region}; use a topic of that region")
        return self.arn

    def is_at_home(self, queue_arn: str) -> bool:
        """Whether the topic belongs to the queue's own account."""
        return _home(self.arn_for(queue_arn)) == _home(queue_arn)

    def differences(self, actual: Mapping[str, str]) -> dict[str, str]:
        """The attributes that an existing subscription has otherwise, as they were asked for."""
        return {
            name: value
            for name, value in self.attributes.items()
            if _meaning(value) != _meaning(actual.get(name) or _DEFAULTS[name])
        }


class Topics:
    """Subscribes queues to topics. Everything is looked at first and changed where it differs."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def subscribe(
        self, topic: TopicSubscription, *, queue: str, url: str, attributes: Mapping[str, str]
    ) -> None:
        """Make the topic where it is missing, let it send to the queue, and subscribe the queue.

        `attributes` are the queue's. A topic of another account is not made. The access policy
        is read, changed and written: another change in that moment may have to be repeated.
        """
        queue_arn = attributes["QueueArn"]
        await self._make(topic, queue_arn)
        # First the permission, then the subscription: what is published between is not refused.
        policy = permitting(attributes.get("Policy"), topic.arn_for(queue_arn), queue_arn)
        if policy is not None:
            request = {"QueueUrl": url, "Attributes": {"Policy": policy}}
            await self._transport.call("sqs", "set_queue_attributes", request, target=queue)
        try:
            await self._subscribe(topic, queue_arn)
        except QueueNotFound:
            raise _bad_topic(
                topic.given, "there is no such topic; one of another account is not made here"
            ) from None

    async def differences(self, topic: TopicSubscription, *, queue_arn: str) -> list[str]:
        """Say in words what is missing of the subscription; changes nothing."""
        try:
            subscription = await self._find(topic, queue_arn)
        except QueueNotFound:
            return [f"topic {topic.given} does not exist"]
        if subscription is None:
            return [f"it is not subscribed to topic {topic.given}"]
        actual = await self._attributes_of(topic, subscription)
        return [
            f"its subscription to topic {topic.given} has {name} "
            f"{actual.get(name) or _DEFAULTS[name]}, asked for {value}"
            for name, value in topic.differences(actual).items()
        ]

    async def _make(self, topic: TopicSubscription, queue_arn: str) -> None:
        arn = topic.arn_for(queue_arn)
        if not topic.is_at_home(queue_arn):
            return
        try:
            await self._sns("get_topic_attributes", topic, TopicArn=arn)
        except QueueNotFound:
            fifo = {"Attributes": {"FifoTopic": "true"}} if topic.is_fifo else {}
            await self._sns("create_topic", topic, Name=topic.name, **fifo)

    async def _subscribe(self, topic: TopicSubscription, queue_arn: str) -> None:
        subscription = await self._find(topic, queue_arn)
        if subscription is None:
            await self._sns(
                "subscribe",
                topic,
                TopicArn=topic.arn_for(queue_arn),
                Protocol="sqs",
                Endpoint=queue_arn,
                Attributes=topic.differences({}),
                ReturnSubscriptionArn=True,
            )
            return
        actual = await self._attributes_of(topic, subscription)
        for name, value in topic.differences(actual).items():
            await self._sns(
                "set_subscription_attributes",
                topic,
                SubscriptionArn=subscription,
                AttributeName=name,
                AttributeValue=value,
            )

    async def _find(self, topic: TopicSubscription, queue_arn: str) -> str | None:
        arn = topic.arn_for(queue_arn)
        try:
            return await self._find_in("list_subscriptions_by_topic", topic, arn, queue_arn)
        except AccessDenied:
            if topic.is_at_home(queue_arn):
                raise
            # Another account's topic may let us subscribe and yet not list its subscribers; the
            # subscriptions of our own account are ours to list.
            return await self._find_in("list_subscriptions", topic, arn, queue_arn)

    async def _find_in(
        self, listing: str, topic: TopicSubscription, arn: str, queue_arn: str
    ) -> str | None:
        request = {"TopicArn": arn} if listing == "list_subscriptions_by_topic" else {}
        async for each in self._subscriptions(listing, topic, request):
            wanted = ("sqs", queue_arn, arn)
            is_wanted = (each["Protocol"], each["Endpoint"], each["TopicArn"]) == wanted
            # One that waits for confirmation has no ARN.
            if is_wanted and each["SubscriptionArn"].startswith("arn:"):
                return str(each["SubscriptionArn"])
        return None

    async def _subscriptions(
        self, listing: str, topic: TopicSubscription, request: Mapping[str, str]
    ) -> AsyncIterator[Mapping[str, Any]]:
        page = await self._sns(listing, topic, **request)
        while True:
            for each in page["Subscriptions"]:
                yield each
            if not page.get("NextToken"):
                return
            page = await self._sns(listing, topic, **request, NextToken=page["NextToken"])

    async def _attributes_of(self, topic: TopicSubscription, subscription: str) -> dict[str, str]:
        reply = await self._sns("get_subscription_attributes", topic, SubscriptionArn=subscription)
        return dict(reply["Attributes"])

    async def _sns(self, operation: str, topic: TopicSubscription, **request: Any) -> Any:
        return await self._transport.call("sns", operation, request, target=topic.given)


def permitting(policy: str | None, topic_arn: str, queue_arn: str) -> str | None:
    """The queue's access policy with a statement of ours that lets the topic send to it.

    Statements of others stay as they are. None when there is nothing to change.
    """
    document, statements = _parts_of(policy) if policy else ({"Version": "2012-10-17"}, [])
    permission = _permission(topic_arn, queue_arn)
    if permission in statements:
        return None
    others = [each for each in statements if each.get("Sid") != permission["Sid"]]
    return json.dumps({**document, "Statement": [*others, permission]})


def _parts_of(policy: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The policy and its statements. SQS gives none that is broken; what stands before it might."""
    try:
        match json.loads(policy):
            case {"Statement": dict(only)} as document:
                return document, [only]
            case {"Statement": [*several]} as document if all(map(_is_table, several)):
                return document, several
            case dict(document) if "Statement" not in document:
                return document, []
    except (ValueError, RecursionError):
        pass
    raise ConfigurationError("Policy", policy[:_MAX_SHOWN], "repair the queue's access policy")


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _meaning(value: str) -> Any:
    # Flags and policies are JSON, which can be written in more than one way; scopes are words.
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def is_own_statement(statement: Mapping[str, Any]) -> bool:
    """Whether a statement of a queue's policy was put there by this module."""
    return str(statement.get("Sid", "")).startswith(SID_PREFIX)


def _permission(topic_arn: str, queue_arn: str) -> dict[str, Any]:
    return {
        "Sid": SID_PREFIX + hashlib.sha256(topic_arn.encode()).hexdigest()[:16],
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
    }


def _home(arn: str) -> tuple[str, str, str]:
    _, partition, _, region, account, *_ = arn.split(":")
    return partition, region, account


def _bad_topic(topic: str, remedy: str) -> ConfigurationError:
    return ConfigurationError("QueueSpec.options['topic']", topic, remedy)
