"""What a gateway may offer beside its ports, for those who measure it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class CountsRequests(Protocol):
    """A gateway may be one too: it counts what it asks of its provider."""

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Requests so far by what they are, in the provider's words; repetitions included."""


@runtime_checkable
class RemovesQueues(Protocol):
    """A gateway may be one too: it can remove a queue, with everything in it, for good."""

    async def remove_queues(self, queues: Sequence[str]) -> None:
        """Remove these queues; one that is not there counts as removed.

        Raises `GatewayError`, after which any of them may be there still.
        """
