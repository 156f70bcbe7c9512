"""The metrics of several processes, added."""

from __future__ import annotations

from pump.observability import vocabulary
from pump.observability.metrics_catalogue import Durations, as_text as written
from pump.processes.merged_reports import (
    added_metrics as added,
    lasting,
    metrics_as_text as as_text,
    parse,
)

COUNTERS = {
    (vocabulary.COMPLETED, (("queue", "a b"),)): 3,
    (vocabulary.ERRORS, (("operation", "receive"), ("queue", 'q"}'))): 1,
}
GAUGES = {(vocabulary.IN_FLIGHT, (("queue", "a b"),)): 2, (vocabulary.SPILL_MESSAGES, ()): 7}
DURATIONS = [
    Durations(
        name=vocabulary.PROCESS_DURATION,
        labels=(("messaging.system", "x"),),
        counts=(1, *([0] * 14)),
        sum_s=0.25,
    )
]
TEXT = written(COUNTERS, GAUGES, DURATIONS)


def lines(text: bytes) -> set[str]:
    return set(text.decode().splitlines())


def test_one_text_is_its_own_sum() -> None:
    assert lines(as_text(parse(TEXT))) == lines(TEXT)


def test_counters_histograms_and_gauges_are_added_and_what_is_shared_counts_once() -> None:
    both = lines(as_text(added([parse(TEXT), parse(TEXT)])))

    assert 'pump_messages_completed{queue="a b"} 6' in both
    assert 'pump_errors{operation="receive",queue="q\\"}"} 2' in both
    assert 'pump_messages_in_flight{queue="a b"} 4' in both
    assert "pump_spill_messages 7" in both
    assert 'messaging_process_duration_seconds_sum{messaging_system="x"} 0.5' in both
    assert 'messaging_process_duration_seconds_count{messaging_system="x"} 2' in both
    assert len([line for line in both if line.startswith("# TYPE")]) == TEXT.count(b"# TYPE")


def test_a_series_that_one_process_alone_has_is_in_the_sum() -> None:
    other = written({(vocabulary.COMPLETED, (("queue", "other"),)): 1}, {}, [])

    both = as_text(added([parse(TEXT), parse(other)])).decode()

    first, second = (both.index(f'completed{{queue="{name}"}}') for name in ("a b", "other"))
    between = both[first:second]
    assert "#" not in between


def test_of_a_process_that_has_ended_all_but_gauges_stays() -> None:
    left = lines(as_text(lasting(parse(TEXT))))

    assert 'pump_messages_completed{queue="a b"} 3' in left
    assert 'messaging_process_duration_seconds_count{messaging_system="x"} 1' in left
    assert not [line for line in left if "in_flight" in line or "spill" in line]


def test_what_is_no_number_is_left_out_and_the_rest_counts() -> None:
    text = b'# a remark\n# TYPE a counter\na 1\nb{x="1"} 2.5\nnonsense\na{} what\n\n'

    assert lines(as_text(parse(text))) == {"# TYPE a counter", "a 1", 'b{x="1"} 2.5'}


def test_only_a_line_feed_ends_a_line() -> None:
    text = '# TYPE a counter\na{queue="x\u2028y"} 1\n'.encode()

    assert as_text(parse(text)) == text


def test_adding_changes_none_of_the_parts() -> None:
    part = parse(TEXT)
    before = as_text(part)

    added([part, part])

    assert as_text(part) == before
