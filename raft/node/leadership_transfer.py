"""How a leader hands its office to another voter: for an operator, a stop, or a disk that fails it.

Place in the data path: none; `raft.node.core_shell` calls it. The transfer itself is the core's
(`raft.core.handover`): here it is chosen, requested, and awaited.

Invariant: of its own accord a leader hands over only to a voter that has room for entries, and only
once it is ready: who has just taken over does not pass the office on before its first entry.

Source: Raft dissertation 3.10.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from raft.core.core import Core
from raft.events import Event, Role, TransferLeadership
from raft.messages import NodeId
from raft.node.node_config import NodeConfig
from raft.replicated_log import NotLeaderError

__all__ = ["LeadershipTransfer"]

_log = logging.getLogger(__name__)


class LeadershipTransfer:
    """Transfers of one node. `step_entry` steps the core, and stops the node where that raises."""

    def __init__(
        self,
        config: NodeConfig,
        core: Core,
        now_ms: Callable[[], int],
        step_entry: Callable[[Event], None],
    ) -> None:
        self._config = config
        self._core = core
        self._now_ms = now_ms
        self._step_entry = step_entry
        self.not_leading = asyncio.Event()
        """Set by the shell while the node does not lead."""

    async def to(self, target: NodeId) -> None:
        """See `ReplicatedLog.transfer_leadership`."""
        core, config = self._core, self._config
        if core.role is not Role.LEADER:
            raise NotLeaderError(core.leader_id)
        if target == config.node_id or target not in core.voters:
            raise ValueError(f"{target} is no other voter of {config.group}")
        # The core gives a transfer up after this time, and goes on leading.
        await self._request_transfer(target, config.raft.election_timeout_ms_max)

    async def to_best(self) -> None:
        """Hand leadership to the best follower, if there is one; wait a little."""
        target = self._core.successor()
        if target is None:
            return
        try:
            await self._request_transfer(target, self._config.transfer_timeout_ms)
        except TimeoutError:
            _log.info("%s did not take over in time", target)

    def away(self, why: str) -> TransferLeadership | None:
        """Return the event that hands leadership to a better node; None where there is none."""
        core = self._core
        target = core.successor()
        if target is None or not core.progress[target].writable or not core.ready:
            return None
        _log.warning("this leader %s: handing leadership to %s", why, target)
        return TransferLeadership(now_ms=self._now_ms(), target=target)

    async def _request_transfer(self, target: NodeId, timeout_ms: int) -> None:
        self._step_entry(TransferLeadership(now_ms=self._now_ms(), target=target))
        async with asyncio.timeout(timeout_ms / 1000):
            await self.not_leading.wait()
