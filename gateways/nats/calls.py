"""JetStream's API: one request, one answer in JSON, its errors in our words."""

from __future__ import annotations

from typing import Any

import msgspec

from pump.errors import GatewayError, PumpError

from .connection import NatsConnection
from .errors import api_fault, no_jetstream
from .link import Answer, NoResponders, Request

NANOSECONDS = 1_000_000_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ApiError(Exception):
    """An error in an answer; `fault` is what it means for the queue."""

    def __init__(self, code: int, error_code: int, text: str) -> None:
        super().__init__(code, error_code, text)
        self.code = code
        self.error_code = error_code
        self.text = text


class JetStream:
    """The API of one account, over the gateway's connection."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection

    @property
    def connection(self) -> NatsConnection:
        """What carries the requests."""
        return self._connection

    def subject(self, operation: str) -> str:
        """Where an operation is asked for."""
        return f"{self._connection.settings.api_prefix}.{operation}"

    async def ask(self, operation: str, body: object = None) -> dict[str, Any]:
        """The answer to an operation; raises `ApiError` for an error in it."""
        payload = b"" if body is None else _encode(body)
        connection = self._connection
        answer = await connection.request(Request(subject=self.subject(operation), payload=payload))
        if isinstance(answer, NoResponders):
            raise no_jetstream(connection.settings.target, is_there=connection.has_jetstream)
        return read_answer(answer)

    async def call(self, operation: str, body: object = None, *, queue: str) -> dict[str, Any]:
        """The answer to an operation on a queue, its errors translated."""
        try:
            return await self.ask(operation, body)
        except ApiError as error:
            raise fault_of(error, queue) from error


def read_answer(answer: Answer) -> dict[str, Any]:
    """The JSON of an answer; raises `ApiError`, or what came instead of it."""
    if isinstance(answer, GatewayError | NoResponders):
        raise answer
    try:
        read = _decode(answer.data)
    except msgspec.DecodeError:
        raise ApiError(500, 0, "an answer that is no JSON") from None
    error = read.get("error")
    if isinstance(error, dict):
        raise ApiError(
            int(error.get("code", 0)),
            int(error.get("err_code", 0)),
            str(error.get("description", "")),
        )
    return read


def fault_of(error: ApiError, queue: str) -> PumpError:
    """What an API error means for a queue."""
    return api_fault(error.code, error.error_code, error.text, queue=queue)


def nanoseconds(seconds: float) -> int:
    """A duration as JetStream writes it."""
    return round(seconds * NANOSECONDS)
