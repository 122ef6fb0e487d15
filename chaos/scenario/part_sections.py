"""The sections of a scenario's further parts of work: [workload.NAME], each of which is off if it
is not there.

Place in the data path: `chaos.scenario.scenario` reads them; `chaos.workload.parts.catalogue` has a
part of work for each.

Invariants: every number has its range in its own field, so that no illegal value reaches the
workload; a section without keys is a part at its defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from remoting.connections.config_values import number

__all__ = [
    "PART_SECTIONS",
    "AccountsSection",
    "ApplicationsSection",
    "AssignmentsSection",
    "BroadcastSection",
    "DeletionsSection",
    "DisputesSection",
    "DrillsSection",
    "FiltersSection",
    "GroupsSection",
    "LitePullSection",
    "LongPollsSection",
    "OperatorSection",
    "OrderlySection",
    "PartSection",
    "PopsSection",
    "RequestsSection",
    "ResetsSection",
    "RetriesSection",
    "RoutesSection",
    "SearchesSection",
    "SendsSection",
    "TimersSection",
    "number",
    "part_settings",
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartSection:
    """The base of all sections. Numbers are fields made by `number`."""

    def broker_settings(self) -> dict[str, int]:
        """Return what brokers have to be told of the part, where it is not their default."""
        return {}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TimersSection(PartSection):
    """Delayed messages and their recalls; `rate` per second, over all clients.

    `level_share` of them have a delay level (of the first `levels`: 1, 5, 10 and 30 s), the others
    a time of their own, `delay_ms_max` ahead at most; `after_stop_share` of all are due only when
    the senders have stopped, at most `after_stop_ms_max` later. `recall_share` of the timers are
    recalled, `late_recall_share` of them at about the time at which they are due.
    `transaction_share` are halves that are committed a moment later, or when the broker asks, whose
    delay begins with that (not on RocketMQ, which knows no such messages).
    """

    clients: int = number(1, 1, 16)
    rate: float = number(4.0, 0.01, 1000)
    transaction_share: float = number(0.0, 0, 1)
    level_share: float = number(0.3, 0, 1)
    levels: int = number(2, 1, 4)
    delay_ms_max: int = number(6_000, 20, 86_400_000)
    recall_share: float = number(0.4, 0, 1)
    late_recall_share: float = number(0.4, 0, 1)
    after_stop_share: float = number(0.08, 0, 1)
    after_stop_ms_max: int = number(4_000, 200, 60_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestsSection(PartSection):
    """Requests that a group of `responders` answers; `rate` per second, over all clients.

    A requesting client waits `timeout_ms` for its answer, and crashes after `asker_restart_s` on
    average (0: never), while a request of it waits; a responder is killed or leaves after
    `restart_s` on average (0: never), fails `refuse_share` of its requests and has them delivered
    again, and thinks `think_ms` on average, about `slow_share` of them up to two seconds;
    `mute_share` it consumes without a reply.
    """

    clients: int = number(1, 1, 16)
    processes: int = number(3, 1, 64)
    rate: float = number(3.0, 0.01, 1000)
    timeout_ms: int = number(4_000, 100, 60_000)
    responders: int = number(2, 1, 16)
    restart_s: float = number(8.0, 0, 86_400)
    asker_restart_s: float = number(3.0, 0, 86_400)
    slow_share: float = number(0.2, 0, 1)
    mute_share: float = number(0.1, 0, 1)
    refuse_share: float = number(0.1, 0, 1)
    think_ms: int = number(20, 0, 10_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SendsSection(PartSection):
    """Sends that are not plain; `rate` operations per second, over all clients.

    Shares: oneway sends, bursts of asynchronous ones against a small limit of those in flight,
    batches of up to `batch_count_max`, batches that mix new messages with stored ones, twins, which
    are sent twice at one time through different connections, hasty ones, which are attempted anew
    every `hasty_ms` and given up after a few attempts, single-attempt ones, which the application
    repeats by itself; of the other single messages `big_share` are near
    the size limit or beyond it, `compressed_share` compressed, `properties_share` full of
    properties.
    """

    clients: int = number(2, 1, 16)
    rate: float = number(4.0, 0.01, 1000)
    oneway_share: float = number(0.2, 0, 1)
    async_share: float = number(0.2, 0, 1)
    burst: int = number(8, 1, 64)
    in_flight_max: int = number(3, 1, 64)
    batch_share: float = number(0.05, 0, 1)
    batch_count_max: int = number(100, 2, 1000)
    mixed_batch_share: float = number(0.1, 0, 1)
    twin_share: float = number(0.1, 0, 1)
    hasty_share: float = number(0.1, 0, 1)
    hasty_ms: int = number(1, 1, 1000)
    one_attempt_share: float = number(0.2, 0, 1)
    big_share: float = number(0.015, 0, 1)
    compressed_share: float = number(0.2, 0, 1)
    properties_share: float = number(0.1, 0, 1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PopsSection(PartSection):
    """POP consumers: `members` of a group without order, `order_members` of one that pops in order.

    `send_batch_share` of the sends are batches: their messages are neighbours in a queue. Each
    message is hidden for about `invisible_ms` and, without order, delivered again at most
    `retries_max` times before it is a dead letter. Shares are parts of 1, of the messages popped:
    `batch_share` are acknowledged in one request with others, `leave_share` never, `late_share`
    when their time is over, by whoever gets them; `change_share` get another time first;
    `work_share` are worked on for longer than their time, which is prolonged; of
    `twice_share` the receipt is used a second time; `poison_share` of the messages sent are never
    acknowledged by anybody without order. In order, `skip_share` are left while those behind them
    are acknowledged, and of `shorten_share` of the queues of a pop one message gets a shorter time
    while the others are worked on. After `busy_share` of the pops a member works up to `busy_ms` on
    what came, so that more messages wait for the next pop. Every `burst_s` (0: never) a message
    goes to each queue at once, so that pops show messages of several queues. `restart_s` is the
    mean time between restarts of a member, 0: none.
    """

    send_rate: float = number(5.0, 0.1, 10_000)
    send_batch_share: float = number(0.3, 0, 1)
    burst_s: float = number(1.2, 0, 86_400)
    members: int = number(2, 1, 16)
    order_members: int = number(2, 0, 16)
    restart_s: float = number(8.0, 0, 86_400)
    invisible_ms: int = number(2_500, 500, 600_000)
    poll_ms: int = number(2_000, 0, 30_000)
    count_max: int = number(8, 1, 32)
    retries_max: int = number(3, 0, 16)
    batch_share: float = number(0.5, 0, 1)
    leave_share: float = number(0.05, 0, 1)
    late_share: float = number(0.06, 0, 1)
    change_share: float = number(0.1, 0, 1)
    work_share: float = number(0.1, 0, 1)
    twice_share: float = number(0.05, 0, 1)
    poison_share: float = number(0.01, 0, 1)
    skip_share: float = number(0.15, 0, 1)
    shorten_share: float = number(0.25, 0, 1)
    busy_share: float = number(0.5, 0, 1)
    busy_ms: int = number(800, 0, 60_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderlySection(PartSection):
    """`rate`: sends per second. `crashes`: how many members die in a run at most, at its beginning:
    `crash_share` of those that end then.

    Brokers keep a lock for `lease_ms` after its last renewal, members believe in theirs for half of
    that; after each failover the queues of members that are gone wait for 7/12 of it.

    A call of the listener takes up to twice `consume_ms`; `slow_share` of them up to `slow_ms`, so
    that some are at work whenever a queue goes to another member. `poison_share` of the messages
    are always refused: after `retries_max` further attempts they are dead letters.
    """

    rate: float = number(8.0, 0.001, 10_000)
    shards: int = number(8, 1, 1_000_000)
    clients: int = number(2, 1, 64)
    restart_s: float = number(8.0, 0, 86_400)
    crashes: int = number(1, 0, 1_000)
    crash_share: float = number(0.5, 0, 1)
    refuse_share: float = number(0.05, 0, 0.9)
    poison_share: float = number(0.02, 0, 1)
    retries_max: int = number(3, 0, 16)
    consume_ms: int = number(10, 0, 2_000)
    slow_share: float = number(0.1, 0, 1)
    slow_ms: int = number(1_500, 0, 4_000)
    batch: int = number(2, 1, 1_000)
    lease_ms: int = number(60_000, 1_000, 600_000)

    def broker_settings(self) -> dict[str, int]:
        is_default = self.lease_ms == OrderlySection().lease_ms
        return {} if is_default else {"lock_lease_ms": self.lease_ms}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastSection(PartSection):
    """`rate`: sends per second; every one of `clients` members is shown each message."""

    rate: float = number(4.0, 0.001, 10_000)
    clients: int = number(2, 1, 64)
    restart_s: float = number(8.0, 0, 86_400)
    refuse_share: float = number(0.02, 0, 0.9)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RetriesSection(PartSection):
    """`refuse_share` of the messages are refused up to `retries_max` times, `poison_share` always,
    so that they end among the dead letters."""

    rate: float = number(5.0, 0.001, 10_000)
    clients: int = number(2, 1, 64)
    restart_s: float = number(8.0, 0, 86_400)
    retries_max: int = number(2, 0, 16)
    refuse_share: float = number(0.15, 0, 1)
    poison_share: float = number(0.1, 0, 1)
    consume_ms: int = number(5, 0, 2_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LitePullSection(PartSection):
    """`seek_s`: mean time between a member's seeks; 0: none."""

    rate: float = number(5.0, 0.001, 10_000)
    clients: int = number(2, 1, 64)
    restart_s: float = number(8.0, 0, 86_400)
    seek_s: float = number(3.0, 0, 86_400)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResetsSection(PartSection):
    """`reset_s`: mean time between resets: of one queue to an offset, or of all to a time, their
    beginnings or their ends."""

    rate: float = number(5.0, 0.001, 10_000)
    clients: int = number(2, 1, 64)
    restart_s: float = number(15.0, 0, 86_400)
    reset_s: float = number(2.0, 0.01, 86_400)
    consume_ms: int = number(5, 0, 2_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeletionsSection(PartSection):
    """Topics that are made, used, deleted and made again.

    A topic lives `life_s` on average and is gone for `gone_s`; `send_rate`, `transaction_rate` (0:
    none) and `poll_rate` are per second over all of them.
    """

    topics: int = number(2, 1, 64)
    life_s: float = number(4.0, 0.2, 3600)
    gone_s: float = number(0.5, 0.0, 3600)
    send_rate: float = number(4.0, 0.01, 10_000)
    transaction_rate: float = number(1.5, 0, 10_000)
    poll_rate: float = number(2.0, 0.01, 10_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RoutesSection(PartSection):
    """Questions for routes, one round every `every_s`, and topics whose routes change meanwhile,
    every `change_s` on average."""

    every_s: float = number(2.0, 0.1, 3600)
    change_s: float = number(3.0, 0.1, 3600)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AccountsSection(PartSection):
    """Users of the cluster's access control, each with a client of its own.

    `change_s` is the mean time between two changes of one user, `send_rate` is per second over all
    users. `users` is how many there are at a time. With `file` 1 the file of accounts is rewritten,
    too, once the users have ended.
    """

    users: int = number(2, 1, 64)
    file: int = number(1, 0, 1)
    change_s: float = number(1.5, 0.05, 3600)
    send_rate: float = number(4.0, 0.01, 10_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchesSection(PartSection):
    """Searches by time, and by key within a time, of messages that the part sends itself."""

    send_rate: float = number(3.0, 0.01, 10_000)
    search_rate: float = number(2.0, 0.01, 10_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSection(PartSection):
    """`rate`: requests per second about two subscription groups: their configurations, deletions
    and offsets."""

    rate: float = number(6.0, 0.01, 10_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DisputesSection(PartSection):
    """Every `every_ms` all nodes are asked whether they lead; where two do, both are used."""

    every_ms: int = number(50, 5, 60_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FiltersSection(PartSection):
    """`rate`: sends per second; three groups, of one member each, want half of them or more.

    `sql_rate`: sends per second of messages of many kinds, which groups with all operators of SQL92
    read, and `sql_compositions` groups with several operators in one expression.
    """

    rate: float = number(6.0, 0.001, 10_000)
    restart_s: float = number(8.0, 0, 86_400)
    sql_rate: float = number(4.0, 0.001, 10_000)
    sql_compositions: int = number(8, 0, 1_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LongPollsSection(PartSection):
    """`rate`: sends per second, over all queues; a broker holds a pull for `hold_ms`, and is to
    answer it within `wake_ms` once a message has come."""

    rate: float = number(2.0, 0.001, 10_000)
    hold_ms: int = number(2_000, 10, 60_000)
    wake_ms: int = number(1_000, 1, 60_000)
    restart_s: float = number(8.0, 0, 86_400)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsSection(PartSection):
    """Two groups of `members_min` to `members_max` members, of which one comes or goes every
    `change_s` on average; every `every_s` all their queues are asked for."""

    members_min: int = number(2, 1, 64)
    members_max: int = number(5, 1, 64)
    change_s: float = number(2.0, 0.05, 86_400)
    every_s: float = number(0.7, 0.05, 3600)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DrillsSection(PartSection):
    """`runners`, each with a queue of its own, ask questions of which they know the answers, with
    `pause_ms` between two series of them. Brokers drop a client `silence_ms` behind its last
    heartbeat (0: as they are set), of which all clients of the run then send enough. With
    `stretches` 1 filters are tried over thousands of messages, too."""

    runners: int = number(1, 1, 64)
    pause_ms: int = number(40, 0, 60_000)
    silence_ms: int = number(0, 0, 600_000)
    stretches: int = number(1, 0, 1)

    def broker_settings(self) -> dict[str, int]:
        return {"client_silence_ms_max": self.silence_ms} if self.silence_ms else {}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CallsSection(PartSection):
    """`rate`: calls per second of one producer that sends in every way. `clients` members suspend,
    unsubscribe and hold little, each for `restart_s` on average; three groups start at the
    beginning, at a time and at the end."""

    rate: float = number(10.0, 0.001, 10_000)
    clients: int = number(2, 1, 64)
    restart_s: float = number(8.0, 0, 86_400)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSection(PartSection):
    """What an operator changes, each thing every `change_s` on average, `topics` topics per broker
    group among them, until `calm_s` after the senders have stopped.

    With `takes_write` 1 the right to write is taken from each broker group at the end, for as long
    as a broker's periodic registration takes; with `shows_effects` 1 settings that forbid something
    are changed then, and what they forbid is tried. With `deletes` 1 they have brokers delete
    messages then, whose log is shorter when it is judged.
    """

    topics: int = number(2, 1, 64)
    change_s: float = number(1.5, 0.05, 3600)
    calm_s: float = number(13.0, 0, 3600)
    takes_write: int = number(1, 0, 1)
    shows_effects: int = number(1, 0, 1)
    deletes: int = number(0, 0, 1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationsSection(PartSection):
    """Clients as applications have them, which lose connections, are cut off, suspended and gone;
    once, `calm_s` behind the load. With `overtaken` 1 a topic is filled as long as the load lasts,
    for a log that retention cuts meanwhile; halves whose producers are gone would stop it, and are
    left out."""

    calm_s: float = number(4.0, 0, 3600)
    overtaken: int = number(0, 0, 1)


PART_SECTIONS: Final[Mapping[str, type[PartSection]]] = MappingProxyType(
    {
        "timers": TimersSection,
        "requests": RequestsSection,
        "sends": SendsSection,
        "pops": PopsSection,
        "orderly": OrderlySection,
        "broadcast": BroadcastSection,
        "retries": RetriesSection,
        "litepull": LitePullSection,
        "resets": ResetsSection,
        "deletions": DeletionsSection,
        "routes": RoutesSection,
        "accounts": AccountsSection,
        "searches": SearchesSection,
        "groups": GroupsSection,
        "disputes": DisputesSection,
        "filters": FiltersSection,
        "longpolls": LongPollsSection,
        "assignments": AssignmentsSection,
        "drills": DrillsSection,
        "calls": CallsSection,
        "operator": OperatorSection,
        "applications": ApplicationsSection,
    }
)
"""Section by part. A part's name is its key in [workload.NAME] and the prefix of its topics,
slots and groups."""


def part_settings(parts: Mapping[str, PartSection]) -> dict[str, int]:
    """Return what brokers have to be told of these parts, for their section [broker]."""
    return {
        key: value for section in parts.values() for key, value in section.broker_settings().items()
    }
