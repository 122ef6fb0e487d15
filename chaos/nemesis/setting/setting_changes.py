"""Settings that change under load: on one running broker, or on all by a rolling restart.

Place in the data path: `chaos.systems` sends the change to the broker's own address, or writes it
into the file that the next start reads. While a rolling restart is on its way the nodes of a group
work with different settings.

Effect: the broker itself shows the new value; healed when it shows the former one.

Source: RocketMQ's UPDATE_BROKER_CONFIG; CockroachDB's mixed cluster settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec, Observation
from chaos.nemesis.process.node_fault import (
    Campaign,
    await_answer,
    choose_nodes,
    target_nodes,
)
from chaos.systems.base import Part

__all__ = ["SPECS", "ChangedSetting", "RollingSetting"]

TERMINATE_TIMEOUT_S: Final = 15.0
BACK_TIMEOUT_S: Final = 30.0
# By choice: the name under which it is shown and changed, and the other value.
_RUNNING: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "small-pulls": ("maxTransferCountOnMessageInMemory", "1"),
        "small-messages": ("maxMessageSize", "64"),
        "no-transactions": ("rejectTransactionMessage", "true"),
        "read-only": ("brokerPermission", "4"),
        "no-recalls": ("recallMessageEnable", "false"),
    }
)
# As the configuration file names it, as it is shown, and the other value.
_AT_START: Final = ("timer_max_delay_sec", "timerMaxDelaySec", 3600)


class ChangedSetting:
    """Changes one setting of one running node."""

    def __init__(self, context: FaultContext) -> None:
        self._context = context
        self._name, self._value = _RUNNING[str(context.params["change"])]
        self._node = ""
        self._before: str | None = None

    @property
    def targets(self) -> list[str]:
        return [self._node] if self._node else []

    async def setup(self) -> None:
        (self._node,) = target_nodes(self._context)
        self._before = await self._shown()
        if self._before is None or self._before == self._value:
            raise FaultNotPossibleError(f"{self._node} shows {self._name} = {self._before}")

    async def inject(self) -> None:
        await self._context.settings.update(self._node, {self._name: self._value})

    async def probe(self) -> Observation:
        return await self._observe(self._value)

    async def heal(self) -> None:
        if self._before is not None:
            await self._context.settings.update(self._node, {self._name: self._before})

    async def probe_healed(self) -> Observation:
        return await self._observe(str(self._before))

    async def _observe(self, wanted: str) -> Observation:
        shown = await self._shown()
        text = f"{self._node} shows {self._name} = {shown}"
        return Observation(seen=None if shown is None else shown == wanted, evidence=text)

    async def _shown(self) -> str | None:
        values = await self._context.settings.read(self._node)
        return None if values is None else values.get(self._name)


class RollingSetting(Campaign):
    """Restarts the nodes one after the other with another setting, and so back at the heal."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, lambda context: choose_nodes(context, "all"))
        self._before: dict[str, str | None] = {}
        self._changed: list[str] = []

    async def setup(self) -> None:
        await super().setup()
        self._before = {node: await self._shown(node) for node in self._nodes}

    async def _act(self) -> None:
        for node in self._nodes:
            await self._restart(node, {_AT_START[0]: _AT_START[2]})
            if await self._shown(node) == str(_AT_START[2]):
                self._changed.append(node)

    async def _restart(self, node: str, values: Mapping[str, int | bool | str] | None) -> None:
        self._context.settings.at_next_start(node, values)
        await self._context.processes.terminate(node, timeout_s=TERMINATE_TIMEOUT_S)
        await self._context.processes.restart(node)
        await await_answer(self._context, node, timeout_s=BACK_TIMEOUT_S)

    def _observed(self) -> Observation:
        text = f"{_AT_START[1]} = {_AT_START[2]} on {', '.join(self._changed) or 'none'}"
        return Observation(seen=len(self._changed) == len(self._nodes), evidence=text)

    async def heal(self) -> None:
        await super().heal()
        for node in self._nodes:
            await await_answer(self._context, node, timeout_s=BACK_TIMEOUT_S)
            if await self._shown(node) == self._before[node]:
                self._context.settings.at_next_start(node, None)
            else:
                await self._restart(node, None)

    async def probe_healed(self) -> Observation:
        shown = {node: await self._shown(node) for node in self._nodes}
        text = ", ".join(f"{node} shows {value}" for node, value in shown.items())
        if shown != self._before:
            return Observation(seen=False, evidence=text)
        return await super().probe_healed()

    async def _shown(self, node: str) -> str | None:
        values = await self._context.settings.read(node)
        return None if values is None else values.get(_AT_START[1])


SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="changed-setting",
        summary="a setting of a running broker is changed, and changed back at the heal",
        probe="the broker shows the new value; healed when it shows the former one",
        parts=frozenset({Part.PROCESSES, Part.SETTINGS}),
        make=ChangedSetting,
        seen_elsewhere="CockroachDB",
        parameters={"target": "leader", "change": "small-pulls"},
        choices={"target": ("leader", "follower", "any"), "change": tuple(_RUNNING)},
    ),
    FaultSpec(
        name="rolling-setting",
        summary="the nodes are restarted one after the other with another setting",
        probe="every node shows the new value; healed when every one shows the former again",
        parts=frozenset({Part.PROCESSES, Part.SETTINGS}),
        make=RollingSetting,
        seen_elsewhere="Redpanda, CockroachDB",
        effect_timeout_s=120.0,
        roves=True,
    ),
)
