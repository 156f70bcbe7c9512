"""Shapes of the SQS stand-in: requests read, replies written. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from .queues import Stored, md5_of_attributes

Request = Mapping[str, Any]
Reply = Mapping[str, Any]

ACCOUNT = "000000000000"
_MAX_BATCH = 10


@attrs.frozen
class Refused(Exception):
    """The service says no, with SQS's code for it (and the code of its older protocol)."""

    code: str
    text: str
    query_code: str = ""


def entries(request: Request) -> Sequence[Request]:
    given: Sequence[Request] = request["Entries"]
    if len(given) > _MAX_BATCH:
        raise Refused("TooManyEntriesInBatchRequest", "Maximum number of entries is 10.")
    return given


def each(request: Request, perform: Callable[[Request], None]) -> Reply:
    successful, failed = [], []
    for entry in entries(request):
        try:
            perform(entry)
            successful.append({"Id": entry["Id"]})
        except Refused as no:
            failed.append(
                {"Id": entry["Id"], "Code": no.code, "Message": no.text, "SenderFault": True}
            )
    return {"Successful": successful, "Failed": failed}


def sent(stored: Stored) -> dict[str, Any]:
    reply = {"MessageId": stored.message_id, "MD5OfMessageBody": stored.body_md5}
    if stored.attributes:
        reply["MD5OfMessageAttributes"] = stored.attributes_md5
    return reply


def received(stored: Stored, request: Request) -> dict[str, Any]:
    reply: dict[str, Any] = {
        "MessageId": stored.message_id,
        "ReceiptHandle": stored.receipt,
        "MD5OfBody": stored.body_md5,
        "Body": stored.body,
    }
    wanted = request.get("MessageSystemAttributeNames") or request.get("AttributeNames")
    if wanted:
        reply["Attributes"] = _system_values(stored, wanted)
    names = request.get("MessageAttributeNames")
    if names and stored.attributes:
        reply |= _attribute_values(stored, names)
    return reply


def _system_values(stored: Stored, wanted: Sequence[str]) -> dict[str, str]:
    values = {
        "ApproximateReceiveCount": str(stored.receive_count),
        "SentTimestamp": str(stored.sent_ms),
        "SenderId": ACCOUNT,
        "ApproximateFirstReceiveTimestamp": str(stored.first_received_ms),
        **stored.system_attributes,
    }
    if "All" in wanted:
        return values
    return {name: value for name, value in values.items() if name in wanted}


def _attribute_values(stored: Stored, names: Sequence[str]) -> dict[str, Any]:
    if "All" in names or ".*" in names:
        return {
            "MessageAttributes": stored.attributes,
            "MD5OfMessageAttributes": stored.attributes_md5,
        }
    prefixes = tuple(name[:-2] for name in names if name.endswith(".*"))
    chosen = {
        name: value
        for name, value in stored.attributes.items()
        if name in names or (prefixes and name.startswith(prefixes))
    }
    if not chosen:
        return {}
    return {
        "MessageAttributes": chosen,
        "MD5OfMessageAttributes": md5_of_attributes(chosen),
    }


def error_body(no: Refused) -> bytes:
    """How SQS's JSON protocol writes a refusal."""
    return json.dumps({"__type": f"com.amazonaws.sqs#{no.code}", "message": no.text}).encode()
