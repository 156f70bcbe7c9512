"""One service, called without the SDK: sign, send, read, and try again where that may help."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Protocol

import attrs
from botocore.awsrequest import HeadersDict
from botocore.exceptions import ClientError, ConnectionError as NotConnected, HTTPClientError
from botocore.parsers import create_parser
from botocore.retries import quota, standard

from pump.clock import Clock
from pump.versions import installed

from ..errors import plain
from ..sdk_transport import Client, Reply, Request
from ..settings import AwsSettings
from .http_session import (
    Elsewhere,
    HttpReply,
    HttpSession,
    Planned,
    ServiceLink,
    credentials_of,
    endpoint_of,
    link_of,
)
from .json_protocol import JsonProtocol
from .s3 import RestS3
from .signing import CredentialSource


class WireProtocol(Protocol):
    """How a service is spoken to. No effects."""

    def plan(self, operation: str, request: Request) -> Planned | None:
        """The call, or None when it has to be the SDK's."""

    def read(self, planned: Planned, answer: HttpReply) -> Reply | None:
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
        # Older releases of botocore know one protocol a service.
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

    def _read(self, planned: Planned, answer: HttpReply) -> Reply | None:
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

    def _refusal(self, planned: Planned, answer: HttpReply) -> dict[str, Any]:
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


def _succeeded(reply: Reply, answer: HttpReply, tries: Tries) -> Reply:
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


# Which calls are tried again, and when: botocore's own standard mode, asked from outside.
#
# It knows AWS's errors, backs off with jitter, and has a budget for retries that a client shares. A
# table of ours beside it would be a second one to keep.


class RetryPolicy:
    """The policy of one client, with the budget its calls share."""

    def __init__(self, max_attempts: int) -> None:
        self._max_attempts = max_attempts
        adapter = standard.RetryEventAdapter()
        told = _what_throttles(adapter)
        self._budget = standard.RetryQuotaChecker(quota.RetryQuota(), **told)
        # Without the service's name: for a long poll the handler would sleep by itself, and so
        # hold up the event loop.
        self._handler = standard.RetryHandler(
            retry_policy=standard.RetryPolicy(
                retry_checker=standard.StandardRetryConditions(max_attempts=max_attempts),
                retry_backoff=standard.ExponentialBackoff(**told),
            ),
            retry_event_adapter=adapter,
            retry_quota=self._budget,
        )

    def begin(self, operation_model: Any) -> Tries:
        """The tries of one call."""
        return Tries(self._handler, self._budget, self._max_attempts, operation_model)


def _what_throttles(adapter: Any) -> dict[str, Any]:
    """For a botocore that waits longer for a service that throttles than for one that fails."""
    detector = standard.ThrottlingErrorDetector(adapter)
    is_asked = hasattr(detector, "is_throttling_error_from_context")
    return {"throttling_detector": detector} if is_asked else {}


@attrs.frozen
class _Head:
    """All that the policy reads of an HTTP response."""

    status_code: int
    headers: Mapping[str, str]
    """Names in lower case. Newer releases of botocore heed `x-amz-retry-after`."""

    @classmethod
    def of(cls, refusal: dict[str, Any]) -> _Head:
        metadata = refusal["ResponseMetadata"]
        return cls(metadata["HTTPStatusCode"], metadata["HTTPHeaders"])


@attrs.define
class Tries:
    """How often one call was tried, and whether it may be again."""

    _handler: Any
    _budget: Any
    _max_attempts: int
    _operation_model: Any
    _context: dict[str, Any] = attrs.field(factory=dict, init=False)
    count: int = attrs.field(default=1, init=False)

    def succeeded(self, answer: HttpReply) -> None:
        """Give back to the budget what this call took from it."""
        self._budget.release_retry_quota(self._context, answer)

    def delay_s(self, *, refusal: dict[str, Any] | None, error: Exception | None) -> float | None:
        """How long to wait before the next try; None when this was the last.

        Leaves in the refusal, as botocore does, that the attempts or the budget were used up.
        """
        delay_s: float | None = self._handler.needs_retry(
            response=None if refusal is None else (_Head.of(refusal), refusal),
            attempts=self.count,
            operation=self._operation_model,
            caught_exception=error,
            request_dict={"context": self._context},
        )
        self.count += delay_s is not None
        return delay_s

    def again_at_once(self) -> bool:
        """Take one more try without waiting, if there is one left."""
        if self.count >= self._max_attempts:
            return False
        self.count += 1
        return True


# This machine's clock and AWS's: a signature counts for minutes, and by AWS's clock.
#
# A refusal that may be for the time, with a date that is far from ours, tells how far: from then on
# requests are signed by AWS's time, and the refused one is worth another try at once.

MIN_SKEW_S = 240.0
"""AWS takes what was signed up to five minutes ago; a lesser difference explains no refusal."""
_ABOUT_TIME = {
    "RequestTimeTooSkewed",
    "RequestExpired",
    "RequestInTheFuture",
    # Of these, time is but one of the possible reasons.
    "InvalidSignature",
    "SignatureDoesNotMatch",
    "AuthFailure",
    # What a HEAD is told, which has no body to say more.
    "403",
}


class AwsTime:
    """AWS's time, as far as its refusals have told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead_s = 0.0
        """How far it is ahead of this machine's."""

    def now_s(self) -> float:
        """Unix time at AWS."""
        return self._clock.time_s() + self.ahead_s

    def learn(self, code: str, headers: Mapping[str, str], *, signed_ahead_s: float) -> bool:
        """Take the date of a refusal over; whether the same request, signed anew, may pass.

        `signed_ahead_s` is what was known when it was signed: of several requests that were on
        their way, the first refusal corrects the time, and the others were for the time as well.
        """
        signed_by_s = self._clock.time_s() + signed_ahead_s
        further_s = skew_s(code, headers.get("date", ""), now_s=signed_by_s)
        if further_s is None:
            return False
        self.ahead_s = signed_ahead_s + further_s
        return True


def skew_s(code: str, date: str, *, now_s: float) -> float | None:
    """How far ahead of `now_s` AWS was when it refused; None when that is not the reason."""
    if plain(code) not in _ABOUT_TIME:
        return None
    try:
        ahead_s = parsedate_to_datetime(date).timestamp() - now_s
    except ValueError:  # no date, or none that can be read
        return None
    return ahead_s if abs(ahead_s) > MIN_SKEW_S else None


# Building a lean service beside an SDK's client: what reads files apart from the rest.


@attrs.frozen(kw_only=True)
class Blueprint:
    """A service that is ready to be built on the event loop."""

    sdk_client: Client
    protocol: WireProtocol
    link: ServiceLink
    max_attempts: int

    def session(self) -> HttpSession:
        """Its connections; the caller closes them."""
        return HttpSession(self.link)

    def service(self, session: HttpSession, clock: Clock) -> LeanService:
        """The service over these connections."""
        return LeanService(
            self.sdk_client,
            self.protocol,
            session,
            credentials=CredentialSource(credentials_of(self.sdk_client)),
            policy=RetryPolicy(self.max_attempts),
            clock=clock,
        )


def blueprint_of(service: str, sdk_client: Client, settings: AwsSettings) -> Blueprint | None:
    """What to build for a service; None for one that is the SDK's alone. Blocks."""
    protocol = _protocol_of(service, sdk_client)
    if protocol is None:
        return None
    return Blueprint(
        sdk_client=sdk_client,
        protocol=protocol,
        link=link_of(sdk_client, settings, _user_agent()),
        max_attempts=settings.max_attempts,
    )


def _protocol_of(service: str, sdk_client: Client) -> WireProtocol | None:
    if service == "s3":
        return RestS3(sdk_client)
    if service != "sqs":
        return None
    endpoint = endpoint_of(sdk_client, "ReceiveMessage", {})
    return None if endpoint is None else JsonProtocol(endpoint, sdk_client.meta.service_model)


def _user_agent() -> str:
    versions = (("lean", installed("pumphouse") or "0"), ("aiohttp", installed("aiohttp")))
    return " ".join([*(f"{name}/{version}" for name, version in versions), "pumphouse"])
