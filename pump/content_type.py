"""Content types: how a body is written, read from a header that strangers fill in."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import attrs

from .message import JSON

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
