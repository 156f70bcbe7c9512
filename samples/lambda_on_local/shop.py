"""The shop: sends orders, and a bill, with boto3 as it would to AWS."""

import json
import sys

import boto3


def send(endpoint: str = "http://127.0.0.1:9324") -> None:
    sqs = boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="000000000000",
        aws_secret_access_key="anything",
    )
    queue = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
    messages = [{"kind": "order", "number": number} for number in (1, 2, 3)]
    messages.append({"kind": "bill", "number": 4})
    sqs.send_message_batch(
        QueueUrl=queue,
        Entries=[
            {"Id": str(index), "MessageBody": json.dumps(message)}
            for index, message in enumerate(messages)
        ],
    )


if __name__ == "__main__":
    send(*sys.argv[1:])
