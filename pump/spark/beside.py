"""Beside: a session of our own on somebody's Spark, who notices nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def session_beside(session: Any) -> Iterator[Any]:
    """Another session on the same cluster, with settings and views of its own.

    Whichever session was active, is active again at the end: Spark looks up formats, functions
    and settings in the active one, also for a frame of another.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession() or session
    try:
        yield session.newSession()
    finally:
        SparkSession._activeSession = active
        java_class = SparkSession._get_j_spark_session_class(active._jvm)
        java_class.setActiveSession(active._jsparkSession)
