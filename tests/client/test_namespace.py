"""Names in a namespace: wrapped on the wire, the application's own everywhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.namespace import NO_NAMESPACE, Namespace

NAMES = st.text(alphabet="abz_-%", min_size=1, max_size=6)
PREFIXES = st.sampled_from(["", "%RETRY%", "%DLQ%"])
SPACES = st.text(alphabet="abz_-", min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("T", "ns%T"),
        ("%RETRY%G", "%RETRY%ns%G"),
        ("%DLQ%G", "%DLQ%ns%G"),
        ("ns%T", "ns%T"),
        ("%RETRY%ns%G", "%RETRY%ns%G"),
        ("other%T", "ns%other%T"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("", ""),
    ],
)
def test_names_are_wrapped_as_rocketmq_wraps_them(name: str, wire: str) -> None:
    assert Namespace("ns").wrap(name) == wire
    assert NO_NAMESPACE.wrap(name) == name


@given(SPACES, PREFIXES, NAMES)
def test_wrapping_is_idempotent_and_undone_by_unwrapping(
    space: str, prefix: str, name: str
) -> None:
    namespace = Namespace(space)
    wire = namespace.wrap(prefix + name)
    assert namespace.wrap(wire) == wire
    already = name.startswith(f"{space}%") or (not prefix and name.startswith(("%RETRY%", "%DLQ%")))
    if not already:
        assert wire != prefix + name
        assert namespace.unwrap(wire) == prefix + name


def test_other_namespaces_stay() -> None:
    assert Namespace("ns").unwrap("other%T") == "other%T"
    assert NO_NAMESPACE.unwrap("ns%T") == "ns%T"


def test_a_namespace_holds_no_separator() -> None:
    with pytest.raises(ValueError, match="a%b"):
        Namespace("a%b")
