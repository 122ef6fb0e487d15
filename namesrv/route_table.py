"""The route table: the live broker groups, their addresses and their queues. Pure.

Place in the data path: `namesrv.server` turns registrations, heartbeats, lost connections and the
passing of time into calls here, and clients' requests into reads. Memory only; name servers do not
know of each other.

Invariants:
- within a group an address has one broker id and an id one address;
- a registration of a known address is refused if its term (DataVersion.stateVersion) is older than
  that of the address's last one; a registration as id 0 is refused if its term is older than that
  of the last holder of id 0 while the group was known;
- queues come from id 0, outlive a change of leader, and are dropped with the group's last member;
  in a group that allows an acting leader they lose WRITE while it has no id 0, and may then come
  from its lowest id;
- every table is bounded by `RouteLimits`; a refused registration changes nothing.

Times are milliseconds of any clock that never goes back. A connection is identified by any
hashable.

Source: RocketMQ RouteInfoManager; the rule about terms is stricter than its (docs/DIVERGENCE.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from namesrv.registration import (
    Leader,
    MinIdChange,
    Registration,
    RegistrationRefusedError,
    RemovedBroker,
    RouteLimits,
    RoutePolicy,
)
from remoting.protocol.route import (
    MASTER_ID,
    PERM_WRITE,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicRouteData,
)

__all__ = ["RouteTable"]


@dataclass(slots=True, kw_only=True)
class _Member:
    broker_addr: str
    ha_server_addr: str
    data_version: DataVersion
    last_update_ms: int
    timeout_ms: int
    connection: Hashable


@dataclass(slots=True, kw_only=True)
class _Group:
    cluster: str
    broker_name: str
    enable_acting_master: bool
    members: dict[int, _Member] = field(default_factory=dict)
    leader_term: int | None = None
    """Term of the last registration as id 0, kept while the group has any member."""
    queue_version: DataVersion | None = None
    """Version of the registration that the queues were taken from."""

    def id_of(self, broker_addr: str) -> int | None:
        for broker_id, member in self.members.items():
            if member.broker_addr == broker_addr:
                return broker_id
        return None

    def addresses(self) -> dict[int, str]:
        return {
            broker_id: self.members[broker_id].broker_addr for broker_id in sorted(self.members)
        }


class RouteTable:
    """The routes that one name server knows."""

    def __init__(
        self, limits: RouteLimits | None = None, policy: RoutePolicy | None = None
    ) -> None:
        self._limits = limits or RouteLimits()
        self.policy = policy or RoutePolicy()
        self._min_id_changes: list[MinIdChange] = []
        self._groups: dict[str, _Group] = {}
        self._queues: dict[str, dict[str, QueueData]] = {}  # topic -> group -> queues

    # Reports of brokers.

    def register(
        self, registration: Registration, connection: Hashable, now_ms: int
    ) -> Leader | None:
        """Apply a registration; for a follower, return the group's leader, if there is one.

        Raises RegistrationRefusedError.
        """
        group = self._groups.get(registration.broker_name)
        self._check(registration, group)
        if group is None:
            group = _Group(
                cluster=registration.cluster,
                broker_name=registration.broker_name,
                enable_acting_master=registration.enable_acting_master,
            )
            self._groups[registration.broker_name] = group
        group.enable_acting_master = registration.enable_acting_master
        old_min_id = min(group.members, default=None)
        old_id = group.id_of(registration.broker_addr)
        if old_id is not None and old_id != registration.broker_id:
            del group.members[old_id]
        group.members[registration.broker_id] = _Member(
            broker_addr=registration.broker_addr,
            ha_server_addr=registration.ha_server_addr,
            data_version=registration.data_version,
            last_update_ms=now_ms,
            timeout_ms=registration.heartbeat_timeout_ms or self._limits.broker_timeout_ms,
            connection=connection,
        )
        self._note_min_id(group, old_min_id, ha_addr=registration.ha_server_addr)
        if registration.broker_id == MASTER_ID:
            group.leader_term = registration.data_version.state_version
            self._take_queues(group, registration)
            return None
        leader = group.members.get(MASTER_ID)
        if leader is None:
            if group.enable_acting_master and registration.broker_id == min(group.members):
                self._take_queues_to_read(group, registration)
            return None
        return Leader(broker_addr=leader.broker_addr, ha_server_addr=leader.ha_server_addr)

    def unregister(
        self, broker_name: str, broker_addr: str, connection: Hashable
    ) -> RemovedBroker | None:
        """Remove a member at its own request; None where it is not registered.

        Only over the connection that it registered over last: another process may run with the same
        settings, and must not remove the member when it stops.
        """
        group = self._groups.get(broker_name)
        broker_id = group.id_of(broker_addr) if group is not None else None
        if group is None or broker_id is None:
            return None
        if group.members[broker_id].connection != connection:
            return None
        return self._remove(group, broker_id)

    def heartbeat(self, broker_name: str, broker_addr: str, now_ms: int) -> bool:
        """Record that the member is alive; False where it is not registered."""
        member = self._member(broker_name, broker_addr)
        if member is None:
            return False
        member.last_update_ms = now_ms
        return True

    def query_data_version(
        self, broker_name: str, broker_addr: str, data_version: DataVersion, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """Return (would a registration change anything, known version); counts as heartbeat."""
        member = self._member(broker_name, broker_addr)
        if member is None:
            return True, None
        member.last_update_ms = now_ms
        return member.data_version != data_version, member.data_version

    # Expiry and lost connections.

    def expire(self, now_ms: int) -> list[RemovedBroker]:
        """Remove every member that was silent for longer than its timeout."""
        return self._remove_where(lambda member: now_ms - member.last_update_ms > member.timeout_ms)

    def connection_lost(self, connection: Hashable) -> list[RemovedBroker]:
        """Remove the members that registered last over this connection."""
        return self._remove_where(lambda member: member.connection == connection)

    # Reads for clients and administrators.

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the topic's queues and the groups that have them; None where none has."""
        queues = self._queues.get(topic)
        if not queues:
            return None
        names = sorted(queues)
        return TopicRouteData(
            broker_datas=[self._routed(self._groups[name], queues[name]) for name in names],
            queue_datas=[queues[name] for name in names],
        )

    def leaderless_groups(self, topic: str | None = None) -> set[str]:
        """Return the groups without a leader: those with queues of `topic`, or all."""
        names = self._groups if topic is None else self._queues.get(topic, ())
        return {name for name in names if MASTER_ID not in self._groups[name].members}

    def cluster_info(self) -> ClusterInfo:
        clusters: dict[str, list[str]] = {}
        for name in sorted(self._groups):
            clusters.setdefault(self._groups[name].cluster, []).append(name)
        return ClusterInfo(
            broker_addr_table={
                name: self._broker_data(self._groups[name]) for name in sorted(self._groups)
            },
            cluster_addr_table=clusters,
        )

    def member_group(self, broker_name: str) -> BrokerMemberGroup | None:
        group = self._groups.get(broker_name)
        if group is None:
            return None
        return BrokerMemberGroup(
            cluster=group.cluster, broker_name=broker_name, broker_addrs=group.addresses()
        )

    def topics_of_flags(self, is_wanted: Callable[[int], bool]) -> list[str]:
        """Return the topics whose topicSysFlag (first group's) satisfies `is_wanted`; sorted."""
        return sorted(
            topic
            for topic, queues in self._queues.items()
            if is_wanted(queues[min(queues)].topic_sys_flag)
        )

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the names of clusters and groups, which are topics, and a broker's address."""
        names: list[str] = []
        for cluster, groups in sorted(self.cluster_info().cluster_addr_table.items()):
            names += [cluster, *groups]
        for group in self._groups.values():
            return names, next(iter(group.addresses().values()))
        return names, None

    def topics(self, cluster: str | None = None) -> list[str]:
        """Return all topics, or those of which some group of `cluster` has queues; sorted."""
        return sorted(
            topic
            for topic, queues in self._queues.items()
            if cluster is None or any(self._groups[name].cluster == cluster for name in queues)
        )

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic (from one cluster); a broker that still has it registers it again."""
        queues = self._queues.get(topic, {})
        for name in [n for n in queues if cluster in {None, self._groups[n].cluster}]:
            del queues[name]
        if not queues:
            self._queues.pop(topic, None)

    def register_topic(self, topic: str, queues: Sequence[QueueData]) -> None:
        """Add a topic's queues at known groups. Raises RegistrationRefusedError."""
        if not 0 < len(topic) <= self._limits.name_size_max:
            raise RegistrationRefusedError(
                f"topic name of {len(topic)} characters, not within 1..{self._limits.name_size_max}"
            )
        for data in queues:
            if data.broker_name not in self._groups:
                raise RegistrationRefusedError(f"group {data.broker_name[:255]} is not known")
        if topic not in self._queues and len(self._queues) >= self._limits.topics_max:
            raise RegistrationRefusedError(f"{self._limits.topics_max} topics are known already")
        if queues:
            table = self._queues.setdefault(topic, {})
            table.update({data.broker_name: data for data in queues})

    def take_min_id_changes(self) -> list[MinIdChange]:
        """Return and clear the changes since the last call, for members still registered."""
        changes, self._min_id_changes = self._min_id_changes, []
        for at, change in enumerate(changes):
            group = self._groups.get(change.broker_name)
            there = set() if group is None else set(group.addresses().values())
            receivers = tuple(address for address in change.receivers if address in there)
            changes[at] = dataclasses.replace(change, receivers=receivers)
        return [change for change in changes if change.receivers]

    def set_write_perm(self, broker_name: str, *, writable: bool) -> int:
        """Set or clear WRITE on all queues of a group until its next changed registration.

        Returns the number of topics of which the group has queues.
        """
        count = 0
        for queues in self._queues.values():
            known = queues.get(broker_name)
            if known is not None:
                perm = known.perm | PERM_WRITE if writable else known.perm & ~PERM_WRITE
                queues[broker_name] = msgspec.structs.replace(known, perm=perm)
                count += 1
        return count

    def verify(self) -> None:
        """Assert the invariants; for tests and after suspicious events."""
        for name, group in self._groups.items():
            assert group.broker_name == name
            assert group.members
            addresses = [member.broker_addr for member in group.members.values()]
            assert len(set(addresses)) == len(addresses)
        for queues in self._queues.values():
            assert queues
            assert queues.keys() <= self._groups.keys()

    # Internals.

    def _check(self, registration: Registration, group: _Group | None) -> None:
        limits = self._limits
        for what in ("cluster", "broker_name", "broker_addr"):
            text = getattr(registration, what)
            if not 0 < len(text) <= limits.name_size_max:
                raise RegistrationRefusedError(
                    f"{what} has {len(text)} characters, not within 1..{limits.name_size_max}"
                )
        if registration.broker_id < 0:
            raise RegistrationRefusedError(
                f"broker id {registration.broker_id} is negative: no role yet"
            )
        timeout_ms = registration.heartbeat_timeout_ms
        if timeout_ms is not None and timeout_ms < 0:
            raise RegistrationRefusedError(f"heartbeat timeout {timeout_ms} ms is negative")
        if group is None:
            if len(self._groups) >= limits.groups_max:
                raise RegistrationRefusedError(f"{limits.groups_max} groups are known already")
        else:
            self._check_membership(registration, group)
        if registration.broker_id == MASTER_ID or registration.enable_acting_master:
            self._check_topics(registration)

    def _check_membership(self, registration: Registration, group: _Group) -> None:
        name = group.broker_name
        if registration.cluster != group.cluster:
            raise RegistrationRefusedError(
                f"group {name} belongs to cluster {group.cluster}, not {registration.cluster}"
            )
        term = registration.data_version.state_version
        holder = group.members.get(registration.broker_id)
        if holder is None or holder.broker_addr != registration.broker_addr:
            if holder is not None and term < holder.data_version.state_version:
                raise RegistrationRefusedError(
                    f"id {registration.broker_id} of group {name} is held by {holder.broker_addr}"
                    f" in term {holder.data_version.state_version}, newer than {term}"
                )
            joins = holder is None and group.id_of(registration.broker_addr) is None
            if joins and len(group.members) >= self._limits.brokers_max:
                raise RegistrationRefusedError(
                    f"group {name} has {self._limits.brokers_max} members already"
                )
        # A member's term never goes back: this is another process, for example one started on a
        # replaced member's old disk, and it must not take the true member's place.
        own = self._member(name, registration.broker_addr)
        if own is not None and term < own.data_version.state_version:
            raise RegistrationRefusedError(
                f"{registration.broker_addr} of group {name} is of term {term},"
                f" older than {own.data_version.state_version}, which it registered before"
            )
        if registration.broker_id == MASTER_ID and term < (group.leader_term or 0):
            raise RegistrationRefusedError(
                f"leader {registration.broker_addr} of group {name} is of term {term},"
                f" older than {group.leader_term}"
            )

    def _check_topics(self, registration: Registration) -> None:
        new_count = 0
        for topic in registration.topics:
            if not 0 < len(topic.topic_name) <= self._limits.name_size_max:
                raise RegistrationRefusedError(
                    f"topic name of {len(topic.topic_name)} characters,"
                    f" not within 1..{self._limits.name_size_max}"
                )
            new_count += topic.topic_name not in self._queues
        if len(self._queues) + new_count > self._limits.topics_max:
            raise RegistrationRefusedError(
                f"with {new_count} new topics there would be more than {self._limits.topics_max}"
            )

    def _take_queues(self, group: _Group, registration: Registration) -> None:
        """Apply the queues of a registration as id 0: all if its version changed, else new ones."""
        changed = group.queue_version != registration.data_version
        group.queue_version = registration.data_version
        for topic in registration.topics:
            queues = self._queues.setdefault(topic.topic_name, {})
            if changed or group.broker_name not in queues:
                queues[group.broker_name] = QueueData.of(group.broker_name, topic)
        if changed and self.policy.delete_missing_topics:
            names = {topic.topic_name for topic in registration.topics}
            for topic_name in [name for name in self._queues if name not in names]:
                self._drop_queues(topic_name, group.broker_name)

    def _take_queues_to_read(self, group: _Group, registration: Registration) -> None:
        """Apply the queues that the lowest follower of a leaderless group knows, without WRITE.

        The next leader's registration counts as changed whatever its version, so it restores WRITE.
        """
        for topic in registration.topics:
            data = QueueData.of(group.broker_name, topic)
            self._queues.setdefault(topic.topic_name, {})[group.broker_name] = (
                msgspec.structs.replace(data, perm=data.perm & ~PERM_WRITE)
            )
        group.queue_version = None

    def _note_min_id(
        self,
        group: _Group,
        old_min_id: int | None,
        *,
        offline_addr: str | None = None,
        ha_addr: str | None = None,
    ) -> None:
        """Record a change of the lowest id after members changed; not for the first member."""
        addresses = group.addresses()
        if not self.policy.notify_min_id or old_min_id is None or not addresses:
            return
        min_id = min(addresses)
        if min_id == old_min_id:
            return
        others = [address for broker_id, address in addresses.items() if broker_id != min_id]
        is_alone_or_left = offline_addr is not None or not others
        self._min_id_changes.append(
            MinIdChange(
                broker_name=group.broker_name,
                min_id=min_id,
                min_addr=addresses[min_id],
                offline_addr=offline_addr,
                ha_addr=ha_addr,
                receivers=tuple(addresses.values()) if is_alone_or_left else tuple(others),
            )
        )

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        queues = self._queues[topic]
        queues.pop(broker_name, None)
        if not queues:
            del self._queues[topic]

    def _member(self, broker_name: str, broker_addr: str) -> _Member | None:
        group = self._groups.get(broker_name)
        broker_id = group.id_of(broker_addr) if group is not None else None
        if group is None or broker_id is None:
            return None
        return group.members[broker_id]

    def _broker_data(self, group: _Group) -> BrokerData:
        return BrokerData(
            cluster=group.cluster,
            broker_name=group.broker_name,
            broker_addrs=group.addresses(),
            enable_acting_master=group.enable_acting_master,
        )

    def _routed(self, group: _Group, queues: QueueData) -> BrokerData:
        """Return the group for clients: with an acting leader where that is on and none leads."""
        data = self._broker_data(group)
        if (
            not self.policy.acting_master
            or not group.enable_acting_master
            or MASTER_ID in group.members
            or queues.perm & PERM_WRITE
        ):
            return data
        addresses = dict(data.broker_addrs)
        acting = addresses.pop(min(addresses))
        return msgspec.structs.replace(data, broker_addrs={MASTER_ID: acting, **addresses})

    def _members(self) -> Iterator[tuple[_Group, int, _Member]]:
        for group in list(self._groups.values()):
            for broker_id, member in list(group.members.items()):
                yield group, broker_id, member

    def _remove_where(self, is_gone: Callable[[_Member], bool]) -> list[RemovedBroker]:
        return [
            self._remove(group, broker_id)
            for group, broker_id, member in self._members()
            if is_gone(member)
        ]

    def _remove(self, group: _Group, broker_id: int) -> RemovedBroker:
        old_min_id = min(group.members)
        member = group.members.pop(broker_id)
        if not group.members:
            del self._groups[group.broker_name]
            for topic in list(self._queues):
                self._drop_queues(topic, group.broker_name)
        elif group.enable_acting_master:
            self._note_min_id(group, old_min_id, offline_addr=member.broker_addr)
            if broker_id == MASTER_ID:
                self.set_write_perm(group.broker_name, writable=False)
                group.queue_version = None  # the next leader's registration restores WRITE
        return RemovedBroker(
            broker_name=group.broker_name, broker_id=broker_id, broker_addr=member.broker_addr
        )
