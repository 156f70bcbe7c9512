"""AWS JSON 1.0: the operation is a header, the parameters are one JSON object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from ..errors import SqsError, serialization_exception, unknown_operation
from .call import HttpAnswer, is_list, is_map, is_shape, members_of
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
    except msgspec.ValidationError:
        return _read_loosely(operation, body)
    except (ValueError, RecursionError):
        raise serialization_exception() from None
    return parameters


def _read_loosely(operation: str, body: bytes) -> Mapping[str, Any]:
    # AWS takes null for absent, and a number or a truth value for the text it is written as. Few
    # clients send any, so the common way does not look for them.
    request = OPERATIONS[operation].request
    try:
        parameters: Mapping[str, Any] = msgspec.convert(
            _tidied(msgspec.json.decode(body), request), request
        )
    except msgspec.ValidationError as error:
        raise serialization_exception(_in_awss_words(error)) from None
    except (ValueError, RecursionError):
        raise serialization_exception() from None
    return parameters


def _tidied(value: Any, type_: Any) -> Any:
    """Without nulls, and with text wherever text was meant."""
    if isinstance(value, dict):
        if is_shape(type_):
            types = {name: member.type for name, member in members_of(type_).items()}
        else:
            types = dict.fromkeys(value, get_args(type_)[1] if is_map(type_) else None)
        return {
            key: _tidied(inner, types[key])
            for key, inner in value.items()
            if inner is not None and key in types
        }
    if isinstance(value, list):
        item = get_args(type_)[0] if is_list(type_) else None
        return [_tidied(inner, item) for inner in value if inner is not None]
    if type_ is str and isinstance(value, bool | int | float):
        return msgspec.json.encode(value).decode()
    return value


def _in_awss_words(error: msgspec.ValidationError) -> str:
    found = _mismatch.search(str(error))
    if found is None:
        return ""
    wanted, got = found.groups()
    if got == "array":
        return "Start of list found where not expected"
    if wanted == "array":
        return "Expected list or null"
    if "object" in (wanted, got):
        return "Start of structure or map found where not expected."
    return f"{_TOKENS.get(got, got)} can not be converted to {_WANTED.get(wanted, wanted)}"


def write_result(operation: str, result: Mapping[str, Any], request_id: str) -> HttpAnswer:
    """The answer to a call; operations that give nothing answer with an empty body."""
    body = _encoder.encode(result) if OPERATIONS[operation].result is not None else b""
    return HttpAnswer(200, {"Content-Type": _CONTENT_TYPE, "x-amzn-RequestId": request_id}, body)


def write_error(error: SqsError, request_id: str) -> HttpAnswer:
    """A refusal; SDKs take its code from the header, as the older protocol spells it."""
    fault = "Sender" if error.is_senders_fault else "Receiver"
    headers = {
        "Content-Type": _CONTENT_TYPE,
        "x-amzn-RequestId": request_id,
        "x-amzn-query-error": f"{error.query_code};{fault}",
    }
    # What a header held may be repeated in a message, and need not have been text.
    message = error.message.encode(errors="replace").decode()
    return HttpAnswer(
        error.status, headers, _encoder.encode({"__type": error.type, "message": message})
    )
