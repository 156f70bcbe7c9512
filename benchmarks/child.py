"""Child: measures one contender in an interpreter of its own and prints one line of JSON.

python -m benchmarks.child taskiq 25000
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import Any

from .catalogue import BY_NAME, Contender

WARM_UP = 0.05
"""Part of the messages that go through before the ones that count."""


def measure(contender: Contender, count: int) -> dict[str, Any]:
    """Warm up, run, and return the reading, or what is missing to make one."""
    try:
        if not contender.warms_up_itself:
            contender.run(max(100, min(2000, round(count * WARM_UP))))
        return {"reading": contender.run(count).to_json()}
    except ImportError as error:
        if not contender.needs:
            raise
        return {"missing": f"{contender.needs} ({error})"}


def main(arguments: list[str]) -> None:
    """Measure `NAME COUNT`. Whatever else is printed meanwhile goes to stderr."""
    name, count = arguments
    with redirect_stdout(sys.stderr):
        result = measure(BY_NAME[name], int(count))
    print(json.dumps({"contender": name, **result}))


if __name__ == "__main__":
    main(sys.argv[1:])
