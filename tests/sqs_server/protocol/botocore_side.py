"""botocore as the client's half of both protocols, and values for any of its shapes.

botocore speaks JSON to SQS today. The older protocol's spelling is put back into its model here,
from what AWS documents: the names are written down a second time, so that a slip in the server's
own table is seen.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from botocore.awsrequest import create_request_object, prepare_request_dict
from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel, Shape
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from hypothesis import strategies as st

ENDPOINT = "http://127.0.0.1:9324"

_ITEM_NAMES = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "BinaryList": "BinaryListValue",
    "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
    "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
    "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
    "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "QueueUrlList": "QueueUrl",
    "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
    "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
    "StringList": "StringListValue",
    "TagKeyList": "TagKey",
}
_MEMBER_NAMES = {
    "Attributes": "Attribute",
    "tags": "Tag",
    "Tags": "Tag",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "StringListValues": "StringListValue",
    "BinaryListValues": "BinaryListValue",
}


@cache
def service(protocol: str) -> ServiceModel:
    model = Loader().load_service_model("sqs", "service-2")
    if protocol == "query":
        _spell_as_query(model)
    return ServiceModel(model, "sqs")


def _spell_as_query(model: dict[str, Any]) -> None:
    for gone in ("jsonVersion", "targetPrefix", "awsQueryCompatible", "protocols"):
        model["metadata"].pop(gone, None)
    model["metadata"] |= {
        "protocol": "query",
        "xmlNamespace": "http://queue.amazonaws.com/doc/2012-11-05/",
    }
    for name, shape in model["shapes"].items():
        if shape["type"] == "list":
            shape["member"]["locationName"] = _ITEM_NAMES[name]
        elif shape["type"] == "map":
            shape["key"]["locationName"] = "Key" if name == "TagMap" else "Name"
            shape["value"]["locationName"] = "Value"
        for member, reference in shape.get("members", {}).items():
            if member in _MEMBER_NAMES:
                reference["locationName"] = _MEMBER_NAMES[member]
    for operation in model["operations"].values():
        if "output" in operation:
            operation["output"]["resultWrapper"] = operation["name"] + "Result"


def operation(protocol: str, name: str) -> OperationModel:
    return service(protocol).operation_model(name)


OPERATION_NAMES = list(service("json").operation_names)


def serialise(protocol: str, name: str, parameters: dict[str, Any]) -> Any:
    """A prepared request: method, url, headers and body as they would go out."""
    serializer = create_serializer(protocol, include_validation=False)
    request = serializer.serialize_to_request(parameters, operation(protocol, name))
    prepare_request_dict(request, ENDPOINT)
    return create_request_object(request).prepare()


def understand(protocol: str, name: str, answer: Any) -> dict[str, Any]:
    """What the SDK hands to its user, without the metadata."""
    response = {
        "status_code": answer.status,
        "headers": {key.lower(): value for key, value in answer.headers.items()},
        "body": answer.body,
    }
    shape = operation(protocol, name).output_shape
    parsed: dict[str, Any] = create_parser(protocol).parse(response, shape)
    parsed.pop("ResponseMetadata", None)
    return parsed


XML_TEXT = st.text(
    st.characters(codec="utf-8").filter(
        lambda c: c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff"
    )
)


def values_of(shape: Shape, text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Any value of a shape, all members present or not, no list or map empty."""
    if shape.type_name == "structure":
        members = {name: values_of(member, text) for name, member in shape.members.items()}
        return st.fixed_dictionaries({}, optional=members)
    if shape.type_name == "list":
        # A form has no way to say that there is an entry without anything in it.
        items = values_of(shape.member, text).filter(lambda item: item != {})
        return st.lists(items, min_size=1, max_size=12)
    if shape.type_name == "map":
        return st.dictionaries(text, values_of(shape.value, text), min_size=1, max_size=3)
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "string": text,
        "blob": st.binary(),
        "boolean": st.booleans(),
        "integer": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**53), 2**53),
    }
    return scalars[shape.type_name]
