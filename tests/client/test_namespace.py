"""Names in a namespace: wrapped on the wire, the application's own everywhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.namespace import NO_NAMESPACE, Namespace
from client.trace.tracer import trace_group

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


@pytest.mark.parametrize("name", ["G", "%RETRY%G", "a|b_c-d%e", "x" * 244, "CID_RMQ_SYS_TRANS"])
def test_groups_that_brokers_take_are_taken(name: str) -> None:
    assert NO_NAMESPACE.group(name) == name
    assert Namespace("ns").group(name) == Namespace("ns").wrap(name)


@pytest.mark.parametrize("name", ["", " ", "bad group!", "G\n", "x" * 245, "é", "\udcff", "a+b"])
def test_groups_that_brokers_refuse_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="group '"):
        Namespace("ns").group(name)


def test_a_namespace_that_brokers_refuse_is_refused_with_the_first_name_in_it() -> None:
    with pytest.raises(ValueError, match="group 'n s%G'"):
        Namespace("n s").group("G")


@pytest.mark.parametrize(
    "name",
    [
        "T",
        "TBW102",
        "rmq_sys_wheel_timer",
        "x" * 124,
        f"%RETRY%{'x' * 244}",
        f"%DLQ%{'x' * 244}",
        f"%RETRY%{'x' * 244}_{'y' * 124}",
        "%RETRY%G+T",
    ],
)
def test_topics_that_brokers_take_are_taken(name: str) -> None:
    NO_NAMESPACE.check_topic(name)
    Namespace("ns").check_topic(name)


@pytest.mark.parametrize("name", ["", "bad topic!", "T\n", "x" * 125, "\udcff", "a+b", "%RETRY%é"])
def test_topics_that_brokers_refuse_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="topic '"):
        Namespace("ns").check_topic(name)


def test_traces_are_of_a_group_that_brokers_take() -> None:
    for namespace in (NO_NAMESPACE, Namespace("n" * 100)):
        assert namespace.group(trace_group(namespace, "PG")).endswith("_INNER_TRACE_PRODUCER-PG")
        assert len(namespace.group(trace_group(namespace, "x" * 146))) <= 247
