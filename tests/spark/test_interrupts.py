"""Signals while Spark's JVM starts: it has ended when the interrupt is heard."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from pump.cli.root import cli
from pump.spark import jvm
from pump.spark.java import JvmOutput

pytestmark = pytest.mark.spark


@attrs.frozen
class Started:
    """A gateway whose process is, as Spark's, one that ends with its standard input."""

    proc: subprocess.Popen[bytes]

    def shutdown(self) -> None:
        pass


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_when_it_is_interrupted_while_the_jvm_starts_then_the_jvm_has_ended(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: no leftover processes; PySpark forgets the JVM when it is interrupted here."""

    def launched(_master: str, _settings: object, output: JvmOutput) -> Started:
        signal.raise_signal(signal.SIGINT)
        output.launched()
        return Started(process)

    monkeypatch.setattr(jvm, "_launched", launched)

    with pytest.raises(KeyboardInterrupt), jvm.jvm_session("local", {}, {}, "here"):
        pytest.fail("it was interrupted")

    assert process.poll() == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_when_it_is_interrupted_twice_then_it_does_not_wait_for_the_jvm() -> None:
    """R78: a JVM that does not come to its start keeps nobody."""
    reached = []

    def interrupted() -> None:
        with jvm._signals_held():
            for name in ("the first", "the second"):
                signal.raise_signal(signal.SIGINT)
                reached.append(name)

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert reached == ["the first"]


def test_when_a_command_on_spark_is_told_to_end_then_it_is_as_by_ctrl_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R78: also while Spark starts, where nothing drains; the JVM and its folder go too."""
    before = signal.getsignal(signal.SIGTERM)

    def terminated(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("pump.cli.spark.run_app_on_spark", terminated)

    with pytest.raises(SystemExit) as ended:
        cli.main(["spark", "run", "orders:app"])

    assert ended.value.code == 130
    assert signal.getsignal(signal.SIGTERM) is before
