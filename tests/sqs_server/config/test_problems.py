"""A configuration file is refused with every problem, its place and its remedy (R46)."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from gateways.sqs_server.config import InvalidLocalConfig, load_config
from pump.errors import ConfigurationError


def problems_of(folder: Path, text: str, name: str = "local.toml") -> list[str]:
    path = folder / name
    path.write_text(text)
    with pytest.raises(InvalidLocalConfig) as caught:
        load_config(path)
    assert str(path) in str(caught.value)
    return [str(problem) for problem in caught.value.problems]


MANY_TAGS = "\n".join(f't{number} = "x"' for number in range(51))
QUEUE_PROBLEMS = [
    ("visibility_timeout = -1", "visibility_timeout = -1: use 0 to 43200 seconds"),
    ("visibility_timeout = true", "visibility_timeout = True: write a duration"),
    ('visibility_timeout = "30"', "visibility_timeout = '30': '30' is not a duration"),
    ('visibility_timeout = "1.5s"', "visibility_timeout = '1.5s': SQS counts in whole seconds"),
    ("visibility_timeout = inf", "visibility_timeout = inf: write a duration"),
    ("delay = 901", "delay = 901: use 0 to 900 seconds"),
    ("retention = 59", "retention = 59: use 60 to 1209600 seconds"),
    ("wait = 21", "wait = 21: use 0 to 20 seconds"),
    ("max_message_bytes = 1023", "max_message_bytes = 1023: use a whole number from 1024"),
    ("visiblity_timeout = 5", "visiblity_timeout = 5: there is no such key; did you mean visib"),
    ("colour = 5", "colour = 5: there is no such key; use one of content_based_dedup"),
    ("fifo = true", "fifo = True: SQS knows a FIFO queue by its name; call this one orders.fifo"),
    ('fifo = "yes"', "fifo = 'yes': write true or false"),
    ("max_receive_count = 3", "max_receive_count = 3: name a dead_letter_queue as well"),
    ('dead_letter_queue = "dead"', "dead_letter_queue = 'dead': say after how many receives"),
    (
        'dead_letter_queue = "dead.fifo"\nmax_receive_count = 3',
        "dead_letter_queue = 'dead.fifo': the dead letters of this queue go to a standard queue",
    ),
    (
        'dead_letter_queue = "orders"\nmax_receive_count = 3',
        "dead_letter_queue = 'orders': dead letters would go round in a circle",
    ),
    (
        'dead_letter_queue = "a b"\nmax_receive_count = 3',
        "dead_letter_queue = 'a b': use up to 80 letters",
    ),
    ("high_throughput = true", "high_throughput = True: only FIFO queues have this"),
    ("tags = { a = 1 }", "tags = {'a': 1}: the tag a must be text"),
    ("tags = 5", "tags = 5: write a table"),
    ("delay = [5]", "delay = [5]: write a duration"),
    (f"delay = {10**400}", "delay = 1000"),
    (f"[queues.orders.tags]\n{MANY_TAGS}", "tags = {'t0': 'x'"),
]


@pytest.mark.parametrize(("line", "words"), QUEUE_PROBLEMS)
def test_when_a_queue_cannot_work_then_key_value_and_remedy_are_named(
    line: str, words: str, tmp_path: Path
) -> None:
    found = problems_of(tmp_path, f"[queues.orders]\n{line}\n")

    assert any(problem.startswith(f"queues.orders.{words}") for problem in found), found


MAPPING_PROBLEMS = [
    ("batch_size = 0", "batch_size = 0: use a whole number from 1 to 10000"),
    ("batch_size = 10.0", "batch_size = 10.0: use a whole number"),
    ("batch_size = 11", "batch_size = 11: above 10, AWS asks for a batching_window"),
    ('batching_window = "301s"', "batching_window = '301s': use 0 to 300 seconds"),
    ('report_batch_item_failures = "no"', "report_batch_item_failures = 'no': write true or"),
    ("maximum_concurrency = 1", "maximum_concurrency = 1: use a whole number from 2 to 1000, as"),
    ("maximum_concurrency = 1001", "maximum_concurrency = 1001: use a whole number from 2"),
    ("timeout = 0", "timeout = 0: use 1 to 900 seconds"),
    ("timeout = 31", "timeout = 31: AWS refuses a function that may run longer than the queue's"),
    ("filter_criteria = 5", "filter_criteria = 5: write a list of patterns"),
    (
        'filter_criteria = [{ body = { kind = "order" } }]',
        "filter_criteria = [{'body': {'kind': 'order'}}]: [0].body.kind: values stand in a list",
    ),
    ("batchsize = 5", "batchsize = 5: there is no such key; did you mean batch_size?"),
]


@pytest.mark.parametrize(("line", "words"), MAPPING_PROBLEMS)
def test_when_a_mapping_cannot_work_then_key_value_and_remedy_are_named(
    line: str, words: str, tmp_path: Path
) -> None:
    mapping = f'[[mappings]]\nqueue = "orders"\nfunction = "a:b"\n{line}\n'

    [found] = problems_of(tmp_path, f"[queues.orders]\n{mapping}")

    assert found.startswith(f"mappings[0].{words}")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('function = "a:b"', "mappings[0].queue is missing: name one of the file's queues"),
        ('queue = "orders"', "mappings[0].function is missing: write module:function"),
        ('queue = "order"\nfunction = "a:b"', "did you mean orders?"),
        ('queue = "xyz"\nfunction = "a:b"', "mappings[0].queue = 'xyz': there is no such queue"),
        ('queue = "orders"\nfunction = "a.b"', "mappings[0].function = 'a.b': write module:"),
        ('queue = "orders"\nfunction = "a/b.py:c"', "write module:function"),
        ('queue = 5\nfunction = "a:b"', "mappings[0].queue = 5: write some text"),
        (
            'queue = "b.fifo"\nfunction = "a:b"\nbatching_window = 1',
            "mappings[0].batching_window = 1: AWS has no batching window for FIFO",
        ),
        (
            'queue = "b.fifo"\nfunction = "a:b"\nbatch_size = 11',
            "mappings[0].batch_size = 11: AWS takes at most 10 from a FIFO",
        ),
    ],
)
def test_when_a_mapping_does_not_fit_the_file_then_the_problem_says_so(
    lines: str, words: str, tmp_path: Path
) -> None:
    [found] = problems_of(tmp_path, f'[queues.orders]\n[queues."b.fifo"]\n[[mappings]]\n{lines}\n')

    assert words in found


def test_when_a_queue_and_a_function_are_mapped_twice_then_it_is_a_problem(tmp_path: Path) -> None:
    mapping = '[[mappings]]\nqueue = "orders"\nfunction = "a:b"\n'

    [found] = problems_of(tmp_path, f"[queues.orders]\n{mapping * 2}")

    assert found.startswith("mappings[1].function = 'a:b': mappings[0] maps the same queue")


def test_all_problems_of_a_file_are_shown_together(tmp_path: Path) -> None:
    text = """
    regoin = "eu-west-1"
    account = 123
    region = "Ireland"
    [queues."bad name"]
    [queues.orders]
    delay = 5000
    wait = 50
    [[mappings]]
    queue = "orders"
    function = "a:b"
    [[mappings]]
    queue = "orders"
    batch_size = 50000
    """

    (tmp_path / "local.toml").write_text(text)

    with pytest.raises(InvalidLocalConfig) as caught:
        load_config(tmp_path / "local.toml")

    shown = str(caught.value)
    assert "8 entries cannot work" in shown
    for words in (
        "did you mean region?",
        "account = 123: use 12 digits in quotes",
        "region = 'Ireland': use a region's name",
        "queues.bad name = {}: use up to 80 letters",
        "queues.orders.delay = 5000",
        "queues.orders.wait = 50",
        "mappings[1].function is missing",
        "mappings[1].batch_size = 50000",
    ):
        assert words in shown
    error = caught.value
    assert isinstance(error, ConfigurationError)
    assert error.field == f"{tmp_path / 'local.toml'}: account"
    assert str(pickle.loads(pickle.dumps(error))) == shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("queues: [orders]\n", "queues = ['orders']: write a table"),
        ("queues: {1: {}}\n", "queues = {1: {}}: the key 1 is not text; put it in quotes"),
        ("queues: {orders: 5}\n", "queues.orders = 5: write a table"),
        ("mappings: {queue: orders}\n", "mappings = {'queue': 'orders'}: write a list"),
        ("mappings: [5]\n", "mappings[0] = 5: write a table"),
    ],
)
def test_when_the_shape_is_wrong_then_the_remedy_says_which_is_right(
    text: str, words: str, tmp_path: Path
) -> None:
    [found] = problems_of(tmp_path, text, "a.yaml")

    assert found.startswith(words)
