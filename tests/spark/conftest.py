"""One Spark session for all tests of this folder; it is gone, with its JVM, when they are."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pump.spark.session import SparkOptions, spark_session

from .quick_java import QUICK_JAVA

# `make test` installs no PySpark; `make test-spark` fails when this leaves it nothing to run.
collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two groups for two workers: tests of the one session, and those that start a JVM of their
    own, which wait for most of their time.
    """
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            has_session = "spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("session" if has_session else "own JVM"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Two cores of this machine."""
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
    }
    with spark_session(SparkOptions(master="local[2]", app_name="tests", conf=conf)) as session:
        yield session
