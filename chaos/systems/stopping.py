"""The clean stop of a system whose processes are this machine's: brokers first, then name servers.

Place in the data path: `chaos.systems.ledgermq` and `chaos.systems.rocketmq.system` end with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from chaos.cluster.layout import ClusterLayout
from chaos.cluster.processes import ProcessError, ProcessTable
from chaos.systems.base import SystemFailedError

__all__ = ["stop_processes"]


async def stop_processes(
    table: ProcessTable,
    layout: ClusterLayout,
    *,
    timeout_s: float,
    disconnect: Callable[[], Awaitable[None]],
) -> None:
    """Stop brokers, then close our own connections by `disconnect`, then stop name servers.

    Raises SystemFailedError, where a broker had to be killed, too.
    """
    brokers = [place.name for place in layout.brokers]
    servers = [server.name for server in layout.name_servers]
    try:
        killed = await asyncio.to_thread(table.stop, brokers, timeout_s=timeout_s)
        await disconnect()
        await asyncio.to_thread(table.stop, servers, timeout_s=timeout_s)
    except ProcessError as error:
        raise SystemFailedError(f"the cluster did not stop: {error}") from error
    if killed:
        raise SystemFailedError(f"{', '.join(killed)} did not stop at SIGTERM and had to be killed")
