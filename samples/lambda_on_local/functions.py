"""A Lambda function on `pump local`: batches, partial failures, a filter, reloaded when edited.

Run it:   pump local --memory --config samples/lambda_on_local/local.yaml
          python -m samples.lambda_on_local.shop
          (the server, which calls the function; in another terminal the shop, which sends)
Expect:   order 1: shipped
          order 2: out of stock, later
          order 3: shipped
          (and when its visibility timeout of six seconds is over)
          order 2: shipped
          (the bill does not match the filter and is deleted unseen)
"""

import json
from typing import Any


def on_orders(event: dict[str, Any], context: Any) -> dict[str, Any]:
    failures = []
    for record in event["Records"]:
        number = json.loads(record["body"])["number"]
        is_first_try = record["attributes"]["ApproximateReceiveCount"] == "1"
        if number == 2 and is_first_try:
            print(f"order {number}: out of stock, later", flush=True)
            failures.append({"itemIdentifier": record["messageId"]})
        else:
            print(f"order {number}: shipped", flush=True)
    # Only what is named here comes again; the other messages are deleted.
    return {"batchItemFailures": failures}
