"""Catalogue of what runs on Spark, and what it is compared with."""

from __future__ import annotations

import attrs

from ..contender import Contender, Group

_ROUNDS = 3
"""Starting a session takes longer than most of the measuring."""
_NEEDS = "pumphouse[spark,sqs,local]"
_TICKS, _TOILS, _OUTCOMES = 1.6, 0.08, 200.0
_WORKS = {"tick": ("", _TICKS, ""), "toil": (", 5 ms of CPU each", _TOILS, "toil-")}


def _of(work: str, contender: Contender) -> Contender:
    title, share, prefix = _WORKS[work]
    return attrs.evolve(
        contender,
        name=f"spark-{prefix}{contender.name}",
        title=contender.title + title,
        share=share,
        options={**contender.options, "work": work},
    )


def _processes(count: int, title: str) -> Contender:
    return Contender(
        name=f"processes-{count}",
        title=title,
        group=Group.SPARK,
        module="spark_processes",
        needs=_NEEDS,
        max_rounds=_ROUNDS,
        warms_up_itself=True,
        options={"processes": count},
    )


def _spark(cores: int) -> Contender:
    return attrs.evolve(
        _processes(cores, f"the pump on Spark, local[{cores}]"),
        name=f"local-{cores}",
        module="spark_pump",
        options={"cores": cores},
    )


def _report(engine: str, title: str) -> Contender:
    return Contender(
        name=f"report-{engine}",
        title=title,
        group=Group.SPARK,
        module="spark_report",
        share=_OUTCOMES,
        needs="pumphouse[spark,report]",
        max_rounds=1,
        warms_up_itself=True,
        options={"engine": engine},
    )


_ONE, _TWO = _processes(1, "one pump process"), _processes(2, "two pump processes")
PUMPS = (
    *(_of("tick", each) for each in (_ONE, _TWO, _spark(2))),
    *(_of("toil", each) for each in (_ONE, _TWO, _spark(1), _spark(2))),
)
REPORTS = (
    _report("duckdb", "pump report, DuckDB"),
    _report("spark", "pump spark report, local[2]"),
)
SPARK_CONTENDERS = (*PUMPS, *REPORTS)
SPARK_RATIOS = (
    ("The pump on Spark, local[2], to two processes", 0.8, "spark-local-2", "spark-processes-2"),
    ("The same, 5 ms of CPU each", 0.8, "spark-toil-local-2", "spark-toil-processes-2"),
    ("Two cores of Spark to one, the same", 1.6, "spark-toil-local-2", "spark-toil-local-1"),
)
"""Aims. "Scaling with cores" is read as 1.6 times with two: server and driver need some too."""
