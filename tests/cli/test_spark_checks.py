"""`pump doctor` on Spark, its Java and DuckDB; no JVM is started for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pump.spark import java as java_module, session

from ..spark_java.javas import a_java, a_program
from .conftest import Pump

Versions = Callable[..., None]


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> Versions:
    """`versions(pyspark="4.3.0")`: this is installed, and nothing else that Spark needs."""

    def set_to(**packages: str) -> None:
        monkeypatch.setattr(session, "installed", packages.get)
        # Nothing that Spark brings: neither is its Java.
        monkeypatch.setattr(java_module, "find_spec", lambda name: None)

    return set_to


def finding(pump: Pump, subject: str) -> dict[str, Any]:
    found = json.loads(pump("doctor", "--json").stdout)["findings"]
    [one] = [each for each in found if each["subject"] == subject]
    assert isinstance(one, dict)
    return one


def test_when_pyspark_is_not_installed_then_the_doctor_says_how_to_have_it(
    pump: Pump, versions: Versions
) -> None:
    """R78: nobody needs Spark, and who wants it is told how."""
    versions()

    assert finding(pump, "spark") == {
        "level": "ok",
        "subject": "spark",
        "detail": "PySpark is not installed",
        "remedy": "to use it: pip install 'pumphouse[spark]'",
    }


def test_when_there_is_a_java_then_the_doctor_names_it(
    pump: Pump, versions: Versions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: which Java is used, and where it is, can be seen before anything is started."""
    versions(pyspark="4.3.0", pandas="2.3.3")
    home = a_java(tmp_path / "java", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(home))

    found = finding(pump, "spark")

    said = f"PySpark 4.3.0 runs on Java 21 (JAVA_HOME: {home}/bin/java)"
    assert (found["level"], found["detail"], found["remedy"]) == ("ok", said, "")


def test_when_a_java_had_to_be_passed_over_then_the_doctor_warns(
    pump: Pump, versions: Versions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: a JAVA_HOME that is not used is a surprise that one should know of."""
    versions(pyspark="4.3.0")
    home, on_path = a_java(tmp_path / "old", "11.0.2"), a_java(tmp_path / "new")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(on_path / "bin"))

    found = finding(pump, "spark")

    assert found["level"] == "warning"
    assert found["detail"].endswith(f"since JAVA_HOME ({home}/bin/java) is 11")
    assert found["remedy"] == "point JAVA_HOME at a Java 17 or 21, or unset it"


def test_when_there_is_no_java_then_the_doctor_says_what_to_install(
    pump: Pump, versions: Versions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: PySpark without a Java is found before the first run."""
    versions(pyspark="4.3.0")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(a_program(tmp_path / "java", "#!/bin/sh\nexit 1\n") / "bin"))

    found = finding(pump, "spark")

    assert (found["level"], found["detail"]) == ("warning", "PySpark 4.3.0 has no Java")
    assert "pip install 'pumphouse[spark]'" in found["remedy"]


def test_when_pandas_is_too_new_then_the_doctor_warns(
    pump: Pump, versions: Versions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: what would fail in a session is found before one is started."""
    versions(pyspark="4.3.0", pandas="3.0.1")
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "java")))

    found = finding(pump, "spark")

    assert found["level"] == "warning"
    assert found["detail"].endswith(", but not with pandas 3.0.1")
    assert found["remedy"] == "pip install 'pandas<3'"


def test_when_duckdb_is_not_installed_then_the_doctor_says_how_to_have_it(
    pump: Pump, versions: Versions
) -> None:
    """R78: the report of one machine needs DuckDB, and no Spark."""
    versions()

    assert finding(pump, "duckdb")["remedy"] == "to use it: pip install 'pumphouse[report]'"


def test_when_duckdb_does_not_load_then_the_doctor_warns(
    pump: Pump, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: a broken DuckDB is found before a report is asked for."""
    versions(duckdb="2.0.0")
    monkeypatch.setitem(sys.modules, "duckdb", ModuleType("duckdb"))

    found = finding(pump, "duckdb")

    assert found["level"] == "warning"
    assert found["detail"].startswith("DuckDB 2.0.0 does not load (AttributeError: ")


def test_when_duckdb_is_installed_then_it_is_tried(pump: Pump) -> None:
    """R78: what the doctor calls ok was tried."""
    pytest.importorskip("duckdb")

    found = finding(pump, "duckdb")

    assert found["level"] == "ok"
    assert found["detail"].endswith("`pump report` and `pump redrive` need no Spark here")


def test_when_the_doctor_looks_at_spark_then_pyspark_is_not_loaded(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: a check-up takes no JVM, and not even PySpark's half second."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)

    finding(pump, "spark")

    assert "pyspark" not in sys.modules
