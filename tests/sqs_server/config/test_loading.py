"""A configuration file is read, from either format, to what it says (R46)."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import pytest

from gateways.sqs_server.config import (
    LocalConfig,
    MappingConfig,
    QueueConfig,
    load_config,
)
from gateways.sqs_server.config.patterns import read_filters
from pump.errors import ConfigurationError

TOML = """
region = "eu-west-1"
account = "123456789012"

[queues.orders]
visibility_timeout = "3m"
dead_letter_queue = "orders-dead"
max_receive_count = 3
delay = 5
retention = "1d"
wait = 20
max_message_bytes = 2048
tags = { team = "shop" }

[queues."bills.fifo"]
fifo = true
content_based_deduplication = true
high_throughput = true

[[mappings]]
queue = "orders"
function = "shop.functions:on_orders"
batch_size = 100
batching_window = "2s"
report_batch_item_failures = true
maximum_concurrency = 7
filter_criteria = [{ body = { kind = ["order"] } }]
timeout = "30s"
enabled = false
reload = false

[[mappings]]
queue = "bills.fifo"
function = "shop:on_bills"
"""

YAML = """
region: eu-west-1
account: "123456789012"
queues:
  orders:
    visibility_timeout: 3m
    dead_letter_queue: orders-dead
    max_receive_count: 3
    delay: 5
    retention: 1d
    wait: 20
    max_message_bytes: 2048
    tags: {team: shop}
  bills.fifo: {fifo: true, content_based_deduplication: true, high_throughput: true}
mappings:
  - queue: orders
    function: shop.functions:on_orders
    batch_size: 100
    batching_window: 2s
    report_batch_item_failures: true
    maximum_concurrency: 7
    filter_criteria: [{body: {kind: [order]}}]
    timeout: 30s
    enabled: false
    reload: false
  - queue: bills.fifo
    function: shop:on_bills
"""


def load(folder: Path, text: str, name: str = "local.toml") -> LocalConfig:
    path = folder / name
    path.write_text(text)
    return load_config(path)


@pytest.mark.parametrize(("name", "text"), [("a.toml", TOML), ("a.yaml", YAML), ("a.yml", YAML)])
def test_every_key_is_read_from_either_format(name: str, text: str, tmp_path: Path) -> None:
    config = load(tmp_path, text, name)

    assert config == LocalConfig(
        region="eu-west-1",
        account="123456789012",
        queues=(
            QueueConfig(name="orders-dead"),
            QueueConfig(
                name="orders",
                visibility_timeout_s=180,
                delay_s=5,
                retention_s=86_400,
                wait_s=20,
                max_message_bytes=2_048,
                dead_letter_queue="orders-dead",
                max_receive_count=3,
                tags={"team": "shop"},
            ),
            QueueConfig(
                name="bills.fifo", content_based_deduplication=True, is_high_throughput=True
            ),
        ),
        mappings=(
            MappingConfig(
                queue="orders",
                function="shop.functions:on_orders",
                batch_size=100,
                batching_window_s=2,
                reports_item_failures=True,
                max_concurrency=7,
                filters=read_filters([{"body": {"kind": ["order"]}}]),
                timeout_s=30,
                is_enabled=False,
                reloads=False,
                origin=f"{tmp_path / name}: mappings[0]",
            ),
            MappingConfig(
                queue="bills.fifo",
                function="shop:on_bills",
                origin=f"{tmp_path / name}: mappings[1]",
            ),
        ),
        warnings=config.warnings,
    )
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_queue_knows_its_attributes_as_create_queue_takes_them(tmp_path: Path) -> None:
    config = load(tmp_path, TOML)

    dead, orders, bills = [
        queue.sqs_attributes(config.account, config.region) for queue in config.queues
    ]

    assert dead == {}
    assert json.loads(orders["RedrivePolicy"]) == {
        "deadLetterTargetArn": "arn:aws:sqs:eu-west-1:123456789012:orders-dead",
        "maxReceiveCount": 3,
    }
    assert orders["VisibilityTimeout"] == "180"
    assert (orders["DelaySeconds"], orders["MessageRetentionPeriod"]) == ("5", "86400")
    assert orders["ReceiveMessageWaitTimeSeconds"] == "20"
    assert orders["MaximumMessageSize"] == "2048"
    assert bills == {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    assert config.queues[1].address(config.account, config.region).name == "orders"


def test_when_high_throughput_is_turned_off_then_the_attributes_say_so() -> None:
    queue = QueueConfig(name="a.fifo", is_high_throughput=False)

    assert queue.sqs_attributes()["FifoThroughputLimit"] == "perQueue"


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", ""), ("a.yaml", ""), ("a.yaml", "queues:\n")]
)
def test_an_empty_file_asks_for_nothing(name: str, text: str, tmp_path: Path) -> None:
    assert load(tmp_path, text, name) == LocalConfig()


def test_an_empty_queue_takes_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "queues:\n  orders:\n", "a.yaml").queues == (QueueConfig(name="orders"),)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "queues = [", "correct what TOML refuses"),
        ("a.yaml", "queues: [", "correct what YAML refuses"),
        ("a.yaml", "queues: {a: {}, a: {}}\n", "the key 'a' is there twice"),
        ("a.yaml", "!!python/object:os.system {}\n", "correct what YAML refuses"),
        ("a.yaml", "- a\n", "begin the file with"),
        ("a.json", "{}", ".yaml, .yml, .toml"),
    ],
)
def test_when_the_file_cannot_be_read_then_the_error_names_it(
    name: str, text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text, name)

    assert str(tmp_path / name) in str(caught.value)
    assert words in str(caught.value)


def test_when_yaml_merges_keys_then_that_is_no_key_twice(tmp_path: Path) -> None:
    text = "queues:\n  a: &a {delay: 5}\n  b:\n    <<: *a\n    wait: 5\n"

    assert load(tmp_path, text, "a.yaml").queues[1] == QueueConfig(name="b", delay_s=5, wait_s=5)


def test_when_there_is_no_such_file_then_the_error_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml.*cannot be read"):
        load_config(tmp_path / "none.toml")


def test_when_the_file_is_not_utf_8_then_the_error_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b'a = "\xff"')

    with pytest.raises(ConfigurationError, match="UTF-8"):
        load_config(str(tmp_path / "a.toml"))


def test_when_pyyaml_is_missing_then_the_remedy_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "a.yaml").write_text("queues: {}\n")

    with pytest.raises(ConfigurationError) as caught:
        load_config(tmp_path / "a.yaml")

    assert "pip install 'pumphouse[local]'" in str(caught.value)


def test_when_visibility_is_under_six_times_the_timeout_then_there_is_a_warning(
    tmp_path: Path,
) -> None:
    text = '[queues.orders]\n[[mappings]]\nqueue = "orders"\nfunction = "a:b"\ntimeout = 6\n'

    [warning] = load(tmp_path, text).warnings

    assert warning.startswith(f"{tmp_path / 'local.toml'}: mappings[0].timeout: AWS advises")
    assert "queues.orders.visibility_timeout to 36s" in warning


def test_when_a_filter_looks_beyond_the_body_then_there_is_a_warning(tmp_path: Path) -> None:
    text = (
        '[queues.orders]\n[[mappings]]\nqueue = "orders"\nfunction = "a:b"\n'
        'filter_criteria = [{ messageId = ["a"] }]\n'
    )

    [warning] = load(tmp_path, text).warnings

    assert "AWS documents filters on body only" in warning


def test_dead_letter_queues_stand_before_those_that_name_them(tmp_path: Path) -> None:
    text = """
    [queues.a]
    dead_letter_queue = "b"
    max_receive_count = 1
    [queues.b]
    dead_letter_queue = "c"
    max_receive_count = 1
    [queues.d]
    """

    assert [queue.name for queue in load(tmp_path, text).queues] == ["c", "b", "a", "d"]


def test_a_dead_letter_queue_that_is_only_named_may_be_mapped(tmp_path: Path) -> None:
    text = """
    [queues.a]
    dead_letter_queue = "b"
    max_receive_count = 1
    [[mappings]]
    queue = "b"
    function = "a.b:c.d"
    """

    [mapping] = load(tmp_path, text).mappings

    assert mapping.function_name == "d"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("local.yaml", "2001-99-99"),
        ("local.yaml", "!!timestamp x"),
        ("local.yaml", "!!bool x"),
        ("local.yaml", "{[a]: 1}"),
        ("local.yaml", "9" * 5_000),
        ("local.yaml", "0x" + "f" * 5_000),
        ("local.yaml", "&a [*a]"),
        ("local.yaml", "[" * 5_000),
        ("local.toml", "9" * 5_000),
        ("local.toml", "0x" + "f" * 5_000),
        ("local.toml", "[" * 5_000),
    ],
)
def test_when_a_value_makes_the_parser_stumble_then_the_file_is_refused(
    tmp_path: Path, name: str, value: str
) -> None:
    """R56."""
    path = tmp_path / name
    path.write_text(f"account{':' if name.endswith('yaml') else ' ='} {value}\n")

    with pytest.raises(ConfigurationError) as refused:
        load_config(path)

    assert str(path) in str(refused.value)


def test_when_aliases_make_a_few_lines_endless_then_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "local.yaml"
    lines = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9)]
    path.write_text("\n".join(["l0: &l0 [lol]", *lines]))

    with pytest.raises(ConfigurationError, match="too many"):
        load_config(path)
