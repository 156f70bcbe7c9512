"""Spark checks: can this machine run `pump spark`, and `pump report` without it?"""

from __future__ import annotations

from ..errors import ConfigurationError
from ..findings import Finding, ok, warning

_TO_USE_IT = "to use it: pip install 'pumphouse[{extra}]'"


def spark_findings() -> list[Finding]:
    """Look at PySpark, its Java and DuckDB; no JVM is started, and PySpark is not loaded."""
    return [_spark(), _duckdb()]


def _spark() -> Finding:
    from ..spark.session import installed, java_here

    pyspark = installed("pyspark")
    if pyspark is None:
        return ok("spark", "PySpark is not installed", _TO_USE_IT.format(extra="spark"))
    try:
        java = java_here()
    except ConfigurationError as fault:
        return warning("spark", f"PySpark {pyspark} has no Java", fault.remedy)
    found = f"PySpark {pyspark} runs on Java {java.version} ({java.source}: {java.executable})"
    pandas = installed("pandas") or ""
    if pandas.partition(".")[0] == "3":
        return warning("spark", f"{found}, but not with pandas {pandas}", "pip install 'pandas<3'")
    if java.passed_over:
        return warning(
            "spark",
            f"{found}, since {' and '.join(java.passed_over)}",
            "point JAVA_HOME at a Java 17 or 21, or unset it",
        )
    return ok("spark", found)


def _duckdb() -> Finding:
    from ..spark.session import installed

    duckdb = installed("duckdb")
    if duckdb is None:
        return ok("duckdb", "DuckDB is not installed", _TO_USE_IT.format(extra="report"))
    try:
        import duckdb as library

        library.connect(":memory:").close()
    except Exception as fault:  # broad: a broken installation fails in its own ways
        return warning(
            "duckdb",
            f"DuckDB {duckdb} does not load ({type(fault).__name__}: {fault})",
            "pip install --force-reinstall 'pumphouse[report]'",
        )
    return ok("duckdb", f"{duckdb}: `pump report` and `pump redrive` need no Spark here")
