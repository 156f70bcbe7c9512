"""REST, as S3 speaks it: where requests go, what vouches for them, and what the replies say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urlunsplit

from yarl import URL

from ..clients import Client
from ..transport import Reply, Request
from .checksums import CRC32_HEADER, check, crc32
from .messages import Answer, Planned
from .s3_requests import OPERATIONS, body_of, headers_of, is_plain, path_of, query_of
from .s3_xml import read_deletion, read_listing, root_of
from .sdk_facts import Endpoint, endpoint_of
from .signing import EMPTY_HASH, UNSIGNED_PAYLOAD, Signable

_METADATA = "x-amz-meta-"
_READ_DOCUMENT = {"ListObjectsV2": read_listing, "DeleteObjects": read_deletion}
_Reader = tuple[str, Callable[[str], Any]]


class RestS3:
    """Requests to buckets, each at the endpoint that botocore's rules give for it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._endpoints: dict[str, Endpoint | None] = {}
        config = client.meta.config
        self._sums_always = _is_always(config, "request_checksum_calculation")
        self._asks_sums = _is_always(config, "response_checksum_validation")
        self._readers = {
            known.name: _readers_of(client, known.name) for known in OPERATIONS.values()
        }

    def plan(self, operation: str, request: Request) -> Planned | None:
        known = OPERATIONS.get(operation)
        if known is None or not is_plain(known, request):
            return None
        endpoint = self._endpoint_of(request["Bucket"])
        if endpoint is None:
            return None
        base, body = endpoint.base, body_of(known, request)
        path = path_of(known, request, base=base.path)
        query = query_of(known, request)
        headers, payload_hash = self._vouch(known.name, body, endpoint)
        headers |= headers_of(known, request)
        headers |= {"host": base.netloc, "x-amz-content-sha256": payload_hash}
        return Planned(
            operation=known.name,
            url=URL(urlunsplit((base.scheme, base.netloc, path, query, "")), encoded=True),
            signable=Signable(
                method=known.method,
                path=path,
                query=query,
                headers=headers,
                payload_hash=payload_hash,
            ),
            signer=endpoint.signer,
            body=body,
            is_streamed=known.name == "GetObject",
        )

    def read(self, planned: Planned, answer: Answer) -> Reply | None:
        operation, body = planned.operation, answer.body
        if operation == "GetObject":
            if self._asks_sums:
                check(body, answer.headers)
            return {**self._of_headers(operation, answer), "Body": body}
        reply = self._of_headers(operation, answer)
        read = _READ_DOCUMENT.get(operation)
        if read is None and not body:
            return reply
        root = root_of(body)
        if root is None:
            return None
        return reply if read is None else {**reply, **read(root)}

    def is_elsewhere(self, planned: Planned, refusal: Mapping[str, Any]) -> bool:
        """A bucket of another region than the settings': botocore finds and remembers which."""
        error = refusal.get("Error", {})
        code, status = error.get("Code"), refusal["ResponseMetadata"]["HTTPStatusCode"]
        return (
            status in (301, 302, 307)
            or code in ("PermanentRedirect", "IllegalLocationConstraintException")
            or (code == "AuthorizationHeaderMalformed" and "Region" in error)
            # A HEAD has no body to say more.
            or (code == "400" and planned.operation == "HeadObject")
        )

    def leave_to_the_sdk(self, request: Request) -> None:
        self._endpoints[request["Bucket"]] = None

    def _endpoint_of(self, bucket: str) -> Endpoint | None:
        if bucket not in self._endpoints:
            self._endpoints[bucket] = endpoint_of(self._client, "GetObject", {"Bucket": bucket})
        return self._endpoints[bucket]

    def _vouch(self, operation: str, body: bytes, endpoint: Endpoint) -> tuple[dict[str, str], str]:
        """What says that the body arrived whole: a checksum, a signed hash, or both."""
        if operation == "GetObject" and self._asks_sums:
            return {"x-amz-checksum-mode": "ENABLED"}, EMPTY_HASH
        is_put = operation == "PutObject"
        if operation != "DeleteObjects" and not (is_put and self._sums_always):
            return {}, sha256(body).hexdigest() if is_put else EMPTY_HASH
        headers = {CRC32_HEADER: crc32(body), "x-amz-sdk-checksum-algorithm": "CRC32"}
        # As botocore: TLS and a checksum are enough for what may be large.
        is_vouched_for = is_put and endpoint.is_tls
        return headers, UNSIGNED_PAYLOAD if is_vouched_for else sha256(body).hexdigest()

    def _of_headers(self, operation: str, answer: Answer) -> Reply:
        readers = self._readers[operation]
        reply: Reply = {}
        for name, text in answer.headers.items():
            if name in readers:
                field, read = readers[name]
                reply[field] = read(text)
        if operation in ("GetObject", "HeadObject"):
            reply["Metadata"] = {
                name.removeprefix(_METADATA): text
                for name, text in answer.headers.items()
                if name.startswith(_METADATA)
            }
        return reply


def _is_always(config: Any, name: str) -> bool:
    # A botocore that has no such setting knows checksums only where S3 requires them.
    return bool(getattr(config, name, None) == "when_supported")


def _readers_of(client: Client, operation: str) -> dict[str, _Reader]:
    """What a reply has in its headers, by the service's model: the field and how it is read."""
    readers: dict[str, _Reader] = {}
    output = client.meta.service_model.operation_model(operation).output_shape
    for field, shape in (output.members if output is not None else {}).items():
        read = parsedate_to_datetime if field == "LastModified" else _READ.get(shape.type_name)
        if shape.serialization.get("location") == "header" and read is not None:
            readers[shape.serialization["name"].lower()] = (field, read)
    return readers


# Other dates come in other forms, and no gateway asks for them.
_READ: dict[str, Callable[[str], Any]] = {
    "string": str,
    "integer": int,
    "long": int,
    "boolean": lambda text: text == "true",
}
