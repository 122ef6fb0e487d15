"""The network of a run on paper: addresses, flows, rules in bytes, departures of delayed frames."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from chaos.cluster.layout import fixed_ports, lay_out, layout_from_json, layout_to_json, with_spares
from chaos.netns.departures import WAITING_BYTES_MAX, Delay, Departures, ends_of
from chaos.netns.echoes import echo, echoed
from chaos.netns.nf_tables import TABLE, installed, replaced
from chaos.netns.plan import PLACES_MAX, SLOTS_MAX, NetworkPlan, PlanError, at_namespace_addresses
from chaos.netns.rules import SHARE_SCALE, Action, Flow, PacketRule, in_order

SLOTS = ["client-0", "client-1"]


def _layout():
    ports = fixed_ports(
        groups=1, replicas=3, name_servers=2, name_server_port=9876, base_port=10911
    )
    return with_spares(lay_out(groups=1, replicas=3, name_servers=2, ports=ports), [(11, 12)])


def _plan() -> NetworkPlan:
    return NetworkPlan.of(_layout(), SLOTS)


def test_every_process_has_an_address_of_its_own_and_listens_on_all_of_them() -> None:
    layout = at_namespace_addresses(_layout())
    places = [*layout.brokers, *layout.spares, *layout.name_servers]
    assert [place.address for place in places] == [
        "10.88.0.1:10911",
        "10.88.0.2:10911",
        "10.88.0.3:10911",
        "10.88.0.4:10911",
        "10.88.0.5:9876",
        "10.88.0.6:9876",
    ]
    assert layout.spares[0].raft_address == "10.88.0.4:10915"
    assert layout.listen_host == "0.0.0.0"
    assert layout_from_json(layout_to_json(layout)) == layout


def test_flows_of_different_links_differ_and_none_is_the_laboratorys_own() -> None:
    plan = _plan()
    ends = [
        (who, whom)
        for who in (*plan.places, *SLOTS)
        for whom in (*plan.places, *SLOTS)
        if who != whom and not {who, whom} <= set(SLOTS)
    ]
    flows = [plan.flow(who, whom) for who, whom in ends]
    assert len({(flow.source, flow.target) for flow in flows}) == len(ends)
    assert not [flow for flow in flows if "10.88.0.254" in {flow.source, flow.target}]


def test_a_slot_dials_an_address_in_its_own_network() -> None:
    plan = _plan()
    assert plan.dialled("client-1", "10.88.0.3:10911") == "10.88.2.3:10911"
    assert plan.dialled("broker-a-n0", "10.88.0.3:10911") == "10.88.0.3:10911"
    there = plan.flow("client-1", "broker-a-n2")
    assert there == Flow(port="laboratory", source="10.88.2.254", target="10.88.2.3")
    back = plan.flow("broker-a-n2", "client-1")
    assert back == Flow(port="port3", source="10.88.2.3", target="10.88.2.254")
    assert "addr add 10.88.2.3/24 dev eth0" in plan.place_commands("broker-a-n2")
    assert "addr add 10.88.2.254/24 dev eth0" in plan.laboratory_commands()


def test_what_has_no_place_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match="broker-z"):
        _plan().flow("broker-z", "broker-a-n0")
    with pytest.raises(PlanError, match="no link"):
        _plan().flow(*SLOTS)
    for places, slots in ((PLACES_MAX + 1, 1), (1, SLOTS_MAX + 1)):
        with pytest.raises(PlanError, match="room"):
            NetworkPlan([f"p{i}" for i in range(places)], [f"s{i}" for i in range(slots)])


def test_rules_are_tried_in_the_order_of_their_actions_each_once() -> None:
    flow = Flow(port="port1", source="10.88.0.1", target="10.88.0.2")
    rules = [PacketRule(flow=flow, action=action) for action in reversed(Action)]
    assert [rule.action for rule in in_order(rules * 2)] == list(Action)
    for share in (0, SHARE_SCALE + 1):
        with pytest.raises(ValueError, match="share"):
            PacketRule(flow=flow, action=Action.LOSE, share=share)


def test_rules_in_bytes() -> None:
    """Lengths and places of what was compared with `nft list ruleset` when it was written."""
    (table, chain) = installed(["port1"])
    assert struct.unpack_from("=HH", table) == (10 << 8, 0x401)
    assert struct.unpack_from("=HH", chain) == (10 << 8 | 3, 0x401)
    assert TABLE.encode() in table
    assert b"port1\0" in chain
    flow = Flow(port="port1", source="10.88.0.1", target="10.88.0.2")
    for action, words in (
        (Action.DROP, [b"meta", b"payload", b"cmp", b"immediate"]),
        (Action.DROP_SYN, [b"bitwise", b"immediate"]),
        (Action.LOSE, [b"numgen", b"byteorder", struct.pack(">I", 2500), b"immediate"]),
        (Action.DELAY, [struct.pack("=I", 7777), b"fwd"]),
    ):
        rule = PacketRule(flow=flow, action=action, share=2500)
        flush, message = replaced([rule], delay_index=7777)
        assert struct.unpack_from("=HH", flush) == (10 << 8 | 8, 0x1)
        assert struct.unpack_from("=HH", message) == (10 << 8 | 6, 0xC01)
        assert len(message) % 4 == 0
        at = 0
        for word in [socket.inet_aton(flow.source), socket.inet_aton(flow.target), words[-1]]:
            at = message.index(word, at)
        assert all(word in message for word in words)


def _frame(source: str = "10.88.0.1", target: str = "10.88.0.2", size: int = 1000) -> bytes:
    head = bytes(26) + socket.inet_aton(source) + socket.inet_aton(target)
    return head + bytes(size - len(head))


def test_a_flow_keeps_its_order_whatever_the_jitter() -> None:
    line, rng = Departures(), random.Random(1)
    line.set({("10.88.0.1", "10.88.0.2"): Delay(latency_ms=50, jitter_ms=40, rate_kb_s=0)})
    due = [line.departure_s(_frame(), now_s=i / 1000, rng=rng) or -1.0 for i in range(100)]
    assert due == sorted(due)
    assert all(0.0099 <= at - i / 1000 <= 0.1901 for i, at in enumerate(due))
    assert max(due) > 0.1
    back = line.departure_s(_frame("10.88.0.2", "10.88.0.1"), now_s=1.0, rng=rng)
    assert back == 1.0, "the other direction has no delay"


def test_a_rate_lets_bytes_through_one_after_the_other() -> None:
    line, rng = Departures(), random.Random(1)
    line.set({ends_of(_frame()): Delay(latency_ms=0, jitter_ms=0, rate_kb_s=100)})
    due = [line.departure_s(_frame(), now_s=0.0, rng=rng) for _ in range(10)]
    assert due == pytest.approx([0.01 * i for i in range(1, 11)])
    assert line.departure_s(_frame(), now_s=5.0, rng=rng) == pytest.approx(5.01)


def test_what_waits_is_bounded() -> None:
    line, rng = Departures(), random.Random(1)
    frame = _frame(size=1 << 20)
    taken = [line.departure_s(frame, now_s=0.0, rng=rng) for _ in range(20)]
    assert taken.count(None) == 20 - (WAITING_BYTES_MAX >> 20) == line.refused
    line.departed(frame)
    assert line.departure_s(frame, now_s=0.0, rng=rng) == 0.0


def test_a_short_frame_belongs_to_no_flow() -> None:
    assert ends_of(bytes(30)) == ("", "")


def test_only_answers_to_own_echoes_count() -> None:
    sent = echo(7, 300)
    words = sum(struct.unpack(">4H", sent))
    assert (words & 0xFFFF) + (words >> 16) == 0xFFFF, "the checksum of the whole is all ones"
    header = bytes([0x45]) + bytes(19)
    assert echoed(header + b"\0" + sent[1:], 7) == 300
    assert echoed(header + b"\0" + sent[1:], 8) is None
    assert echoed(header + sent, 7) is None, "an echo is no answer"
    assert echoed(header + b"\0", 7) is None
    assert echoed(b"", 7) is None
