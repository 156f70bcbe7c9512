"""Names for requests."""

from __future__ import annotations

from itertools import count
from uuid import uuid4


class RequestIds:
    """Gives each request an id of a UUID's form that no other request has.

    Asking the machine for randomness costs a system call each time, so a server asks once and
    counts from there. The ids are to be told apart, not to be kept secret.
    """

    def __init__(self) -> None:
        # The first 80 of 128 bits, with the version and the variant.
        self._prefix = str(uuid4())[:24]
        self._numbers = count(1)

    def take(self) -> str:
        """The next one."""
        return f"{self._prefix}{next(self._numbers):012x}"
