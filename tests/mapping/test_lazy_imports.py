"""What nobody uses is not imported."""

import subprocess
import sys

PROGRAM = """
import sys
from pump.mapping import Mapper
from pump.processor import Command

class Flat(Command):
    a: int

mapper = Mapper()
mapper.check(Flat)
assert mapper.decode(mapper.encode(Flat(1)), Flat) == Flat(1)
print(sorted({"pydantic", "cattrs", "cloudevents"} & set(sys.modules)))
"""


def test_when_requests_are_plain_then_neither_pydantic_nor_cattrs_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
