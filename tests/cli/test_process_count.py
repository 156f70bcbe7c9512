"""How many processes `--processes` means."""

import os
from pathlib import Path

import click
import pytest

from pump.cli import run as counting
from pump.cli.run import process_count, quota_in, usable_cores


@pytest.mark.parametrize(("text", "count"), [("1", 1), (" 4 ", 4), ("64", 64), (3, 3)])
def test_a_number_is_that_number(text: str, count: int) -> None:
    assert process_count(text) == count


@pytest.mark.parametrize("text", ["auto", "AUTO", "0", "00"])
def test_auto_is_as_many_as_there_are_cores(text: str) -> None:
    assert process_count(text) == usable_cores()


@pytest.mark.parametrize("text", ["-1", "two", "1.5", "", "٣"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a whole number"):
        process_count(text)


@pytest.mark.parametrize(
    ("text", "quota"), [("max 100000\n", None), ("200000 100000\n", 2.0), ("50000 100000\n", 0.5)]
)
def test_a_containers_quota_is_read_as_cores(text: str, quota: float | None) -> None:
    assert quota_in(text) == quota


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity")
def test_the_cores_are_those_that_this_process_may_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5, 7})
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(counting, "_QUOTA", quota)

    assert usable_cores() == 4
    for text, cores in [("max 100000", 4), ("150000 100000", 2), ("5000 100000", 1), ("x", 4)]:
        quota.write_text(text)
        assert usable_cores() == cores
