"""A mixed cluster: a node is restarted with an older release, and with its own at the heal.

Place in the data path: as a rolling upgrade, one node at a time; the node goes on with its store,
which the older release reads and writes meanwhile. Acts on processes and
`chaos.systems.base.Releases`.

Effect: the node itself answers with another release than before; healed when it answers with the
former one and knows a leader.

Source: mixed-version tests of CockroachDB and etcd.
"""

from __future__ import annotations

from typing import Final

from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec, Observation
from chaos.nemesis.process.node_fault import NodeFault, target_nodes
from chaos.systems.base import Part

__all__ = ["SPECS", "OlderRelease"]

TERMINATE_TIMEOUT_S: Final = 15.0


class OlderRelease(NodeFault):
    """One node, for a while with the older release."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, target_nodes)
        self._before: dict[str, str] = {}

    async def setup(self) -> None:
        await super().setup()
        for node in self._nodes:
            answered = await self._context.releases.answered(node)
            if answered is None:
                raise FaultNotPossibleError(f"{node} does not answer, so its release is not known")
            self._before[node] = answered

    async def inject(self) -> None:
        for node in self._nodes:
            await self._restart(node, older=True)

    async def probe(self) -> Observation:
        answers = {node: await self._context.releases.answered(node) for node in self._nodes}
        seen = all(a is not None and a != self._before[node] for node, a in answers.items())
        text = ", ".join(
            f"{node} answers {answer or 'nothing'} (before: {self._before[node]})"
            for node, answer in answers.items()
        )
        return Observation(
            seen=seen, evidence=f"started with {self._context.releases.older}: {text}"
        )

    async def heal(self) -> None:
        for node in self._nodes:
            if await self._context.releases.answered(node) != self._before.get(node):
                await self._restart(node, older=False)
        await super().heal()

    async def probe_healed(self) -> Observation:
        answers = {node: await self._context.releases.answered(node) for node in self._nodes}
        if answers != self._before:
            text = ", ".join(f"{node} answers {answer}" for node, answer in answers.items())
            return Observation(seen=False, evidence=text)
        return await super().probe_healed()

    async def _restart(self, node: str, *, older: bool) -> None:
        processes = self._context.processes
        self._context.releases.at_next_start(node, older=older)
        if processes.state(node) != "gone":
            await processes.terminate(node, timeout_s=TERMINATE_TIMEOUT_S)
        await processes.restart(node)


SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="older-release",
        summary="a node is restarted with an older release, and with its own at the heal",
        probe="the node answers with another release; healed when it answers with its former one",
        make=OlderRelease,
        parts=frozenset({Part.PROCESSES, Part.RELEASES}),
        seen_elsewhere="CockroachDB, etcd",
        parameters={"target": "follower"},
        choices={"target": ("leader", "follower", "any")},
        effect_timeout_s=20.0,
    ),
)
