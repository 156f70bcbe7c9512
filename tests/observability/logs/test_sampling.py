from __future__ import annotations

import logging
import logging.config

import pytest

from pump.message import new_id
from pump.observability.sampling import (
    DeliverySampling,
    is_kept,
    sample_deliveries,
    sampling_of,
)


def test_the_same_messages_are_kept_every_time_and_about_one_in_n() -> None:
    ids = [new_id() for _ in range(20_000)]

    kept = {id_ for id_ in ids if is_kept(id_, 100)}

    assert kept == {id_ for id_ in ids if is_kept(id_, 100)}
    # 200 expected; ten standard deviations to either side.
    assert 60 < len(kept) < 340


def test_what_is_kept_at_one_in_n_is_kept_at_every_divisor_of_n() -> None:
    """So that services which sample differently still share messages."""
    ids = [new_id() for _ in range(5_000)]

    assert {id_ for id_ in ids if is_kept(id_, 100)} <= {id_ for id_ in ids if is_kept(id_, 10)}


def test_at_one_in_one_every_message_is_kept() -> None:
    assert all(is_kept(id_, 1) for id_ in ("a", "b", "\ud800", ""))


def test_the_command_line_asks_for_it_on_the_loggers_of_deliveries() -> None:
    logger = logging.getLogger("pump.delivery")

    sample_deliveries(10)
    sample_deliveries(100)
    assert sampling_of(logger) == 100

    sample_deliveries(1)
    assert sampling_of(logger) == 1
    assert logger.filters == []


def test_an_app_can_ask_for_it_in_its_own_logging_configuration() -> None:
    logger = logging.getLogger("pump.delivery")
    logging.config.dictConfig(
        {
            "version": 1,
            "incremental": False,
            "disable_existing_loggers": False,
            "filters": {
                "sampled": {"()": "pump.observability.sampling.DeliverySampling", "one_in": 50}
            },
            "loggers": {"pump.delivery": {"filters": ["sampled"]}},
        }
    )

    assert sampling_of(logger) == 50


@pytest.mark.parametrize("one_in", [0, -1])
def test_when_one_in_n_means_nothing_then_it_is_refused(one_in: int) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        DeliverySampling(one_in)


def test_as_a_filter_it_lets_every_record_pass() -> None:
    """A line that was put together is one that is kept."""
    assert DeliverySampling(100).filter(logging.makeLogRecord({}))
