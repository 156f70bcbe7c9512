"""The S3 gateway: queues of objects in a bucket, with conditional writes and nothing else."""

from .._aws.settings import AwsSettings, Credentials, TransportKind
from .gateway import S3Gateway, Storage, from_url
from .layout import Layout, S3QueueSettings
from .settings import S3Settings

__all__ = [
    "AwsSettings",
    "Credentials",
    "Layout",
    "S3Gateway",
    "S3QueueSettings",
    "S3Settings",
    "Storage",
    "TransportKind",
    "from_url",
]
