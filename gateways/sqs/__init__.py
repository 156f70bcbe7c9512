"""The SQS gateway: queues of AWS through boto3, aioboto3 or `lean`, by configuration."""

from .._aws.settings import AwsSettings, Credentials, TransportKind
from .claims import ClaimCheck
from .gateway import SqsGateway, from_url
from .settings import SqsSettings

__all__ = [
    "AwsSettings",
    "ClaimCheck",
    "Credentials",
    "SqsGateway",
    "SqsSettings",
    "TransportKind",
    "from_url",
]
