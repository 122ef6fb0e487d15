"""The route table against a dumb model: lists that are searched, one rule per line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from namesrv.registration import (
    Registration,
    RegistrationRefusedError,
    RouteLimits,
    RoutePolicy,
)
from namesrv.route_table import RouteTable
from remoting.protocol.route import DataVersion, QueueData, TopicConfig

GROUPS = ("a", "b")
ADDRESSES = ("n0", "n1", "n2", "n3")
TOPICS = ("T", "U", "V")
TIMEOUT_MS = 50
Value = TypeVar("Value", TopicConfig, QueueData)


@dataclass(frozen=True)
class Row:
    group: str
    broker_id: int
    addr: str
    term: int
    heard_ms: int
    timeout_ms: int
    connection: int


class Model:
    """A list of members, a list of leaders' terms ever seen, a list of queues."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.leader_terms: list[tuple[str, int]] = []
        self.versions: list[tuple[str, DataVersion]] = []
        self.queues: list[tuple[str, QueueData]] = []
        self.acting: list[tuple[str, bool]] = []  # the last word of each group counts

    def refuses(self, new: Row) -> bool:
        mates = [row for row in self.rows if row.group == new.group]
        if any(
            row.broker_id == new.broker_id and row.addr != new.addr and row.term > new.term
            for row in mates
        ):
            return True
        if any(row.addr == new.addr and row.term > new.term for row in mates):
            return True
        known = [term for group, term in self.leader_terms if group == new.group]
        return new.broker_id == 0 and any(term > new.term for term in known)

    def may_act(self, group: str) -> bool:
        return dict(self.acting).get(group, False)

    def ids(self, group: str) -> list[int]:
        return [row.broker_id for row in self.rows if row.group == group]

    def register(
        self, new: Row, version: DataVersion, topics: list[TopicConfig], acting: bool
    ) -> None:
        self.acting.append((new.group, acting))
        self.rows = [
            row
            for row in self.rows
            if row.group != new.group or (new.addr != row.addr and new.broker_id != row.broker_id)
        ]
        self.rows.append(new)
        if new.broker_id != 0:
            if acting and new.broker_id == min(self.ids(new.group)):
                for topic in topics:
                    data = QueueData.of(new.group, replace_perm(topic, topic.perm & ~2))
                    self.put(topic.topic_name, data)
                self.forget_version(new.group)
            return
        self.leader_terms.append((new.group, new.term))
        changed = self.versions[-1:] == [] or (new.group, version) not in self.last_versions()
        self.versions.append((new.group, version))
        for topic in topics:
            queues = QueueData.of(new.group, topic)
            old = [
                (name, data)
                for name, data in self.queues
                if name == topic.topic_name and data.broker_name == new.group
            ]
            if changed or not old:
                self.put(topic.topic_name, queues)

    def put(self, topic: str, data: QueueData) -> None:
        self.queues = [
            (name, old)
            for name, old in self.queues
            if (name, old.broker_name) != (topic, data.broker_name)
        ]
        self.queues.append((topic, data))

    def forget_version(self, group: str) -> None:
        self.versions = [item for item in self.versions if item[0] != group]

    def last_versions(self) -> list[tuple[str, DataVersion]]:
        return list(dict(self.versions).items())

    def remove(self, rows: list[Row]) -> None:
        self.rows = [row for row in self.rows if row not in rows]
        alive = {row.group for row in self.rows}
        for row in rows:
            if row.broker_id == 0 and row.group in alive and self.may_act(row.group):
                self.set_write(row.group, writable=False)
                self.forget_version(row.group)
        self.acting = [item for item in self.acting if item[0] in alive]
        self.leader_terms = [item for item in self.leader_terms if item[0] in alive]
        self.versions = [item for item in self.versions if item[0] in alive]
        self.queues = [item for item in self.queues if item[1].broker_name in alive]

    def set_write(self, group: str, *, writable: bool) -> None:
        self.queues = [
            (name, data)
            if data.broker_name != group
            else (name, replace_perm(data, data.perm | 2 if writable else data.perm & ~2))
            for name, data in self.queues
        ]

    def addresses_shown(self, group: str, perm: int) -> dict[int, str]:
        addresses = {row.broker_id: row.addr for row in self.rows if row.group == group}
        if 0 not in addresses and self.may_act(group) and not perm & 2:
            addresses[0] = addresses.pop(min(addresses))
        return addresses


def replace_perm(value: Value, perm: int) -> Value:
    return msgspec.structs.replace(value, perm=perm)


class RouteTableComparison(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable(
            RouteLimits(broker_timeout_ms=TIMEOUT_MS),
            RoutePolicy(acting_master=True, notify_min_id=True),
        )
        self.model = Model()
        self.now_ms = 0

    @rule(
        group=st.sampled_from(GROUPS),
        broker_id=st.integers(0, 2),
        addr=st.sampled_from(ADDRESSES),
        term=st.integers(0, 3),
        counter=st.integers(0, 2),
        connection=st.integers(0, 3),
        timeout_ms=st.none() | st.integers(1, 80),
        names=st.lists(st.sampled_from(TOPICS), unique=True),
        queues=st.integers(1, 3),
        acting=st.booleans(),
    )
    def register(
        self,
        *,
        group: str,
        broker_id: int,
        addr: str,
        term: int,
        counter: int,
        connection: int,
        timeout_ms: int | None,
        names: list[str],
        queues: int,
        acting: bool,
    ) -> None:
        version = DataVersion(state_version=term, counter=counter)
        topics = [TopicConfig(topic_name=name, write_queue_nums=queues) for name in names]
        registration = Registration(
            cluster="C",
            broker_name=group,
            broker_addr=addr,
            broker_id=broker_id,
            ha_server_addr="",
            data_version=version,
            topics=topics,
            heartbeat_timeout_ms=timeout_ms,
            enable_acting_master=acting,
        )
        row = Row(group, broker_id, addr, term, self.now_ms, timeout_ms or TIMEOUT_MS, connection)
        if self.model.refuses(row):
            try:
                self.table.register(registration, connection, self.now_ms)
            except RegistrationRefusedError:
                return
            raise AssertionError(f"{registration} was not refused")
        leader = self.table.register(registration, connection, self.now_ms)
        self.model.register(row, version, topics, acting)
        leaders = [row.addr for row in self.model.rows if (row.group, row.broker_id) == (group, 0)]
        told = [] if leader is None else [leader.broker_addr]
        assert told == ([] if broker_id == 0 else leaders)

    @rule(delta_ms=st.integers(0, 60))
    def expire(self, delta_ms: int) -> None:
        self.now_ms += delta_ms
        silent = [r for r in self.model.rows if self.now_ms - r.heard_ms > r.timeout_ms]
        removed = self.table.expire(self.now_ms)
        assert {(r.broker_name, r.broker_id, r.broker_addr) for r in removed} == {
            (r.group, r.broker_id, r.addr) for r in silent
        }
        self.model.remove(silent)

    @rule(connection=st.integers(0, 3))
    def lose(self, connection: int) -> None:
        lost = [row for row in self.model.rows if row.connection == connection]
        assert len(self.table.connection_lost(connection)) == len(lost)
        self.model.remove(lost)

    @rule(
        group=st.sampled_from(GROUPS),
        addr=st.sampled_from(ADDRESSES),
        connection=st.integers(0, 3),
    )
    def unregister(self, group: str, addr: str, connection: int) -> None:
        member = (group, addr, connection)
        gone = [r for r in self.model.rows if (r.group, r.addr, r.connection) == member]
        assert (self.table.unregister(group, addr, connection) is not None) == bool(gone)
        self.model.remove(gone)

    @rule(group=st.sampled_from(GROUPS), addr=st.sampled_from(ADDRESSES))
    def heartbeat(self, group: str, addr: str) -> None:
        known = [row for row in self.model.rows if (row.group, row.addr) == (group, addr)]
        assert self.table.heartbeat(group, addr, self.now_ms) == bool(known)
        self.model.rows = [
            replace(row, heard_ms=self.now_ms) if row in known else row for row in self.model.rows
        ]

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.table.delete_topic(topic)
        self.model.queues = [item for item in self.model.queues if item[0] != topic]

    @rule(group=st.sampled_from(GROUPS), writable=st.booleans())
    def set_write_perm(self, *, group: str, writable: bool) -> None:
        count = self.table.set_write_perm(group, writable=writable)
        assert count == sum(data.broker_name == group for _, data in self.model.queues)
        self.model.set_write(group, writable=writable)

    @rule(topic=st.sampled_from(TOPICS), group=st.sampled_from(GROUPS), queues=st.integers(1, 3))
    def register_topic(self, topic: str, group: str, queues: int) -> None:
        data = QueueData(broker_name=group, read_queue_nums=queues, write_queue_nums=queues, perm=6)
        if self.model.ids(group):
            self.table.register_topic(topic, [data])
            self.model.put(topic, data)
            return
        try:
            self.table.register_topic(topic, [data])
        except RegistrationRefusedError:
            return
        raise AssertionError("queues of a group that nobody knows were taken")

    @invariant()
    def told_ids_are_the_lowest(self) -> None:
        for change in self.table.take_min_id_changes():
            addresses = {row.addr for row in self.model.rows if row.group == change.broker_name}
            assert set(change.receivers) <= addresses
            assert change.offline_addr is None or change.offline_addr not in change.receivers

    @invariant()
    def members_agree(self) -> None:
        self.table.verify()
        for group in GROUPS:
            known = self.table.member_group(group)
            assert ({} if known is None else known.broker_addrs) == {
                row.broker_id: row.addr for row in self.model.rows if row.group == group
            }

    @invariant()
    def routes_agree(self) -> None:
        for topic in TOPICS:
            route = self.table.route(topic)
            wanted = sorted(
                (data for name, data in self.model.queues if name == topic),
                key=lambda data: data.broker_name,
            )
            assert ([] if route is None else route.queue_datas) == wanted
            if route is not None:
                names = [data.broker_name for data in route.broker_datas]
                assert names == [data.broker_name for data in wanted]
                for shown, data in zip(route.broker_datas, wanted, strict=True):
                    assert shown.broker_addrs == self.model.addresses_shown(
                        data.broker_name, data.perm
                    )


RouteTableComparison.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestRouteTable = RouteTableComparison.TestCase
