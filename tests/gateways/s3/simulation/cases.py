"""The kinds of queues that are simulated: each layout, in each order that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import attrs

from gateways.s3.layout import Layout, QueueDescription, S3QueueSettings, StoredQueue, Surroundings
from gateways.s3.leases import discovery
from gateways.s3.leases.queue import LeasedQueue
from gateways.s3.log import commit, committer, state
from gateways.s3.log.queue import LoggedQueue

from .changing import changed
from .reference import ReferenceQueue

SETTINGS = S3QueueSettings()
HURRIED_SETTINGS = attrs.evolve(SETTINGS, linger_s=14.0)
"""A batch stays just longer than a copy of its write can be under way in a hurried run: a send in
doubt (4 s), a pause in its midst (6 s), and the last copy's way (4 s)."""


@contextmanager
def _hurried_leases() -> Iterator[None]:
    """Leases that are cleaned up, and looked at anew, within seconds."""
    with changed(discovery, _RELIST_S=4.0, _SWEEP_S=6.0, _GAP_S=3.0):
        yield


@contextmanager
def _hurried_log() -> Iterator[None]:
    """A log that rolls, makes snapshots and sweeps within seconds."""
    with (
        changed(commit, ROLL_BYTES=200, SNAPSHOT_BYTES=400),
        changed(committer, SWEEP_S=8.0),
        changed(state, MOVE_S=4.0),
    ):
        yield


Build = Callable[[QueueDescription, Surroundings, S3QueueSettings], StoredQueue]


@attrs.frozen(kw_only=True)
class Case:
    """A layout with an order."""

    name: str
    layout: str
    build: Build
    facts: QueueDescription = QueueDescription(name="q")
    has_dead_letters: bool = True
    hurried: Callable[[], AbstractContextManager[None]] = nullcontext
    """What usually takes hours happens all the time; half of the seeds have it so."""

    @property
    def is_strict(self) -> bool:
        return self.facts.is_strict


_BUILDS: dict[str, tuple[Build, Callable[[], AbstractContextManager[None]]]] = {
    "leases": (LeasedQueue, _hurried_leases),
    "log": (LoggedQueue, _hurried_log),
}
_ORDERS = {
    "fifo": QueueDescription(name="q"),
    "lifo": QueueDescription(name="q", is_lifo=True),
    "strict": QueueDescription(name="q", is_strict=True),
}
REFERENCE = Case(name="reference", layout="reference", build=ReferenceQueue, has_dead_letters=False)
CASES = {
    case.name: case
    for case in [
        REFERENCE,
        *(
            Case(
                name=f"{layout}-{order}",
                layout=layout,
                build=build,
                hurried=hurried,
                facts=attrs.evolve(facts, layout=Layout(layout)),
            )
            for layout, (build, hurried) in _BUILDS.items()
            for order, facts in _ORDERS.items()
        ),
    ]
}
