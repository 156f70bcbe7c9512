"""The transport: one way to call AWS, whichever SDK performs the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

Request = Mapping[str, Any]
Reply = dict[str, Any]


@attrs.define(eq=False)
class Polling:
    """A call that may wait at AWS for something to come.

    It takes only connections that others leave, and waits for its turn as long as that takes.
    From `started_at_s` on, when it has one, it is given up after `patience_s` without an answer.
    """

    patience_s: float
    started_at_s: float
    """On the transport's clock: when it was made, and then when it got its connection. The time
    in line between the two was not spent at AWS."""


class Transport(Protocol):
    """Performs operations of AWS services, many at once, on one event loop.

    A call is tried again by itself while AWS throttles, fails or cannot be reached, with
    jittered backoff and at most `AwsSettings.max_attempts` times. What it raises then is of
    `pump.errors`, names the target, and holds no secret.
    """

    async def open(self) -> None:
        """Check the SDK's version and make the session; idempotent, and without network.

        Raises `ConfigurationError` for a missing or old SDK and for an unknown profile.
        """

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        """Perform one operation, as in `call("sqs", "receive_message", {…}, target="orders")`.

        Operations have boto3's names. `target` is what an error names; without one, the
        service. `polling` is for receives. A streamed body of a reply is read to its end and is
        `bytes`. A cancelled call may still have happened.
        """

    async def aclose(self) -> None:
        """Refuse new calls, fail long polls at once and others soon, and release everything.

        Idempotent, and done even if the caller is cancelled.
        """
