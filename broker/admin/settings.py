"""GET_BROKER_CONFIG, UPDATE_BROKER_CONFIG: this process's settings, as properties text.

Place in the data path: none. A change applies to this replica only, as in RocketMQ: tools send it
to every replica. Rules: `broker.config.settings`; source: RocketMQ
AdminBrokerProcessor.
"""

from __future__ import annotations

import json
import logging
from typing import Final

from broker.config.settings import (
    ReadOnlySettingError,
    SettingError,
    changed,
    properties_text,
    save_settings,
)
from broker.request.desk import Desk
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from remoting.protocol.codes import ResponseCode
from remoting.protocol.java_properties import JavaPropertiesError, parse_java_properties

__all__ = ["SettingsProcessor"]

_log = logging.getLogger(__name__)
_BODY_SIZE_MAX: Final = 65_536


class SettingsProcessor:
    """Requests about the settings of this replica."""

    def __init__(self, replica: Replica, desk: Desk) -> None:
        self._replica = replica
        self._desk = desk
        self._changed_ms = replica.clock_ms()

    def show(self, request: Request) -> None:
        """Answer GET_BROKER_CONFIG."""
        version = {
            "stateVersion": 0,
            "timestamp": self._changed_ms,
            "counter": self._replica.settings_changes,
        }
        request.reply(
            ResponseCode.SUCCESS,
            None,
            {"version": json.dumps(version, separators=(",", ":"))},
            properties_text(self._replica.config).encode(),
        )

    def update(self, request: Request) -> None:
        """Change all of some settings, or none of them (UPDATE_BROKER_CONFIG), and answer. Raises
        RefusedError."""
        replica, body = self._replica, request.command.body
        if len(body) > _BODY_SIZE_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(body)} bytes of settings; at most {_BODY_SIZE_MAX} are allowed",
            )
        try:
            values = parse_java_properties(body.decode())
            config = changed(replica.config, values)
        except UnicodeDecodeError as error:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"not UTF-8: {error}") from error
        except ReadOnlySettingError as error:
            raise RefusedError(ResponseCode.NO_PERMISSION, str(error)) from error
        except (SettingError, JavaPropertiesError) as error:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        # Saved before they are in force: an answered change survives a restart.
        try:
            save_settings(replica.config, values)
        except OSError as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"the settings can't be saved: {error}"
            ) from error
        _log.info("settings changed by %s: %s", request.connection.peer, values)
        replica.change_settings(config)
        self._changed_ms = replica.clock_ms()
        self._desk.routes_changed()
        request.reply(ResponseCode.SUCCESS)
