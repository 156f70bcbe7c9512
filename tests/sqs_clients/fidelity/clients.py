"""botocore as a client of either protocol, without a check of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.loaders import Loader

from tests.brokers.aws_account import AwsAccount

from ..environments import ROOT

# What a server refuses is its own business, so the client looks at nothing.
CONFIG = Config(parameter_validation=False, retries={"total_max_attempts": 1})


def _old_models() -> str:
    """The folder of a botocore that still wrote queries: its model turns ours into one."""
    [folder] = (ROOT / ".venv-awscli-query").glob("lib/python*/site-packages/botocore/data")
    return str(Path(folder))


def open_client(account: AwsAccount, protocol: str) -> Any:
    session = botocore.session.get_session()
    if protocol == "query":
        # A loader of its own: the other one is shared by all tests.
        models = Loader()
        models.search_paths.insert(0, _old_models())
        session.register_component("data_loader", models)
    client = session.create_client(
        "sqs",
        region_name=account.region,
        endpoint_url=account.endpoint_url,
        aws_access_key_id=account.access_key_id,
        aws_secret_access_key=account.secret_access_key,
        config=CONFIG,
    )
    assert client.meta.service_model.metadata["protocol"] == protocol
    return client
