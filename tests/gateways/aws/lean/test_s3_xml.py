"""The XML of S3, read and written."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given, strategies as st

from gateways._aws.lean.s3 import deletion, read_deletion, read_listing, root_of

NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
# What XML 1.0 can hold at all.
KEYS = st.text(
    st.one_of(
        st.sampled_from("\t\n\r<>&\"']"),
        st.characters(codec="utf-8", min_codepoint=32, exclude_characters="\ufffe\uffff"),
    )
)


@given(st.lists(KEYS, max_size=5))
def test_when_keys_are_to_be_deleted_then_they_are_written_as_they_are(keys: list[str]) -> None:
    """A key that is read differently is another object, which would be deleted."""
    root = fromstring(deletion(keys, is_quiet=True))

    read = [each.text or "" for each in root.iter(f"{NAMESPACE}Key")]
    assert read == keys
    assert root.findtext(f"{NAMESPACE}Quiet") == "true"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no",
        b"<ListBucketResult>",
        b"<Error><Code>InternalError</Code></Error>",
        b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
    ],
)
def test_when_a_reply_is_no_document_then_it_is_no_success(body: bytes) -> None:
    assert root_of(body) is None


def test_when_a_reply_has_more_than_is_known_then_it_is_passed_over() -> None:
    body = b"<R><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes><Deleted/><New>x</New></R>"
    root = root_of(body)

    assert root is not None
    assert read_listing(root) == {}
    assert read_deletion(root) == {"Deleted": [{}]}


def test_when_keys_are_not_encoded_then_they_are_left_alone() -> None:
    """A store that does not know of encoding says so by not saying that it did."""
    root = root_of(b"<R><Contents><Key>a+b%20</Key></Contents></R>")

    assert root is not None
    assert read_listing(root) == {"Contents": [{"Key": "a+b%20"}]}
