"""A broker's configuration under RocketMQ's names, and changes of it while the broker runs.

Place in the data path: GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG. Changes are saved in
`settings.json` of the store and override the configuration file at the next start
(docs/FORMATS.md section 12).

Invariants: a change is applied as a whole or not at all; an unknown name, an illegal value, and a
setting that only a restart can change are rejected by name. A setting that may change is read where
it is used, each time. Source: RocketMQ BrokerConfig, MessageStoreConfig.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.config.config import MESSAGE_SIZE_MAX, BrokerConfig, ConfigError
from broker.entry.topics import TRACE_TOPIC
from remoting.protocol.java_properties import properties_lines

__all__ = [
    "SETTINGS",
    "ReadOnlySettingError",
    "Setting",
    "SettingError",
    "changed",
    "document",
    "load_settings",
    "properties_text",
    "save_settings",
]

_FILE: Final = "settings.json"
_VERSION: Final = 1
_INT_MAX: Final = (1 << 31) - 1

Value = int | bool | str


class SettingError(ValueError):
    """Illegal change of a setting; the text names it and the reason."""


class ReadOnlySettingError(SettingError):
    """Change of a setting that only a restart can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Setting as RocketMQ names it: `show` returns its text, `field` is the BrokerConfig attribute
    that a change sets, `effect` describes the change. Without a field it is read-only."""

    name: str
    show: Callable[[BrokerConfig], Value]
    field: str | None = None
    effect: str = ""
    legal: Callable[[Value], bool] = lambda _: True
    legal_text: str = ""


def _changeable(
    name: str,
    field: str,
    effect: str,
    legal: Callable[[Value], bool] = lambda _: True,
    legal_text: str = "",
) -> Setting:
    return Setting(
        name=name,
        show=lambda config: getattr(config, field),
        field=field,
        effect=effect,
        legal=legal,
        legal_text=legal_text,
    )


def _shown(name: str, show: Callable[[BrokerConfig], Value]) -> Setting:
    return Setting(name=name, show=show)


def _flush_disk_type(config: BrokerConfig) -> Value:
    is_async = config.is_master_slave and config.flush == "async"
    return "ASYNC_FLUSH" if is_async else "SYNC_FLUSH"


def _broker_role(config: BrokerConfig) -> Value:
    if config.is_master_slave and config.node != config.master_node:
        return "SLAVE"
    return "ASYNC_MASTER" if config.engine == "async" else "SYNC_MASTER"


def _percent(value: Value) -> bool:
    return isinstance(value, int) and 0 < value <= 1_000


_LIST: Final = (
    _changeable(
        "brokerPermission",
        "broker_permission",
        "what clients may do here: 6 all, 4 pull and pop, 2 send; told to name servers at once; "
        "sends by an older route are taken, but for ordered topics",
        lambda value: value in {2, 4, 6},
        "2, 4 or 6",
    ),
    _changeable("autoCreateTopicEnable", "auto_create_topic", "whether sends may make topics"),
    _changeable("rejectTransactionMessage", "reject_transactions", "whether halves are refused"),
    _changeable(
        "maxMessageSize",
        "message_size_max",
        "the largest body that a send may bring",
        lambda value: isinstance(value, int) and 0 < value <= MESSAGE_SIZE_MAX,
        f"1 to {MESSAGE_SIZE_MAX}, so that a batch fits an entry of the log",
    ),
    _changeable("transactionTimeOut", "transaction_timeout_ms", "how old a half is at its check"),
    _changeable(
        "transactionCheckInterval",
        "transaction_check_interval_ms",
        "between two checks of one half; read at the next round, at most a second later",
    ),
    _changeable("transactionCheckMax", "transaction_check_max", "checks before a half is given up"),
    _changeable("fileReservedTime", "file_reserved_time_hours", "hours that messages are kept"),
    _changeable("deleteWhen", "delete_when", "hours of the day at which what is old goes"),
    _changeable(
        "diskMaxUsedSpaceRatio",
        "disk_max_used_space_ratio",
        "percent of the disk from which what is old goes at any hour",
        _percent,
        "1 to 1000",
    ),
    _changeable(
        "diskSpaceCleanForciblyRatio",
        "disk_space_clean_forcibly_ratio",
        "percent of the disk from which the oldest goes whatever its age",
        _percent,
        "1 to 1000",
    ),
    _changeable(
        "diskSpaceWarningLevelRatio",
        "disk_space_warning_level_ratio",
        "percent of the disk from which no message of a client is stored",
        _percent,
        "1 to 1000",
    ),
    _changeable(
        "cleanFileForciblyEnable",
        "clean_file_forcibly_enable",
        "whether the oldest may go forcibly",
    ),
    _changeable(
        "maxTransferCountOnMessageInMemory",
        "pull_count_max",
        "the most messages that a pull brings",
        lambda value: isinstance(value, int) and 0 < value <= 100_000,
        "1 to 100000",
    ),
    _changeable(
        "maxTransferBytesOnMessageInMemory",
        "pull_size_max",
        "the most bytes that a pull brings, unless one message has more",
        lambda value: isinstance(value, int) and 0 < value <= 12 << 20,
        "1 to 12582912, so that an answer fits a frame",
    ),
    _changeable(
        "enablePropertyFilter", "enable_property_filter", "whether SQL92 expressions are taken"
    ),
    _changeable(
        "useServerSideResetOffset",
        "use_server_side_reset_offset",
        "whether pulls are answered with resets, or online members told by request 220",
    ),
    _changeable("timerWheelEnable", "timer_wheel_enable", "whether messages of any time are taken"),
    _changeable(
        "timerMaxDelaySec",
        "timer_max_delay_sec",
        "how far ahead a message may ask for, in seconds; those that wait already stay",
    ),
    _changeable("recallMessageEnable", "recall_message_enable", "whether messages may be recalled"),
    _changeable(
        "slaveReadEnable",
        "slave_read_enable",
        "whether consumers that are far behind are sent to a slave; of the engines async and sync "
        "alone: members of a Raft group answer pulls of whoever asks them",
    ),
    _changeable(
        "accessMessageInMemoryMaxRatio",
        "access_message_in_memory_max_ratio",
        "percent of the memory that counts as far behind; in_memory_size_bytes_max goes before it",
        lambda value: isinstance(value, int) and 0 <= value <= 100,
        "0 to 100",
    ),
    _shown("brokerName", lambda config: config.group),
    _shown("brokerId", lambda config: config.broker_id),
    _shown("brokerClusterName", lambda config: config.cluster),
    _shown("brokerIP1", lambda config: config.advertised.rpartition(":")[0]),
    _shown("listenPort", lambda config: int(config.listen.rpartition(":")[2])),
    _shown("namesrvAddr", lambda config: ";".join(config.name_servers)),
    _shown("regionId", lambda config: config.region),
    _shown("storePathRootDir", lambda config: str(config.store)),
    _shown("mappedFileSizeCommitLog", lambda config: config.segment_size_bytes_max),
    _shown("mappedFileSizeConsumeQueue", lambda _: 6_000_000),
    _shown("registerNameServerPeriod", lambda config: config.registration_interval_ms),
    _shown("aclEnable", lambda config: config.acl_enable),
    # Choices of RocketMQ that are fixed here.
    _shown("traceTopicEnable", lambda config: config.trace_topic_enable),
    _shown("traceOn", lambda _: True),
    _shown("msgTraceTopicName", lambda _: TRACE_TOPIC),
    _shown("clientCallbackExecutorThreads", lambda _: os.cpu_count() or 1),
    _shown("flushDiskType", _flush_disk_type),
    _shown("brokerRole", _broker_role),
    _shown("syncFlushTimeout", lambda config: config.sync_flush_timeout_ms),
    _shown("slaveTimeout", lambda config: config.slave_timeout_ms),
    _shown("inSyncReplicas", lambda config: config.in_sync_replicas),
    _shown("haListenPort", lambda config: int(config.raft_listen.rpartition(":")[2])),
    _shown("enableDLegerCommitLog", lambda _: False),
    _shown("autoCreateSubscriptionGroup", lambda _: True),
    _shown("longPollingEnable", lambda _: True),
    _shown("defaultTopicQueueNums", lambda _: 8),
    _shown(
        "messageDelayLevel",
        lambda _: "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    ),
)
SETTINGS: Final[dict[str, Setting]] = {setting.name: setting for setting in _LIST}


def properties_text(config: BrokerConfig) -> str:
    """Return all settings as properties text, one per line."""
    return properties_lines({setting.name: _text(setting.show(config)) for setting in _LIST})


def _text(value: Value) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def document() -> str:
    """Return docs/SETTINGS.md; `python -m broker.config.settings docs/SETTINGS.md` writes it."""
    config = BrokerConfig(group="g", node="n", peers={"n": "127.0.0.1:1"})
    lines = [
        "# Settings",
        "",
        "What GET_BROKER_CONFIG shows. Made by\n"
        "`python -m broker.config.settings docs/SETTINGS.md`.",
        "",
        "## What can change while a broker runs",
        "By UPDATE_BROKER_CONFIG, for the replica that is asked; kept in its store.",
        "",
        "| setting | default | in the configuration file | what it does |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{setting.name}` | {_text(setting.show(config))} | `{setting.field}` "
        f"| {setting.effect}{f' ({setting.legal_text})' if setting.legal_text else ''} |"
        for setting in _LIST
        if setting.field is not None
    ]
    lines += ["", "## What only a start can change, or nothing", ""]
    shown = [f"`{setting.name}`" for setting in _LIST if setting.field is None]
    return "\n".join([*lines, ", ".join(shown) + "."]) + "\n"


# Changes -----------------------------------------------------------------------------------------


def changed(config: BrokerConfig, values: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration with `values` set. Raises SettingError, ReadOnlySettingError."""
    fields: dict[str, Value] = {}
    for name, text in values.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise SettingError(f"{name[:80]}: there is no such setting")
        before = setting.show(config)
        if text == _text(before):
            continue
        if setting.field is None:
            raise ReadOnlySettingError(
                f"{name}: is {_text(before)!r}, and can't change while the broker runs"
            )
        value = _parsed(name, text, before)
        if not setting.legal(value):
            raise SettingError(f"{name}: {text[:40]!r} is not {setting.legal_text}")
        fields[setting.field] = value
    try:
        return dataclasses.replace(config, **fields)  # type: ignore[arg-type]  # by field name
    except ConfigError as error:
        raise SettingError(str(error)) from error


def _parsed(name: str, text: str, before: Value) -> Value:
    if isinstance(before, bool):
        if text.lower() not in {"true", "false"}:
            raise SettingError(f"{name}: {text[:40]!r} is not true or false")
        return text.lower() == "true"
    if isinstance(before, int):
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 11 else -1
        if not 0 <= number <= _INT_MAX:
            raise SettingError(f"{name}: {text[:40]!r} is not a whole number of 32 bits")
        return number
    return text


# The file ----------------------------------------------------------------------------------------


def load_settings(config: BrokerConfig) -> BrokerConfig:
    """Return the configuration with the saved settings. Those that can't change while a broker runs
    are the configuration file's, whatever a release before this one has saved of them. Raises
    ConfigError, OSError."""
    path = config.store / _FILE
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != _VERSION:
            raise ConfigError(f"{path}: version {document['version']}, expected {_VERSION}")
        saved = {
            name: text
            for name, text in document["settings"].items()
            if name not in SETTINGS or SETTINGS[name].field is not None
        }
        return changed(config, saved)
    except FileNotFoundError:
        return config
    except (SettingError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def save_settings(config: BrokerConfig, values: Mapping[str, str]) -> None:
    """Add to the saved settings those of `values` that differ from the present `config`, or are
    saved already: a tool that sends all of them back has changed one, and the configuration file
    goes on to say the others. The file is replaced atomically and fsynced. Raises OSError."""
    path = config.store / _FILE
    settings = json.loads(path.read_bytes())["settings"] if path.exists() else {}
    fresh = {
        name: text
        for name, text in values.items()
        if name in settings or text != _text(SETTINGS[name].show(config))
    }
    document = {"version": _VERSION, "settings": {**settings, **fresh}}
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
