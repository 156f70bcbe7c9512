"""What a session refuses before anything is started."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from pump import ConfigurationError
from pump.spark import session
from pump.spark.session import PREFIX, SparkOptions, session_folder, spark_session
from pump.stores.file_lock import FileLock


@pytest.fixture
def pyspark_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: find_spec("json"))
    monkeypatch.setattr(session, "installed", lambda package: "2.3.3")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def refusal(**options: object) -> str:
    """What is said when a session is asked for."""
    with (
        pytest.raises(ConfigurationError) as caught,
        spark_session(SparkOptions(**options)),  # type: ignore[arg-type]
    ):
        raise AssertionError("it started")
    return str(caught.value)


def test_when_pyspark_is_missing_then_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R78: every failure to start says what to do."""
    monkeypatch.setattr(session, "find_spec", lambda name: None)

    assert refusal() == "pyspark='not installed': try: pip install 'pumphouse[spark]'"


def test_when_pandas_is_too_new_then_the_error_says_which_to_install(
    monkeypatch: pytest.MonkeyPatch, pyspark_is_there: None
) -> None:
    """R78: PySpark with pandas 3 fails in the middle of a job; here it fails before."""
    monkeypatch.setattr(session, "installed", {"pandas": "3.0.1"}.get)

    assert refusal().endswith("pip install 'pandas<3'")


def test_when_the_master_is_a_spark_connect_server_then_it_is_refused(
    pyspark_is_there: None,
) -> None:
    """R78: a server that runs no Python tasks of ours is no place for a pump."""
    assert "use spark://host:7077" in refusal(master="sc://localhost")


def test_when_a_python_file_is_missing_then_it_is_named(
    pyspark_is_there: None, tmp_path: Path
) -> None:
    """R78: a wrong path is found before a cluster is kept waiting."""
    missing = str(tmp_path / "shop.zip")

    assert missing in refusal(py_files=(missing,))


def test_when_the_temporary_folder_cannot_be_used_then_the_error_names_it(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: Spark needs a folder; who has none is told which variable names one."""
    missing = str(temporary / "missing")
    monkeypatch.setattr(tempfile, "tempdir", missing)

    with pytest.raises(ConfigurationError) as caught, session_folder():
        raise AssertionError("there was one")

    assert str(caught.value).startswith(f"TMPDIR={missing!r}: Spark needs a folder")


def test_when_a_session_ends_then_its_folder_is_gone(temporary: Path) -> None:
    """R78: no folder is left behind."""
    with session_folder() as folder:
        (folder / "local").mkdir()
        (folder / "local" / "block").write_bytes(b"shuffled")

    assert list(temporary.iterdir()) == []


def test_when_a_session_was_killed_then_the_next_one_removes_its_folder(temporary: Path) -> None:
    """R78: a killed driver cannot clean up, so the next one does."""
    dead, alive, foreign = (temporary / f"{PREFIX}{name}" for name in ("dead", "alive", "foreign"))
    for folder in (dead, alive, foreign):
        (folder / "local").mkdir(parents=True)
    (dead / "lock").touch()
    lock = FileLock(alive / "lock")
    assert lock.try_acquire()

    with session_folder() as own:
        assert {*temporary.iterdir()} == {own, alive, foreign}

    assert (alive / "local").is_dir()
    lock.release()


@pytest.mark.parametrize(
    ("master", "started"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,1]", "local[3,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://head:7077", "spark://head:7077"),
    ],
)
def test_when_tasks_are_to_be_tried_again_then_a_master_on_this_machine_is_told_so(
    master: str, started: str
) -> None:
    """R78: Spark's own default there is to give up when the first worker dies."""
    assert SparkOptions(master=master, is_retrying=True).started_master == started
    assert SparkOptions(master=master).started_master == master


def test_when_spark_is_told_how_often_a_task_may_fail_then_so_is_the_master_on_this_machine() -> (
    None
):
    """R78: Spark itself does not heed the setting there."""
    options = SparkOptions(
        master="local[2]", conf={"spark.task.maxFailures": "2"}, is_retrying=True
    )

    assert options.started_master == "local[2,2]"
