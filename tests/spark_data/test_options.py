"""Options of the format, as Spark hands them over (R78)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pump.errors import ConfigurationError
from pump.spark.data.options import sink_options, snapshot_options, stream_options

SQS = {"gateway": "sqs://eu-west-1", "queue": "orders"}


def test_when_options_are_given_then_they_are_read() -> None:
    """R78: every option of a stream has its meaning."""
    options = stream_options(
        {**SQS, "spool": "file:///a%20b/c", "maxPerBatch": "5", "wait": "3s", "retain": "2d"}
    )

    assert options.spool == Path("/a b/c")
    assert (options.max_per_batch, options.wait) == (5, timedelta(seconds=3))
    assert options.retain == timedelta(days=2)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "spool=None: name a folder"),
        ({"spool": "relative"}, "use an absolute path"),
        ({"spool": "s3a://bucket/spool"}, "all executors have mounted"),
        ({"spool": "/s", "maxPerBatch": "0"}, "maxPerBatch='0': use a whole number, 1 or more"),
        ({"spool": "/s", "maxPerBatch": "many"}, "use a whole number"),
        ({"spool": "/s", "wait": "long"}, "is not a duration"),
        ({"spool": "/s", "lease": "0"}, "lease='0': use more than zero"),
        ({"spool": "/s", "spoool": "/t"}, "option='spoool': there is no such option here; use"),
        ({"spool": "/s", "queue": " "}, "queue=' ': name a queue"),
        ({"spool": "/s", "gateway": ""}, "gateway='': name the broker"),
        ({"spool": "/s", "gateway": "memory://"}, "live in one process"),
    ],
)
def test_when_an_option_cannot_work_then_the_error_names_it(
    given: dict[str, str], complaint: str
) -> None:
    """R78: what is wrong, and what to do."""
    with pytest.raises(ConfigurationError) as raised:
        stream_options({**SQS, **given})

    assert complaint in str(raised.value)


def test_when_queues_live_on_one_machine_then_only_a_spark_on_it_may_use_them(
    tmp_path: Path,
) -> None:
    """R78: an executor elsewhere would find an empty folder, and say that the queue is empty."""
    local = {"gateway": f"local://{tmp_path}", "queue": "orders"}

    assert snapshot_options(local, is_one_machine=True).place.queue == "orders"
    for read in (snapshot_options, sink_options):
        with pytest.raises(ConfigurationError, match="live on one machine"):
            read(local, is_one_machine=False)


def test_when_the_gateway_is_wrong_then_its_secrets_are_not_repeated() -> None:
    """R78: a URL may hold a password."""
    given = {"gateway": "nowhere://user:hunter2@host/?token=hunter2", "queue": "q"}

    with pytest.raises(ConfigurationError) as raised:
        sink_options(given, is_one_machine=True)

    assert "hunter2" not in str(raised.value)
    options = sink_options(
        {**SQS, "gateway": "sqs://eu-west-1?owner=123456789012"}, is_one_machine=True
    )
    assert "123456789012" not in repr(options)
