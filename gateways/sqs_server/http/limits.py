"""What one client may cost the server before it is turned away."""

from __future__ import annotations

from typing import Final

import attrs

_MIB: Final = 1024 * 1024


@attrs.frozen(kw_only=True)
class HttpLimits:
    """Sizes, times and numbers. Every one of them is there because a client could go without."""

    max_body_bytes: int = 4 * _MIB
    """AWS takes 1 MiB of message; JSON's escapes and form encoding make up to 3 of it. What is
    longer than this is refused by its Content-Length, or while it is read, and never kept."""
    max_buffered_bytes: int = 64 * _MIB
    """Of all bodies together that are still coming in: who comes on top of that waits."""
    max_line_bytes: int = 64 * 1024
    """Of the request line: the query protocol may put a message into it."""
    max_header_bytes: int = 16 * 1024
    """Of one header: session tokens are long."""
    max_connections: int = 1000
    """Long polls hold one each. Below the 1,024 files that a process may commonly open. One more
    takes the place of the oldest that is half-open or idle."""
    header_timeout_s: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_timeout_s: float = 30.0
    """From the end of the headers to the end of the body."""
    idle_timeout_s: float = 75.0
    """Between two requests, and for a client to take its answer."""
    grace_s: float = 5.0
    """For requests under way when the server is closed."""
