"""Refusals: their codes in both protocols, as SDKs show them."""

from __future__ import annotations

import pickle

import pytest

from gateways.sqs_server import errors
from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.http import sigv4
from gateways.sqs_server.protocol import render_error

from .botocore_side import service, understand

EVERY_ERROR = [
    errors.queue_does_not_exist(),
    errors.queue_name_exists("DelaySeconds"),
    errors.queue_deleted_recently(),
    errors.purge_queue_in_progress("orders"),
    errors.resource_not_found(),
    errors.invalid_attribute_name("Colour"),
    errors.conflicting_encryption(),
    errors.invalid_attribute_value("FifoQueue", "Modifying queue type is not supported."),
    errors.invalid_parameter_value("Something is wrong."),
    errors.invalid_value("MaxNumberOfMessages", 11, "Must be between 1 and 10, if provided."),
    errors.missing_parameter("MessageGroupId"),
    errors.unsupported_operation(),
    errors.invalid_address("?"),
    errors.invalid_message_contents(),
    errors.message_too_long(1024),
    errors.receipt_handle_is_invalid("nonsense"),
    errors.receipt_handle_expired("old"),
    errors.message_not_available("gone"),
    errors.message_not_inflight(),
    errors.invalid_id_format(),
    errors.over_limit("Too many messages in flight."),
    errors.empty_batch_request(),
    errors.too_many_entries_in_batch_request(20),
    errors.batch_entry_ids_not_distinct("1"),
    errors.invalid_batch_entry_id(),
    errors.batch_request_too_long(262145, 262144),
    *(errors.kms_error(f"Kms{name}", "No.") for name in ("Disabled", "InvalidState", "NotFound")),
    *(errors.kms_error(f"Kms{name}", "No.") for name in ("OptInRequired", "Throttled")),
    *(errors.kms_error(f"Kms{name}", "No.") for name in ("AccessDenied", "InvalidKeyUsage")),
    errors.unknown_operation("Dance"),
    errors.serialization_exception("STRING_VALUE can not be converted to an Integer"),
    errors.access_denied(),
    errors.invalid_security(),
    errors.request_throttled(),
    errors.internal_failure(),
    errors.service_unavailable(),
    sigv4.request_too_large(2),
    sigv4.request_timeout(),
    sigv4.missing_authentication_token(),
    sigv4.invalid_client_token_id(),
    sigv4.incomplete_signature("No."),
    sigv4.signature_does_not_match(),
    sigv4.request_expired(),
]


def ids_of(error: SqsError) -> str:
    return error.query_code


def test_when_the_api_knows_an_error_then_there_is_a_constructor_for_it() -> None:
    known = {error.code for error in EVERY_ERROR}

    assert {shape.name for shape in service("json").error_shapes} <= known


@pytest.mark.parametrize("error", EVERY_ERROR, ids=ids_of)
def test_when_json_refuses_then_the_sdk_shows_the_query_code(error: SqsError) -> None:
    shown = understand(
        "json", "SendMessage", render_error(error, {"x-amz-target": "AmazonSQS.SendMessage"})
    )

    assert shown["Error"]["Code"] == error.query_code
    assert shown["Error"]["QueryErrorCode"] == error.code
    assert shown["Error"]["Message"] == error.message
    assert shown["Error"]["Type"] == ("Sender" if error.status < 500 else "Receiver")


@pytest.mark.parametrize("error", EVERY_ERROR, ids=ids_of)
def test_when_xml_refuses_then_the_sdk_shows_the_same_code(error: SqsError) -> None:
    answer = render_error(error, {})

    shown = understand("query", "SendMessage", answer)

    assert answer.status == error.status
    assert shown["Error"] == {
        "Code": error.query_code,
        "Message": error.query_message,
        "Type": "Sender" if error.status < 500 else "Receiver",
        "Detail": None,
    }


@pytest.mark.parametrize("error", EVERY_ERROR, ids=ids_of)
def test_when_an_error_crosses_a_process_then_it_is_the_same(error: SqsError) -> None:
    again = pickle.loads(pickle.dumps(error))

    assert vars(again) == vars(error)
    assert str(again) == str(error)


def test_when_a_queue_is_missing_then_each_protocol_has_its_words() -> None:
    error = errors.queue_does_not_exist()

    assert error.query_code == "AWS.SimpleQueueService.NonExistentQueue"
    assert error.message == "The specified queue does not exist."
    assert error.query_message == "The specified queue does not exist for this wsdl version."


def test_when_the_framework_refuses_then_the_type_has_its_namespace() -> None:
    assert errors.queue_does_not_exist().type == "com.amazonaws.sqs#QueueDoesNotExist"
    assert (
        errors.invalid_parameter_value("No.").type
        == "com.amazon.coral.service#InvalidParameterValueException"
    )
