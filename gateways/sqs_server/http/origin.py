"""Which requests a server without signatures takes: those no web page can have made.

A loopback address keeps other machines out, not the browser of this one. A page of any site may
post a form to `http://127.0.0.1:4100`, load an image from there, or bind its own name to 127.0.0.1
(DNS rebinding) and then read the answers too. Browsers betray the first two by `Origin`, `Referer`
and `Sec-Fetch-Site`, and the third by the page's name in `Host`. SDKs send none of the former, and
as Host what they were given as endpoint: an address or a name that only means something here.

An older browser that is told to keep quiet loads an image with nothing but a Host. So a request
that is no POST changes nothing unless it has an `Authorization` header, which every SDK sends and
no page can add to a request of another site.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from ..errors import SqsError, access_denied

# Names that mean this machine wherever they are resolved. Not `local`, which any machine of the
# network may answer to, and not `amazonaws.com`, under which pages of others are served.
_LOCAL_SUFFIXES: Final = (".localhost", ".test", ".localhost.localstack.cloud")
# By these a container reaches the machine that it runs on.
_LOCAL_NAMES: Final = frozenset(
    {"host.docker.internal", "gateway.docker.internal", "host.containers.internal"}
)
_READING: Final = frozenset(
    {
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "ListMessageMoveTasks",
        "ListQueueTags",
        "ListQueues",
    }
)
_SITE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*").match
_ORIGIN: Final = re.compile(
    r"https?://(\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(:[0-9]{1,5})?"
).fullmatch
_OWN_SITES: Final = frozenset({"same-origin", "same-site", "none"})


def refusal_of(headers: Mapping[str, str], allowed_hosts: frozenset[str]) -> SqsError | None:
    """Why the request may be a web page's, None when it cannot be."""
    origin = headers.get("origin")
    if origin is not None and not is_own_origin(origin, allowed_hosts):
        return access_denied("Requests from web pages of other sites are not served.")
    referer = headers.get("referer")
    if referer is not None and not _is_own_page(referer, allowed_hosts):
        return access_denied("Requests from web pages of other sites are not served.")
    if headers.get("sec-fetch-site", "none") not in _OWN_SITES:
        return access_denied("Requests from web pages of other sites are not served.")
    host = headers.get("host", "")
    if host and not is_local_host(host, allowed_hosts):
        return access_denied(
            "This Host is not a name of this machine. Start the server with --allow-host and the "
            "name, or with --verify so that requests have to be signed."
        )
    return None


def refusal_of_change(method: str, headers: Mapping[str, str], operation: str) -> SqsError | None:
    """Why a request that is understood may not be obeyed, None when it may."""
    if method == "POST" or "authorization" in headers or operation in _READING:
        return None
    return access_denied(
        f"{operation} by {method} without an Authorization header could come from a web page. "
        "Send it as a POST, or sign it in that header."
    )


def _is_own_page(referer: str, allowed_hosts: frozenset[str]) -> bool:
    site = _SITE(referer)
    return site is not None and is_own_origin(site[0], allowed_hosts)


def is_own_origin(origin: str, allowed_hosts: frozenset[str]) -> bool:
    """Whether a page was served by this machine itself.

    Stricter than for `Host`, which only rebinding has to be kept from: any address and any name
    may serve an attacker's page.
    """
    # The whole of it, so that nothing hides in front of an `@` or behind a backslash; and a
    # sandboxed page says `null`.
    found = _ORIGIN(origin)
    if found is None:
        return False
    name = (found["address"] or found["name"]).lower()
    if name == "localhost" or name.endswith(".localhost") or name in allowed_hosts:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def is_local_host(authority: str, allowed_hosts: frozenset[str]) -> bool:
    """Whether a `host[:port]` is an address, or a name that no stranger can own."""
    try:
        name = urlsplit(f"//{authority}").hostname
    except ValueError:
        return False
    if name is None:
        return False
    name = name.rstrip(".")
    return name in allowed_hosts or _is_address(name) or _is_local_name(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_local_name(name: str) -> bool:
    # A name without a dot is a container's or a machine's on this network.
    is_plain = name.replace("-", "").replace("_", "").isalnum()
    return is_plain or name in _LOCAL_NAMES or name.endswith(_LOCAL_SUFFIXES)
