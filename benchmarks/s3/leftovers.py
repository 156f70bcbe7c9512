"""Leftovers: what the objects in a bucket say of messages that nobody is done with. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .app import QUEUE

_ROOT = f"queues/{QUEUE}/"
_BATCH = re.compile(r"messages/(\d+)-(\d+)")
_LEASE = re.compile(r"pending/(\d+)\.\d+/lease\.json")


def unfinished(sizes: Mapping[str, int]) -> list[str]:
    """What is still to be done, in words or keys; nothing when every message was acked.

    The layout of leases keeps a batch for a minute after it was written, so that a write which was
    long on its way finds it; that a message of it is done is said by an empty lease.
    """
    own = {key.removeprefix(_ROOT): size for key, size in sizes.items()}
    done: dict[str, int] = {}
    for key, size in own.items():
        if (lease := _LEASE.fullmatch(key)) and size == 0:
            done[lease[1]] = done.get(lease[1], 0) + 1
    left = []
    for key in own:
        if batch := _BATCH.fullmatch(key):
            if (open_count := int(batch[2]) - done.get(batch[1], 0)) > 0:
                left.append(f"{open_count} of {key}")
        elif key.startswith(("messages/", "segments/", "leases/")):
            left.append(key)
    return left
