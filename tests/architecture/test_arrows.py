"""The build fails on a wrong arrow, and each rule is shown to be able to fail."""

from collections.abc import Callable, Iterator

import pytest

from . import rules
from .source import PACKAGES, TREES, Source, Violation, sources

Rule = Callable[[Source], Iterator[Violation]]

IN_PACKAGES: list[Rule] = [
    rules.wrong_arrows,
    rules.vendor_imports,
    rules.gateways_importing_each_other,
    rules.absolute_own_imports,
    rules.swallowed_base_exceptions,
    rules.broad_excepts,
]
EVERYWHERE: list[Rule] = [rules.too_long, rules.hidden_time_and_randomness]

RESOLVES_RANDOM = "import random\ndraw = random.gauss\n"
RERAISED = "try:\n    f()\nexcept BaseException as e:\n    close()\n    raise\n"

BAD: list[tuple[Rule, str, str]] = [
    (rules.wrong_arrows, "pump/a.py", "import gateways.memory"),
    (rules.wrong_arrows, "pump/a.py", "from handlers import Handler"),
    (rules.wrong_arrows, "pump/loop/a.py", "def f():\n    from gateways import local"),
    (rules.wrong_arrows, "pump/a.py", "import importlib\nimportlib.import_module('gateways.sqs')"),
    (rules.wrong_arrows, "gateways/sqs/a.py", "from handlers.base import Handler"),
    (rules.wrong_arrows, "handlers/a.py", "import gateways"),
    (rules.wrong_arrows, "handlers/a.py", "from tests.support import order"),
    (rules.vendor_imports, "pump/a.py", "import boto3"),
    (rules.vendor_imports, "pump/cli/a.py", "from azure.identity import DefaultAzureCredential"),
    (rules.vendor_imports, "pump/a.py", "try:\n    import nats\nexcept ImportError:\n    pass"),
    (rules.vendor_imports, "pump/a.py", "class A:\n    import pyspark"),
    (rules.gateways_importing_each_other, "gateways/sqs/a.py", "from ..s3 import wire"),
    (rules.gateways_importing_each_other, "gateways/sqs/a.py", "from .. import s3"),
    (rules.gateways_importing_each_other, "gateways/sqs/__init__.py", "import gateways.s3.wire"),
    (rules.gateways_importing_each_other, "gateways/_aws/a.py", "from ..sqs import wire"),
    (rules.absolute_own_imports, "pump/loop/a.py", "from pump.clock import Clock"),
    (rules.absolute_own_imports, "gateways/sqs/a.py", "import gateways._aws"),
    (rules.absolute_own_imports, "handlers/__init__.py", "from handlers.base import Handler"),
    (rules.too_long, "pump/a.py", "x = 1\n" * 701),
    (rules.hidden_time_and_randomness, "pump/a.py", "import time\ntime.time()"),
    (rules.hidden_time_and_randomness, "pump/a.py", "import time as t\nt.sleep(1)"),
    (rules.hidden_time_and_randomness, "tests/a.py", "from asyncio import sleep as nap\nnap(1)"),
    (
        rules.hidden_time_and_randomness,
        "pump/a.py",
        "from datetime import datetime\ndatetime.now()",
    ),
    (rules.hidden_time_and_randomness, "pump/a.py", "import datetime\ndatetime.datetime.utcnow()"),
    (rules.hidden_time_and_randomness, "handlers/a.py", RESOLVES_RANDOM),
    (rules.swallowed_base_exceptions, "pump/a.py", "try:\n    f()\nexcept:\n    pass"),
    (
        rules.swallowed_base_exceptions,
        "pump/a.py",
        "try:\n    f()\nexcept BaseException:\n    log()",
    ),
    (
        rules.swallowed_base_exceptions,
        "pump/a.py",
        "try:\n    f()\nexcept (KeyError, BaseException) as e:\n    raise RuntimeError from e",
    ),
    (
        rules.swallowed_base_exceptions,
        "pump/a.py",
        "try:\n    f()\nexcept BaseException:\n    if done:\n        raise",
    ),
    (
        rules.swallowed_base_exceptions,
        "pump/a.py",
        "def g():\n    try:\n        f()\n    except BaseException:\n        if done:\n"
        "            return\n        raise",
    ),
    (rules.swallowed_base_exceptions, "pump/a.py", "with suppress(BaseException):\n    f()"),
    (rules.broad_excepts, "gateways/sqs/a.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (rules.broad_excepts, "pump/a.py", "try:\n    f()\nexcept (OSError, Exception):\n    pass"),
    (rules.broad_excepts, "pump/a.py", "try:\n    f()\nexcept Exception:  # broad:\n    pass"),
    (rules.broad_excepts, "pump/a.py", "with contextlib.suppress(Exception):\n    f()"),
]

GOOD: list[tuple[Rule, str, str]] = [
    (rules.wrong_arrows, "handlers/a.py", "import attrs\nfrom pump import Command"),
    (rules.wrong_arrows, "gateways/sqs/a.py", "from pump.ports import ConsumerPort"),
    (rules.wrong_arrows, "pump/loop/a.py", "from ..clock import Clock"),
    (rules.vendor_imports, "pump/spark/a.py", "import pyspark"),
    (rules.vendor_imports, "gateways/sqs/a.py", "import boto3"),
    (rules.vendor_imports, "pump/a.py", "def f():\n    import boto3"),
    (rules.vendor_imports, "pump/a.py", "if TYPE_CHECKING:\n    from pyspark.sql import Row"),
    (rules.gateways_importing_each_other, "gateways/sqs/a.py", "from .._aws import call"),
    (rules.gateways_importing_each_other, "gateways/sqs/b/a.py", "from ..wire import encode"),
    (rules.absolute_own_imports, "gateways/sqs/a.py", "from pump import Message"),
    (rules.absolute_own_imports, "tests/a.py", "from tests.support import order"),
    (rules.too_long, "pump/a.py", "x = 1\n" * 700),
    (rules.hidden_time_and_randomness, "pump/clock.py", "import time\ntime.time()"),
    (rules.hidden_time_and_randomness, "tests/kill/child_pump.py", "import time\ntime.sleep(1)"),
    (rules.hidden_time_and_randomness, "pump/a.py", "import time\ntime.monotonic()"),
    (rules.hidden_time_and_randomness, "pump/a.py", "import random\nrandom.Random(1).random()"),
    (
        rules.hidden_time_and_randomness,
        "pump/a.py",
        "import asyncio\nasyncio.sleep(0)  # noqa: TID251 a yield, not a wait",
    ),
    (rules.swallowed_base_exceptions, "pump/a.py", RERAISED),
    (rules.swallowed_base_exceptions, "pump/a.py", RERAISED.replace("raise", "raise e")),
    (rules.broad_excepts, "pump/loop/processing.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (
        rules.broad_excepts,
        "pump/a.py",
        "try:\n    f()\nexcept Exception:  # broad: an observer never hurts another\n    pass",
    ),
]


def name_of(value: object) -> str:
    return getattr(value, "__name__", None) or str(value).replace("\n", " ")[:60]


# Parsing all tests takes seconds of computing, and a busy machine many times as long.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tree", TREES)
def test_every_source_keeps_the_rules(tree: str) -> None:
    kept = [*EVERYWHERE, *(IN_PACKAGES if tree in PACKAGES else ())]

    # A source is parsed once for all rules: that is what takes the time.
    violations = [str(found) for source in sources(tree) for rule in kept for found in rule(source)]

    assert not violations, "\n".join(violations)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_rules_are_applied_to_something(package: str) -> None:
    assert any(sources(package))


@pytest.mark.parametrize(("rule", "path", "text"), BAD, ids=name_of)
def test_when_the_rule_is_broken_then_it_is_reported(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


@pytest.mark.parametrize(("rule", "path", "text"), GOOD, ids=name_of)
def test_when_the_rule_is_kept_then_nothing_is_reported(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text))) == []


@pytest.mark.parametrize("rule", [*IN_PACKAGES, *EVERYWHERE], ids=name_of)
def test_each_rule_has_a_source_that_breaks_it(rule: Rule) -> None:
    assert any(shown is rule for shown, _, _ in BAD)
