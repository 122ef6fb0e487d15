"""The clients of this process, what waits for them, and whom else it speaks to.

Place in the data path: handlers find here who is connected, hold pulls and pops, count what passes
and call the parts of the process that answer for routes, permissions and retention. Everything here
is this process's own: no other replica knows it, and it is lost with the process.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.request.clients import Clients
from broker.request.long_polling import LongPolling
from broker.request.pop_polling import PopPolling
from broker.request.pull_offsets import PullOffsets
from broker.request.request import Request
from broker.request.stats import Stats
from raft.stalls import Stalls
from remoting.connections.rpc import RemotingClient
from remoting.records.message import UniqueIdGenerator

__all__ = ["Desk"]


@dataclass(slots=True, kw_only=True)
class Desk:
    """Clients of one broker process, and what it does for them."""

    clients: Clients
    long_polling: LongPolling
    random: random.Random
    unique_ids: UniqueIdGenerator
    pop_polling: PopPolling = field(default_factory=PopPolling)
    stats: Stats = field(default_factory=Stats)
    pull_offsets: PullOffsets = field(default_factory=PullOffsets)
    remoting: RemotingClient | None = None  # for requests to others
    stalls: Stalls | None = None  # measurements of what blocked the loop, if any
    # How wrong this process's wall clock was put, for its status; None: nobody can.
    wrong_clock: Callable[[], dict[str, int]] | None = None
    # Whether the sender may create and change super users; all may where access control is off.
    is_super: Callable[[Request], bool] = lambda _: True
    # Whether a client authorised under this account may receive what is sent to a topic.
    may_publish: Callable[[str | None, str, str], bool] = lambda account, peer, topic: True
    routes_changed: Callable[[], None] = lambda: None  # notifies name servers
    # Likewise, and calls its argument when they have been notified.
    when_routes_registered: Callable[[Callable[[], None]], None] = lambda answer: answer()
    retain_now: Callable[[], None] = lambda: None  # deletes expired messages at any hour
