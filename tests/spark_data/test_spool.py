"""The files of a spool, and what is wrong with them (R78)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pump.errors import ConfigurationError, StorageFailed
from pump.message import Message
from pump.spark.data.rows import Spotted
from pump.spark.data.spool import Spool, SpoolEntry, read_segment

from .bench import ids_of


def entries(*ids: str, body: bytes = b"x") -> list[SpoolEntry]:
    messages = [Message(id=id_, body=body) for id_ in ids]
    return [
        SpoolEntry(spotted=Spotted(message=each, queue="q", attempt=1), key=f"key {each.id}")
        for each in messages
    ]


def opened(folder: Path) -> Spool:
    spool = Spool(folder, "q")
    assert spool.open()
    return spool


def add(spool: Spool, *ids: str) -> None:
    spool.publish(spool.write(entries(*ids)))


def test_when_it_is_opened_again_then_it_is_the_same_spool(tmp_path: Path) -> None:
    """R78: identity and numbers survive the process."""
    first = opened(tmp_path)
    add(first, "a", "b")
    first.close()

    again = opened(tmp_path)
    add(again, "c")

    assert again.id == first.id
    assert [(each.number, each.row_count) for each in again.segments] == [(1, 2), (2, 1)]
    assert ids_of(tmp_path, 1) == ["a", "b"]
    again.close()


def test_when_a_segment_was_not_published_then_it_is_removed_and_its_number_used(
    tmp_path: Path,
) -> None:
    """R78: what has a temporary name was never acked."""
    spool = opened(tmp_path)
    spool.write(entries("lost"))
    spool.close()

    again = opened(tmp_path)

    assert list((tmp_path / "segments").iterdir()) == []
    assert again.write(entries("a")).number == 1
    again.close()


def test_when_all_but_the_newest_are_removed_then_numbers_go_on(tmp_path: Path) -> None:
    """R78: a number is never used twice."""
    spool = opened(tmp_path)
    add(spool, "a")
    add(spool, "b")
    spool.remove(2, older_than_s=4e9)
    spool.close()

    again = opened(tmp_path)

    assert [each.number for each in again.segments] == [2]
    assert again.write(entries("c")).number == 3
    again.close()


def test_when_acks_were_noted_then_only_later_keys_are_unsettled(tmp_path: Path) -> None:
    """R78: a start reads few segments; a note that is unreadable costs time, not messages."""
    spool = opened(tmp_path)
    add(spool, "a")
    add(spool, "b")
    spool.note_settled(1)
    assert spool.unsettled_keys() == {"key b": 2}

    (tmp_path / "acked").write_text("")
    assert spool.unsettled_keys() == {"key a": 1, "key b": 2}
    spool.close()


def test_when_a_bit_has_turned_then_the_segment_is_not_read(tmp_path: Path) -> None:
    """R78: damage is an error, not other messages."""
    spool = opened(tmp_path)
    spool.publish(spool.write(entries("a", body=os.urandom(5_000))))
    spool.close()
    [path] = (tmp_path / "segments").iterdir()
    content = bytearray(path.read_bytes())
    content[2_000] ^= 1
    path.write_bytes(content)

    with pytest.raises(StorageFailed, match="parquet: "):
        list(read_segment(tmp_path, 1))


def test_when_a_segment_is_missing_then_the_error_says_why_that_may_be(tmp_path: Path) -> None:
    """R78: an executor that sees another folder must not read nothing."""
    opened(tmp_path).close()

    with pytest.raises(StorageFailed, match="segment 3 is not there: the driver and all executors"):
        list(read_segment(tmp_path, 3))


def test_when_the_spool_holds_another_queue_then_it_is_refused(tmp_path: Path) -> None:
    """R78: one spool, one queue."""
    opened(tmp_path).close()

    with pytest.raises(ConfigurationError, match="holds messages of queue 'q'"):
        Spool(tmp_path, "other").open()
    # And the lock is free.
    opened(tmp_path).close()


@pytest.mark.parametrize("content", ["", "[]", '{"id": "x"}', '{"id":"x","queue":"q","format":9}'])
def test_when_its_own_file_is_not_readable_then_it_is_refused(tmp_path: Path, content: str) -> None:
    """R78: a spool that cannot be recognised is not written to."""
    opened(tmp_path).close()
    (tmp_path / "spool.json").write_text(content)

    with pytest.raises(StorageFailed, match=r"spool\.json"):
        Spool(tmp_path, "q").open()


def test_when_its_own_file_is_gone_but_segments_are_there_then_it_is_refused(
    tmp_path: Path,
) -> None:
    """R78: a new identity for old segments would make two spools of one."""
    spool = opened(tmp_path)
    add(spool, "a")
    spool.close()
    (tmp_path / "spool.json").unlink()

    with pytest.raises(StorageFailed, match="is missing beside its segments"):
        Spool(tmp_path, "q").open()


def test_when_the_folder_cannot_be_made_then_the_error_names_it(tmp_path: Path) -> None:
    """R78: a file in the way is said to be one."""
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageFailed, match="file/spool"):
        Spool(tmp_path / "file" / "spool", "q").open()
