"""The compose files agree with the broker's configuration and with each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.config import load_config

COMPOSE = Path(__file__).resolve().parent.parent / "compose"


@pytest.mark.parametrize("node", ["n0", "n1", "n2"])
def test_every_node_is_configured_and_placed(node):
    config = load_config(COMPOSE / "config" / f"{node}.toml")
    assert config.node == node
    assert sorted(config.peers) == ["n0", "n1", "n2"]
    assert config.brokers[node] == config.advertised
    text = (COMPOSE / "compose.yaml").read_text(encoding="utf-8")
    host = config.advertised.rpartition(":")[0]
    assert f"ipv4_address: {host}}}" in text
    for name_server in config.name_servers:
        assert f"ipv4_address: {name_server.rpartition(':')[0]}}}" in text
