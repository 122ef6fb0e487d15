"""Settings that administrators read and change at run time, by RocketMQ's names.

Place in the data path: GET_NAMESRV_CONFIG and UPDATE_NAMESRV_CONFIG; `namesrv.server` applies the
current values. Pure.

| name | effect |
|---|---|
| orderMessageEnable | a topic's ORDER_TOPIC_CONFIG is included in its route |
| returnOrderTopicConfigToBroker | each registration is answered with all of ORDER_TOPIC_CONFIG |
| supportActingMaster | a group without a leader, if it allows it, shows its lowest id as id 0 |
| notifyMinBrokerIdChanged | a group's members are notified when their lowest id changes |
| deleteTopicWithBrokerRegistration | a leader's registration drops topics that are not in it |
| enableAllTopicList, enableTopicList | lists of topics are served |
| needWaitForService, waitSecondsForService | routes are refused for that time after the start |
| scanNotActiveBrokerInterval | milliseconds between two scans for silent brokers, from now on |

Invariant: an update is applied as a whole or not at all; a name that can't be changed or isn't
known is refused by name.

Source: RocketMQ NamesrvConfig.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["Settings", "SettingsError"]

_SCAN_INTERVAL_MS_MAX: Final = 3_600_000  # a silent broker stays in the routes for that long


class SettingsError(ValueError):
    """The update was refused; names the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The current values. Times are milliseconds unless the name says otherwise."""

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
        if not 1 <= self.scan_not_active_broker_interval <= _SCAN_INTERVAL_MS_MAX:
            raise SettingsError(
                f"scanNotActiveBrokerInterval must be at least 1, at most {_SCAN_INTERVAL_MS_MAX}"
            )

    def shown(self) -> dict[str, str]:
        """Return the values by RocketMQ's names."""
        shown: dict[str, str] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            shown[_java_name(field.name)] = (
                str(value).lower() if isinstance(value, bool) else str(value)
            )
        return shown

    def updated(self, values: Mapping[str, str]) -> Settings:
        """Return these settings with `values` by RocketMQ's names. Raises SettingsError."""
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
