"""The store over both SDKs: what it reads, lists and removes (T8)."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from gateways.s3.store.objects import (
    FoundObject,
    Get,
    List,
    ListedObject,
    Missing,
    Page,
    Remove,
    RemovedObject,
    Reply,
    Same,
    Unknown,
)
from gateways.s3.store.s3_store import S3Store
from pump.errors import AccessDenied
from tests.gateways.aws.fake_aws import Answer, FakeAws

from .replies import (
    DATE_S,
    NO_SUCH_KEY,
    bare,
    found,
    listing,
    removed,
)

# -- reading ------------------------------------------------------------------------------------


async def test_when_an_object_is_read_then_with_its_etag(aws: FakeAws, store: S3Store) -> None:
    """T8."""
    aws.script.append(found(b"body", '"9"'))

    assert await store.perform(Get("key")) == FoundObject('"9"', b"body", 4)


async def test_when_only_its_presence_matters_then_no_body_is_sent(
    aws: FakeAws, store: S3Store
) -> None:
    """T8."""
    aws.script.append(bare(200, {"ETag": '"9"'}))

    reply = await store.perform(Get("key", has_body=False))

    assert reply == FoundObject('"9"', b"", 0)
    assert aws.seen[0].method == "HEAD"


@pytest.mark.parametrize("has_body", [True, False], ids=["get", "head"])
@pytest.mark.parametrize(
    ("status", "expected"), [(304, Same()), (404, Missing())], ids=["304", "404"]
)
async def test_when_there_is_nothing_new_or_nothing_then_it_says_so(
    aws: FakeAws, store: S3Store, has_body: bool, status: int, expected: Reply
) -> None:
    """T8."""
    is_key = status == 404 and has_body
    aws.script.append(NO_SUCH_KEY if is_key else bare(status))

    assert await store.perform(Get("key", unless='"9"', has_body=has_body)) == expected
    assert aws.seen[0].headers["if-none-match"] == '"9"'


async def test_when_a_store_ignores_the_condition_of_a_read_then_the_same_is_still_the_same(
    aws: FakeAws, store: S3Store
) -> None:
    """T8: it only sends more."""
    aws.script.append(found(b"body", '"9"'))

    assert await store.perform(Get("key", unless='"9"')) == Same()


async def test_when_keys_are_listed_then_in_pages_behind_a_key(
    aws: FakeAws, store: S3Store
) -> None:
    """R50."""
    aws.script.append(listing("a/1", "a/22", is_truncated=True))

    page = await store.perform(List("a/", after="a/0", max_count=2))

    assert page == Page(
        [ListedObject("a/1", '"a/1"', 3, DATE_S), ListedObject("a/22", '"a/22"', 4, DATE_S)],
        is_last=False,
    )
    asked = parse_qs(urlsplit(aws.seen[0].path).query)
    assert (asked["prefix"], asked["start-after"], asked["max-keys"]) == (["a/"], ["a/0"], ["2"])


async def test_when_there_are_no_keys_then_the_page_is_empty_and_the_last(
    aws: FakeAws, store: S3Store
) -> None:
    """R50."""
    aws.script.append(listing())

    assert await store.perform(List("a/")) == Page([])


# -- removing -----------------------------------------------------------------------------------


async def test_when_many_are_removed_then_a_thousand_at_a_time(
    aws: FakeAws, store: S3Store
) -> None:
    aws.always = removed()

    assert await store.perform(Remove([f"k{number}" for number in range(2001)])) == RemovedObject()
    assert [seen.body.count(b"<Key>") for seen in aws.seen] == [1000, 1000, 1]
    assert store.counts == {"remove": 3}


@pytest.mark.parametrize("answer", [bare(204), NO_SUCH_KEY], ids=["204", "404"])
async def test_when_one_is_removed_then_it_is_gone_whether_or_not_it_was_there(
    aws: FakeAws, store: S3Store, answer: Answer
) -> None:
    """T8."""
    aws.script.append(answer)

    assert await store.perform(Remove(["key"])) == RemovedObject()
    assert aws.seen[0].method == "DELETE"


async def test_when_nothing_is_to_be_removed_then_nothing_is_asked(
    aws: FakeAws, store: S3Store
) -> None:
    assert await store.perform(Remove([])) == RemovedObject()
    assert not aws.seen


async def test_when_some_stay_although_the_answer_is_a_success_then_it_is_unknown(
    aws: FakeAws, store: S3Store
) -> None:
    """T8."""
    aws.script.append(removed(a="NoSuchKey", b="InternalError"))

    reply = await store.perform(Remove(["a", "b"]))

    assert isinstance(reply, Unknown)
    assert "s3://bucket/b" in str(reply.error)


async def test_when_removing_is_denied_within_a_success_then_it_is_raised(
    aws: FakeAws, store: S3Store
) -> None:
    aws.script.append(removed(a="AccessDenied"))

    with pytest.raises(AccessDenied, match="s3:DeleteObject"):
        await store.perform(Remove(["a", "b"]))
