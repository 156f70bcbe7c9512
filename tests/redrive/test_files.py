"""What is kept on the disk: records, the folder of a queue, snapshots and selections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from pump.errors import ConfigurationError, StorageFailed
from pump.queue_browser import Seen
from pump.redrive.folder import (
    QueueFolder,
    RecordedProgress,
    RedriveFolder,
    RedriveRecord,
    default_folder,
    opened,
)
from pump.redrive.rows import SnapshotWriter, columns_in, row_of
from pump.redrive.selection import DuckdbSelector, Picture, entries_in, picture_of

from .rig import a_dead_letter, a_plan

# -- records -------------------------------------------------------------------------------------


def known_in(folder: Path) -> RecordedProgress:
    known = RecordedProgress()
    known.read(folder)
    return known


def test_when_a_record_is_read_then_it_tells_sent_begun_and_removed(tmp_path: Path) -> None:
    """R78."""
    record = RedriveRecord(tmp_path)
    batch = record.sending(["a", "b", "c"])
    record.sent(batch, {"b"}, 7.5)
    record.removed(["a"])
    record.refused(["b"])
    record.sending(["d"])
    record.close()

    known = known_in(tmp_path)

    assert (known.sent, known.removed, known.refused) == ({"a", "c"}, {"a"}, {"b"})
    assert (known.unremoved, known.in_doubt) == ({"c"}, {"d"})
    assert [known.sent_at_s(each) for each in "abcd"] == [None, None, 7.5, None]


def test_when_two_processes_record_then_each_has_its_file_and_batches_are_not_mixed_up(
    tmp_path: Path,
) -> None:
    """R78: both count their batches from one."""
    one, two = RedriveRecord(tmp_path), RedriveRecord(tmp_path)
    first, second = one.sending(["a"]), two.sending(["b"])
    one.sent(first, (), 7.5)

    assert first == second
    assert one.path != two.path
    assert known_in(tmp_path).sent == {"a"}
    assert known_in(tmp_path).in_doubt == {"b"}


def test_when_the_process_died_in_a_line_then_the_lines_before_count(tmp_path: Path) -> None:
    """R78: half a line is what was never done."""
    record = RedriveRecord(tmp_path)
    record.sent(record.sending(["a"]), (), 7.5)
    record.sending(["b"])
    whole = record.path.read_bytes()
    for length in range(len(whole)):
        record.path.write_bytes(whole[:length])
        known = known_in(tmp_path)
        assert known.sent <= {"a"}
        assert known.in_doubt <= {"a", "b"}


def test_when_it_is_read_while_it_is_written_then_nothing_is_missed(tmp_path: Path) -> None:
    """R78: another task looks at it before each batch."""
    record, known = RedriveRecord(tmp_path), RecordedProgress()
    batch = record.sending(["a"])
    known.read(tmp_path)
    record.sent(batch, (), 7.5)

    known.read(tmp_path)

    assert known.sent == {"a"}
    known.read(tmp_path, but=record.path)
    record.removed(["a"])
    known.read(tmp_path, but=record.path)
    assert not known.removed


def test_when_a_record_is_damaged_then_it_is_refused(tmp_path: Path) -> None:
    """R78: guessing would send messages twice."""
    record = RedriveRecord(tmp_path)
    record.sent(record.sending(["a"]), (), 7.5)
    record.path.write_bytes(b"\x00" + record.path.read_bytes())

    with pytest.raises(StorageFailed, match="is damaged"):
        known_in(tmp_path)


# -- the folder ----------------------------------------------------------------------------------


def begun(folder: QueueFolder, **changes: Any) -> RedriveFolder:
    run = folder.new_run(attrs.evolve(a_plan(), **changes), 0.0)
    run.begin({"seen": 1})
    RedriveRecord(run.path).close()
    return run


def test_when_the_same_plan_comes_again_then_its_unfinished_run_is_found(tmp_path: Path) -> None:
    """R78."""
    with opened(tmp_path / "a", a_plan()) as folder:
        run = begun(folder)
    with opened(tmp_path / "a", a_plan()) as folder:
        assert folder.unfinished(a_plan()) == run
        assert folder.unfinished(a_plan("true")) is None
        assert folder.unfinished(a_plan(target="elsewhere")) is None
        assert folder.unfinished(a_plan(limit=5)) is None

        run.end({})
        assert folder.unfinished(a_plan()) is None


@pytest.mark.parametrize("is_selected", [False, True])
def test_when_a_run_was_cut_short_before_it_sent_then_the_next_one_removes_it(
    tmp_path: Path, is_selected: bool
) -> None:
    """R78: nothing of it was sent."""
    with opened(tmp_path / "a", a_plan()) as folder:
        cut_short = folder.new_run(a_plan(), 0.0)
        if is_selected:
            cut_short.begin({"seen": 1})
        assert folder.unfinished(a_plan()) is None

        run = begun(folder)

        assert folder.runs() == [run]
        assert not cut_short.path.exists()


def test_when_another_redrive_of_the_queue_runs_then_the_second_is_refused(tmp_path: Path) -> None:
    """R78: two at once would send the same messages."""
    with (
        opened(tmp_path, a_plan()),
        pytest.raises(ConfigurationError, match="another redrive of 'orders-dead' is running"),
        opened(tmp_path, a_plan("true")),
    ):
        pass
    with opened(tmp_path, a_plan()):
        pass


@pytest.mark.parametrize("change", [{"queue": "other-dead"}, {"gateway": "sqs://"}])
def test_when_the_folder_is_another_queues_then_it_is_refused(
    tmp_path: Path, change: dict[str, str]
) -> None:
    """R78: and it says whose it is."""
    with opened(tmp_path, a_plan()):
        pass

    with (
        pytest.raises(ConfigurationError, match="belongs to 'orders-dead' on memory://"),
        opened(tmp_path, a_plan(**change)),
    ):
        pass


def test_when_the_folder_holds_something_else_then_it_is_refused(tmp_path: Path) -> None:
    """R78: --run ~ must not fill somebody's home."""
    (tmp_path / "thesis.txt").touch()

    with (
        pytest.raises(ConfigurationError, match=r"holds 'thesis\.txt'"),
        opened(tmp_path, a_plan()),
    ):
        pass


def test_when_other_runs_have_sent_and_not_removed_then_this_one_knows(tmp_path: Path) -> None:
    """R78: also when they came to their end."""
    with opened(tmp_path, a_plan()) as folder:
        first, second = begun(folder), begun(folder, where="true")
        record = RedriveRecord(first.path)
        record.sent(record.sending(["a", "b"]), (), 7.5)
        record.removed(["a"])
        first.end({})

        assert folder.sent_before(second) == {"b": 7.5}
        assert folder.sent_before(first) == {}


@pytest.mark.parametrize(
    "queue", ["../../etc", "https://sqs.eu-west-1.amazonaws.com/1/orders-dead", "a b"]
)
def test_when_a_queue_has_an_odd_name_then_its_folder_has_a_plain_one(queue: str) -> None:
    """R78."""
    path = default_folder(a_plan(queue=queue))

    assert path.parent == Path(".pumphouse/redrive")
    assert path.name.replace("-", "").replace("_", "").isalnum()


# -- selection -----------------------------------------------------------------------------------


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    writer = SnapshotWriter(tmp_path / "snapshot.parquet")
    letters = [a_dead_letter(n, type="Order" if n % 2 else "Payment") for n in range(10)]
    writer.write([row_of(Seen(message=letter)) for letter in letters])
    writer.finish()
    return tmp_path / "snapshot.parquet"


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("type = 'Order'", 5),
        ("TRUE", 10),
        ("false", 0),
        ("headers['attempts'] = '3' AND attempts = 3", 10),
        ("headers['nothing'] = '3'", 0),
        ("body LIKE '%7%' OR id = 'm-1'", 2),
        ("rejected_at >= TIMESTAMPTZ '2026-11-01 00:00:05+00'", 5),
        ("reason IN ('DeliveryError', 'Timeout') -- a comment", 10),
        ("json_extract(body, '$.n')::int > 6", 3),
        ("original_queue = 'orders' AND created_at < now() - INTERVAL 1 DAY", 10),
        ("id = (SELECT max(id) FROM dead_letters)", 1),
    ],
)
def test_when_a_condition_is_one_then_it_selects(snapshot: Path, where: str, count: int) -> None:
    """R78."""
    DuckdbSelector().check(where)
    DuckdbSelector().select(snapshot, where, None, snapshot.with_name("selection.parquet"))

    entries, found = entries_in(snapshot.with_name("selection.parquet"))
    assert (len(entries), found) == (count, count)


@pytest.mark.parametrize(
    "where",
    [
        "1=1; DROP TABLE x",
        "TRUE) ; DROP TABLE x; SELECT (TRUE",
        "TRUE) LIMIT (5",
        "TRUE)) LIMIT ((5",
        "type = 'Order' LIMIT 5",
        "type = 'Order' ORDER BY id",
        "nothing = 1",
        "type = 'Order",
        "type = ('Order'",
        "SELECT 1",
        "attempts",
        "'yes'",
        "NULL",
        "count(*) > 1",
        ")",
        "/*",
        "\x00",
        "TRUE) FROM dead_letters; SELECT (TRUE",
        "(SELECT content FROM read_text('/etc/hostname')) <> ''",
        "EXISTS (SELECT 1 FROM glob('/etc/*'))",
        "EXISTS (SELECT 1 FROM read_csv('http://127.0.0.1:1/x'))",
        "EXISTS (SELECT 1 FROM where)",
    ],
)
def test_when_it_is_no_condition_then_the_engine_says_why_and_the_columns_are_named(
    where: str,
) -> None:
    """R78: before anything is touched."""
    with pytest.raises(ConfigurationError, match="columns: id, type, reason") as error:
        DuckdbSelector().check(where)

    assert error.value.field == "--where"


@pytest.mark.parametrize("end", ["TRUE) FROM dead_letters; {}; SELECT (TRUE", "TRUE)); {}; --"])
def test_when_a_condition_would_write_a_file_then_it_is_refused_and_there_is_none(
    snapshot: Path, tmp_path: Path, end: str
) -> None:
    """R78: a condition from somebody else's ticket does nothing but select."""
    made = tmp_path / "made.csv"
    where = end.format(f"COPY (SELECT 1) TO '{made}'")

    with pytest.raises(ConfigurationError):
        DuckdbSelector().check(where)
    with pytest.raises(ConfigurationError):
        DuckdbSelector().select(snapshot, where, None, tmp_path / "selection.parquet")

    assert not made.exists()


def test_when_a_condition_fails_on_a_row_then_nothing_is_selected(snapshot: Path) -> None:
    """R78."""
    into = snapshot.with_name("selection.parquet")

    with pytest.raises(ConfigurationError, match="Could not convert"):
        DuckdbSelector().select(snapshot, "CAST(type AS INTEGER) = 1", None, into)

    assert not into.exists()


def test_when_there_is_a_limit_then_the_longest_rejected_are_selected(snapshot: Path) -> None:
    """R78: the same ones, whoever asks again."""
    into = snapshot.with_name("selection.parquet")

    DuckdbSelector().select(snapshot, "TRUE", 3, into)

    [rows] = columns_in(into, ["id"])
    assert [row["id"] for row in rows] == ["m-0", "m-1", "m-2"]


def test_when_a_selection_is_looked_at_then_there_are_groups_times_and_examples(
    snapshot: Path,
) -> None:
    """R78."""
    into = snapshot.with_name("selection.parquet")
    DuckdbSelector().select(snapshot, "id <> 'm-0'", None, into)

    picture = picture_of(into)

    assert picture.count == 9
    assert picture.groups == (("Order", "DeliveryError", 5), ("Payment", "DeliveryError", 4))
    assert picture.oldest is not None
    assert picture.newest is not None
    assert (picture.oldest.second, picture.newest.second) == (1, 9)
    assert [each["id"] for each in picture.examples] == ["m-1", "m-2", "m-3", "m-4", "m-5"]
    assert picture_of(into, but=entries_in(into)[0]) == Picture()


def test_when_a_snapshot_is_not_finished_then_nothing_of_its_name_is_there(tmp_path: Path) -> None:
    """R78."""
    writer = SnapshotWriter(tmp_path / "snapshot.parquet")
    writer.write([row_of(Seen(message=a_dead_letter(1)))])

    writer.discard()

    assert list(tmp_path.iterdir()) == []
