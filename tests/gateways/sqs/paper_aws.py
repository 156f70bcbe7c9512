"""An AWS on paper: as much of SQS and SNS as the caretaker of queues talks to.

It is a `Transport`, so errors are ours; what it says follows AWS's documentation. The tests that
use it run against LocalStack as well, which keeps it honest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from gateways._aws.sdk_transport import Polling, Reply, Request
from pump.errors import QueueMismatch, QueueNotFound

ACCOUNT = "123456789012"
REGION = "eu-west-1"
LIST_PAGE = 2


@attrs.define
class PaperQueue:
    attributes: dict[str, str]
    tags: dict[str, str] = attrs.field(factory=dict)


class PaperAws:
    """One account. `answers` replaces what an operation does."""

    def __init__(self) -> None:
        self.queues: dict[str, PaperQueue] = {}
        self.topics: set[str] = set()
        self.subscriptions: dict[str, dict[str, str]] = {}
        self.answers: dict[str, Callable[[Request], Reply]] = {}

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        answer = self.answers.get(operation)
        if answer is not None:
            return answer(request)
        perform = getattr(self, f"_{operation}")
        return dict(perform(request, target or service))

    def _get_queue_url(self, request: Request, target: str) -> Reply:
        owner = request.get("QueueOwnerAWSAccountId", ACCOUNT)
        if owner != ACCOUNT or request["QueueName"] not in self.queues:
            raise QueueNotFound(target)
        return {"QueueUrl": url_of(request["QueueName"])}

    def _create_queue(self, request: Request, target: str) -> Reply:
        name, asked = request["QueueName"], dict(request["Attributes"])
        found = self.queues.get(name)
        if found is None:
            attributes = {**new_attributes(name), **asked}
            self.queues[name] = PaperQueue(attributes, dict(request.get("tags", {})))
        elif not asked.items() <= found.attributes.items():
            raise QueueMismatch(target, "a queue of this name has other attributes")
        return {"QueueUrl": url_of(name)}

    def _get_queue_attributes(self, request: Request, target: str) -> Reply:
        attributes = self._queue(request, target).attributes
        names = request["AttributeNames"]
        wanted = attributes if names == ["All"] else {name: attributes[name] for name in names}
        return {"Attributes": dict(wanted)}

    def _set_queue_attributes(self, request: Request, target: str) -> Reply:
        self._queue(request, target).attributes.update(request["Attributes"])
        return {}

    def _list_queue_tags(self, request: Request, target: str) -> Reply:
        tags = self._queue(request, target).tags
        return {"Tags": dict(tags)} if tags else {}

    def _list_queues(self, request: Request, target: str) -> Reply:
        prefix = request.get("QueueNamePrefix", "")
        names = [name for name in self.queues if name.startswith(prefix)]
        start = int(request.get("NextToken", 0))
        page = names[start : start + LIST_PAGE]
        if not names:
            return {}
        more = {"NextToken": str(start + LIST_PAGE)} if start + LIST_PAGE < len(names) else {}
        return {"QueueUrls": [url_of(name) for name in page], **more}

    def _purge_queue(self, request: Request, target: str) -> Reply:
        for name in NO_MESSAGES:
            self._queue(request, target).attributes[name] = "0"
        return {}

    def _queue(self, request: Request, target: str) -> PaperQueue:
        name = str(request["QueueUrl"]).rsplit("/", 1)[-1]
        if name not in self.queues:
            raise QueueNotFound(target)
        return self.queues[name]

    def _create_topic(self, request: Request, target: str) -> Reply:
        arn = f"arn:aws:sns:{REGION}:{ACCOUNT}:{request['Name']}"
        self.topics.add(arn)
        return {"TopicArn": arn}

    def _get_topic_attributes(self, request: Request, target: str) -> Reply:
        self._check_topic(request["TopicArn"], target)
        return {"Attributes": {"TopicArn": request["TopicArn"]}}

    def _subscribe(self, request: Request, target: str) -> Reply:
        self._check_topic(request["TopicArn"], target)
        arn = f"{request['TopicArn']}:{len(self.subscriptions)}"
        self.subscriptions[arn] = {
            "TopicArn": request["TopicArn"],
            "Endpoint": request["Endpoint"],
            "RawMessageDelivery": "false",
            **request["Attributes"],
        }
        return {"SubscriptionArn": arn}

    def _list_subscriptions_by_topic(self, request: Request, target: str) -> Reply:
        self._check_topic(request["TopicArn"], target)
        return self._page(request, lambda each: each["TopicArn"] == request["TopicArn"])

    def _list_subscriptions(self, request: Request, target: str) -> Reply:
        return self._page(request, lambda each: True)

    def _page(self, request: Request, is_wanted: Callable[[Mapping[str, str]], bool]) -> Reply:
        found = [
            {
                "SubscriptionArn": arn,
                "Protocol": "sqs",
                "TopicArn": each["TopicArn"],
                "Endpoint": each["Endpoint"],
            }
            for arn, each in self.subscriptions.items()
            if is_wanted(each)
        ]
        start = int(request.get("NextToken", 0))
        more = {"NextToken": str(start + LIST_PAGE)} if start + LIST_PAGE < len(found) else {}
        return {"Subscriptions": found[start : start + LIST_PAGE], **more}

    def _get_subscription_attributes(self, request: Request, target: str) -> Reply:
        return {"Attributes": dict(self.subscriptions[request["SubscriptionArn"]])}

    def _set_subscription_attributes(self, request: Request, target: str) -> Reply:
        subscription = self.subscriptions[request["SubscriptionArn"]]
        subscription[request["AttributeName"]] = request["AttributeValue"]
        return {}

    def _check_topic(self, arn: str, target: str) -> None:
        if arn not in self.topics:
            raise QueueNotFound(target)


NO_MESSAGES = {
    "ApproximateNumberOfMessages": "0",
    "ApproximateNumberOfMessagesNotVisible": "0",
    "ApproximateNumberOfMessagesDelayed": "0",
}


def new_attributes(name: str) -> dict[str, str]:
    """What SQS says of a queue that nothing was asked of."""
    return {
        **NO_MESSAGES,
        "QueueArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}",
        "MessageRetentionPeriod": "345600",
        "VisibilityTimeout": "30",
        "DelaySeconds": "0",
        "SqsManagedSseEnabled": "true",
    }


def url_of(name: str) -> str:
    return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}"
