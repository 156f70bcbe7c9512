"""A process that holds one Spark session, and says as JSON what it saw and what it left.

With `kill` as argument its JVM is killed in the middle.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from pump.spark.session import SparkOptions, spark_session

from .quick_java import QUICK_JAVA


def main() -> None:
    before = traces()
    conf = {"spark.driver.extraJavaOptions": QUICK_JAVA}
    with spark_session(SparkOptions(master="local[1]", conf=conf)) as session:
        jvm = session.sparkContext._gateway.proc.pid
        during = traces()
        seen = {
            "java": session.sparkContext._jvm.System.getProperty("java.version"),
            "python": session.sparkContext.parallelize([0], 1).map(python_of_a_worker).collect(),
            "zone": session.conf.get("spark.sql.session.timeZone"),
            "folders": os.listdir(tempfile.gettempdir()),
        }
        if "kill" in sys.argv:
            os.kill(jvm, signal.SIGKILL)
    after = {**traces(), "children": children()}
    print(json.dumps({"before": before, "during": during, "after": after, "seen": seen}))


def traces() -> dict[str, Any]:
    """What a session could leave behind in this process."""
    return {
        "environment": {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("JAVA", "SPARK", "PYSPARK"))
        },
        "path": [each for each in sys.path if "spark" in each and "site-packages" not in each],
        "ctrl-c": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    }


def children() -> list[str]:
    """The processes that this one has started, and theirs are among them once orphaned."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def python_of_a_worker(_: int) -> str:
    return sys.executable


if __name__ == "__main__":
    main()
