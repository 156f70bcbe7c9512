"""AWS JSON 1.0: the operation is a header, the parameters are one JSON object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..errors import SqsError, serialization_exception, unknown_operation
from .call import Answer
from .catalog import OPERATIONS

TARGET: Final = "x-amz-target"
_PREFIX: Final = "AmazonSQS."
_CONTENT_TYPE: Final = "application/x-amz-json-1.0"

_decoders: Final = {
    name: msgspec.json.Decoder(operation.request) for name, operation in OPERATIONS.items()
}
_encoder: Final = msgspec.json.Encoder()
_mismatch: Final = re.compile(r"Expected `(\w+)`, got `(\w+)`")
_TOKENS: Final = {
    "str": "STRING_VALUE",
    "int": "NUMBER_VALUE",
    "float": "NUMBER_VALUE",
    "bool": "TRUE_VALUE",
    "object": "START_OBJECT",
    "array": "START_ARRAY",
    "null": "VALUE_NULL",
}
_WANTED: Final = {"str": "a String", "int": "an Integer", "bool": "a Boolean", "bytes": "a Blob"}


def operation_of(target: str) -> str:
    """The operation a target header names.

    Raises:
        SqsError: it is none of ours.
    """
    name = target[len(_PREFIX) :] if target.startswith(_PREFIX) else ""
    if name not in OPERATIONS:
        raise unknown_operation(name or target)
    return name


def read_parameters(operation: str, body: bytes) -> Mapping[str, Any]:
    """The parameters in `body`, checked for their types; unknown ones are left out.

    Raises:
        SqsError: not JSON, or a member of another type.
    """
    if not body:
        return {}
    try:
        parameters: Mapping[str, Any] = _decoders[operation].decode(body)
    except msgspec.ValidationError as error:
        return _read_past_nulls(operation, body, error)
    except (ValueError, RecursionError):
        raise serialization_exception() from None
    return parameters


def _read_past_nulls(
    operation: str, body: bytes, error: msgspec.ValidationError
) -> Mapping[str, Any]:
    # AWS takes null for absent. Few clients send any, so the common way does not look for them.
    try:
        raw = msgspec.json.decode(body)
        parameters: Mapping[str, Any] = msgspec.convert(
            _without_nulls(raw), OPERATIONS[operation].request
        )
    except (ValueError, RecursionError):
        raise serialization_exception(_in_awss_words(error)) from None
    return parameters


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value if inner is not None]
    return value


def _in_awss_words(error: msgspec.ValidationError) -> str:
    found = _mismatch.search(str(error))
    if found is None:
        return ""
    wanted, got = found.groups()
    if wanted == "array":
        return "Expected list or null"
    if wanted == "object":
        return "Start of structure or map found where not expected."
    return f"{_TOKENS.get(got, got)} can not be converted to {_WANTED.get(wanted, wanted)}"


def write_result(operation: str, result: Mapping[str, Any], request_id: str) -> Answer:
    """The answer to a call; operations that give nothing answer with an empty body."""
    body = _encoder.encode(result) if OPERATIONS[operation].result is not None else b""
    return Answer(200, {"Content-Type": _CONTENT_TYPE, "x-amzn-RequestId": request_id}, body)


def write_error(error: SqsError, request_id: str) -> Answer:
    """A refusal; SDKs take its code from the header, as the older protocol spells it."""
    fault = "Sender" if error.is_senders_fault else "Receiver"
    headers = {
        "Content-Type": _CONTENT_TYPE,
        "x-amzn-RequestId": request_id,
        "x-amzn-query-error": f"{error.query_code};{fault}",
    }
    # What a header held may be repeated in a message, and need not have been text.
    message = error.message.encode(errors="replace").decode()
    return Answer(
        error.status, headers, _encoder.encode({"__type": error.type, "message": message})
    )
