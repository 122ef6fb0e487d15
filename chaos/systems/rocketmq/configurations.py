"""The configuration files of RocketMQ's brokers and name servers, as Java properties.

Place in the data path: `chaos.systems.rocketmq.system` writes them before it starts a process.

Links go through proxies where a process may be told whom to dial: name servers (`namesrvAddr`),
DLedger's peers (a list of one's own for each node, in which all others are proxies), the slave's
`haMasterAddress`, the controllers. RocketMQ leaves no choice for three kinds of requests, which
dial what their target has registered: a slave or follower copying topics and consumer offsets from
the master, the link of replicas in Controller mode, and a controller telling a broker its role.
With links of namespaces nothing stands in between, and these are cut like all others.

Sizes are small, as the stores of a run are copied and read; what the disk's other users need of it
is ignored, as in our own brokers' configuration.

It touches no file: it makes text from values.

Source: BrokerConfig, MessageStoreConfig, NamesrvConfig, ControllerConfig of RocketMQ 4.9 and 5.x.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chaos.cluster.layout import BrokerPlace, ClusterLayout, NameServerPlace
from chaos.cluster.rocketmq_layout import HA_PORT_OFFSET, Mode, controller_address, mode_of

__all__ = ["LOGBACK", "broker_properties", "name_server_properties"]

_CONTROLLERS: Final = "controllers"
_LOG_FILE_BYTES: Final = 8 * 1024 * 1024
_UNITS_PER_FILE: Final = 20_000

_BROKER: Final = {
    "flushIntervalCommitLog": 500,
    "mappedFileSizeCommitLog": _LOG_FILE_BYTES,
    "mappedFileSizeConsumeQueue": 20 * _UNITS_PER_FILE,
    "mappedFileSizeTimerLog": 1024 * 1024,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "diskMaxUsedSpaceRatio": 95,
    "warmMapedFileEnable": "false",
    "autoCreateTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "enablePropertyFilter": "true",
    # A busy machine answers late; a refusal after 200 ms in a queue would only add noise.
    "waitTimeMillsInSendQueue": 3_000,
    "registerNameServerPeriod": 10_000,
    "sendMessageThreadPoolNums": 4,
    "pullMessageThreadPoolNums": 8,
    "transactionOpBatchInterval": 500,
}
# Our names of settings that a scenario's sections become, and RocketMQ's.
_OF_SCENARIO: Final = {
    "transaction_timeout_ms": "transactionTimeOut",
    "transaction_check_interval_ms": "transactionCheckInterval",
    "transaction_check_max": "transactionCheckMax",
}
# RocketMQ 4 reads a logging configuration from its home; 5 has its own.
LOGBACK: Final = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
"""


def broker_properties(
    layout: ClusterLayout,
    place: BrokerPlace,
    *,
    store: Path,
    dial: Mapping[str, str],
    tuned: Mapping[str, object],
) -> str:
    """Return one broker's configuration. `dial`: table address = the address to dial instead;
    `tuned`: properties in the place of those of a laboratory."""
    mode = _mode(layout)
    host, _, port = place.address.rpartition(":")
    values: dict[str, object] = {
        "brokerClusterName": layout.cluster,
        "brokerName": place.group,
        "brokerIP1": host,
        "brokerIP2": host,
        "bindAddress": layout.listen_host or host,
        "listenPort": port,
        "haListenPort": int(port) + HA_PORT_OFFSET,
        "namesrvAddr": ";".join(_dialled(layout.name_server_addresses, dial)),
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
        "flushDiskType": "SYNC_FLUSH" if mode.sync_flush else "ASYNC_FLUSH",
        **_BROKER,
        **_replication(layout, place, mode, dial),
    }
    values |= {
        name: layout.broker_settings[own]
        for own, name in _OF_SCENARIO.items()
        if own in layout.broker_settings
    }
    return _text({**values, **tuned})


def name_server_properties(
    layout: ClusterLayout, place: NameServerPlace, *, home: Path, dial: Mapping[str, str]
) -> str:
    """Return one name server's configuration, with its controller where the mode has controllers.

    `home`: a directory of this name server's own.
    """
    host, _, port = place.address.rpartition(":")
    values: dict[str, object] = {
        "listenPort": port,
        "bindAddress": layout.listen_host or host,
        "kvConfigPath": home / "kvConfig.json",
        "configStorePath": home / "namesrv.properties",
        "rocketmqHome": home,
    }
    if _mode(layout).has_controllers:
        peers = {
            _controller_id(server): controller_address(server) for server in layout.name_servers
        }
        values |= {
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": _CONTROLLERS,
            "controllerDLegerPeers": _peers(peers, _controller_id(place), dial),
            "controllerDLegerSelfId": _controller_id(place),
            "controllerStorePath": home / "controller",
            "mappedFileSize": _LOG_FILE_BYTES,
            "enableElectUncleanMaster": "false",
            "scanNotActiveBrokerInterval": 1_000,
            "scanInactiveMasterInterval": 1_000,
        }
    return _text(values)


def _replication(
    layout: ClusterLayout, place: BrokerPlace, mode: Mode, dial: Mapping[str, str]
) -> dict[str, object]:
    group = layout.groups[place.group]
    if mode.is_dledger:
        peers = {member.node: member.raft_address for member in group}
        return {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": place.group,
            "dLegerSelfId": place.node,
            "dLegerPeers": _peers(peers, place.node, dial),
        }
    if mode.has_controllers:
        controllers = [controller_address(server) for server in layout.name_servers]
        return {
            "enableControllerMode": "true",
            "brokerId": -1,
            "brokerRole": "SLAVE",
            "controllerAddr": ";".join(_dialled(controllers, dial)),
            "allAckInSyncStateSet": str(mode.all_in_sync).lower(),
            "syncBrokerMetadataPeriod": 1_000,
            "checkSyncStateSetPeriod": 1_000,
            "syncControllerMetadataPeriod": 2_000,
            "controllerHeartBeatTimeoutMills": 3_000,
            "haMaxTimeSlaveNotCatchup": 5_000,
        }
    master = group[0]
    if place == master:
        # RocketMQ 5 counts the master itself, and by its default of one waits for no slave at all.
        in_sync = 2 if mode.role == "SYNC_MASTER" else 1
        return {
            "brokerId": 0,
            "brokerRole": mode.role,
            "totalReplicas": len(group),
            "inSyncReplicas": in_sync,
        }
    return {
        "brokerId": group.index(place),
        "brokerRole": "SLAVE",
        "haMasterAddress": dial.get(master.raft_address, master.raft_address),
    }


def _mode(layout: ClusterLayout) -> Mode:
    mode = mode_of(layout.engine)
    assert mode is not None, "the layout of another system"
    return mode


def _controller_id(place: NameServerPlace) -> str:
    return f"n{place.name.rpartition('-')[2]}"


def _peers(addresses: Mapping[str, str], own: str, dial: Mapping[str, str]) -> str:
    """Return DLedger's list of peers, all but the own one by the address to dial."""
    return ";".join(
        f"{name}-{address if name == own else dial.get(address, address)}"
        for name, address in addresses.items()
    )


def _dialled(addresses: list[str] | tuple[str, ...], dial: Mapping[str, str]) -> list[str]:
    return [dial.get(address, address) for address in addresses]


def _text(values: Mapping[str, object]) -> str:
    """Return Java's properties: a backslash begins an escape there."""
    lines = [f"{name}={str(value).replace(chr(92), chr(92) * 2)}" for name, value in values.items()]
    return "\n".join(lines) + "\n"
