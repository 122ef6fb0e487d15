"""A wrong configuration is one clear sentence that names the key."""

from __future__ import annotations

import pytest

from broker.config import ConfigError, load_config

GOOD = """
group = "broker-a"
node = "n0"
listen = "127.0.0.1:10911"
raft_listen = "127.0.0.1:10915"
store = "store"
[peers]
n0 = "127.0.0.1:10915"
[broker]
transaction_timeout_ms = 3000
dedupe_window_ms = 1000
pending_max = 5
"""


def test_sections_and_nested_limits_are_read(tmp_path):
    path = tmp_path / "broker.toml"
    path.write_text(GOOD)
    config = load_config(path)
    assert config.transaction_timeout_ms == 3000
    assert config.limits.dedupe_window_ms == 1000
    assert config.proposer.pending_max == 5
    assert config.advertised == "127.0.0.1:10911"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('group = "broker-a"', "", "group"),
        ('node = "n0"', 'node = "n9"', "peers: does not name this node"),
        ('listen = "127.0.0.1:10911"', 'listen = "nowhere"', "listen: 'nowhere' is not host:port"),
        ("transaction_timeout_ms = 3000", "transaction_timeout_ms = 0", "transaction_timeout_ms"),
        ("dedupe_window_ms = 1000", 'dedupe_window_ms = "1"', "dedupe_window_ms"),
        ("pending_max = 5", "colour = 5", "colour: there is no such setting"),
        ("[broker]", '[broker]\nengine = "magic"', "engine: 'magic'"),
        ("[peers]", '[peers]\nn1 = "127.0.0.1:1"', "secret_file"),
        ("[broker]", "[broker", "not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, old, new, message):
    path = tmp_path / "broker.toml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        load_config(path)
