"""docs/deploying-on-sqs.md: policies, queues and grace periods fit the code and the sample."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import botocore.session
import pytest
from botocore import xform_name

from gateways._aws.errors import permission_for
from gateways._aws.sdk import transport_for
from gateways._aws.sdk_transport import Polling, Reply, Request, Transport
from gateways.sqs import AwsSettings, ClaimCheck, Credentials, SqsGateway, SqsSettings
from gateways.sqs.queue_settings import QueueSettings
from pump.message import Message
from pump.subscription import MakeChannels, QueueSpec
from pump.testing import ack, defer
from samples.orders_on_sqs import app
from tests.brokers.aws_account import AwsAccount

from .markdown import blocks, json_after

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "deploying-on-sqs.md"
ROLES = ("consumer", "producer", "creator", "claims", "key", "operator", "measurer")
SERVICES = ("sqs", "sns", "s3")
# What AWS asks for beyond the permission of the call itself: tags are set by CreateQueue, a
# missing object is told from a denied one, and SQS uses a queue's key on the caller's behalf.
UNSAID = {"sqs:TagQueue", "s3:ListBucket", "kms:Decrypt", "kms:GenerateDataKey"}

[ORDERS] = app.subscriptions


def actions(*roles: str) -> set[str]:
    """Everything that the policies of these roles allow."""
    allowed: set[str] = set()
    for role in roles:
        for statement in json_after(PAGE, f"policy: {role}")["Statement"]:
            assert statement["Effect"] == "Allow"
            named = statement["Action"]
            allowed |= {named} if isinstance(named, str) else set(named)
    return allowed


def operations_of(service: str) -> set[str]:
    """The operations of an AWS service, by boto3's names."""
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(name) for name in model.operation_names}


def called_permissions() -> set[str]:
    """The IAM actions of every operation that the gateway's source names."""
    texts = {
        node.value
        for path in (ROOT / "gateways" / "sqs").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {
        permission_for(service, operation)
        for service in SERVICES
        for operation in texts & operations_of(service)
    }


def test_the_policies_name_exactly_the_actions_that_the_gateway_calls() -> None:
    assert actions(*ROLES) == called_permissions() | UNSAID


def test_every_policy_is_of_the_version_that_iam_has() -> None:
    for role in ROLES:
        policy = json_after(PAGE, f"policy: {role}")
        assert policy["Version"] == "2012-10-17"
        assert len({each["Sid"] for each in policy["Statement"]}) == len(policy["Statement"])


def test_every_json_block_is_json() -> None:
    assert all(json.loads(block) for block in blocks(PAGE, "json"))


def test_the_queues_of_the_template_are_those_of_the_sample() -> None:
    resources = json_after(PAGE, "queues")["Resources"]
    made = {each["Properties"]["QueueName"]: each["Properties"] for each in resources.values()}
    specs = {spec.name: spec for spec in ORDERS.queue_specs()}

    assert made.keys() == specs.keys()
    for name, properties in made.items():
        asked = QueueSettings.from_spec(specs[name]).creation(dead_letter_arn=None)
        given = {key: str(value).lower() for key, value in properties.items()}
        assert asked.items() <= given.items()
    redrive = made[ORDERS.queue]["RedrivePolicy"]
    assert redrive["maxReceiveCount"] == ORDERS.max_receive_count
    target = resources[redrive["deadLetterTargetArn"]["Fn::GetAtt"][0]]
    assert target["Properties"]["QueueName"] == ORDERS.dead_letter_queue


def test_the_grace_periods_let_a_drain_end() -> None:
    needed_s = (ORDERS.drain_timeout + ORDERS.wait).total_seconds()
    [container] = json_after(PAGE, "ecs")["containerDefinitions"]
    [deployment] = blocks(PAGE, "yaml")
    [period] = re.findall(r"terminationGracePeriodSeconds: (\d+)", deployment)

    assert container["stopTimeout"] >= needed_s
    assert int(period) >= needed_s


def test_the_container_runs_the_sample_as_the_process_that_gets_the_signal() -> None:
    [dockerfile] = blocks(PAGE, "dockerfile")
    [copied] = re.findall(r"^COPY (\S+) \.$", dockerfile, re.MULTILINE)
    [entry] = re.findall(r"^ENTRYPOINT (.+)$", dockerfile, re.MULTILINE)

    assert (ROOT / copied).is_file()
    assert json.loads(entry) == ["pump", "run", f"{Path(copied).stem}:app"]


# -- role by role, on LocalStack --------------------------------------------------------------


class Witness:
    """A transport that remembers the permissions that were needed."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.needed: set[str] = set()

    async def open(self) -> None:
        await self._transport.open()

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        self.needed.add(permission_for(service, operation))
        return await self._transport.call(
            service, operation, request, target=target, polling=polling
        )


@attrs.frozen
class Account:
    settings: AwsSettings
    aws: AwsAccount

    def gateway(self, **settings: Any) -> tuple[SqsGateway, Witness]:
        witness = Witness(transport_for(self.settings))
        return SqsGateway(SqsSettings(**settings), transport=witness), witness


@pytest.fixture
async def account(aws: AwsAccount) -> AsyncIterator[Account]:
    """An account that has the sample's queues already."""
    settings = AwsSettings(
        region=aws.region,
        endpoint_url=aws.endpoint_url,
        credentials=Credentials(
            access_key_id=aws.access_key_id, secret_access_key=aws.secret_access_key
        ),
    )
    account = Account(settings, aws)
    gateway, _ = account.gateway()
    for spec in ORDERS.queue_specs():
        await gateway.admin().ensure(spec, MakeChannels.CREATE)
    yield account
    await gateway.aclose()


@pytest.mark.broker
async def test_the_consumers_policy_is_what_consuming_and_rejecting_needs(account: Account) -> None:
    gateway, witness = account.gateway()
    consumer = gateway.consumer(ORDERS)
    await gateway.producer(ORDERS.queue).send([Message(body=b"{}"), Message(body=b"[]")])
    witness.needed.clear()

    for spec in ORDERS.queue_specs():
        await gateway.admin().ensure(spec, MakeChannels.VALIDATE)
    first, second = await consumer.receive(max_count=2, wait_s=5)
    await consumer.extend([first], lease_s=30)
    await gateway.producer(str(ORDERS.dead_letter_queue)).send([first.message])
    await consumer.settle([ack(first), defer(second, seconds=1)])
    await gateway.aclose()

    assert witness.needed == actions("consumer")


@pytest.mark.broker
async def test_the_producers_policy_is_what_sending_needs(account: Account) -> None:
    gateway, witness = account.gateway()

    await gateway.producer(ORDERS.queue).send([Message(body=b"{}")])
    await gateway.aclose()

    assert witness.needed == actions("producer")


@pytest.mark.broker
async def test_the_creators_policy_is_what_making_queues_and_subscriptions_needs(
    account: Account,
) -> None:
    gateway, witness = account.gateway()

    for policy in ({"kind": ["order"]}, {"kind": ["return"]}):
        options = {"topic": "order-events", "filter_policy": policy, "tags": {"team": "shop"}}
        await gateway.admin().ensure(
            QueueSpec(name="orders-events", options=options), MakeChannels.CREATE
        )
    await gateway.aclose()

    # Listing all subscriptions is for topics of other accounts.
    assert witness.needed == actions("creator") - {"sqs:TagQueue", "sns:ListSubscriptions"}


@pytest.mark.broker
async def test_the_policy_for_large_bodies_is_what_storing_and_fetching_needs(
    account: Account,
) -> None:
    aws = account.aws
    bucket = f"bodies-{aws.account_id}"
    place = {"LocationConstraint": aws.region}
    aws.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=place)
    gateway, witness = account.gateway(claim_check=ClaimCheck(bucket=bucket, threshold_bytes=0))
    consumer = gateway.consumer(ORDERS)

    await gateway.producer(ORDERS.queue).send([Message(body=b"{}")])
    [delivery] = await consumer.receive(max_count=1, wait_s=5)
    await consumer.settle([ack(delivery)])
    await gateway.aclose()

    in_s3 = {each for each in witness.needed if each.startswith("s3:")}
    assert in_s3 == actions("claims") - {"s3:ListBucket"}


@pytest.mark.broker
async def test_the_operators_policy_is_what_listing_and_purging_needs(account: Account) -> None:
    gateway, witness = account.gateway()

    await gateway.admin().queues()
    await gateway.admin().purge(ORDERS.queue)
    await gateway.aclose()

    assert witness.needed == actions("operator")


@pytest.mark.broker
async def test_the_measurers_policy_is_what_removing_queues_needs(account: Account) -> None:
    gateway, witness = account.gateway()

    await gateway.remove_queues([ORDERS.queue])
    await gateway.aclose()

    assert witness.needed == actions("measurer")


@pytest.mark.broker
async def test_sqs_moves_dead_letters_back_when_it_is_told_where_to(account: Account) -> None:
    """And what is no dead-letter queue to SQS, it does not move at all."""
    gateway, _ = account.gateway()
    sqs, arn = account.aws.client("sqs"), f"arn:aws:sqs:eu-west-1:{account.aws.account_id}:"
    message = Message(body=b"{}", group="ada", headers={"rejectionReason": "DeliveryError"})
    for queue in (ORDERS.dead_letter_queue, ORDERS.invalid_queue):
        await gateway.producer(str(queue)).send([message])

    sqs.start_message_move_task(
        SourceArn=f"{arn}{ORDERS.dead_letter_queue}", DestinationArn=f"{arn}{ORDERS.queue}"
    )
    [back] = await gateway.consumer(ORDERS).receive(max_count=1, wait_s=20)
    with pytest.raises(sqs.exceptions.ClientError, match="must be configured as a Dead Letter"):
        sqs.start_message_move_task(
            SourceArn=f"{arn}{ORDERS.invalid_queue}", DestinationArn=f"{arn}{ORDERS.queue}"
        )
    await gateway.aclose()

    assert back.message == message
