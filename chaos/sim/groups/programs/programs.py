"""The programs that the clients of a seed run.

Place in the data path: `cluster` gives each a machine of its own; `group_options` has the number of
each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from chaos.sim.groups.programs.admin_clients import Discarder, OnewayCommitter, Registrar, Resumer
from chaos.sim.groups.programs.clients import Desk, Sender
from chaos.sim.groups.programs.deleter import Deleter
from chaos.sim.groups.programs.lock_clients import OrderlyConsumer
from chaos.sim.groups.programs.order_clients import ORDER_TOPIC, OrderPopper
from chaos.sim.groups.programs.pop_clients import POP_TOPIC, Popper
from chaos.sim.groups.programs.readers import Consumer, Watcher
from chaos.sim.groups.programs.reset_clients import Resetter, RewoundConsumer
from chaos.sim.groups.programs.shape_clients import Reshaper, Tuner

__all__ = ["Program", "client_programs"]

Program: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


def client_programs(desk: Desk, rng: random.Random) -> list[Program]:
    """Return all programs but the transactional producer, which may cause its own death."""
    options = desk.options
    programs: list[Program] = [
        Sender(desk, f"P{number}").run for number in range(options.producer_count)
    ]
    # Two consumers of one group can tell each other's offsets from stale ones.
    share = rng.random() < 0.5
    groups = [f"C{0 if share else number}" for number in range(options.consumer_count)]
    programs += [Consumer(desk, group).run for group in groups]
    if rng.random() < 0.5:
        programs.append(Watcher(desk, groups[0]).run)
    if options.pop_consumer_count:
        programs.append(Sender(desk, "PP", POP_TOPIC).run)
        programs += [Popper(desk).run for _ in range(options.pop_consumer_count)]
    programs += [Deleter(desk).run for _ in range(options.deleter_count)]
    for _ in range(options.resetter_count):
        programs += [RewoundConsumer(desk).run, Resetter(desk).run]
    for _ in range(options.admin_count):
        programs += [Registrar(desk).run, Resumer(desk).run, OnewayCommitter(desk).run]
        programs.append(Discarder(desk).run)
    for _ in range(options.shaper_count):
        programs += [Reshaper(desk).run, Tuner(desk).run]
    programs += [OrderlyConsumer(desk).run for _ in range(options.orderly_consumer_count)]
    if options.order_popper_count:
        programs.append(Sender(desk, "PQ", ORDER_TOPIC).run)
        programs += [OrderPopper(desk).run for _ in range(options.order_popper_count)]
    return programs
