"""The context: the second argument of a Lambda function, as Python's runtime has it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

import attrs

from pump.clock import Clock
from pump.ids import new_id

from ..model import QueueAddress, partition_of

MEMORY_MB = 128
"""Lambda's default; nothing here limits a function's memory."""


@attrs.frozen
class Identity:
    """Of a caller that came through Cognito: never here."""

    cognito_identity_id: str | None = None
    cognito_identity_pool_id: str | None = None


@attrs.frozen(kw_only=True)
class LambdaContext:
    """About this invocation. Ids and names have the shape they have on AWS."""

    aws_request_id: str
    function_name: str
    invoked_function_arn: str
    log_group_name: str
    log_stream_name: str
    function_version: str = "$LATEST"
    memory_limit_in_mb: str = str(MEMORY_MB)
    """Text, as in Lambda's Python runtime."""
    client_context: None = None
    identity: Identity = Identity()
    _remaining_s: Callable[[], float] = attrs.field(repr=False, eq=False)

    def get_remaining_time_in_millis(self) -> int:
        """How long until this invocation counts as timed out."""
        return max(0, round(self._remaining_s() * 1_000))

    def log(self, message: object) -> None:
        """Print it; Lambda's runtime has this for functions written long ago."""
        print(message, flush=True)


def make_context(
    function_name: str, address: QueueAddress, clock: Clock, timeout_s: float
) -> LambdaContext:
    """The context of an invocation that begins now."""
    request_id = str(UUID(new_id()))
    ends_at_s = clock.now_s() + timeout_s
    day = datetime.fromtimestamp(clock.time_s(), UTC).strftime("%Y/%m/%d")
    place = f"{partition_of(address.region)}:lambda:{address.region}:{address.account}"
    return LambdaContext(
        aws_request_id=request_id,
        function_name=function_name,
        invoked_function_arn=f"arn:{place}:function:{function_name}",
        log_group_name=f"/aws/lambda/{function_name}",
        log_stream_name=f"{day}/[$LATEST]{request_id.replace('-', '')}",
        remaining_s=lambda: ends_at_s - clock.now_s(),
    )
