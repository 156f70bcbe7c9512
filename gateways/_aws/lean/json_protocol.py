"""AWS JSON 1.0, as SQS speaks it. Pure: requests to bytes, bytes to replies."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlunsplit

import attrs
import msgspec
from botocore.parsers import ResponseParserError
from yarl import URL

from ..sdk_transport import Reply, Request
from .http_session import Endpoint, HttpReply, Planned
from .signing import Signable, canonical_path

OPERATIONS = (
    "SendMessage",
    "SendMessageBatch",
    "ReceiveMessage",
    "DeleteMessage",
    "DeleteMessageBatch",
    "ChangeMessageVisibility",
    "ChangeMessageVisibilityBatch",
    "GetQueueUrl",
    "GetQueueAttributes",
    "SetQueueAttributes",
    "CreateQueue",
    "ListQueues",
)
"""What is performed here. Whatever else SQS can do, the SDK does."""
_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


@attrs.frozen
class _Fields:
    """The names a request of one operation may have, at its top and in each of its entries."""

    operation: str
    of_request: frozenset[str]
    of_entry: frozenset[str]


class JsonProtocol:
    """Requests to one endpoint of SQS."""

    def __init__(self, endpoint: Endpoint, service_model: Any) -> None:
        base = endpoint.base
        path = base.path or "/"
        self._url = URL(urlunsplit((base.scheme, base.netloc, path, "", "")), encoded=True)
        self._path = canonical_path(path)
        self._host = base.netloc
        self._signer = endpoint.signer
        self._target = service_model.metadata["targetPrefix"]
        self._fields = {
            _snake(name): _fields_of(service_model.operation_model(name)) for name in OPERATIONS
        }

    def plan(self, operation: str, request: Request) -> Planned | None:
        """The call, or None when it is not one of ours in every field."""
        fields = self._fields.get(operation)
        if fields is None or not _is_plain(request, fields):
            return None
        try:
            body = _encode(request)
        except (TypeError, UnicodeEncodeError):  # the SDK may know what to do with such a value
            return None
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "host": self._host,
            "x-amz-target": f"{self._target}.{fields.operation}",
            # Errors then carry the codes they had before SQS spoke JSON.
            "x-amzn-query-mode": "true",
        }
        return Planned(
            operation=fields.operation,
            url=self._url,
            signable=Signable(
                method="POST",
                path=self._path,
                headers=headers,
                payload_hash=sha256(body).hexdigest(),
            ),
            signer=self._signer,
            body=body,
        )

    def read(self, planned: Planned, answer: HttpReply) -> Reply:
        """What SQS replied. `ResponseParserError` for what is no JSON."""
        if not answer.body:
            return {}
        try:
            reply = _decode_object(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ResponseParserError("the reply is not JSON; is a proxy in the way?") from None
        if b'"BinaryValue"' in answer.body:
            _decode_binary(reply)
        return {name: value for name, value in reply.items() if value is not None}

    def is_elsewhere(self, planned: Planned, refusal: Mapping[str, Any]) -> bool:
        return False

    def leave_to_the_sdk(self, request: Request) -> None:
        """SQS has one endpoint for all queues."""


def _is_plain(request: Request, fields: _Fields) -> bool:
    # SQS would pass over a name it does not know, and a message would lack a part. The SDK
    # refuses it; and it leaves out what is None.
    if not request.keys() <= fields.of_request or None in request.values():
        return False
    known = fields.of_entry
    return all(
        entry.keys() <= known and None not in entry.values() for entry in request.get("Entries", ())
    )


def _fields_of(model: Any) -> _Fields:
    members = model.input_shape.members
    entries = members.get("Entries")
    of_entry = entries.member.members if entries is not None else ()
    return _Fields(model.name, frozenset(members), frozenset(of_entry))


def _decode_binary(reply: Mapping[str, Any]) -> None:
    for message in reply.get("Messages") or ():
        for attribute in (message.get("MessageAttributes") or {}).values():
            if isinstance(attribute.get("BinaryValue"), str):
                attribute["BinaryValue"] = b64decode(attribute["BinaryValue"])


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
