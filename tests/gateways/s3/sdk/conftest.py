"""Fixtures: a store over both SDKs on a scripted AWS, which waits for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from botocore.retries.standard import ExponentialBackoff

from gateways.s3.store.objects import ServerTime
from gateways.s3.store.s3_store import Bucket, S3Store
from pump.clock import SYSTEM_CLOCK, Clock

# The scripted AWS and its fixtures, of the transports' own tests.
from tests.gateways.aws.conftest import (  # noqa: F401
    Connect,
    _no_other_aws,
    aws,
    connect,
    kind,
    settings_for,
)

BUCKET = "bucket"


@attrs.frozen
class Watched:
    """A store, and the time that it feeds."""

    store: S3Store
    time: ServerTime


MakeStore = Callable[..., Watched]


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK tries again at once."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.0)


@pytest.fixture
def make_store(connect: Connect) -> MakeStore:  # noqa: F811
    """Makes a store on the scripted AWS."""

    def make(clock: Clock = SYSTEM_CLOCK, **changes: Any) -> Watched:
        time = ServerTime(clock.now_s)
        bucket = Bucket(name=BUCKET, patience_s=20.0)
        return Watched(S3Store(connect(**changes), bucket, time=time, clock=clock), time)

    return make


@pytest.fixture
def store(make_store: MakeStore) -> S3Store:
    return make_store().store
