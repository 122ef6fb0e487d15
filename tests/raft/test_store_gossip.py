"""What stores tell each other, and that they come to an end with it."""

from __future__ import annotations

from collections import deque

import pytest

from raft.bootstrap.store_gossip import StoreGossip
from raft.membership import Configuration, Member, make_membership
from raft.messages import Introduce, NodeId

NAMES = ("n0", "n1", "n2")


def store(name: str, number: int) -> str:
    return f"{name[1]}{number:031x}"


def configuration(index: int, **numbers: int) -> Configuration:
    """With the store of that number for each name."""
    return Configuration(
        index=index,
        membership=make_membership(
            Member(node_id=NodeId(name), address="127.0.0.1:1", store_id=store(name, number))
            for name, number in numbers.items()
        ),
    )


class Store:
    def __init__(self, name: str, number: int, known: Configuration) -> None:
        self.name, self.known = NodeId(name), known
        self.introductions = StoreGossip(
            node_id=self.name,
            store_id=store(name, number),
            born=True,
            addresses={NodeId(name): "127.0.0.1:1" for name in NAMES},
        )

    def begins(self) -> list[Introduce]:
        return self.introductions.to_all(self.known)

    def hears(self, message: Introduce) -> list[Introduce]:
        roster, answers = self.introductions.hear(message, self.known)
        assert roster is None
        return answers


def talk(one: Store, other: Store) -> int:
    """One introduces itself; how many messages follow."""
    stores = {one.name: one, other.name: other}
    under_way = deque(message for message in one.begins() if message.receiver == other.name)
    count = 0
    while under_way and count < 1_000:
        message = under_way.popleft()
        count += 1
        under_way += stores[message.receiver].hears(message)
    return count


def test_a_store_that_was_replaced_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    old = Store("n1", 1, configuration(1, n0=1, n1=1, n2=1))
    member = Store("n0", 1, configuration(9, n0=1, n1=2, n2=1))
    assert talk(old, member) == 2
    assert "was replaced, and does not count" in caplog.text


def test_stores_that_know_other_ones_of_each_other_come_to_an_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both have been replaced since the old one was last heard of."""
    old = Store("n1", 1, configuration(1, n0=1, n1=1, n2=1))
    new = Store("n2", 2, configuration(9, n0=1, n1=2, n2=2))
    assert talk(old, new) <= 2
    assert talk(new, old) <= 2
    assert f"n2 knows another store ({store('n1', 2)}) as n1" in caplog.text
    assert "knows another store (" + store("n2", 1) not in caplog.text, "the newer one is right"


def test_members_that_agree_say_no_more(caplog: pytest.LogCaptureFixture) -> None:
    known = configuration(1, n0=1, n1=1, n2=1)
    assert talk(Store("n1", 1, known), Store("n2", 1, known)) == 1
    assert caplog.text == ""
