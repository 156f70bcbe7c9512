"""Settings as the store keeps them."""

import json
import pickle

import pytest

from gateways.sqs_server.model import (
    QueueId,
    RedriveAllowPolicy,
    RedrivePermission,
    RedrivePolicy,
    SqsQueueSettings,
    pack,
    unpack,
)

_SOURCE = QueueId("000000000000", "us-east-1", "source")
_TARGET = QueueId("000000000000", "us-east-1", "target")

_FULL = SqsQueueSettings(
    address=_SOURCE,
    visibility_timeout_s=1,
    delay_s=2,
    retention_s=60,
    max_message_bytes=1_024,
    wait_s=3,
    content_based_deduplication=True,
    deduplicates_per_group=True,
    is_high_throughput=True,
    redrive=RedrivePolicy(target=_TARGET, max_receive_count=4),
    redrive_allow=RedriveAllowPolicy(permission=RedrivePermission.BY_QUEUE, sources=(_TARGET.arn,)),
    policy="{}",
    kms_key="key",
    kms_reuse_s=60,
    has_managed_encryption=False,
    created_at_s=5,
    modified_at_s=6,
    tags={"a": "b"},
)


@pytest.mark.parametrize("settings", [_FULL, SqsQueueSettings(address=_SOURCE)])
def test_when_settings_are_packed_then_unpacking_gives_them_back(
    settings: SqsQueueSettings,
) -> None:
    """R46."""
    assert unpack(json.loads(json.dumps(pack(settings)))) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_when_another_version_packed_then_unknown_is_dropped_and_missing_is_default() -> None:
    """R46."""
    packed = {"address": list(pack(_FULL)["address"]), "delay_s": 7, "invented_later": True}

    assert unpack(packed) == SqsQueueSettings(address=_SOURCE, delay_s=7)


@pytest.mark.parametrize(
    ("policy", "is_allowed"),
    [
        (RedriveAllowPolicy(permission=RedrivePermission.ALLOW_ALL), True),
        (RedriveAllowPolicy(permission=RedrivePermission.DENY_ALL), False),
        (RedriveAllowPolicy(permission=RedrivePermission.BY_QUEUE, sources=(_SOURCE.arn,)), True),
        (RedriveAllowPolicy(permission=RedrivePermission.BY_QUEUE, sources=(_TARGET.arn,)), False),
    ],
)
def test_when_a_dead_letter_queue_names_its_sources_then_only_they_are_allowed(
    policy: RedriveAllowPolicy, is_allowed: bool
) -> None:
    """R44."""
    assert policy.allows(_SOURCE) is is_allowed
