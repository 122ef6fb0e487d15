"""A wrong configuration is one clear sentence that names the key."""

from __future__ import annotations

import pytest

from broker.config.config import BrokerConfig, ConfigError, load_config
from broker.config.settings import SETTINGS

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
    path.write_text(GOOD.replace("[peers]", "[raft]\nsnapshot_interval_size_bytes = 4096\n[peers]"))
    assert load_config(path).snapshot_interval == 4096


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('group = "broker-a"', "", "group"),
        ('node = "n0"', 'node = "n9"', "peers: does not name this node"),
        ('listen = "127.0.0.1:10911"', 'listen = "nowhere"', "listen: 'nowhere' is not host:port"),
        (
            'listen = "127.0.0.1:10911"',
            'listen = "127.0.0.1:10911"\nadvertised = "broker-b..svc.local:10911"',
            "advertised: 'broker-b..svc.local:10911' is not host:port",
        ),
        ("transaction_timeout_ms = 3000", "transaction_timeout_ms = 0", "transaction_timeout_ms"),
        ("dedupe_window_ms = 1000", 'dedupe_window_ms = "1"', "dedupe_window_ms"),
        ("pending_max = 5", "colour = 5", "colour: there is no such setting"),
        ("[broker]", '[broker]\nengine = "magic"', "engine: 'magic'"),
        ("[broker]", '[raft]\nprofile = "turbo"\n[broker]', "profile: 'turbo'"),
        (
            "[broker]",
            "[raft]\nsnapshot_interval_size_bytes = 0\n[broker]",
            "snapshot_interval_size_bytes must be at least 1, not 0",
        ),
        (
            "[broker]",
            "[raft]\nsnapshot_interval_size_bytes = -1\n[broker]",
            "snapshot_interval_size_bytes must be at least 0, not -1",
        ),
        ("[peers]", '[peers]\nn1 = "127.0.0.1:1"', "secret_file"),
        ("[broker]", "[broker", "not TOML"),
        ("[broker]", '[broker]\ndelete_when = "24"', "delete_when: '24' names no hours"),
        ("[broker]", '[broker]\ndelete_when = ""', "delete_when: '' names no hours"),
        ("[broker]", '[broker]\ndelete_when = "4am"', "delete_when: '4am' names no hours"),
        ("[broker]", "[broker]\nfile_reserved_time_hours = 0", "file_reserved_time_hours"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, old, new, message):
    path = tmp_path / "broker.toml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        load_config(path)


def test_retention_has_rocketmqs_names_and_defaults(tmp_path):
    path = tmp_path / "broker.toml"
    path.write_text(GOOD)
    default = load_config(path).retention
    assert default.file_reserved_time_hours == 72
    assert default.delete_hours == {4}
    assert default.disk_max_used_space_ratio == 75
    assert default.disk_space_clean_forcibly_ratio == 85
    assert load_config(path).disk_space_warning_level_ratio == 90
    assert default.log_size_bytes_max == 0
    assert load_config(path).snapshot_interval == 1 << 30
    settings = """[broker]
file_reserved_time_hours = 1
delete_when = "04;16"
log_size_bytes_max = 1000
clean_file_forcibly_enable = false
"""
    path.write_text(GOOD.replace("[broker]\n", settings))
    policy = load_config(path).retention
    assert policy.reserved_ms == 3_600_000
    assert policy.delete_hours == {4, 16}
    assert policy.log_size_bytes_max == 1000
    assert load_config(path).snapshot_interval == 250, "retention stays behind the older of two"
    assert not policy.clean_file_forcibly_enable


@pytest.mark.parametrize(
    ("node", "master", "shown"), [("n1", "n1", 0), ("n0", "n1", 1), ("n2", "n1", 2), ("n0", "", 0)]
)
def test_a_slaves_id_is_told_as_it_is_in_routes(node: str, master: str, shown: int) -> None:
    peers = dict.fromkeys(("n0", "n1", "n2"), "127.0.0.1:1")
    config = BrokerConfig(group="g", node=node, peers=peers, engine="async", master=master)
    assert SETTINGS["brokerId"].show(config) == shown
    assert SETTINGS["brokerRole"].show(config) == ("SLAVE" if shown else "ASYNC_MASTER")
