"""No package imports itself by a detour, no small module stands apart, no name means two things."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .graph import (
    cycles,
    edges,
    imported_by,
    only_for_a_sibling,
    shared_class_names,
    shared_within_a_package,
)
from .path import trace
from .source import PACKAGES, Source, sources

MAX_MODULES_ON_THE_PATH = 26
MAX_SHARED_CLASS_NAMES = 10


@pytest.fixture(scope="module")
def product() -> list[Source]:
    return list(sources(*PACKAGES))


def test_packages_do_not_import_each_other_in_circles(product: list[Source]) -> None:
    assert cycles(product) == []


def test_the_pump_does_not_import_its_command_line(product: list[Source]) -> None:
    wrong = [
        f"{edge.importer} imports {edge.imported}"
        for edge in edges(product)
        if edge.imported.startswith("pump.cli")
        and edge.importer.startswith("pump.")
        and not edge.importer.startswith(("pump.cli", "pump.__main__"))
    ]

    assert wrong == []


def test_what_one_sibling_alone_imports_stands_in_that_sibling(product: list[Source]) -> None:
    apart = [each.split(" ")[0].rpartition(".")[2] for each in only_for_a_sibling(product)]

    # To parse all tests takes most of the time that a test may take.
    about = [test for test in sources("tests") if any(name in test.text for name in apart)]

    assert only_for_a_sibling(product, imported_by(about)) == []


def test_a_class_name_is_taken_once_in_a_package(product: list[Source]) -> None:
    assert shared_within_a_package(product) == []


def test_a_class_name_is_seldom_taken_twice_at_all(product: list[Source]) -> None:
    shared = shared_class_names(product)

    assert len(shared) <= MAX_SHARED_CLASS_NAMES, shared


def test_the_path_of_an_acked_message_stays_short(tmp_path: Path) -> None:
    followed = asyncio.run(trace(f"local://{tmp_path}"))

    assert followed.modules
    assert len(followed.modules) <= MAX_MODULES_ON_THE_PATH, "\n".join(sorted(followed.modules))


def a_source(path: str, text: str = "", *, line_count: int = 1) -> Source:
    return Source(path, text + "\n" * line_count)


def test_when_two_packages_import_each_other_then_it_is_found() -> None:
    there = a_source("pump/loop/a.py", "from ..spark import b")
    back = a_source("pump/spark/b.py", "def f():\n    from ..loop import a")

    assert cycles([there, back]) == [["pump.loop", "pump.spark"]]


def test_when_the_way_back_is_for_types_only_then_it_is_no_circle() -> None:
    there = a_source("pump/loop/a.py", "from ..spark import b")
    back = a_source("pump/spark/b.py", "if TYPE_CHECKING:\n    from ..loop import a")

    assert cycles([there, back]) == []


def test_when_a_small_module_serves_one_sibling_then_it_is_found() -> None:
    small = a_source("pump/loop/small.py")
    sibling = a_source("pump/loop/pump.py", "from .small import thing")

    assert len(only_for_a_sibling([small, sibling])) == 1
    assert only_for_a_sibling([small, sibling], tested=["pump.loop.small"]) == []


@pytest.mark.parametrize(
    ("small", "importer"),
    [
        (a_source("pump/loop/small.py", line_count=200), "from .small import thing"),
        (a_source("pump/loop/small.py"), "def f():\n    from .small import thing"),
    ],
    ids=["large", "loaded late"],
)
def test_when_a_module_has_a_reason_to_stand_apart_then_it_may(
    small: Source, importer: str
) -> None:
    assert only_for_a_sibling([small, a_source("pump/loop/pump.py", importer)]) == []


def test_when_what_awaits_is_tested_by_itself_then_its_place_is_still_with_its_sibling() -> None:
    small = a_source("pump/loop/small.py", "async def f(): ...")
    sibling = a_source("pump/loop/pump.py", "from .small import f")

    assert len(only_for_a_sibling([small, sibling], tested=["pump.loop.small"])) == 1


def test_when_its_sibling_needs_a_vendors_package_and_it_does_not_then_it_may_stand_apart() -> None:
    small = a_source("pump/spark/small.py", "async def f(): ...")
    sibling = a_source("pump/spark/sink.py", "import pyspark\nfrom .small import f")

    assert only_for_a_sibling([small, sibling], tested=["pump.spark.small"]) == []
    assert len(only_for_a_sibling([small, sibling])) == 1


def test_when_a_class_name_is_taken_twice_in_a_package_then_it_is_found() -> None:
    one = a_source("gateways/s3/log/a.py", "class Desk: ...")
    other = a_source("gateways/s3/leases/b.py", "class Desk: ...")
    elsewhere = a_source("gateways/sqs/c.py", "class Desk: ...")

    assert shared_within_a_package([one, elsewhere]) == []
    assert len(shared_within_a_package([one, other, elsewhere])) == 1
