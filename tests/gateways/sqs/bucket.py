"""An S3 in memory, and claims on it."""

from typing import Any

from gateways._aws.errors import ObjectNotFound
from gateways._aws.sdk_transport import Polling
from gateways.sqs.claims import ClaimCheck, Claims
from pump.message import Message

LARGE = b'{"rows": "' + b"x" * 300_000 + b'"}'


class Bucket:
    """An S3 in memory: objects by bucket and key, and every call in order."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.targets: list[str] = []
        self.failure: Exception | None = None

    async def open(self) -> None:
        """Nothing to open."""

    async def aclose(self) -> None:
        """Nothing to close."""

    async def call(
        self,
        service: str,
        operation: str,
        request: Any,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> dict[str, Any]:
        assert (service, polling) == ("s3", None)
        self.calls.append((operation, dict(request)))
        self.targets.append(target)
        if self.failure is not None:
            raise self.failure
        place = (request["Bucket"], request["Key"])
        match operation:
            case "put_object":
                self.objects[place] = request["Body"]
                return {"ETag": '"e"'}
            case "get_object":
                if place not in self.objects:
                    raise ObjectNotFound(target)
                return {"Body": self.objects[place]}
            case "delete_object":
                self.objects.pop(place, None)
                return {}
        raise AssertionError(operation)

    @property
    def operations(self) -> list[str]:
        return [operation for operation, _ in self.calls]


def claims(bucket: Bucket, **settings: Any) -> Claims:
    return Claims(bucket, ClaimCheck(**({"bucket": "bodies", "prefix": "claims/"} | settings)))


def large(**fields: Any) -> Message:
    return Message(**({"body": LARGE, "id": "m-1", "headers": {"a": "b"}} | fields))
