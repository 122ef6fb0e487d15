"""Settings that administrators read and change while the name server runs, by RocketMQ's names.

Place in the data path: GET_NAMESRV_CONFIG and UPDATE_NAMESRV_CONFIG; `namesrv.server` follows the
value that is in force. Pure.

| name | what it does |
|---|---|
| orderMessageEnable | a topic's ORDER_TOPIC_CONFIG goes into its route |
| returnOrderTopicConfigToBroker | all of ORDER_TOPIC_CONFIG goes out with each registration |
| supportActingMaster | a group without a leader, if it allows it, shows its lowest id as id 0 |
| notifyMinBrokerIdChanged | a group's members are told when their lowest id changes |
| deleteTopicWithBrokerRegistration | a leader's registration drops topics that are not in it |
| enableAllTopicList, enableTopicList | whether lists of topics are told |
| needWaitForService, waitSecondsForService | routes are refused for so long after the start |
| scanNotActiveBrokerInterval | milliseconds between two looks for silent brokers |

Invariant: an update is taken as a whole or not at all; a name that can't be changed or isn't known
is refused by name.

Source: RocketMQ NamesrvConfig.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Settings", "SettingsError"]


class SettingsError(ValueError):
    """The update was not taken; names the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Times are milliseconds where the name says nothing else."""

    order_message_enable: bool = True
    return_order_topic_config_to_broker: bool = True
    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    delete_topic_with_broker_registration: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    scan_not_active_broker_interval: int = 5_000

    def __post_init__(self) -> None:
        if self.scan_not_active_broker_interval < 1:
            raise SettingsError("scanNotActiveBrokerInterval must be at least 1")

    def shown(self) -> dict[str, str]:
        """By RocketMQ's names."""
        shown: dict[str, str] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            shown[_java_name(field.name)] = (
                str(value).lower() if isinstance(value, bool) else str(value)
            )
        return shown

    def updated(self, values: Mapping[str, str]) -> Settings:
        """With `values` by RocketMQ's names. Raises SettingsError."""
        fields = {_java_name(field.name): field.name for field in dataclasses.fields(self)}
        changes: dict[str, bool | int] = {}
        for name, text in values.items():
            field = fields.get(name)
            if field is None:
                raise SettingsError(f"{name[:80]}: no setting that can be changed while running")
            if isinstance(getattr(self, field), bool):
                changes[field] = _boolean(name, text)
            else:
                changes[field] = _integer(name, text)
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]  # by the field's type


def _java_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _boolean(name: str, text: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise SettingsError(f"{name}: {text[:40]!r} is not true or false")
    return text.strip().lower() == "true"


def _integer(name: str, text: str) -> int:
    stripped = text.strip()
    if not stripped.isascii() or not stripped.isdecimal() or len(stripped) > 12:
        raise SettingsError(f"{name}: {text[:40]!r} is not a whole number")
    return int(stripped)
