"""Which queue a call means: a URL of any host, a path or a bare name; or an ARN."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ..errors import (
    invalid_parameter_value,
    missing_parameter,
    queue_does_not_exist,
    resource_not_found,
)
from ..model import QueueAddress
from .parameters import Parameters, text

if TYPE_CHECKING:
    from ..engine import Engine, Queue
    from ..protocol import Call


def find_queue(engine: Engine, call: Call) -> Queue:
    """The queue that QueueUrl names; SqsError when there is none.

    The account in the URL decides whose queue it is. The region is the request's, or where the
    request's has no such queue the only region that does: a URL of ours does not name one.
    """
    address = address_in(text(call.parameters, "QueueUrl"), call)
    return locate(engine, address)


def locate(engine: Engine, address: QueueAddress) -> Queue:
    """The queue at an address, or in the only other region that has it; SqsError if none."""
    queue = engine.find(address) or _find_elsewhere(engine, address)
    if queue is None:
        raise queue_does_not_exist()
    return queue


def address_in(url: str, call: Call) -> QueueAddress:
    """The address a queue URL gives, whatever its host: its last two parts are account and name."""
    return _address_in(url, call.account, call.region)


@lru_cache(maxsize=1_024)  # clients name the same few queues in every call
def _address_in(url: str, account: str, region: str) -> QueueAddress:
    head, _, name = url.rpartition("/")
    owner = head.rpartition("/")[2]
    is_account = len(owner) == 12 and owner.isdecimal()
    return QueueAddress(owner if is_account else account, region, name)


def find_by_arn(engine: Engine, parameters: Parameters, name: str) -> Queue:
    """The queue whose ARN is given as parameter `name`; SqsError when there is no such queue."""
    arn: str | None = parameters.get(name)
    if arn is None:
        raise missing_parameter(name)
    address = QueueAddress.from_arn(arn)
    if address is None:
        raise invalid_parameter_value(
            f"You must use this format to specify the {name}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        )
    queue = engine.find(address)
    if queue is None:
        raise resource_not_found(
            f"The resource that you specified for the {name} parameter doesn't exist."
        )
    return queue


def url_of(address: QueueAddress, call: Call) -> str:
    """The URL by which this caller reaches the queue."""
    return f"{call.base_url}/{address.account}/{address.name}"


def _find_elsewhere(engine: Engine, wanted: QueueAddress) -> Queue | None:
    found = [
        queue
        for address, queue in engine.queues.items()
        if (address.account, address.name) == (wanted.account, wanted.name)
    ]
    return found[0] if len(found) == 1 else None
