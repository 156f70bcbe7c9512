"""Shapes that several operations share, in the API's own words."""

from __future__ import annotations

from typing import Annotated, TypedDict

from .wire import Wire


class AttributeValue(TypedDict, total=False):
    """A message attribute, or a system attribute of a message that is sent."""

    DataType: str
    StringValue: str
    BinaryValue: bytes
    StringListValues: Annotated[list[str], Wire("StringListValue")]
    BinaryListValues: Annotated[list[bytes], Wire("BinaryListValue")]


QueueAttributes = Annotated[dict[str, str], Wire("Attribute")]
Tags = Annotated[dict[str, str], Wire("Tag", key="Key")]
MessageAttributes = Annotated[dict[str, AttributeValue], Wire("MessageAttribute")]
SystemAttributes = Annotated[dict[str, AttributeValue], Wire("MessageSystemAttribute")]
AttributeNames = Annotated[list[str], Wire("AttributeName")]
QueueUrls = Annotated[list[str], Wire("QueueUrl")]
