"""Signed requests without an SDK, to see the very bytes of an answer."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import attrs
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.brokers.aws_account import AwsAccount

JSON = "application/x-amz-json-1.0"
FORM = "application/x-www-form-urlencoded"


@attrs.frozen
class Answer:
    """A response; header names are in small letters."""

    status: int
    headers: dict[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


@attrs.frozen
class Wire:
    """An account's way to the server."""

    account: AwsAccount

    def call(self, operation: str, parameters: object, path: str = "/") -> Answer:
        """Over AWS JSON 1.0."""
        headers = {"X-Amz-Target": f"AmazonSQS.{operation}", "Content-Type": JSON}
        body = parameters if isinstance(parameters, str) else json.dumps(parameters)
        return self.send("POST", path, headers, body)

    def get(self, path: str, accept: str = "*/*", **parameters: str) -> Answer:
        """Over the query protocol, in the URL."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        return self.send("GET", path + query, {"Accept": accept})

    def post(self, path: str, **parameters: str) -> Answer:
        """Over the query protocol, in the body."""
        return self.send("POST", path, {"Content-Type": FORM}, urlencode(parameters))

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: str | None = None
    ) -> Answer:
        request = AWSRequest(method, self.account.endpoint_url + path, dict(headers), body)
        credentials = Credentials(self.account.access_key_id, self.account.secret_access_key)
        SigV4Auth(credentials, "sqs", self.account.region).add_auth(request)
        connection = http.client.HTTPConnection(
            urlsplit(self.account.endpoint_url).netloc, timeout=30
        )
        try:
            connection.request(method, path, body, dict(request.headers))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read().decode())
        finally:
            connection.close()


def path_of(url: str) -> str:
    return urlsplit(url).path
