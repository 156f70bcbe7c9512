"""Contenders that need nothing but Pumphouse, Python and the SDKs of SQS.

The others run with `make bench`.
"""

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from benchmarks.catalogue import BY_NAME, CONTENDERS, Contender, Group
from benchmarks.child import measure
from benchmarks.reading import Reading

ROOT = Path(__file__).resolve().parents[2]
OWN = [each for each in CONTENDERS if not each.needs and each.group is not Group.GROWTH]
"""Those of growth are one module, which has tests of its own."""
WATCHED = [BY_NAME[name] for name in ("watched-bare", "watched-all-1k", "seal-1k")]
ON_SQS = [BY_NAME[name] for name in ("sqs-boto3", "pump-sqs", "pump-sqs-boto3-far")]


@pytest.mark.parametrize("contender", OWN, ids=lambda contender: contender.name)
def test_when_a_contender_is_measured_then_it_prints_one_well_formed_line(
    contender: Contender, tmp_path: Path
) -> None:
    reading = measured(contender, tmp_path)

    assert reading.messages == 150
    assert all(span.wall_s > 0 and span.cpu_s > 0 for span in reading.spans.values())


@pytest.mark.parametrize("contender", WATCHED, ids=lambda contender: contender.name)
def test_when_a_watched_pump_is_measured_then_every_message_went_through(
    contender: Contender, tmp_path: Path
) -> None:
    for package in ("cryptography", "opentelemetry.sdk"):
        pytest.importorskip(package)

    assert measured(contender, tmp_path).messages == 150


@pytest.mark.parametrize("contender", ON_SQS, ids=lambda contender: contender.name)
def test_when_a_contender_is_measured_on_sqs_then_its_calls_are_counted(
    contender: Contender, tmp_path: Path
) -> None:
    pytest.importorskip("boto3")
    pytest.importorskip("aioboto3")

    reading = measured(contender, tmp_path)

    # The polls that waited for the messages were made before the counting.
    assert reading.messages == 150
    assert reading.calls["deletemessagebatch"] >= 15
    assert set(reading.calls) == {"receivemessage", "deletemessagebatch"}


def measured(contender: Contender, folder: Path) -> Reading:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", contender.name, "150"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert child.returncode == 0, child.stderr
    [line] = child.stdout.splitlines()
    result = json.loads(line)
    assert result["contender"] == contender.name
    return Reading.from_json(result["reading"])


def test_what_is_measured_here_covers_pumphouse_and_the_bare_ones() -> None:
    assert {contender.name for contender in OWN} == {
        "asyncio",
        "pump",
        "pump-single",
        "port-pump",
        "port",
        "flat",
        "sqlite",
        "pump-local",
    }


def test_every_contender_has_its_module() -> None:
    folder = ROOT / "benchmarks" / "contenders"

    missing = [each.name for each in CONTENDERS if not (folder / f"{each.module}.py").is_file()]

    assert missing == []


def test_when_a_library_is_not_installed_then_the_result_names_it() -> None:
    absent = attrs.evolve(BY_NAME["taskiq"], module="no_such_module", needs="taskiq")

    result = measure(absent, 10)

    assert result["missing"].startswith("taskiq (")


def test_when_pumphouse_itself_cannot_be_imported_then_it_is_no_missing_library() -> None:
    broken = attrs.evolve(BY_NAME["pump"], module="no_such_module")

    with pytest.raises(ModuleNotFoundError):
        measure(broken, 10)
