"""Settings of a broker group's replicas, as an operator changes them while they run.

Place in the data path: UPDATE_BROKER_CONFIG goes to each replica, one after the other, for the
parts of `operator` that then try what a setting does.

Invariant: each change is recorded, with its outcome, by `SettingsRecord`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chaos.cluster.layout import BrokerPlace
from chaos.workload.parts.common.settings_record import SettingsRecord
from chaos.workload.parts.operator.requests import OperatorRequests
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["BrokerSettings"]


class BrokerSettings:
    """The settings of one broker group's replicas."""

    def __init__(
        self,
        requests: OperatorRequests,
        record: SettingsRecord,
        places: Sequence[BrokerPlace],
        *,
        broker_group: str,
    ) -> None:
        self._requests = requests
        self._record = record
        self._places = places
        self._group = broker_group

    async def set(self, values: Mapping[str, str]) -> bool:
        """Set them at all replicas; return whether all have them."""
        body = "".join(f"{name}={value}\n" for name, value in values.items()).encode()
        outcomes = [await self._set_at(place, values, body) for place in self._places]
        return all(outcome == "ok" for outcome in outcomes)

    async def _set_at(self, place: BrokerPlace, values: Mapping[str, str], body: bytes) -> str:
        async def send() -> str:
            command = RemotingCommand(code=RequestCode.UPDATE_BROKER_CONFIG, body=body)
            await self._requests.at(place.address, command)
            return place.address

        return await self._record.change(
            {f"{name} {place.name}": value for name, value in values.items()},
            send,
            how="update of settings",
            broker_group=self._group,
        )
