"""One service, called without the SDK: sign, send, read, and try again where that may help."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from botocore.awsrequest import HeadersDict
from botocore.exceptions import ClientError, ConnectionError as NotConnected, HTTPClientError
from botocore.parsers import create_parser

from pump.clock import Clock

from ..clients import Client
from ..transport import Reply, Request
from .credentials import CredentialSource
from .http_session import HttpSession
from .messages import Answer, Elsewhere, Planned
from .retrying import RetryPolicy, Tries
from .skew import AwsTime


class WireProtocol(Protocol):
    """How a service is spoken to. No effects."""

    def plan(self, operation: str, request: Request) -> Planned | None:
        """The call, or None when it has to be the SDK's."""

    def read(self, planned: Planned, answer: Answer) -> Reply | None:
        """What a success says; None for one that turns out to be none."""

    def is_elsewhere(self, planned: Planned, refusal: Mapping[str, Any]) -> bool:
        """Whether a refusal says no more than that this is asked for at another place."""

    def leave_to_the_sdk(self, request: Request) -> None:
        """Plan no more calls about what this request is about."""


class LeanService:
    """Performs the calls that its protocol has planned, and raises botocore's errors."""

    def __init__(
        self,
        sdk_client: Client,
        protocol: WireProtocol,
        http: HttpSession,
        *,
        credentials: CredentialSource,
        policy: RetryPolicy,
        clock: Clock,
    ) -> None:
        model = sdk_client.meta.service_model
        # The first releases of botocore 1.35 know one protocol a service.
        self._parser = create_parser(getattr(model, "resolved_protocol", model.protocol))
        # botocore keeps them too, but makes a key of its arguments at every look-up.
        self._operation_model = cache(model.operation_model)
        self.protocol = protocol
        self._http = http
        self._credentials = credentials
        self._policy = policy
        self._clock = clock
        self._time = AwsTime(clock)

    async def perform(self, planned: Planned) -> Reply | Elsewhere:
        """Send it until it is answered for good, or another place is named."""
        tries = self._policy.begin(self._operation_model(planned.operation))
        while True:
            # Before what is tried again: the search for credentials has tries of its own.
            key = await self._credentials.key()
            ahead_s = self._time.ahead_s
            signed = planned.signer.sign(planned.signable, key, at_s=self._time.now_s())
            try:
                answer = await self._http.send(planned, signed)
            except (HTTPClientError, NotConnected) as error:
                delay_s = tries.delay_s(refusal=None, error=error)
                if delay_s is None:
                    raise
            else:
                reply = self._read(planned, answer)
                if reply is not None:
                    return _succeeded(reply, answer, tries)
                refusal = self._refusal(planned, answer)
                if self.protocol.is_elsewhere(planned, refusal):
                    return Elsewhere(tries.count, _code_of(refusal))
                is_early = self._learn(refusal, signed_ahead_s=ahead_s) and tries.again_at_once()
                delay_s = 0.0 if is_early else self._delay_after(planned, refusal, tries)
            await self._clock.sleep(delay_s)

    def _read(self, planned: Planned, answer: Answer) -> Reply | None:
        return self.protocol.read(planned, answer) if answer.status_code < 300 else None

    def _learn(self, refusal: dict[str, Any], *, signed_ahead_s: float) -> bool:
        """Correct our time by a refusal's; whether the time was the reason for it."""
        headers = refusal["ResponseMetadata"]["HTTPHeaders"]
        return self._time.learn(_code_of(refusal), headers, signed_ahead_s=signed_ahead_s)

    def _delay_after(self, planned: Planned, refusal: dict[str, Any], tries: Tries) -> float:
        """How long to wait after a refusal. Raises `ClientError` when it was the last."""
        delay_s = tries.delay_s(refusal=refusal, error=None)
        if delay_s is None:
            refusal["ResponseMetadata"]["RetryAttempts"] = tries.count - 1
            raise ClientError(refusal, planned.operation)
        return delay_s

    def _refusal(self, planned: Planned, answer: Answer) -> dict[str, Any]:
        """An error as botocore itself reads it."""
        response = {
            "headers": HeadersDict(answer.headers),
            # S3 says 200 before it knows, and then means 500.
            "status_code": answer.status_code if answer.status_code >= 300 else 500,
            "body": answer.body,
            "context": {"operation_name": planned.operation},
        }
        shape = self._operation_model(planned.operation).output_shape
        refusal: dict[str, Any] = self._parser.parse(response, shape)
        return refusal


def _code_of(refusal: Mapping[str, Any]) -> str:
    return str(refusal.get("Error", {}).get("Code", ""))


def _succeeded(reply: Reply, answer: Answer, tries: Tries) -> Reply:
    tries.succeeded(answer)
    headers = answer.headers
    metadata: dict[str, Any] = {}
    request_id = headers.get("x-amzn-requestid") or headers.get("x-amz-request-id")
    if request_id is not None:
        metadata["RequestId"] = request_id
    if "x-amz-id-2" in headers:
        metadata["HostId"] = headers["x-amz-id-2"]
    metadata |= {
        "HTTPStatusCode": answer.status_code,
        "HTTPHeaders": headers,
        "RetryAttempts": tries.count - 1,
    }
    return {**reply, "ResponseMetadata": metadata}
