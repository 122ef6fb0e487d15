"""Which queue a producer takes next."""

from __future__ import annotations

from client.message import MessageQueue
from client.produce.latency_faults import LatencyFaults
from client.produce.queue_choice import QueueChoice

A = [MessageQueue("T", "broker-a", number) for number in range(3)]
B = [MessageQueue("T", "broker-b", number) for number in range(2)]


def test_queues_are_taken_in_turn() -> None:
    choice = QueueChoice(0)
    assert [choice.next(A, None, 0) for _ in range(4)] == [A[1], A[2], A[0], A[1]]
    assert [choice.next(A + B, "broker-a", 0) for _ in range(3)] == [B[0], B[1], B[0]]


def test_they_are_taken_in_turn_where_all_groups_are_isolated_or_avoided() -> None:
    choice = QueueChoice(0, LatencyFaults())
    choice.failed("broker-a", 0)
    assert [choice.next(A, None, 1) for _ in range(4)] == [A[1], A[2], A[0], A[1]]
    assert [choice.next(A, "broker-a", 1) for _ in range(3)] == [A[2], A[0], A[1]]
    assert {choice.next(A + B, None, 1) for _ in range(4)} == set(B), "the other is available"


def test_the_end_of_the_turns_is_followed_by_their_beginning() -> None:
    choice = QueueChoice(0x7FFF_FFFF)
    assert choice.next(A, None, 0) in A
    assert choice.next(A, None, 0) == A[1]
