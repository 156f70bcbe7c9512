"""PurgeQueue leaves nothing behind, as on AWS."""

from __future__ import annotations

import pytest

from .bench import Bench, pause

pytestmark = pytest.mark.broker


def test_when_a_queue_is_purged_then_it_is_empty_and_goes_on(bench: Bench) -> None:
    url = bench.make()
    for number in range(3):
        bench.send(url, f"old-{number}")

    bench.sqs.purge_queue(QueueUrl=url)
    bench.send(url, "new")

    assert bench.bodies(url) == ["new"]


def test_when_a_queue_is_purged_then_messages_in_flight_do_not_come_back(
    json_bench: Bench,
) -> None:
    url = json_bench.make()
    for _ in range(4):
        json_bench.send(url)
    [first, _] = json_bench.receive(url, 2, VisibilityTimeout=1)

    json_bench.sqs.purge_queue(QueueUrl=url)
    pause(1.2)

    assert json_bench.receive(url) == []
    assert json_bench.counts(url) == (0, 0, 0)
    # A consumer that finishes late has nothing to fear.
    json_bench.delete(url, first)


def test_when_a_queue_is_purged_then_delayed_messages_do_not_come(json_bench: Bench) -> None:
    url = json_bench.make()
    for _ in range(3):
        json_bench.send(url, DelaySeconds=1)

    json_bench.sqs.purge_queue(QueueUrl=url)
    pause(1.2)

    assert json_bench.receive(url) == []
