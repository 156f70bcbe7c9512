"""Header names: the only place that spells them.

The rejection names are Brighter's: we read its dead letters, and it reads ours, since every
gateway writes them as the provider's own attributes as far as the provider has room.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import attrs

from .message import JSON

ORIGINAL_TOPIC: Final = "originalTopic"
REJECTION_REASON: Final = "rejectionReason"
REJECTION_DETAIL: Final = "rejectionMessage"
REJECTION_TIMESTAMP: Final = "rejectionTimestamp"
ORIGINAL_TYPE: Final = "originalMessageType"
ATTEMPTS: Final = "attempts"

TRACE_PARENT: Final = "traceparent"
TRACE_STATE: Final = "tracestate"

CORRUPTED: Final = "pumpCorrupted"
"""Says what is wrong with a message that is no longer what was sent. Only gateways that keep a
checksum write it; the pump routes such a message, and no handler sees it."""

CLAIM: Final = "claimCheck"
"""Where the body waits that was too large to travel. Only gateways write and read it."""

NATIVE: Final = "pumpNative"
"""On a routed copy: how the provider typed the attributes that another program had sent the
message with (`Delivery.native`). Only gateways read it, to write the attributes as they came."""

REJECTION_ORDER: Final = (
    REJECTION_REASON,
    REJECTION_DETAIL,
    ORIGINAL_TOPIC,
    REJECTION_TIMESTAMP,
    ORIGINAL_TYPE,
    ATTEMPTS,
)
"""What routing adds, the most telling first, for a provider that has no room for all."""

REJECTION_NAMES: Final = frozenset(REJECTION_ORDER)
"""What routing adds. A redrive leaves them on: the timestamp of the rejection before is what
tells a message rejected again from the same rejection done twice (`rejection.copy_id`)."""

_SPELLING: Final = str.maketrans("", "", "-_.")
_BRIGHTER_KIND: Final = "MT_"


def original_type(message_type: str, headers: Mapping[str, str]) -> str:
    """What `originalMessageType` says of a message: its type, and for one of Brighter's that
    names none, Brighter's own word for it (MT_COMMAND, MT_EVENT …).
    """
    if message_type:
        return message_type
    for name, text in headers.items():
        is_kind = name.lower().translate(_SPELLING) == "messagetype"
        if is_kind and text.startswith(_BRIGHTER_KIND):
            return text
    return ""


# Content types: how a body is written, read from a header that untrusted senders fill in.

MSGPACK: Final = "application/msgpack"
TEXT: Final = "text/plain; charset=utf-8"
OCTETS: Final = "application/octet-stream"

_UTF_8_NAMES = frozenset({"", "utf-8", "utf8", "us-ascii", "ascii"})


@attrs.frozen
class ContentType:
    """A media type and its charset, both in lower case; "" where none was given."""

    media: str
    charset: str = ""

    @property
    def is_json(self) -> bool:
        """Whether the body is JSON, under whatever name (`text/json`, `…+json`)."""
        return self.media.endswith(("/json", "+json"))

    @property
    def is_utf_8(self) -> bool:
        """Whether text in the body can be read as UTF-8, of which ASCII is a part."""
        return self.charset in _UTF_8_NAMES


# Bounded, because the header comes from outside.
@lru_cache(maxsize=512)
def parse_content_type(value: str) -> ContentType:
    """Return the parts of a content-type header; a missing one means JSON."""
    media, *parameters = value.split(";")
    charset = ""
    for parameter in parameters:
        name, _, given = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = given.strip().strip("\"'").lower()
    return ContentType(media.strip().lower() or JSON, charset)
