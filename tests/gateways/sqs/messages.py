"""Messages of every kind, for properties."""

from hypothesis import strategies as st

from pump.message import Message

texts = st.text(st.characters(exclude_categories=()), max_size=20)
"""Any text a Python string can hold: lone surrogates, NUL and U+FFFF included."""
bodies = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(str.encode),
    st.sampled_from([b"", b"-", b"\r\n", b" ", b"\x00", b"\xff", "\ufffe".encode(), b'{"a": 1}']),
)
messages = st.builds(
    Message,
    body=bodies,
    id=texts.filter(bool),
    type=texts,
    content_type=texts,
    correlation_id=st.none() | texts,
    reply_to=st.none() | texts,
    group=st.none() | texts | st.sampled_from(["-", "a b", "x" * 128, "x" * 129]),
    deduplication_id=st.none() | texts | st.sampled_from(["a b", "x" * 129]),
    created_at_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    headers=st.dictionaries(texts, texts, max_size=4),
)
