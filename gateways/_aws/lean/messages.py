"""What goes out and what comes back, before anything of a service's protocol is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from .signing import Signable, Signer

if TYPE_CHECKING:
    from yarl import URL


@attrs.frozen(kw_only=True)
class Planned:
    """A call that is ready to be signed and sent, as often as it takes."""

    operation: str
    """AWS's own name of it: `ReceiveMessage`."""
    url: URL
    signable: Signable
    signer: Signer
    body: bytes = attrs.field(default=b"", repr=False)
    is_streamed: bool = False
    """Its reply is a body of any size: like an SDK's stream, it is not asked for twice."""


@attrs.frozen
class Elsewhere:
    """A call that was asked for at the wrong place, as it seems, after so many tries."""

    try_count: int
    code: str
    """What the refusal said."""


@attrs.frozen(kw_only=True)
class Answer:
    """A whole reply; botocore's retry policy reads its `status_code`."""

    status_code: int
    headers: dict[str, str] = attrs.field(repr=False)
    """Names in lower case."""
    body: bytes = attrs.field(repr=False)
