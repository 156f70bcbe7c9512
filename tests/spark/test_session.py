"""A session: the Java that it runs on, what people see of it, and that nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pump import ConfigurationError
from pump.spark.session import SparkOptions, spark_session

from . import child_session

pytestmark = pytest.mark.spark

# What Spark's scripts call; there is no `java` among them.
_TOOLS = ("bash", "sh", "env", "dirname", "basename", "ps", "uname", "cat", "sed", "readlink")


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without Java, and with a temporary folder of its own."""
    tools, temporary = tmp_path / "tools", tmp_path / "tmp"
    tools.mkdir()
    temporary.mkdir()
    for name in _TOOLS:
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    kept = {name: value for name, value in os.environ.items() if not is_spark_setting(name)}
    return {**kept, "PATH": str(tools), "TMPDIR": str(temporary)}


def is_spark_setting(name: str) -> bool:
    return name.startswith(("JAVA", "SPARK", "PYSPARK"))


def child(environment: dict[str, str], *arguments: str) -> tuple[dict[str, Any], str]:
    """What the child process says, and what people see on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", child_session.__name__, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_when_the_machine_has_no_java_then_spark_runs_on_the_bundled_one(
    no_java: dict[str, str],
) -> None:
    """R78: no JVM on the machine stops nobody; nothing is left, and nothing but ours is said."""
    said, on_stderr = child({**no_java, "JAVA_HOME": "/nowhere", "PYSPARK_PYTHON": "/no/python"})

    seen = said["seen"]
    assert seen["java"].startswith("21.")
    assert (seen["python"], seen["zone"]) == ([sys.executable], "UTC")
    [folder] = seen["folders"]
    assert folder.startswith("pumphouse-spark-")
    assert on_stderr == ""
    assert said["after"] == {**said["before"], "children": []}
    assert said["during"]["ctrl-c"]
    changed = said["during"]["environment"].items() ^ said["before"]["environment"].items()
    assert {name for name, _ in changed} == {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}
    assert os.listdir(no_java["TMPDIR"]) == []


def test_when_the_jvm_is_killed_then_the_session_ends_and_leaves_nothing(
    no_java: dict[str, str],
) -> None:
    """R78: a JVM that the machine has killed leaves no process and no folder either."""
    said, _ = child({**no_java, "PATH": os.environ["PATH"]}, "kill")

    assert said["after"] == {**said["before"], "children": []}
    assert os.listdir(no_java["TMPDIR"]) == []


def test_when_a_session_is_there_then_another_is_made_beside_it_and_neither_is_stopped(
    spark: Any,
) -> None:
    """R78: somebody else's session is used, and never stopped or changed."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    options = SparkOptions(conf={"spark.sql.shuffle.partitions": "7"})

    with spark_session(options) as session:
        assert session.sparkContext is spark.sparkContext
        assert session.conf.get("spark.sql.shuffle.partitions") == "7"
        assert session.conf.get("spark.sql.session.timeZone") == "UTC"

    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.range(3).count() == 3
    assert type(spark).getActiveSession() is spark
    active = spark._jvm.org.apache.spark.sql.SparkSession.active()
    assert active.equals(spark._jsparkSession)


@pytest.mark.parametrize(
    "options",
    [
        SparkOptions(master="spark://elsewhere:7077"),
        SparkOptions(conf={"spark.executor.memory": "3g"}),
    ],
    ids=["another master", "another setting"],
)
def test_when_a_session_is_there_that_is_not_as_asked_for_then_it_is_refused(
    spark: Any, options: SparkOptions
) -> None:
    """R78: what cannot be had is refused, and not left out in silence."""
    with (
        pytest.raises(ConfigurationError, match="runs in this process already"),
        spark_session(options),
    ):
        raise AssertionError("it was given")

    assert spark.range(3).count() == 3


def test_when_nobody_answers_at_the_masters_address_then_it_is_said_at_once(
    no_java: dict[str, str],
) -> None:
    """R78: a master that is not there is one clear error, and no wait without an end."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{nobody.getsockname()[1]},127.0.0.1:1"
        program = (
            "from pump.spark.session import *\n"
            f"with spark_session(SparkOptions(master={master!r})): pass"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**no_java, "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=60,
        )

    last = done.stderr.splitlines()[-1]
    assert f"master={master!r}: nobody answers there (127.0.0.1:" in last
    assert last.endswith("; start the cluster, or check the address")
    assert os.listdir(no_java["TMPDIR"]) == []
