"""Loading: from a file to a `LocalConfig`, or to an error that names every problem at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ..model import DEFAULT_ACCOUNT, DEFAULT_REGION
from .entry import Entry, Unusable, text
from .files import read_file
from .mapping_entries import mapping_warnings, read_mappings
from .model import LocalConfig
from .problems import InvalidLocalConfig, Problem
from .queue_entries import read_queues, with_dead_letter_queues

_ACCOUNT: Final = re.compile(r"\d{12}")
_REGION: Final = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")


def load_config(path: Path | str) -> LocalConfig:
    """Read a .yaml, .yml or .toml file.

    Raises `InvalidLocalConfig`, with all its problems, or another ConfigurationError when the
    file cannot be read at all. Functions are not imported here.
    """
    path = Path(path)
    values = read_file(path)
    problems: list[Problem] = []
    entry = Entry(values, "", problems)
    account = entry.take("account", _account, DEFAULT_ACCOUNT)
    region = entry.take("region", _region, DEFAULT_REGION)
    named = read_queues(entry.take("queues", _anything, None), problems)
    queues = with_dead_letter_queues(named, problems)
    by_name = {queue.name: queue for queue in (*queues, *named)}
    mappings = read_mappings(entry.take("mappings", _anything, None), str(path), problems, by_name)
    entry.finish()
    if problems:
        raise InvalidLocalConfig.of(str(path), problems)
    return LocalConfig(
        queues=queues,
        mappings=mappings,
        account=account,
        region=region,
        warnings=mapping_warnings(mappings, by_name),
    )


def _anything(value: object) -> object:
    return value


def _account(value: object) -> str:
    # Without quotes, both formats read a number, and YAML some as octal.
    if not isinstance(value, str) or not _ACCOUNT.fullmatch(value):
        raise Unusable('use 12 digits in quotes, such as "000000000000"')
    return value


def _region(value: object) -> str:
    if not _REGION.fullmatch(text(value)):
        raise Unusable("use a region's name, such as eu-west-1")
    return str(value)
