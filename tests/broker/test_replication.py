"""Which log a configuration opens, and with what times."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from unittest import mock

import pytest

from broker.config.config import BrokerConfig, ConfigError
from broker.process.replication import open_log
from raft.node.node import RaftNode
from raft.profiles import PROFILES
from raft.pysyncobj.log import PySyncObjLog
from tests.raft.node_group import Recorder


def config(tmp_path: Path, **values: object) -> BrokerConfig:
    defaults: dict[str, object] = {
        "group": "broker-a",
        "node": "n0",
        "raft_listen": "127.0.0.1:10915",
        "peers": {"n0": "127.0.0.1:10915"},
        "store": tmp_path,
    }
    return BrokerConfig(**{**defaults, **values})


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_profile_gives_the_times_that_are_not_given(tmp_path: Path, profile: str) -> None:
    times = PROFILES[profile]
    log = open_log(config(tmp_path, profile=profile), Recorder())
    assert isinstance(log, RaftNode)
    raft = log._config.raft
    assert raft.heartbeat_ms == times.heartbeat_ms
    assert raft.campaign_delay_ms_max == times.campaign_delay_ms_max
    log = open_log(config(tmp_path, profile=profile, heartbeat_ms=20), Recorder())
    assert isinstance(log, RaftNode)
    assert log._config.raft.heartbeat_ms == 20
    assert log._config.raft.election_timeout_ms_max == times.election_timeout_ms_max


async def test_snapshots_come_as_often_as_asked_for(tmp_path: Path) -> None:
    log = open_log(config(tmp_path, snapshot_interval_size_bytes=5 << 20), Recorder())
    assert isinstance(log, RaftNode)
    assert log._config.snapshot_interval_size_bytes == 5 << 20


async def test_the_log_is_fsynced_as_asked_for(tmp_path: Path) -> None:
    log = open_log(config(tmp_path, fsync_by="thread"), Recorder())
    assert isinstance(log, RaftNode)
    assert log._config.fsync_by == "thread"
    with pytest.raises(ConfigError, match=r"fsync_by: 'uring' is not one of kernel, thread"):
        open_log(config(tmp_path, fsync_by="uring"), Recorder())


@pytest.mark.parametrize("size", [43, 1 << 31])
async def test_a_segment_has_a_size_that_its_offsets_can_name(tmp_path: Path, size: int) -> None:
    with pytest.raises(ConfigError, match=r"segment_size_bytes_max: \d+ is not within 44"):
        open_log(config(tmp_path, segment_size_bytes_max=size), Recorder())


async def test_pysyncobj_is_opened_where_it_is_asked_for(tmp_path: Path) -> None:
    log = open_log(config(tmp_path, engine="pysyncobj", pysyncobj_flush=False), Recorder())
    assert isinstance(log, PySyncObjLog)
    assert not log._config.flush
    assert log._config.batch


async def test_pysyncobj_is_not_opened_to_strangers(tmp_path: Path) -> None:
    peers = {"n0": "10.1.2.3:10915"}
    with pytest.raises(ConfigError, match=r"10\.1\.2\.3:10915 is not a loopback address"):
        open_log(config(tmp_path, engine="pysyncobj", peers=peers), Recorder())


async def test_a_password_needs_the_package_that_encrypts(tmp_path: Path) -> None:
    with (
        mock.patch.object(importlib.util, "find_spec", return_value=None),
        pytest.raises(ConfigError, match="needs the package cryptography"),
    ):
        open_log(config(tmp_path, engine="pysyncobj", pysyncobj_password=True), Recorder())
