"""Steps without a loop: performed one by one on a model, with a fault where a test wants one."""

from __future__ import annotations

from enum import StrEnum
from itertools import count
from typing import Any, TypeVar

import attrs

from gateways._engine.record import EngineSettings
from gateways.s3.layout import QueueKeys
from gateways.s3.log.commit import Committed, Draft, commit
from gateways.s3.log.entries import Op
from gateways.s3.log.follower import Follower
from gateways.s3.store.objects import (
    ConditionFailed,
    Put,
    Remove,
    Reply,
    Request,
    ServerTime,
    Steps,
    Unknown,
    WriteConflict,
)
from pump.errors import ConnectionFailed

from ..model_store import ModelS3

T = TypeVar("T")
KEYS = QueueKeys("", "q")


class Fault(StrEnum):
    """What can become of one request."""

    LOST = "the request never arrived"
    UNANSWERED = "it was done, and the reply got lost"
    REPEATED = "it was done, the reply got lost, and the SDK asked again"
    BUSY = "409"
    LATE = "it timed out, and is done only at the next request"
    DEATH = "the process died before it"
    LAST_WORD = "the process died after it"


class Died(Exception):
    """The process is no more."""


@attrs.define
class Bench:
    """One bucket and its time."""

    now_s: float = 1000.0
    s3: ModelS3 = attrs.field(init=False)
    fault: Fault | None = None
    at: int = -1
    """Which of the requests has the fault, counted from zero."""
    performed: int = 0
    _late: Request | None = None
    _names: Any = attrs.field(factory=count)

    def __attrs_post_init__(self) -> None:
        self.s3 = ModelS3(lambda: self.now_s)

    def run(self, steps: Steps[T], time: ServerTime) -> T:
        """Perform steps to their end."""
        try:
            request = next(steps)
            while True:
                reply = self._perform(request)
                self.now_s += 0.01
                time.observe(self.s3.date_s, sent_s=self.now_s - 0.01, received_s=self.now_s)
                request = steps.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    def _perform(self, request: Request) -> Reply:
        if self._late is not None:
            late, self._late = self._late, None
            self.s3.apply(late)
        is_hit = self.performed == self.at
        self.performed += 1
        return self._fail(request) if is_hit else self.s3.apply(request)

    def _fail(self, request: Request) -> Reply:
        lost = Unknown(ConnectionFailed("the bucket", "timeout"))
        match self.fault:
            case Fault.DEATH:
                raise Died
            case Fault.LAST_WORD:
                self.s3.apply(request)
                raise Died
            case Fault.UNANSWERED:
                self.s3.apply(request)
            case Fault.LATE:
                self._late = request
            case Fault.BUSY if isinstance(request, Put):
                return WriteConflict()
            case Fault.REPEATED:
                self.s3.apply(request)
                reply = self.s3.apply(request)
                return (
                    ConditionFailed(may_be_ours=True)
                    if isinstance(reply, ConditionFailed)
                    else reply
                )
        return lost


@attrs.define
class Writer:
    """One process, as far as it commits."""

    bench: Bench
    name: str
    settings: EngineSettings = EngineSettings(name="q")
    follower: Follower = attrs.field(init=False)
    time: ServerTime = attrs.field(init=False)
    drafts: int = 0

    def __attrs_post_init__(self) -> None:
        self.follower = Follower(keys=KEYS, settings=self.settings, writer=self.name)
        self.time = ServerTime(lambda: self.bench.now_s)

    def run(self, steps: Steps[T]) -> T:
        """Perform steps of this process."""
        return self.bench.run(steps, self.time)

    def commit(self, *ops: Op) -> Committed:
        """Commit a draft."""
        self.drafts += 1
        steps = commit(
            self.follower,
            Draft(self.drafts, ops),
            time=self.time,
            new_nonce=lambda: f"{self.name}-{next(self.bench._names)}",
        )
        committed = self.run(steps)
        self.follower.take_applied()
        return committed


def is_free(request: Request) -> bool:
    """Whether the provider charges nothing for it."""
    return isinstance(request, Remove)
