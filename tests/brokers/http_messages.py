"""As much of HTTP/1.1 as AWS's SDKs and LocalStack speak: whole messages, read from a stream."""

from __future__ import annotations

from asyncio import IncompleteReadError, StreamReader
from collections.abc import Callable
from urllib.parse import parse_qs

import attrs

Headers = tuple[tuple[str, str], ...]


@attrs.frozen(kw_only=True)
class HttpMessage:
    """A request or a response, its body complete."""

    start: str
    headers: Headers
    body: bytes = attrs.field(default=b"", repr=False)
    # A response that ends with its connection.
    is_last: bool = False

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever the case of its name."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def method(self) -> str:
        return self.start.split(" ", 1)[0]

    @property
    def operation(self) -> str:
        """SQS names it in a header, SNS in the form it sends; of S3 we know the method."""
        if target := self.header("x-amz-target"):
            return target.rpartition(".")[2]
        if self.is_form:
            return parse_qs(self.body.decode())["Action"][0]
        return self.method

    @property
    def is_form(self) -> bool:
        return (self.header("content-type") or "").startswith("application/x-www-form-urlencoded")

    @property
    def ends_connection(self) -> bool:
        return self.is_last or (self.header("connection") or "").lower() == "close"

    @property
    def head(self) -> bytes:
        """Everything before the body, as it travels."""
        lines = [self.start, *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")


async def read_request(reader: StreamReader, go_on: Callable[[], None]) -> HttpMessage | None:
    """The next request, or None when the client has closed the connection between two.

    `go_on` is called when the client wants to be asked for the body it has announced.
    """
    head = await _read_head(reader)
    if head is None:
        return None
    if (head.header("expect") or "").lower() == "100-continue":
        go_on()
        head = attrs.evolve(head, headers=_without(head.headers, "expect"))
    return await _with_body(head, reader)


async def read_response(reader: StreamReader, *, method: str) -> HttpMessage:
    """The response to a request of the given method; raises IncompleteReadError if cut short."""
    head = await _read_head(reader)
    if head is None:
        raise IncompleteReadError(b"", None)
    status = int(head.start.split(" ")[1])
    if method == "HEAD" or status in (204, 304):
        return head
    if head.header("content-length") is None and not _is_chunked(head):
        return attrs.evolve(head, body=await reader.read(), is_last=True)
    return await _with_body(head, reader)


async def _read_head(reader: StreamReader) -> HttpMessage | None:
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except IncompleteReadError as error:
        if error.partial:
            raise
        return None
    start, *lines = text.rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return HttpMessage(
        start=start, headers=tuple((name, value.strip()) for name, _, value in pairs)
    )


async def _with_body(head: HttpMessage, reader: StreamReader) -> HttpMessage:
    if not _is_chunked(head):
        size = int(head.header("content-length") or 0)
        return attrs.evolve(head, body=await reader.readexactly(size))
    body = await _read_chunks(reader)
    headers = _without(_without(head.headers, "transfer-encoding"), "content-length")
    return attrs.evolve(head, body=body, headers=(*headers, ("Content-Length", str(len(body)))))


async def _read_chunks(reader: StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return bytes(body)


def _is_chunked(head: HttpMessage) -> bool:
    return (head.header("transfer-encoding") or "").lower() == "chunked"


def _without(headers: Headers, unwanted: str) -> Headers:
    return tuple((name, value) for name, value in headers if name.lower() != unwanted)
