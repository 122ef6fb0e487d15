"""The layout of a cluster: names, addresses and configurations from a few numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.config.config import parse_config
from chaos.cluster.layout import (
    BrokerPlace,
    ClusterLayout,
    LayoutError,
    broker_config_toml,
    fixed_ports,
    lay_out,
    layout_from_json,
    layout_to_json,
)
from chaos.cluster.masters import with_master


def _layout(
    groups: int = 2,
    replicas: int = 3,
    engine: str = "raft",
    broker_settings: Mapping[str, int | bool | str] | None = None,
) -> ClusterLayout:
    ports = fixed_ports(
        groups=groups, replicas=replicas, name_servers=2, name_server_port=9876, base_port=10911
    )
    return lay_out(
        groups=groups,
        replicas=replicas,
        name_servers=2,
        ports=ports,
        engine=engine,
        broker_settings=broker_settings,
    )


def _config(layout: ClusterLayout, place: BrokerPlace) -> str:
    return broker_config_toml(
        layout, place, store=Path("store"), secret_file=Path("secret"), dial={}
    )


def test_names_and_ports_follow_the_rules() -> None:
    layout = _layout()
    assert [p.name for p in layout.brokers][:4] == [
        "broker-a-n0",
        "broker-a-n1",
        "broker-a-n2",
        "broker-b-n0",
    ]
    assert layout.brokers[0].address == "127.0.0.1:10911"
    assert layout.brokers[0].raft_address == "127.0.0.1:10916"
    assert layout.brokers[4].address == "127.0.0.1:10951"
    assert layout.name_server_addresses == ("127.0.0.1:9876", "127.0.0.1:9877")


def test_configuration_is_toml_and_names_every_voter() -> None:
    layout = _layout()
    place = layout.brokers[4]
    text = broker_config_toml(
        layout,
        place,
        store=Path('/tmp/a "quoted" place'),
        secret_file=Path("/tmp/secret"),
        dial={"127.0.0.1:10946": "127.0.0.1:40000"},
    )
    data = tomllib.loads(text)
    assert data["group"] == "broker-b"
    assert data["node"] == "n1"
    assert data["store"] == '/tmp/a "quoted" place'
    assert data["peers"] == {p.node: p.raft_address for p in layout.groups["broker-b"]}
    assert data["dial"] == {"127.0.0.1:10946": "127.0.0.1:40000"}
    assert data["trace"] is True


def test_json_round_trip() -> None:
    layout = _layout()
    assert layout_from_json(layout_to_json(layout)) == layout


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1}'])
def test_damaged_json_is_a_layout_error(text: str) -> None:
    with pytest.raises(LayoutError, match=r"cluster\.json"):
        layout_from_json(text)


def test_ports_that_collide_or_overflow_are_named() -> None:
    with pytest.raises(LayoutError, match="port 10911"):
        fixed_ports(groups=1, replicas=3, name_servers=1, name_server_port=10911, base_port=10911)
    with pytest.raises(LayoutError, match="65536"):
        fixed_ports(groups=1, replicas=1, name_servers=1, name_server_port=1, base_port=65531)


@pytest.mark.parametrize(("groups", "replicas"), [(0, 3), (27, 1), (1, 0), (1, 8)])
def test_numbers_out_of_range(groups: int, replicas: int) -> None:
    ports = fixed_ports(
        groups=groups, replicas=replicas, name_servers=1, name_server_port=1, base_port=10
    )
    with pytest.raises(LayoutError, match="must be 1"):
        lay_out(groups=groups, replicas=replicas, name_servers=1, ports=ports)


def test_unknown_engine_is_named() -> None:
    ports = fixed_ports(groups=1, replicas=1, name_servers=1, name_server_port=1, base_port=10)
    with pytest.raises(LayoutError, match="paxos"):
        lay_out(groups=1, replicas=1, name_servers=1, ports=ports, engine="paxos")


@pytest.mark.parametrize(
    ("name", "engine", "flush"),
    [
        ("raft", "raft", None),
        ("pysyncobj", "pysyncobj", None),
        ("async", "async", "async"),
        ("async-flush", "async", "sync"),
        ("sync", "sync", "async"),
        ("sync-flush", "sync", "sync"),
    ],
)
def test_engines_by_the_names_that_people_give(name: str, engine: str, flush: str | None) -> None:
    layout = _layout(engine=name)
    assert (layout.engine, layout.flush) == (engine, flush)
    data = tomllib.loads(_config(layout, layout.brokers[0]))
    assert (data["engine"], data.get("broker", {}).get("flush")) == (engine, flush)
    assert parse_config(_config(layout, layout.brokers[0])).engine == engine


def test_flush_is_not_said_twice_in_different_words() -> None:
    assert _layout(engine="sync", broker_settings={"flush": "sync"}).flush == "sync"
    with pytest.raises(LayoutError, match="sync-flush flushes sync, not async"):
        _layout(engine="sync-flush", broker_settings={"flush": "async"})
    with pytest.raises(LayoutError, match="flush is a setting of async and sync alone"):
        _layout(broker_settings={"flush": "sync"})
    with pytest.raises(LayoutError, match="unknown engine 'raft-flush'"):
        _layout(engine="raft-flush")


def test_a_master_that_was_made_by_hand_stands_in_every_configuration_of_its_group() -> None:
    layout = _layout(engine="sync")
    assert layout.master_of("broker-b").node == "n0"
    changed = layout_from_json(layout_to_json(with_master(layout, "broker-b", "n2")))
    assert changed.master_of("broker-b").node == "n2"
    assert changed.master_of("broker-a").node == "n0"
    masters = {
        place.name: parse_config(_config(changed, place)).master_node for place in changed.brokers
    }
    assert {masters[f"broker-b-n{number}"] for number in range(3)} == {"n2"}
    assert {masters[f"broker-a-n{number}"] for number in range(3)} == {"n0"}
