"""Which gateway a test is about: by the folder it is in, else by the servers it asks for."""

from __future__ import annotations

import re
from collections.abc import Collection

from .claims import CONTRACT

PUMP = "pump"
"""What holds whatever the gateway is."""
SERVER = "`pump local`"
"""The SQS server of ours."""
GATEWAYS = (
    *("memory", "local", "SQS", "S3, leases", "S3, log"),
    *("RabbitMQ", "NATS", "Postgres", "Service Bus"),
)
"""As in `gateways.py`, which a plugin cannot import: no run is to load every SDK there is."""
COLUMNS = (PUMP, *GATEWAYS, SERVER)
_S3 = ("S3, leases", "S3, log")
_FOLDERS: dict[str, tuple[str, ...]] = {
    "tests/contract/test_memory": ("memory",),
    "tests/contract/test_local": ("local",),
    "tests/contract/test_sqs": ("SQS",),
    "tests/contract/test_pump_local": ("SQS",),
    "tests/contract/test_s3": _S3,
    "tests/contract/test_s3_leases": ("S3, leases",),
    "tests/contract/test_s3_log": ("S3, log",),
    "tests/contract/test_s3_sessions": ("S3, log",),
    "tests/contract/test_rabbitmq": ("RabbitMQ",),
    "tests/contract/test_nats": ("NATS",),
    "tests/contract/test_postgres": ("Postgres",),
    "tests/contract/test_servicebus": ("Service Bus",),
    "tests/gateways/test_memory": ("memory",),
    "tests/gateways/test_local": ("local",),
    "tests/gateways/test_engine": ("memory", "local"),
    "tests/gateways/test_group_commit": ("local",),
    "tests/gateways/aws/": ("SQS", *_S3),
    "tests/gateways/sqs/": ("SQS",),
    "tests/gateways/s3/": _S3,
    "tests/gateways/s3/leases/": ("S3, leases",),
    "tests/gateways/s3/log/": ("S3, log",),
    "tests/gateways/rabbitmq/": ("RabbitMQ",),
    "tests/gateways/nats/": ("NATS",),
    "tests/gateways/postgres/": ("Postgres",),
    "tests/gateways/servicebus/": ("Service Bus",),
    "tests/sqs_server/": (SERVER,),
    "tests/sqs_clients/": (SERVER,),
}
"""The longest beginning that fits a test's file decides."""
SERVERS: dict[str, str] = {
    "aws": "LocalStack",
    "localstack": "LocalStack",
    "local_aws": "`pump local`",
    "local_sqs": "`pump local`",
    "own_pump_local": "`pump local`",
    "moto": "moto",
    "kms_url": "moto",
    "nats": "nats-server",
    "own_nats": "nats-server",
    "rabbitmq_url": "RabbitMQ",
    "own_rabbitmq": "RabbitMQ",
    "postgres": "PostgreSQL",
    "own_postgres": "PostgreSQL",
    "pgbouncer": "PostgreSQL",
    "servicebus": "our peer of Service Bus",
    "own_servicebus": "our peer of Service Bus",
}
"""What a fixture starts."""
_SPEAKS = {
    "LocalStack": ("SQS",),
    "`pump local`": ("SQS",),
    "nats-server": ("NATS",),
    "RabbitMQ": ("RabbitMQ",),
    "PostgreSQL": ("Postgres",),
    "our peer of Service Bus": ("Service Bus",),
}


def of_folder(path: str) -> tuple[str, ...]:
    """The gateways whose folder it is; empty for one that says nothing of it."""
    fitting = [beginning for beginning in _FOLDERS if path.startswith(beginning)]
    return _FOLDERS[max(fitting, key=len)] if fitting else ()


def servers_of(fixtures: Collection[str]) -> list[str]:
    """The servers that a test talks to."""
    return sorted({SERVERS[name] for name in fixtures if name in SERVERS})


def columns_of(path: str, label: str, fixtures: Collection[str]) -> list[str]:
    """Where on the page a test belongs; its label is what its class and parameters are called."""
    found = of_folder(path)
    words = set(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+", label))
    named = [each for each in GATEWAYS if words & set(_words_for(each))]
    if found:
        # A file about several gateways may have a class, or a parameter, for each.
        return [each for each in found if each in named] or list(found)
    servers = [each for server in servers_of(fixtures) for each in _SPEAKS.get(server, ())]
    return list(dict.fromkeys(servers)) or named or [PUMP]


def _words_for(gateway: str) -> tuple[str, ...]:
    word = gateway.removeprefix("S3, ")
    return (word, word.capitalize())


def may_be_for(test: str, column: str) -> bool:
    """Whether a test, as `file::name`, can have been what fills that column."""
    path = test.partition("::")[0]
    if path.startswith(CONTRACT):
        # It runs on a gateway of the tests', too, which stands for any other.
        return column in (PUMP, *GATEWAYS)
    return column in (of_folder(path) or COLUMNS)
