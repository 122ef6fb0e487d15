"""Who may stay when a server has as many connections as it takes: the pure rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from remoting.connections.admission import Admission, Place

OPERATOR = 7


@dataclass(eq=False)
class Peer:
    name: int
    has_requested: bool = False
    last_active: float = 0.0


@dataclass
class House:
    """An admission, with those that a server would have open."""

    admission: Admission[Peer] = field(
        default_factory=lambda: Admission(
            connections_max=3, reserved_max=2, reserved_codes=frozenset({OPERATOR})
        )
    )
    open: list[Peer] = field(default_factory=list)
    reserved: set[Peer] = field(default_factory=set)
    now: float = 0.0

    def connect(self) -> tuple[Peer, Place]:
        peer = Peer(len(self.open), last_active=self.now)
        place, evicted = self.admission.admit(peer, self.now)
        if place is not Place.NONE:
            self.open.append(peer)
        if place is Place.RESERVE:
            self.reserved.add(peer)
        if evicted is not None:
            assert evicted is not peer
            self.open.remove(evicted)
            self.reserved.discard(evicted)
        return peer, place

    def ask(self, peer: Peer, code: int) -> bool:
        peer.has_requested = True
        peer.last_active = self.now
        return peer not in self.reserved or self.admission.takes(peer, code)

    def leave(self, peer: Peer) -> None:
        self.open.remove(peer)
        self.reserved.discard(peer)
        promoted = self.admission.forget(peer, self.now)
        if promoted is not None:
            self.reserved.remove(promoted)


def full_house() -> House:
    house = House()
    for _ in range(3):
        house.ask(house.connect()[0], 1)
    return house


def test_who_has_just_come_is_given_time() -> None:
    house = House()
    for _ in range(3):
        house.connect()
    assert house.connect()[1] is Place.RESERVE
    house.now = 1.5
    assert house.connect()[1] is Place.ORDINARY
    assert [peer.name for peer in house.open][:2] == [1, 2]


def test_an_operator_in_the_reserve_outlives_a_flood() -> None:
    house = full_house()
    operator, place = house.connect()
    assert place is Place.RESERVE
    assert house.ask(operator, OPERATOR)
    for _ in range(50):
        peer, _ = house.connect()
        assert not house.ask(peer, 1)
    assert operator in house.open
    second, _ = house.connect()
    assert house.ask(second, OPERATOR)
    assert house.connect()[1] is Place.NONE, "both places are taken by those who have proven it"
    house.now = 11.0
    house.ask(second, OPERATOR)
    assert house.connect()[1] is Place.RESERVE
    assert operator not in house.open, "it was silent for long"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=80))
def test_the_bounds_hold_and_an_operator_gets_in(steps: list[tuple[int, int]]) -> None:
    house = House()
    for action, number in steps:
        house.now += number / 10
        peer = house.open[number % len(house.open)] if house.open else None
        match action:
            case 0 | 1:
                house.connect()
            case 2 if peer is not None:
                house.ask(peer, 1)
            case 3 if peer is not None:
                house.ask(peer, OPERATOR)
            case 4 if peer is not None:
                house.leave(peer)
        assert len(house.admission) == len(house.open)
        assert len(house.reserved) <= 2
        assert len(house.open) - len(house.reserved) <= 3
        assert not house.reserved or len(house.open) - len(house.reserved) == 3
    house.now += 11.0  # nobody has said anything for long
    operator, place = house.connect()
    assert place is not Place.NONE
    assert house.ask(operator, OPERATOR)
