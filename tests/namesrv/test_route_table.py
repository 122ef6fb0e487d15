"""The rules of the route table, one by one."""

from __future__ import annotations

import pytest

from namesrv.registration import (
    Leader,
    MinIdChange,
    Registration,
    RegistrationRefusedError,
    RemovedBroker,
    RouteLimits,
    RoutePolicy,
)
from namesrv.route_table import RouteTable
from remoting.protocol.route import DataVersion, QueueData, TopicConfig


def topics(*names: str, queues: int = 4, perm: int = 6) -> list[TopicConfig]:
    return [
        TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        for name in names
    ]


def registration(
    broker_id: int,
    addr: str,
    term: int = 1,
    names: tuple[str, ...] = ("T",),
    counter: int = 0,
    **changes: object,
) -> Registration:
    fields: dict[str, object] = {
        "cluster": "C",
        "broker_name": "a",
        "broker_addr": addr,
        "broker_id": broker_id,
        "ha_server_addr": f"ha-{addr}",
        "data_version": DataVersion(state_version=term, timestamp_ms=1, counter=counter),
        "topics": topics(*names),
    }
    return Registration(**{**fields, **changes})  # type: ignore[arg-type]  # shorthand


def addresses(table: RouteTable, name: str = "a") -> dict[int, str]:
    table.verify()
    group = table.member_group(name)
    return {} if group is None else group.broker_addrs


def three_nodes() -> RouteTable:
    table = RouteTable()
    table.register(registration(0, "n0"), "c0", 0)
    table.register(registration(2, "n1"), "c1", 0)
    table.register(registration(3, "n2"), "c2", 0)
    return table


def test_a_leader_brings_the_queues_and_followers_learn_of_it() -> None:
    table = RouteTable()
    assert table.register(registration(2, "n1"), "c1", 0) is None
    assert table.route("T") is None
    assert table.register(registration(0, "n0", names=("T", "U")), "c0", 0) is None
    leader = table.register(registration(2, "n1"), "c1", 0)
    assert leader == Leader(broker_addr="n0", ha_server_addr="ha-n0")
    route = table.route("T")
    assert route is not None
    assert [data.broker_addrs for data in route.broker_datas] == [{0: "n0", 2: "n1"}]
    assert [(data.broker_name, data.read_queue_nums) for data in route.queue_datas] == [("a", 4)]
    assert table.topics() == ["T", "U"]


def test_a_new_leader_takes_over_id_0_at_once_and_the_queues_stay() -> None:
    table = three_nodes()
    table.register(registration(0, "n1", term=2, names=()), "c1", 1)
    assert addresses(table) == {0: "n1", 3: "n2"}
    assert table.route("T") is not None
    # The old leader comes back under its own id by its own next heartbeat.
    assert not table.heartbeat("a", "n0", 2)
    assert table.query_data_version("a", "n0", DataVersion(), 2) == (True, None)
    table.register(registration(1, "n0", term=2), "c0", 3)
    assert addresses(table) == {0: "n1", 1: "n0", 3: "n2"}


def test_a_stale_leader_never_overwrites_a_newer_one() -> None:
    table = three_nodes()
    table.register(registration(0, "n1", term=5), "c1", 1)
    with pytest.raises(RegistrationRefusedError, match="held by n1 in term 5, newer than 4"):
        table.register(registration(0, "n0", term=4), "c0", 2)
    assert addresses(table) == {0: "n1", 3: "n2"}


def test_a_stale_leader_does_not_fill_the_gap_that_a_newer_one_left() -> None:
    table = three_nodes()
    table.register(registration(0, "n1", term=5), "c1", 1)
    table.connection_lost("c1")
    assert addresses(table) == {3: "n2"}
    with pytest.raises(RegistrationRefusedError, match=r"leader n0 .* is of term 4, older than 5"):
        table.register(registration(0, "n0", term=4), "c0", 2)
    table.register(registration(0, "n2", term=6), "c2", 3)
    assert addresses(table) == {0: "n2"}


def test_a_node_that_knows_a_newer_term_is_not_leader_of_an_older_one() -> None:
    table = three_nodes()
    table.register(registration(2, "n1", term=5), "c1", 1)
    with pytest.raises(RegistrationRefusedError, match="term 4, older than 5"):
        table.register(registration(0, "n1", term=4), "c1", 2)
    assert addresses(table) == {0: "n0", 2: "n1", 3: "n2"}


def test_an_old_disk_at_the_leaders_address_takes_no_place_of_it() -> None:
    # A replaced member's old disk still runs with the settings of its successor.
    table = RouteTable()
    table.register(registration(0, "n0", term=10), "c0", 0)
    with pytest.raises(RegistrationRefusedError, match="of term 1, older than 10"):
        table.register(registration(1, "n0", term=1), "old", 1)
    assert addresses(table) == {0: "n0"}
    table.connection_lost("old")
    assert addresses(table) == {0: "n0"}
    table.connection_lost("c0")
    table.register(registration(0, "n1", term=11), "c1", 2)
    table.register(registration(1, "n0", term=0), "c2", 3)  # gone, wiped, and back
    assert addresses(table) == {0: "n1", 1: "n0"}


def test_the_same_term_may_move_to_another_address() -> None:
    # RocketMQ's own brokers say state version 0 always: the last one to register holds the id.
    table = RouteTable()
    table.register(registration(0, "n0", term=0), "c0", 0)
    table.register(registration(0, "n0b", term=0), "c1", 1)
    assert addresses(table) == {0: "n0b"}


def test_a_changed_role_drops_the_old_id() -> None:
    table = three_nodes()
    table.register(registration(1, "n0", term=2), "c0", 1)
    assert addresses(table) == {1: "n0", 2: "n1", 3: "n2"}
    route = table.route("T")
    assert route is not None
    assert 0 not in route.broker_datas[0].broker_addrs


def test_a_group_that_died_out_forgets_its_terms_and_queues() -> None:
    table = RouteTable()
    table.register(registration(0, "n0", term=9), "c0", 0)
    assert table.connection_lost("c0") == [
        RemovedBroker(broker_name="a", broker_id=0, broker_addr="n0")
    ]
    assert table.route("T") is None
    assert table.topics() == []
    assert table.cluster_info().broker_addr_table == {}
    assert table.cluster_info().cluster_addr_table == {}
    table.register(registration(0, "n0", term=1), "c1", 1)
    assert addresses(table) == {0: "n0"}


def test_the_connection_that_registered_last_counts() -> None:
    table = RouteTable()
    table.register(registration(0, "n0"), "old", 0)
    table.register(registration(0, "n0"), "new", 1)
    assert table.connection_lost("old") == []
    assert addresses(table) == {0: "n0"}
    assert len(table.connection_lost("new")) == 1


def test_silence_is_measured_by_the_members_own_timeout() -> None:
    table = RouteTable(RouteLimits(broker_timeout_ms=100))
    table.register(registration(0, "n0"), "c0", 1000)
    table.register(registration(1, "n1", heartbeat_timeout_ms=10), "c1", 1000)
    table.register(registration(2, "n2", heartbeat_timeout_ms=0), "c2", 1000)  # 0: not named
    assert table.expire(1010) == []
    assert [broker.broker_addr for broker in table.expire(1011)] == ["n1"]
    assert table.heartbeat("a", "n0", 1100)
    assert [broker.broker_addr for broker in table.expire(1101)] == ["n2"]
    assert table.expire(1200) == []
    version = DataVersion(state_version=1, timestamp_ms=1)
    assert table.query_data_version("a", "n0", version, 1200) == (False, version)
    assert table.expire(1300) == []
    assert [broker.broker_addr for broker in table.expire(1301)] == ["n0"]
    assert not table.heartbeat("a", "n0", 1301)


def test_unregistering_asks_for_the_right_address_and_connection() -> None:
    table = three_nodes()
    assert table.unregister("a", "elsewhere", "c0") is None
    assert table.unregister("b", "n0", "c0") is None
    assert table.unregister("a", "n0", "another process") is None
    assert table.unregister("a", "n0", "c0") == RemovedBroker(
        broker_name="a", broker_id=0, broker_addr="n0"
    )
    assert addresses(table) == {2: "n1", 3: "n2"}
    assert table.route("T") is not None


def queues_of(table: RouteTable, topic: str = "T") -> list[tuple[str, int, int]]:
    route = table.route(topic)
    assert route is not None
    return [(data.broker_name, data.write_queue_nums, data.perm) for data in route.queue_datas]


def test_queues_change_with_the_version_only() -> None:
    table = RouteTable()
    table.register(registration(0, "n0", counter=1), "c0", 0)
    more = topics("T", "U", queues=8)
    table.register(registration(0, "n0", counter=1, topics=more), "c0", 1)
    assert queues_of(table) == [("a", 4, 6)]
    assert queues_of(table, "U") == [("a", 8, 6)]  # it was not known of this group
    table.register(registration(0, "n0", counter=2, topics=more), "c0", 2)
    assert queues_of(table) == [("a", 8, 6)]
    table.register(registration(1, "n1", counter=3, topics=topics("T", queues=1)), "c1", 3)
    assert queues_of(table) == [("a", 8, 6)]


def test_topics_that_are_missing_stay_unless_configured_otherwise() -> None:
    for delete, left in ((False, ["T", "U"]), (True, ["U"])):
        table = RouteTable(policy=RoutePolicy(delete_missing_topics=delete))
        table.register(registration(0, "n0", counter=1, names=("T", "U")), "c0", 0)
        table.register(registration(0, "n0", counter=2, names=("U",)), "c0", 1)
        assert table.topics() == left


def test_write_permission_is_taken_and_given_back() -> None:
    table = three_nodes()
    other = registration(0, "m0", broker_name="b")
    table.register(other, "c3", 0)
    assert table.set_write_perm("a", writable=False) == 1
    assert queues_of(table) == [("a", 4, 4), ("b", 4, 6)]
    table.register(registration(0, "n0"), "c0", 1)  # unchanged: it stays taken
    assert queues_of(table) == [("a", 4, 4), ("b", 4, 6)]
    assert table.set_write_perm("a", writable=True) == 1
    assert queues_of(table) == [("a", 4, 6), ("b", 4, 6)]
    assert table.set_write_perm("c", writable=True) == 0


def test_clusters_and_deleted_topics() -> None:
    table = three_nodes()
    table.register(registration(0, "m0", broker_name="b", cluster="D", names=("T", "V")), "d", 0)
    assert table.topics("C") == ["T"]
    assert table.topics("D") == ["T", "V"]
    assert table.topics("E") == []
    assert table.cluster_info().cluster_addr_table == {"C": ["a"], "D": ["b"]}
    table.delete_topic("T", "D")
    assert queues_of(table) == [("a", 4, 6)]
    table.delete_topic("T")
    table.delete_topic("never")
    assert table.topics() == ["V"]
    table.verify()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"cluster": "D"}, "group a belongs to cluster C, not D"),
        ({"cluster": ""}, "cluster has 0 characters"),
        ({"broker_name": ""}, "broker_name has 0 characters"),
        ({"broker_addr": "x" * 256}, "broker_addr has 256 characters"),
        ({"broker_id": -1}, "broker id -1 is negative"),
        ({"heartbeat_timeout_ms": -5}, "heartbeat timeout -5 ms"),
        ({"broker_id": 7}, "group a has 3 members already"),
        ({"broker_name": "c"}, "2 groups are known already"),
        ({"topics": topics("V", "W", "X")}, "with 3 new topics there would be more than 3"),
        ({"topics": topics("")}, "topic name of 0 characters"),
        ({"topics": topics("x" * 300)}, "topic name of 300 characters"),
    ],
)
def test_a_refused_registration_changes_nothing(changes: dict[str, object], text: str) -> None:
    table = RouteTable(RouteLimits(groups_max=2, brokers_max=3, topics_max=3))
    table.register(registration(0, "n0"), "c0", 0)
    table.register(registration(1, "n1"), "c1", 0)
    table.register(registration(2, "n2"), "c2", 0)
    table.register(registration(0, "m0", broker_name="b"), "c3", 0)
    before = table.cluster_info(), table.topics(), queues_of(table)
    fields: dict[str, object] = {"broker_id": 0, "addr": "n9", "term": 2, **changes}
    fields["addr"] = fields.pop("broker_addr", fields["addr"])
    with pytest.raises(RegistrationRefusedError, match=text):
        table.register(registration(**fields), "c9", 1)  # type: ignore[arg-type]  # shorthand
    assert (table.cluster_info(), table.topics(), queues_of(table)) == before


def test_a_full_group_still_takes_its_own_members_and_new_leaders() -> None:
    table = RouteTable(RouteLimits(brokers_max=2))
    table.register(registration(0, "n0"), "c0", 0)
    table.register(registration(1, "n1"), "c1", 0)
    table.register(registration(0, "n1", term=2), "c1", 1)
    table.register(registration(1, "n0", term=2), "c0", 1)
    assert addresses(table) == {0: "n1", 1: "n0"}


@pytest.mark.parametrize("name", ["groups_max", "brokers_max", "topics_max", "broker_timeout_ms"])
def test_limits_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RouteLimits(**{name: 0})


def acting_group(policy: RoutePolicy) -> RouteTable:
    """A leader and two followers that may act for it."""
    table = RouteTable(policy=policy)
    for broker_id, addr in enumerate(("n0", "n1", "n2")):
        table.register(registration(broker_id, addr, enable_acting_master=True), f"c{broker_id}", 0)
    return table


def addresses_of(table: RouteTable) -> dict[int, str]:
    route = table.route("T")
    assert route is not None
    return route.broker_datas[0].broker_addrs


@pytest.mark.parametrize("is_on", [False, True])
def test_the_lowest_follower_acts_for_a_leader_that_is_gone(is_on: bool) -> None:
    table = acting_group(RoutePolicy(acting_master=is_on))
    assert addresses_of(table) == {0: "n0", 1: "n1", 2: "n2"}
    table.connection_lost("c0")
    assert addresses_of(table) == ({0: "n1", 2: "n2"} if is_on else {1: "n1", 2: "n2"})
    assert queues_of(table) == [("a", 4, 4)]  # to be read only
    assert table.member_group("a").broker_addrs == {1: "n1", 2: "n2"}  # type: ignore[union-attr]
    table.register(registration(0, "n2", term=2, enable_acting_master=True), "c2", 1)
    assert addresses_of(table) == {0: "n2", 1: "n1"}
    assert queues_of(table) == [("a", 4, 6)]


def test_a_follower_tells_what_a_group_without_leader_has_but_for_write() -> None:
    table = RouteTable(policy=RoutePolicy(acting_master=True))
    table.register(registration(2, "n2", names=("T",), enable_acting_master=True), "c2", 0)
    assert queues_of(table) == [("a", 4, 4)]
    table.register(registration(1, "n1", names=("T", "U"), enable_acting_master=True), "c1", 0)
    table.register(registration(2, "n2", names=("V",), enable_acting_master=True), "c2", 0)
    assert table.topics() == ["T", "U"]  # only the lowest id's word counts
    table.register(registration(0, "n0", names=("T",)), "c0", 0)
    assert queues_of(table) == [("a", 4, 6)]
    assert addresses_of(table) == {0: "n0", 1: "n1", 2: "n2"}
    plain = RouteTable(policy=RoutePolicy(acting_master=True))
    plain.register(registration(1, "n1"), "c1", 0)
    assert plain.topics() == []


def test_a_stale_leader_does_not_win_over_who_acts() -> None:
    table = acting_group(RoutePolicy(acting_master=True))
    table.register(registration(0, "n0", term=5, enable_acting_master=True), "c0", 1)
    table.connection_lost("c0")
    with pytest.raises(RegistrationRefusedError, match="older than 5"):
        table.register(registration(0, "n1", term=4, enable_acting_master=True), "c1", 1)
    assert addresses_of(table)[0] == "n1"
    assert queues_of(table) == [("a", 4, 4)]


def test_members_hear_of_another_lowest_id() -> None:
    table = RouteTable(policy=RoutePolicy(notify_min_id=True))
    table.register(registration(2, "n2", enable_acting_master=True), "c2", 0)
    assert table.take_min_id_changes() == []
    table.register(registration(1, "n1", enable_acting_master=True), "c1", 0)
    wanted = MinIdChange(
        broker_name="a",
        min_id=1,
        min_addr="n1",
        offline_addr=None,
        ha_addr="ha-n1",
        receivers=("n2",),
    )
    assert table.take_min_id_changes() == [wanted]
    table.register(registration(1, "n1", enable_acting_master=True), "c1", 1)
    assert table.take_min_id_changes() == []
    table.connection_lost("c1")
    (change,) = table.take_min_id_changes()
    assert (change.min_id, change.offline_addr, change.receivers) == (2, "n1", ("n2",))
    table.connection_lost("c2")
    assert table.take_min_id_changes() == []
    for broker_id in (2, 1, 0):
        known = registration(broker_id, f"n{broker_id}", enable_acting_master=True)
        table.register(known, f"c{broker_id}", 0)
    table.take_min_id_changes()
    table.connection_lost("c0")
    table.connection_lost("c1")
    told = [(change.min_id, change.receivers) for change in table.take_min_id_changes()]
    assert told == [(1, ("n2",)), (2, ("n2",))], "nobody who has gone meanwhile"
    quiet = acting_group(RoutePolicy())
    quiet.connection_lost("c0")
    assert quiet.take_min_id_changes() == []


def test_topics_are_registered_by_hand_for_groups_that_are_known() -> None:
    table = RouteTable(RouteLimits(topics_max=2))
    table.register(registration(0, "n0"), "c0", 0)
    queues = [QueueData(broker_name="a", read_queue_nums=3, write_queue_nums=3, perm=6)]
    table.register_topic("made", queues)
    assert table.topics() == ["T", "made"]
    for topic, data, told in (
        ("other", [QueueData.of("nobody", topics("T")[0])], "nobody is not known"),
        ("third", queues, "2 topics are known"),
        ("x" * 256, queues, "256 characters"),
    ):
        with pytest.raises(RegistrationRefusedError, match=told):
            table.register_topic(topic, data)
    table.verify()


def test_topics_by_their_flags_and_the_systems_own() -> None:
    table = RouteTable()
    assert table.system_topics() == ([], None)
    flagged = [TopicConfig(topic_name=f"flags-{flags}", topic_sys_flag=flags) for flags in range(4)]
    table.register(registration(0, "n0", topics=flagged), "c0", 0)
    assert table.topics_of_flags(lambda flags: bool(flags & 1)) == ["flags-1", "flags-3"]
    assert table.system_topics() == (["C", "a"], "n0")
