"""What the laboratory expects of a name server, against the name servers' own table."""

from __future__ import annotations

import random

import pytest

from chaos.workload.parts.operator.registration_model import (
    GroupModel,
    Queues,
    Version,
    route_of_groups,
)
from namesrv.registration import Registration, RegistrationRefusedError
from namesrv.route_table import RouteTable
from remoting.protocol.route import DataVersion, QueueData, TopicConfig

NAME = "g"
ADDRESSES = ("a:1", "b:1", "c:1")
TOPICS = ("one", "two")
QUEUES = Queues(read=4, write=2, perm=6, flag=0)


def test_member_stays_when_the_connection_that_it_left_closes() -> None:
    model = GroupModel()
    assert model.register("a:1", 0, Version(term=1, counter=1), {"one": QUEUES}, 0) == "0 -"
    assert model.register("b:1", 1, Version(term=1, counter=1), {}, 0) == "0 a:1"
    model.register("a:1", 0, Version(term=1, counter=1), {"one": QUEUES}, 1)
    model.unregister("a:1", 0)  # by somebody else
    model.close(0)
    assert model.route_text("one") == "read=4 write=2 perm=6 flag=0, 0=a:1"
    model.close(1)
    assert model.route_text("one") == "17"


def test_older_terms_are_refused() -> None:
    model = GroupModel()
    model.register("a:1", 0, Version(term=5, counter=1), {}, 0)
    assert model.register("b:1", 0, Version(term=4, counter=1), {}, 0) == "1"
    assert model.register("a:1", 1, Version(term=4, counter=1), {}, 0) == "1"
    assert model.register("b:1", 0, Version(term=6, counter=1), {}, 0) == "0 -"
    assert model.members_text() == "0=b:1"


def test_route_shows_each_group_that_has_the_topic() -> None:
    ours, theirs = GroupModel(), GroupModel()
    for model, address in ((ours, "a:1"), (theirs, "b:1")):
        model.register(address, 0, Version(term=1, counter=1), {"one": QUEUES}, 0)
    shown = "read=4 write=2 perm=6 flag=0, 0="
    assert route_of_groups([ours, theirs], "one") == f"{shown}a:1; {shown}b:1"
    ours.delete_topic("one")
    assert route_of_groups([ours, theirs], "one") == f"-; {shown}b:1"
    theirs.close(0)
    assert route_of_groups([ours, theirs], "one") == "17"


class _Both:
    """The model and the table, each asked for the same."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.model = GroupModel()
        self.table = RouteTable()
        self.seen: set[str] = set()

    def register(self) -> None:
        rng = self.rng
        address, number = rng.choice(ADDRESSES), rng.randrange(3)
        version = Version(term=rng.randint(1, 3), counter=rng.randint(1, 2))
        queues = Queues(read=rng.randint(1, 4), write=2, perm=rng.choice((2, 4, 6)), flag=0)
        topics = {topic: queues for topic in TOPICS if rng.random() < 0.7}
        connection = rng.randrange(2)
        registration = Registration(
            cluster="c",
            broker_name=NAME,
            broker_addr=address,
            broker_id=number,
            ha_server_addr="",
            data_version=_version(version),
            topics=[_config(topic, each) for topic, each in topics.items()],
        )
        try:
            leader = self.table.register(registration, connection, 0)
            shown = f"0 {'-' if leader is None else leader.broker_addr}"
        except RegistrationRefusedError:
            shown = "1"
        self.seen.add(shown)
        assert self.model.register(address, number, version, topics, connection) == shown

    def unregister(self) -> None:
        address, connection = self.rng.choice(ADDRESSES), self.rng.randrange(2)
        self.table.unregister(NAME, address, connection)
        self.model.unregister(address, connection)

    def close(self) -> None:
        connection = self.rng.randrange(2)
        self.table.connection_lost(connection)
        self.model.close(connection)

    def heartbeat(self) -> None:
        address = self.rng.choice(ADDRESSES)
        is_there = self.table.heartbeat(NAME, address, 0)
        assert self.model.heartbeat(address) == ("0" if is_there else "211")

    def query_version(self) -> None:
        address, version = self.rng.choice(ADDRESSES), Version(term=1, counter=1)
        changed, known = self.table.query_data_version(NAME, address, _version(version), 0)
        text = "-" if known is None else f"{known.state_version}.{known.counter}"
        assert self.model.query_version(address, version) == f"{str(changed).lower()} {text}"

    def set_write(self) -> None:
        writable = self.rng.random() < 0.5
        count = self.table.set_write_perm(NAME, writable=writable)
        assert self.model.set_write(writable=writable) == str(count)

    def change_topic(self) -> None:
        topic = self.rng.choice(TOPICS)
        if self.rng.random() < 0.5:
            self.table.delete_topic(topic)
            self.model.delete_topic(topic)
            return
        try:
            self.table.register_topic(topic, [QueueData.of(NAME, _config(topic, QUEUES))])
            shown = "0"
        except RegistrationRefusedError:
            shown = "1"
        assert self.model.add_topic(topic, QUEUES) == shown

    def compare(self) -> None:
        group = self.table.member_group(NAME)
        rows = [] if group is None else sorted(group.broker_addrs.items())
        members = " ".join(f"{number}={address}" for number, address in rows) or "-"
        assert self.model.members_text() == members
        for topic in TOPICS:
            route = self.table.route(topic)
            if route is None:
                assert self.model.route_text(topic) == "17"
                continue
            (queues,) = route.queue_datas
            text = (
                f"read={queues.read_queue_nums} write={queues.write_queue_nums}"
                f" perm={queues.perm} flag={queues.topic_sys_flag}, {members}"
            )
            assert self.model.route_text(topic) == text
        assert self.model.topics == tuple(self.table.topics())


@pytest.mark.parametrize("seed", range(20))
def test_model_and_table_agree(seed: int) -> None:
    both = _Both(random.Random(seed))
    steps = [
        both.register,
        both.register,
        both.register,
        both.unregister,
        both.close,
        both.heartbeat,
        both.query_version,
        both.set_write,
        both.change_topic,
    ]
    for _ in range(120):
        both.rng.choice(steps)()
        both.compare()
    assert {"0 -", "1"} < both.seen  # and some follower was told of its leader


def _version(version: Version) -> DataVersion:
    return DataVersion(state_version=version.term, counter=version.counter)


def _config(topic: str, queues: Queues) -> TopicConfig:
    return TopicConfig(
        topic_name=topic,
        read_queue_nums=queues.read,
        write_queue_nums=queues.write,
        perm=queues.perm,
        topic_sys_flag=queues.flag,
    )
