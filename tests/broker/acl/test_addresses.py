"""Address patterns of plain_acl.yml."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.access.addresses import AddressPattern, AddressPatternError, canonical_ip


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("", [], ["127.0.0.1", "::1", "?"]),
        ("*", ["127.0.0.1", "::1", "?"], []),
        ("*.*.*.*", ["127.0.0.1"], []),
        ("10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.30", "10.1.2.4", "?"]),
        ("10.1.2.3,10.1.2.4", ["10.1.2.3", "10.1.2.4"], ["10.1.2.5"]),
        ("10.1.2.{3,4}", ["10.1.2.3", "10.1.2.4"], ["10.1.2.5", "10.1.3.3"]),
        ("10.1.2.*", ["10.1.2.0", "10.1.2.255"], ["10.1.3.0", "10.1.20.1"]),
        ("10.1.*.*", ["10.1.0.0", "10.1.255.9"], ["10.2.0.0"]),
        ("10.1.2.7-90", ["10.1.2.7", "10.1.2.90"], ["10.1.2.6", "10.1.2.91"]),
        ("10.1.2-3.*", ["10.1.2.0", "10.1.3.255"], ["10.1.4.0", "10.1.1.255"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1"], ["::2", "0.0.0.1"]),
        ("fe80::{1,a}", ["fe80::1", "fe80::A"], ["fe80::2"]),
        ("fe80::*", ["fe80::1", "fe80::ffff"], ["fe80::1:0", "fe81::1"]),
        ("2::ac5:78:1-200", ["2::ac5:78:1", "2::ac5:78:200"], ["2::ac5:78:201", "2::ac5:79:1"]),
        ("2::ac5:1-200:*", ["2::ac5:1:0", "2::ac5:200:ffff"], ["2::ac5:201:0"]),
        ("1:2:3:4:5:6:7:*", ["1:2:3:4:5:6:7:8"], ["1:2:3:4:5:6:8:8"]),
    ],
)
def test_a_pattern_matches_what_it_says(pattern, inside, outside):
    read = AddressPattern.of(pattern)
    assert [ip for ip in inside if not read.matches(ip)] == []
    assert [ip for ip in outside if read.matches(ip)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "nobody",
        "10.1.2",
        "10.1.2.256",
        "10.1.2.9-3",
        "10.1.2.-3",
        "10.*.2.3",
        "10.1.2-3.4",
        "10.1.{2,3}.4",
        "10.1.2.3}",
        "fe80::*:1",
        "fe80::1-2:3",
        "1:2:3:4:5:6:7:8:*",
        "10.1.2.3,",
        "10.1.2.{" + ",".join("1" * 2000) + "}",
    ],
)
def test_what_is_no_pattern_is_refused(pattern):
    with pytest.raises(AddressPatternError):
        AddressPattern.of(pattern)


@given(st.ip_addresses(), st.ip_addresses())
def test_an_address_matches_itself_alone(one, other):
    pattern = AddressPattern.of(str(one))
    assert pattern.matches(str(one))
    assert pattern.matches(str(other)) == (
        ipaddress.ip_address(canonical_ip(str(one)))
        == ipaddress.ip_address(canonical_ip(str(other)))
    )


@given(st.ip_addresses(v=4), st.integers(1, 3))
def test_a_range_is_a_network(address, fixed):
    parts = str(address).split(".")[:fixed] + ["*"] * (4 - fixed)
    network = ipaddress.ip_network(f"{address}/{8 * fixed}", strict=False)
    pattern = AddressPattern.of(".".join(parts))
    assert pattern.matches(str(network[0]))
    assert pattern.matches(str(network[-1]))
    assert not pattern.matches(str(network[0] - 1 if int(network[0]) else network[-1] + 1))


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        AddressPattern.of(text)
    except AddressPatternError:
        return
