"""The PROXY preamble, however it is cut, and what is none."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.connections.proxy_preamble import PREAMBLE_SIZE_MAX, PreambleError, ProxyPreamble

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def v2(command: int, family: int, content: bytes) -> bytes:
    return SIGNATURE + bytes([command, family]) + len(content).to_bytes(2, "big") + content


def addresses(source: str, port: int) -> bytes:
    packed = ipaddress.ip_address(source).packed
    return packed + packed + port.to_bytes(2, "big") + b"\x00\x50"


GOOD = [
    (b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 10911\r\n", "10.0.0.1:5000"),
    (b"PROXY TCP6 ::1 ::2 5000 10911\r\n", "[::1]:5000"),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:: ffff:: 1 2\r\n", None),
    (v2(0x21, 0x11, addresses("10.0.0.1", 5000)), "10.0.0.1:5000"),
    (v2(0x21, 0x21, addresses("::1", 5000) + b"\x04\x00\x01x"), "[::1]:5000"),
    (v2(0x20, 0x00, b""), None),
    (v2(0x21, 0x31, bytes(216)), None),
]


@pytest.mark.parametrize(("preamble", "source"), GOOD)
@given(data=st.data())
def test_a_preamble_is_read_and_nothing_behind_it(preamble, source, data):
    stream = preamble + b"\x16\x03frames"
    reader, at = ProxyPreamble(), 0
    while not reader.is_complete:
        size = data.draw(st.integers(1, len(stream) - at))
        at += reader.take(stream[at : at + size])
    assert reader.source == source
    assert at == len(preamble)


@pytest.mark.parametrize(
    "wrong",
    [
        b"PROXX",
        b"P" * 20,
        b"\r\n\r\n\x00\r\nQUIX",
        b"PROXY TCP4 10.0.0.1 10.0.0.2 5000\r\n",
        b"PROXY TCP4 ::1 ::2 1 2\r\n",
        b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 70000\r\n",
        b"PROXY TCP4 10.0.0.1 10.0.0.2 -1 7\r\n",
        b"PROXY TCP4 nobody 10.0.0.2 1 7\r\n",
        b"PROXY SCTP 10.0.0.1 10.0.0.2 1 7\r\n",
        b"PROXY " + b"x" * 200,
        v2(0x21, 0x11, bytes(11)),
        v2(0x11, 0x11, bytes(12)),
        SIGNATURE + b"\x21\x11\xff\xff",
    ],
)
def test_what_is_no_preamble_is_refused_at_once(wrong):
    with pytest.raises(PreambleError):
        ProxyPreamble().take(wrong)


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=60), st.booleans())
def test_any_bytes_end_within_the_bound(pieces, is_v2):
    reader, size = ProxyPreamble(), 0
    pieces[0] = (SIGNATURE if is_v2 else b"PROXY ") + pieces[0]
    for piece in pieces:
        try:
            size += reader.take(piece)
        except PreambleError:
            return
        if reader.is_complete:
            return
        assert size <= PREAMBLE_SIZE_MAX
