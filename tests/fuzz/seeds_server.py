"""Valid requests to an SQS server, for the fuzzers to spoil: every operation, both protocols."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from .sqs_host import KEY, form_request, json_request

ARN = "arn:aws:sqs:us-east-1:000000000000:"
QUEUE = "http://localhost/000000000000/q"
ATTRIBUTES = {
    "a": {"DataType": "String", "StringValue": "b"},
    "n": {"DataType": "Number.int", "StringValue": "5"},
    "s": {"DataType": "Binary", "BinaryValue": "AP8="},
}
POLICY = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "x",
                "Effect": "Allow",
                "Principal": {"AWS": "*"},
                "Action": "sqs:*",
                "Resource": ARN + "q",
            }
        ],
    }
)
RECEIPT, TASK = "«receipt»", "«task»"
"""Stand for what the server of an example gave."""
CALLS: list[tuple[str, dict[str, Any]]] = [
    (
        "SendMessage",
        {
            "QueueUrl": QUEUE,
            "MessageBody": "x",
            "DelaySeconds": 5,
            "MessageAttributes": ATTRIBUTES,
            "MessageSystemAttributes": {
                "AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}
            },
        },
    ),
    (
        "SendMessage",
        {
            "QueueUrl": "line.fifo",
            "MessageBody": "x",
            "MessageGroupId": "g",
            "MessageDeduplicationId": "d",
        },
    ),
    (
        "SendMessageBatch",
        {
            "QueueUrl": QUEUE,
            "Entries": [
                {"Id": "1", "MessageBody": "x", "MessageAttributes": ATTRIBUTES},
                {"Id": "2", "MessageBody": "y", "DelaySeconds": 1},
            ],
        },
    ),
    (
        "ReceiveMessage",
        {
            "QueueUrl": QUEUE,
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": 5,
            "WaitTimeSeconds": 1,
            "AttributeNames": ["All"],
            "MessageAttributeNames": ["a.*"],
            "ReceiveRequestAttemptId": "r",
        },
    ),
    ("DeleteMessage", {"QueueUrl": QUEUE, "ReceiptHandle": RECEIPT}),
    ("DeleteMessageBatch", {"QueueUrl": QUEUE, "Entries": [{"Id": "1", "ReceiptHandle": RECEIPT}]}),
    (
        "ChangeMessageVisibility",
        {"QueueUrl": QUEUE, "ReceiptHandle": RECEIPT, "VisibilityTimeout": 5},
    ),
    (
        "ChangeMessageVisibilityBatch",
        {
            "QueueUrl": QUEUE,
            "Entries": [{"Id": "1", "ReceiptHandle": RECEIPT, "VisibilityTimeout": 5}],
        },
    ),
    (
        "CreateQueue",
        {
            "QueueName": "new.fifo",
            "Attributes": {
                "FifoQueue": "true",
                "VisibilityTimeout": "5",
                "RedrivePolicy": json.dumps(
                    {"deadLetterTargetArn": ARN + "dead.fifo", "maxReceiveCount": "3"}
                ),
            },
            "tags": {"a": "b"},
        },
    ),
    (
        "SetQueueAttributes",
        {
            "QueueUrl": QUEUE,
            "Attributes": {
                "DelaySeconds": "5",
                "Policy": POLICY,
                "RedriveAllowPolicy": json.dumps(
                    {"redrivePermission": "byQueue", "sourceQueueArns": [ARN + "q"]}
                ),
                "RedrivePolicy": json.dumps(
                    {"deadLetterTargetArn": ARN + "dead", "maxReceiveCount": 3}
                ),
            },
        },
    ),
    ("GetQueueAttributes", {"QueueUrl": QUEUE, "AttributeNames": ["All"]}),
    ("GetQueueUrl", {"QueueName": "q", "QueueOwnerAWSAccountId": "000000000000"}),
    ("ListQueues", {"QueueNamePrefix": "q", "MaxResults": 1, "NextToken": "MQ=="}),
    ("ListDeadLetterSourceQueues", {"QueueUrl": QUEUE, "MaxResults": 1, "NextToken": "MQ=="}),
    (
        "AddPermission",
        {
            "QueueUrl": QUEUE,
            "Label": "l",
            "AWSAccountIds": ["000000000000"],
            "Actions": ["SendMessage"],
        },
    ),
    ("RemovePermission", {"QueueUrl": QUEUE, "Label": "l"}),
    ("TagQueue", {"QueueUrl": QUEUE, "Tags": {"a": "b"}}),
    ("UntagQueue", {"QueueUrl": QUEUE, "TagKeys": ["a"]}),
    ("ListQueueTags", {"QueueUrl": QUEUE}),
    ("PurgeQueue", {"QueueUrl": QUEUE}),
    ("DeleteQueue", {"QueueUrl": QUEUE}),
    (
        "StartMessageMoveTask",
        {"SourceArn": ARN + "dead", "DestinationArn": ARN + "q", "MaxNumberOfMessagesPerSecond": 5},
    ),
    ("ListMessageMoveTasks", {"SourceArn": ARN + "dead", "MaxResults": 1}),
    ("CancelMessageMoveTask", {"TaskHandle": TASK}),
]
FORMS = [
    urlencode(
        {
            "Action": "SendMessage",
            "Version": "2012-11-05",
            "MessageBody": "a b",
            "MessageAttribute.1.Name": "a",
            "MessageAttribute.1.Value.DataType": "Binary",
            "MessageAttribute.1.Value.BinaryValue": "AP8=",
        }
    ).encode(),
    urlencode(
        {
            "Action": "SendMessageBatch",
            "SendMessageBatchRequestEntry.1.Id": "1",
            "SendMessageBatchRequestEntry.1.MessageBody": "x",
        }
    ).encode(),
    urlencode(
        {
            "Action": "SetQueueAttributes",
            "Attribute.1.Name": "DelaySeconds",
            "Attribute.1.Value": "5",
        }
    ).encode(),
    urlencode(
        {"Action": "ReceiveMessage", "AttributeName.member.1": "All", "MaxNumberOfMessages": "3"}
    ).encode(),
    urlencode({"Action": "DeleteMessage", "ReceiptHandle": RECEIPT}).encode(),
]
AUTHORIZATION = (
    f"AWS4-HMAC-SHA256 Credential={KEY}/20250615/eu-west-1/sqs/aws4_request, "
    f"SignedHeaders=host;x-amz-date;x-amz-target, Signature={'0' * 64}"
)
SIGNED = {
    "host": "localhost",
    "x-amz-date": "20250615T150640Z",
    "x-amz-target": "AmazonSQS.ListQueues",
    "date": "Sun, 15 Jun 2025 15:06:40 GMT",
    "authorization": AUTHORIZATION,
}
HASHED = {
    **{name: text for name, text in SIGNED.items() if name != "x-amz-date"},
    "x-amz-content-sha256": sha256(b"{}").hexdigest(),
    "authorization": AUTHORIZATION.replace("x-amz-date", "date;x-amz-content-sha256"),
}
PRESIGNED = (
    f"Action=ListQueues&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={KEY}%2F20250615%2F"
    "eu-west-1%2Fsqs%2Faws4_request&X-Amz-Date=20250615T150640Z&X-Amz-Expires=60"
    f"&X-Amz-SignedHeaders=host&X-Amz-Signature={'0' * 64}"
)
ORIGINS = ["http://localhost:1", "http://[::1]:1", "null", "https://example.org"]
RAW = [
    *(json_request(name, json.dumps(parameters).encode()) for name, parameters in CALLS[:6]),
    json_request("ListQueues", b"{}", b"Authorization: " + AUTHORIZATION.encode()),
    *(form_request(form) for form in FORMS),
    b"GET /?Action=ListQueues&Version=2012-11-05 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /000000000000/q?" + PRESIGNED.encode() + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"GET /_health HTTP/1.0\r\n\r\n",
]
