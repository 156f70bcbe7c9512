"""Guard: control takes no request that a web page could have made.

A loopback address keeps other machines out, not the browser of this one. A page of any site may
post a form to `http://127.0.0.1:9091`, or bind its own name to 127.0.0.1 (DNS rebinding) and then
read the answers too. Three things keep it out, each enough for most of them:

| the page                     | is betrayed by                                              |
|------------------------------|-------------------------------------------------------------|
| of another site, any browser | `Origin` or `Sec-Fetch-Site`, which it cannot leave out     |
| posts a form, or no-cors     | a Content-Type that is not JSON; for that one it would have |
|                              | to ask first (OPTIONS), and is never answered               |
| has rebound its name         | that name in `Host`                                         |
"""

from __future__ import annotations

import re
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

from .wire import JSON, Refused, Request

_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9.-]{1,253}))(?::[0-9]{1,5})?"
)


def check(request: Request) -> None:
    """Raise `Refused` unless a program of this machine has sent the request."""
    headers = request.headers
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        raise Refused(HTTPStatus.FORBIDDEN, "requests of web pages are not served")
    if not is_own_name(headers.get("host", "")):
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "this Host is not this machine; ask for http://127.0.0.1 or http://localhost",
        )
    if request.method == "POST" and not _is_json(headers.get("content-type", "")):
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send it with the header Content-Type: " + JSON
        )


def is_own_name(authority: str) -> bool:
    """Whether a `host[:port]` can only mean this machine, whatever resolves it."""
    found = _AUTHORITY.fullmatch(authority)
    return found is not None and is_loopback((found["address"] or found["name"]).lower())


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address. Of names, `localhost` alone: any other is
    what a resolver says it is.
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == JSON
