"""Ids of clients and of messages: unique among all clients of a process, made as applications make
them, without a seed.

Place in the data path: `client.connection.instance`; brokers take two messages of one UNIQ_KEY for
one that was sent again, and two clients of one id for one.

Invariant: nothing is sent, so that what is random here changes nothing of a run.

Source: RocketMQ MessageClientIDSetter, ClientConfig.buildMQClientId.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.pull_consumer import PullConsumer
from client.produce.producer import Producer

__all__ = ["hold_ids"]

CLIENTS: Final = 4
KEYS: Final = 200  # of a client, in a millisecond
APART_S: Final = 0.001
# An instant, the next one, and instants about the turn of a month, where ids begin anew.
INSTANTS_MS: Final = (1_790_000_000_000, 1_790_000_000_001, 1_793_491_199_999, 1_793_491_200_000)
WALKS: Final = 2
WALKED_KEYS: Final = 330_000  # of a walk: five times what a counter of 16 bits tells apart
STAY_KEYS: Final = 9_000  # at one time of the clock, at most
PLACES: Final = 3  # that the clock comes back to
BACK_MS: Final = (1, 40, 2_000, 3_600_000, 40 * 86_400_000)  # by how much it is set


async def hold_ids(bench: Bench) -> None:
    """Hold that clients of one process, of one group or not, make no id twice."""
    servers = bench.kit.context.name_servers
    clients: list[Producer | PullConsumer] = []
    for number in range(CLIENTS):
        group = bench.name if number % 2 else f"{bench.name}-{number}"
        clients.append(Producer(group, servers))
        clients.append(PullConsumer(group, servers))
        await asyncio.sleep(APART_S)  # what is made in one nanosecond is one client
    producers = [client for client in clients if isinstance(client, Producer)]
    consumers = [client for client in clients if isinstance(client, PullConsumer)]
    for kind, some in (("producers", producers), ("consumers", consumers)):
        ids = [client.client_id for client in some]
        bench.hold(
            f"ids that several {kind} of a process have",
            expected=0,
            answered=len(ids) - len(set(ids)),
            is_calm=False,
        )
    for wall_ms in INSTANTS_MS:
        keys = [client.instance.next_uniq_key(wall_ms) for _ in range(KEYS) for client in producers]
        bench.hold(
            f"keys of messages that were made twice in the millisecond {wall_ms}",
            expected=0,
            answered=len(keys) - len(set(keys)),
            is_calm=False,
        )
    for _ in range(WALKS):
        await _hold_walk(bench, bench.rng.choice(producers))


async def _hold_walk(bench: Bench, producer: Producer) -> None:
    """Make a client's keys while its wall clock is set: each has to be another."""
    keys: set[str] = set()
    made = 0
    for wall_ms, count in _walk(bench.rng):
        keys.update(producer.instance.next_uniq_key(wall_ms) for _ in range(count))
        made += count
        await asyncio.sleep(0)
    bench.hold(
        f"keys of messages that were made twice, of {made}, by a clock that is set back",
        expected=0,
        answered=made - len(keys),
        is_calm=False,
    )


def _walk(rng: random.Random) -> Iterator[tuple[int, int]]:
    """Yield times of a clock, each with how many keys are made then."""
    start_ms = rng.choice(INSTANTS_MS)
    places = [start_ms - rng.choice((0, *BACK_MS)) for _ in range(PLACES)]
    left = WALKED_KEYS
    while left:
        # As a clock that runs from a place on: a millisecond, or two.
        wall_ms = rng.choice(places) + rng.choice((0, 0, 1))
        count = min(left, rng.choice((1, rng.randint(1, STAY_KEYS))))
        left -= count
        yield wall_ms, count
