"""What people see of what the JVM says."""

from __future__ import annotations

import os

import pytest

from pump.spark.java import JvmOutput

NOISE = b"WARNING: Using incubator modules: jdk.incubator.vector\n"


def said(output: JvmOutput, text: bytes) -> None:
    """The JVM says this, and ends."""
    os.write(output.fd, text)
    output.launched()
    output.wait(10)


def test_when_spark_starts_then_noise_is_left_out_and_the_rest_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R78: a command's output is its own, and errors are seen."""
    output = JvmOutput()
    os.write(output.fd, NOISE + b"spark: ERROR X: early\n")
    output.pass_on()
    said(output, NOISE + b"spark: ERROR X: late\nno newline \xff")

    assert capsys.readouterr().err == (
        "spark: ERROR X: early\nspark: ERROR X: late\nno newline \N{REPLACEMENT CHARACTER}"
    )


def test_when_spark_does_not_start_then_its_first_words_are_the_complaint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R78: a failure to start is one clear error, and not a page of Java."""
    output = JvmOutput()
    said(output, NOISE + b"Invalid heap size\n\tat java.x\n\nError: could not\nError: a\nb\n")

    assert output.error_output() == "Invalid heap size / Error: could not / Error: a"
    assert capsys.readouterr().err == ""


def test_when_nobody_reads_standard_error_then_the_jvm_is_not_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R78: a terminal that has gone does not stop a job."""
    output = JvmOutput()
    output.pass_on()
    reading, writing = os.pipe()
    os.close(reading)
    closed = open(writing, "w")  # noqa: SIM115
    monkeypatch.setattr("sys.stderr", closed)

    said(output, b"a line\n" * 20_000)

    monkeypatch.undo()
    with pytest.raises(BrokenPipeError):
        closed.close()
