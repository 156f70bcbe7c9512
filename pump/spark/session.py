"""Session: a Spark session with what Pumphouse needs, or a clear reason why there is none.

| in this process                     | `spark_session` gives                                    |
|-------------------------------------|----------------------------------------------------------|
| no session                          | a new one with a JVM of its own, both gone at the end    |
| another owner's session             | a new session on its context; neither is ever stopped    |
| another owner's, other settings     | `ConfigurationError`: what was asked for cannot be had   |
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from ..errors import ConfigurationError
from ..stores.file_lock import FileLock
from .java import Java, find_java

_ANY_MASTER = "local[*]"
_SESSION_SETTINGS = {
    # Every moment is written and read in UTC, whatever the machine's zone.
    "spark.sql.session.timeZone": "UTC",
}
_ALWAYS = {
    **_SESSION_SETTINGS,
    "spark.ui.enabled": "false",
    # The bar is ours.
    "spark.ui.showConsoleProgress": "false",
}
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex{short}
# Says, again and again, that a cluster gives the job no workers: else one waits and wonders.
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.level = warn
# PySpark's shell has a level of its own, and announces it when it is not the root's.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
"""
_MASTER_ANSWERS_WITHIN_S = 5.0
_LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")
_MAX_FAILURES = 4
"""Spark's own default, on a cluster."""


@attrs.frozen(kw_only=True)
class SparkOptions:
    """What a session is made of. `conf` stands above everything that we set."""

    master: str = _ANY_MASTER
    app_name: str = "pumphouse"
    conf: Mapping[str, str] = attrs.field(factory=dict)
    py_files: tuple[str, ...] = ()
    """Python files and archives that the workers import from."""
    is_retrying: bool = False
    """Whether tasks that fail are tried again on this machine too, as on a cluster."""

    @property
    def started_master(self) -> str:
        """The master to start: Spark gives up at the first failure unless `local[N,…]` says more,
        whatever `spark.task.maxFailures` is.
        """
        local = _LOCAL.fullmatch(self.master)
        if not self.is_retrying or local is None:
            return self.master
        return f"local[{local[1] or 1},{self.conf.get('spark.task.maxFailures', _MAX_FAILURES)}]"

    @property
    def is_on_this_machine(self) -> bool:
        """Whether the workers run where we do, and so with the same Python."""
        return self.master.startswith("local")


@contextmanager
def spark_session(options: SparkOptions) -> Iterator[Any]:
    """A session for the time of the block; nothing of it stays behind.

    `ConfigurationError` says what to do when PySpark or a Java is missing, or Spark will not
    start. The environment, the path of imports and the handling of Ctrl-C are as they were, once
    Spark has started. The Python of the workers is this one when they are on this machine;
    elsewhere `spark.pyspark.python`, or else `PYSPARK_PYTHON`, names it.
    """
    _check(options)
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        with _beside(SparkContext._active_spark_context, options) as session:
            yield session
        return
    with session_folder() as folder:
        java = java_here()
        _check_master(options)
        from .jvm import jvm_session

        environment = _environment(options, java, folder)
        settings = _settings(options, folder)
        master, source = options.started_master, _starting_on(java)
        with jvm_session(master, settings, environment, source) as session:
            for path in options.py_files:
                session.sparkContext.addPyFile(path)
            yield session


def java_here() -> Java:
    """The Java that a session of this process runs on; `ConfigurationError` when there is none."""
    return find_java(os.environ)


# -- what can be said before anything is started --------------------------------------------------


def _check(options: SparkOptions) -> None:
    if find_spec("pyspark") is None:
        raise ConfigurationError("pyspark", "not installed", "try: pip install 'pumphouse[spark]'")
    pandas = installed("pandas")
    if pandas is not None and int(pandas.partition(".")[0]) >= 3:
        raise ConfigurationError(
            "pandas", pandas, "PySpark does not work with pandas 3 yet; pip install 'pandas<3'"
        )
    if options.master.startswith("sc://"):
        raise ConfigurationError(
            "master", options.master, "Spark Connect runs no tasks of ours; use spark://host:7077"
        )
    for path in options.py_files:
        if "://" not in path and not Path(path).exists():
            raise ConfigurationError("py_files", path, "there is no such file; check the path")


def _check_master(options: SparkOptions) -> None:
    """Knock first: Spark itself tries for a minute, and then says something else."""
    if not options.master.startswith("spark://"):
        return
    faults = [_unreachable(each) for each in _addresses(options.master)]
    if all(faults):
        raise ConfigurationError(
            "master",
            options.master,
            f"nobody answers there ({'; '.join(filter(None, faults))}); start the cluster, or "
            "check the address",
        )


def _addresses(master: str) -> list[str]:
    return master.removeprefix("spark://").split(",")


def _unreachable(address: str) -> str | None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigurationError("master", f"spark://{address}", "write it as spark://host:port")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _MASTER_ANSWERS_WITHIN_S).close()
    except (OSError, OverflowError) as error:
        return f"{address}: {error}"
    return None


def installed(package: str) -> str | None:
    """The version that is installed, None when none is; nothing is imported for it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


# -- how it is started ----------------------------------------------------------------------------


def _environment(options: SparkOptions, java: Java, folder: Path) -> dict[str, str | None]:
    """What the JVM finds in its environment; None is not set."""
    home = java.home_for_spark(folder / "java")
    python = options.conf.get("spark.pyspark.python")
    if python is None and not options.is_on_this_machine:
        python = os.environ.get("PYSPARK_PYTHON")
    changes: dict[str, str | None] = {
        "JAVA_HOME": None if home is None else str(home),
        "PYSPARK_PYTHON": python or sys.executable,
        # Data sources are planned on this machine; a notebook's setting names no interpreter.
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # These would have us talk to a Spark Connect server instead.
        "SPARK_REMOTE": None,
        "SPARK_API_MODE": None,
        "SPARK_CONNECT_MODE_ENABLED": None,
    }
    if options.is_on_this_machine or _is_loopback(options.master):
        # A laptop's host name may resolve to an address that it no longer has.
        changes["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    if options.master.startswith("local-cluster"):
        changes["SPARK_HOME"] = str(_home_of_a_local_cluster(folder / "home"))
    return changes


def _is_loopback(master: str) -> bool:
    return master.startswith(("spark://127.", "spark://localhost:"))


def _home_of_a_local_cluster(home: Path) -> Path:
    """Spark's home by links: its workers write into their home, which may be a package's."""
    from pyspark.find_spark_home import _find_spark_home

    home.mkdir()
    for each in Path(_find_spark_home()).iterdir():
        if each.name != "work":
            (home / each.name).symlink_to(each)
    return home


def _settings(options: SparkOptions, folder: Path) -> dict[str, str]:
    temporary = folder / "tmp"
    temporary.mkdir()
    log = folder / "log4j2.properties"
    log.write_text(_LOG4J)
    in_our_folder = f'"-Djava.io.tmpdir={temporary}"'
    settings = {
        **_ALWAYS,
        "spark.app.name": options.app_name,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f'{in_our_folder} "-Dlog4j2.configurationFile={log}"',
    }
    if options.master.startswith("local-cluster"):
        settings["spark.executor.extraJavaOptions"] = in_our_folder
    return _merged(settings, options.conf)


def _merged(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    merged = {**ours, **theirs}
    for name in ours.keys() & theirs.keys():
        if name.endswith("extraJavaOptions"):
            # The last of two that contradict each other counts.
            merged[name] = f"{ours[name]} {theirs[name]}"
    return merged


def _starting_on(java: Java) -> str:
    skipped = f"; passed over: {', '.join(java.passed_over)}" if java.passed_over else ""
    return f"{java.source}, Java {java.version}{skipped}"


# -- beside another owner's session ---------------------------------------------------------------


@contextmanager
def _beside(context: Any, options: SparkOptions) -> Iterator[Any]:
    """A session on a context that is there: its own SQL settings and views, and nothing else."""
    from pyspark.sql import SparkSession

    if options.master not in (_ANY_MASTER, context.master):
        raise _already_there("master", options.master)
    with session_beside(SparkSession.builder.getOrCreate()) as session:
        for name, value in {**_SESSION_SETTINGS, **options.conf}.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
            elif session.conf.get(name, None) != value:
                raise _already_there("conf", f"{name}={value}")
        for path in options.py_files:
            context.addPyFile(path)
        yield session


def _already_there(field: str, value: str) -> ConfigurationError:
    return ConfigurationError(
        field,
        value,
        "a Spark session runs in this process already; stop it first, or use it as it is",
    )


# Beside: a session of our own on a Spark that another owner runs and that is left as it is.


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


# Session folder: everything that a Spark session writes here, gone when the session is.
#
# A process that is killed cannot clean up, so each session begins by removing the folders whose
# owner is dead. A folder's lock tells: the operating system frees it however its holder dies.

PREFIX = "pumphouse-spark-"
_LOCK = "lock"


@contextmanager
def session_folder() -> Iterator[Path]:
    """A folder of one's own below the temporary folder; those of the dead are removed first."""
    try:
        folder, lock = _created()
    except OSError as error:
        raise ConfigurationError(
            "TMPDIR",
            tempfile.gettempdir() if tempfile.tempdir else "",
            f"Spark needs a folder for its files, and none could be made there ({error}); point "
            "TMPDIR at one that can be written",
        ) from error
    try:
        _remove_abandoned(folder.parent)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _created() -> tuple[Path, FileLock]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = FileLock(folder / _LOCK)
        # Another session that begins just now may have taken it for abandoned.
        if lock.try_acquire():
            return folder, lock


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        # Without its lock it is not ours, or was made a moment ago.
        if (folder / _LOCK).is_file():
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    lock = FileLock(folder / _LOCK)
    try:
        if lock.try_acquire():
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        # Another user's, or removed meanwhile: not ours to report.
        pass
    finally:
        lock.release()
