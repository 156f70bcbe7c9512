"""JVM: one that runs a Spark session, started and ended by us; needs PySpark."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ..errors import ConfigurationError
from .java import JvmOutput

_ENDS_WITHIN_S = 30.0
# PySpark puts these there when a context begins.
_PYSPARKS_OWN = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")


@contextmanager
def jvm_session(
    master: str, settings: Mapping[str, str], environment: Mapping[str, str | None], source: str
) -> Iterator[Any]:
    """A session in a JVM of its own, which has ended, with all that it started, at the end."""
    _silence_py4j()
    output = JvmOutput()
    with _put_back_afterwards():
        gateway = None
        try:
            with _environment(environment), _ctrl_c_kept():
                with _signals_held():
                    gateway = _launched(master, settings, output)
                session = _session(master, settings, gateway)
        except Exception as error:  # broad: Py4J, the JVM and the network have errors of their own
            said = _said(error)
            _end(gateway, output)
            # Py4J's errors ask the JVM for their text, and it has ended.
            raise _not_started(master, source, said, output) from None
        except BaseException:
            _end(gateway, output)
            raise
        output.pass_on()
        try:
            yield session
        finally:
            _stop(session)
            _end(gateway, output)


def _silence_py4j() -> None:
    """It tells of every connection that it closes, also of those that are collected after us; its
    errors reach us as exceptions. A level that was set stands.
    """
    log = logging.getLogger("py4j")
    if log.level == logging.NOTSET:
        log.setLevel(logging.CRITICAL)


def _launched(master: str, settings: Mapping[str, str], output: JvmOutput) -> Any:
    conf = SparkConf(loadDefaults=False).setMaster(master)
    for name, value in settings.items():
        conf.set(name, value)
    try:
        return launch_gateway(conf, popen_kwargs={"stderr": output.fd})
    finally:
        output.launched()


def _session(master: str, settings: Mapping[str, str], gateway: Any) -> Any:
    # A stopped session leaves its JVM here, and a new context would begin in that one.
    SparkContext._gateway = SparkContext._jvm = None
    conf = SparkConf(loadDefaults=False).setMaster(master)
    for name, value in settings.items():
        conf.set(name, value)
    SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.getOrCreate()


def _not_started(master: str, source: str, said: str, output: JvmOutput) -> ConfigurationError:
    error_output = output.error_output()
    detail = (
        said if said in error_output and said else "; ".join(filter(None, [said, error_output]))
    )
    return ConfigurationError(
        "master",
        master,
        f"Spark did not start on {source} ({detail}); check the address of the master, and "
        "the settings given with --conf",
    )


def _said(error: Exception) -> str:
    """What Java said, where it said anything: Py4J's own first line names only the call."""
    if isinstance(error, Py4JJavaError):
        return _first_line(str(error.java_exception.toString()))
    if isinstance(error, PySparkRuntimeError):
        # "Exited before sending its port number": why, its output tells.
        return ""
    return _first_line(str(error) or type(error).__name__)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


# -- the end --------------------------------------------------------------------------------------


def _stop(session: Any) -> None:
    """Stop Spark; a JVM that was killed meanwhile is no reason to fail."""
    with warnings.catch_warnings():
        # "Unable to cleanly shutdown": it has died, and its users have been told.
        warnings.simplefilter("ignore", RuntimeWarning)
        with suppress(Exception):  # broad: whatever a dead JVM makes of it, the process ends below
            session.stop()
    SparkSession._instantiatedSession = None


def _end(gateway: Any, output: JvmOutput) -> None:
    """End the JVM: PySpark leaves it running until this process ends."""
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return
    with suppress(Exception):  # broad: there is no answer when it has died
        gateway.shutdown()
    if process.stdin is not None:
        # The JVM ends when its standard input does.
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    output.wait(_ENDS_WITHIN_S)


# -- as it was before -----------------------------------------------------------------------------


@contextmanager
def _put_back_afterwards() -> Iterator[None]:
    """PySpark's traces in this process: the gateway that was, imports, two variables."""
    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    paths = list(sys.path)
    own = {name: os.environ.get(name) for name in _PYSPARKS_OWN}
    try:
        yield
    finally:
        SparkContext._gateway, SparkContext._jvm = gateway, jvm
        sys.path[:] = [each for each in sys.path if each in paths]
        _set(own)


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """The JVM, and what it starts, take theirs from ours at the start; later it is not read."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _ctrl_c_kept() -> Iterator[None]:
    """PySpark takes Ctrl-C for itself; what the program does with it is the program's choice."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Interrupted while it launches, PySpark forgets a JVM that then never ends. So the first
    signal that would raise waits for the end of the block; a second one does not.
    """
    if current_thread() is not main_thread():
        yield
        return
    found = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    before = {each: handler for each, handler in found.items() if callable(handler)}
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)
        if len(held) > 1:
            before[signal.Signals(number)](number, frame)

    for each in before:
        signal.signal(each, hold)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        if len(held) == 1:
            signal.raise_signal(held[0])
