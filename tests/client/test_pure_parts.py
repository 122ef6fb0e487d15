"""The pure parts: rebalance, process queue, leaders, retry decisions, classification, routes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from client.connection.answers import error_of
from client.connection.leaders import GroupLeader
from client.connection.retry import Place, Retries, RetryPolicy, TryAgain
from client.connection.route_view import decode_topic_route
from client.consume.process_queue import ProcessQueue
from client.consume.rebalance import allocate, ownership_change
from client.errors import (
    BrokerBusyError,
    BrokerUnreachableError,
    ClientError,
    ContraryDecisionError,
    DeadlineError,
    IllegalMessageError,
    MalformedAnswerError,
    NoPermissionError,
    NotLeaderError,
    NotRecalledError,
    OutcomeUnknownError,
    UnansweredError,
)
from client.message import DeliveredMessage, MessageQueue
from remoting.protocol.leader_hint import leader_of, not_leader_remark

QUEUE = MessageQueue("T", "broker-a", 0)
BODY_BYTES = 10


# Rebalance.

names = st.text(alphabet="abcdef", min_size=1, max_size=3)
queues = st.builds(
    MessageQueue, st.just("T"), st.sampled_from(["broker-a", "broker-b"]), st.integers(0, 12)
)


@given(st.sets(names, min_size=1, max_size=8), st.sets(queues, max_size=26))
def test_shares_are_disjoint_cover_everything_and_differ_by_one(
    members: set[str], all_queues: set[MessageQueue]
) -> None:
    shares = [list(allocate(member, members, all_queues)) for member in sorted(members)]
    assert [queue for share in shares for queue in share] == sorted(all_queues)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_the_share_of_rocketmq_s_average_allocation() -> None:
    eight = [MessageQueue("T", "broker-a", number) for number in range(8)]
    assert [len(allocate(name, "abc", eight)) for name in "abc"] == [3, 3, 2]
    assert list(allocate("b", "abc", eight)) == eight[3:6]
    assert allocate("z", "abc", eight) == ()
    assert allocate("a", "a", []) == ()


@given(st.sets(queues), st.sets(queues))
def test_ownership_changes_lead_from_one_to_the_other(
    owned: set[MessageQueue], allocated: set[MessageQueue]
) -> None:
    change = ownership_change(owned, allocated)
    assert (owned - set(change.lost)) | set(change.gained) == allocated
    assert set(change.lost) <= owned
    assert not set(change.gained) & owned


# Process queue.


def delivered(offset: int) -> DeliveredMessage:
    return DeliveredMessage(
        topic="T",
        queue=QUEUE,
        queue_offset=offset,
        body=b"x" * BODY_BYTES,
        properties={},
        uniq_key=str(offset),
        offset_msg_id="",
        physical_offset=0,
        born_timestamp_ms=0,
        store_timestamp_ms=0,
        flag=0,
        sys_flag=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


COUNT_MAX = 6  # few, so that it is met


class ProcessQueueMachine(RuleBasedStateMachine):
    """Against a model that keeps a set of unconsumed offsets and nothing else."""

    ordered = False

    def __init__(self) -> None:
        super().__init__()
        self.process = ProcessQueue(5, count_max=COUNT_MAX, ordered=self.ordered)
        self.unconsumed: set[int] = set()
        self.taken: dict[int, DeliveredMessage] = {}
        self.failures: dict[int, int] = {}
        self.due: dict[int, int] = {}
        self.position = 5
        self.now_ms = 0
        self.committed = 5

    @rule(present=st.lists(st.booleans(), max_size=6), gap=st.integers(0, 3))
    def add(self, present: list[bool], gap: int) -> None:
        start = self.position
        offsets = [start + index for index, is_there in enumerate(present) if is_there]
        self.position = start + len(present) + gap
        self.process.add([delivered(offset) for offset in offsets], self.position)
        self.unconsumed.update(offsets)

    @rule(stale=st.integers(0, 5))
    def add_what_came_before(self, stale: int) -> None:
        self.process.add([delivered(self.position - 1 - stale)], self.position)

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        batch = self.process.take(count, self.now_ms)
        offsets = [message.queue_offset for message in batch]
        assert len(offsets) <= count
        assert len(set(offsets)) == len(offsets)
        for message in batch:
            offset = message.queue_offset
            assert offset in self.unconsumed
            assert offset not in self.taken
            assert self.due.pop(offset, 0) <= self.now_ms
            assert message.reconsume_times == self.failures.get(offset, 0)
        if self.ordered and offsets:
            assert not self.taken
            assert offsets == sorted(self.unconsumed)[: len(offsets)]
        if not offsets:
            ready = {
                offset
                for offset in self.unconsumed - set(self.taken)
                if self.due.get(offset, 0) <= self.now_ms
            }
            if self.ordered:
                first = min(self.unconsumed, default=None)
                assert self.taken or first not in ready
            else:
                assert not ready
        self.taken.update((message.queue_offset, message) for message in batch)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.taken)))
        self.process.done([self.taken.pop(offset)])
        self.unconsumed.discard(offset)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), delay_ms=st.integers(0, 20))
    def retry(self, data: st.DataObject, delay_ms: int) -> None:
        offset = data.draw(st.sampled_from(sorted(self.taken)))
        self.process.retry([self.taken.pop(offset)], self.now_ms + delay_ms)
        self.failures[offset] = self.failures.get(offset, 0) + 1
        self.due[offset] = self.now_ms + delay_ms

    @rule(delay_ms=st.integers(1, 10))
    def wait(self, delay_ms: int) -> None:
        self.now_ms += delay_ms

    @invariant()
    def agrees_with_the_model(self) -> None:
        expected = min(self.unconsumed, default=self.position)
        assert self.process.commit_offset == expected
        assert self.process.commit_offset >= self.committed
        self.committed = expected
        assert self.process.held == len(self.unconsumed)
        assert self.process.held_bytes == BODY_BYTES * len(self.unconsumed)
        assert self.process.has_room == (len(self.unconsumed) < COUNT_MAX)
        assert self.process.next_offset == self.position
        next_due_ms = self.process.next_due_ms()
        if self.ordered:
            assert next_due_ms == (self.due[min(self.due)] if self.due else None)
        else:
            assert next_due_ms == min(self.due.values(), default=None)


class OrderedProcessQueueMachine(ProcessQueueMachine):
    ordered = True


TestProcessQueue = ProcessQueueMachine.TestCase
TestOrderedProcessQueue = OrderedProcessQueueMachine.TestCase


def test_a_repositioned_queue_forgets_what_it_held() -> None:
    process = ProcessQueue(0)
    process.add([delivered(0), delivered(1)], 2)
    (taken,) = process.take(1, 0)
    process.reposition(9)
    assert process.commit_offset == 9
    process.done([taken])
    process.retry([taken], 0)
    assert process.held == 0
    assert process.take(10, 0) == []


# Leaders.


def test_a_leader_is_learnt_from_routes_hints_and_failures() -> None:
    leader = GroupLeader("broker-a")
    assert leader.address is None
    leader.update({0: "n0", 2: "n1", 3: "n2"})
    assert leader.address == "n0"
    leader.fail("n0")
    assert leader.address == "n1"
    leader.update({0: "n0", 2: "n1", 3: "n2"})
    assert leader.address == "n1"  # an old route is no news
    leader.hint("n2")
    leader.update({0: "n1", 1: "n0", 3: "n2"})
    assert leader.address == "n1"  # a new one is
    leader.fail("n0")
    assert leader.address == "n1"  # not the one that is asked now
    leader.confirm("n0")
    leader.update({2: "n1", 3: "n2"})
    assert leader.address == "n0"
    leader.fail("n0")
    assert leader.address == "n1"
    leader.hint("n9")
    assert leader.address == "n9"  # a member that no route has named yet
    leader.update({2: "n1", 3: "n2"})
    assert leader.address == "n9"
    leader.fail("n9")
    assert leader.address == "n1"


def test_a_leader_that_only_routes_name_is_not_sought_among_slaves() -> None:
    leader = GroupLeader("broker-a")
    leader.update({0: "n0", 1: "n1"})
    leader.fail("n0")
    assert leader.address == "n1"
    leader.follow_route()
    assert leader.address == "n0"
    leader.fail("n0")
    leader.confirm("n1")  # a slave's answer proves nothing
    assert leader.address == "n0"
    leader.update({1: "n1", 2: "n0"})
    assert leader.address is None
    leader.update({0: "n1", 2: "n0"})
    assert leader.address == "n1"
    leader.hint("n0")
    assert leader.address == "n0"


def test_a_busy_master_is_tried_again_and_another_node_left() -> None:
    leader = GroupLeader("broker-a")
    leader.update({0: "n0", 2: "n1", 3: "n2"})
    leader.refuse("n0")
    assert leader.address == "n0"
    leader.fail("n0")
    leader.refuse("n1")
    assert leader.address == "n2"
    leader.update({0: "n2", 2: "n1", 3: "n0"})
    leader.refuse("n2")
    assert leader.address == "n2"


@given(st.lists(st.sampled_from(["n0", "n1", "n2"]), min_size=3, max_size=3, unique=True))
def test_failures_try_every_node(order: list[str]) -> None:
    leader = GroupLeader("broker-a")
    leader.update(dict(enumerate(order)))
    tried = set()
    for _ in range(3):
        assert leader.address is not None
        tried.add(leader.address)
        leader.fail(leader.address)
    assert tried == {"n0", "n1", "n2"}


# Answers.


@pytest.mark.parametrize(
    ("code", "definite", "retriable"),
    [
        (1, False, True),
        (2, True, True),
        (3, True, False),
        (11, True, True),
        (13, True, False),
        (14, True, True),
        (16, True, False),
        (17, True, True),
        (22, True, False),
        (25, True, True),
        (26, True, True),
        (29, True, False),
        (215, True, True),
        (604, False, False),
        (9_999, False, False),
    ],
)
def test_the_classification(code: int, definite: bool, retriable: bool) -> None:
    error = error_of(code, "remark", "n0")
    assert (error.definite, error.retriable) == (definite, retriable)
    assert str(code) in str(error)
    assert "remark" in str(error)
    assert error.address == "n0"


def test_accounts_are_refused_under_code_1_too() -> None:
    remark = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, X.java:609"
    error = error_of(1, remark, "n0")
    assert isinstance(error, NoPermissionError)
    assert (error.definite, error.retriable) == (True, False)


@pytest.mark.parametrize(
    ("remark", "contrary"),
    [
        ("transaction already committed", True),
        ("transaction already rolled back", True),
        ("transaction already discarded", True),
        ("transaction already ended, long ago", False),
        (None, False),
    ],
)
def test_only_a_named_winner_makes_a_refused_decision_definite(
    remark: str | None, contrary: bool
) -> None:
    error = error_of(604, remark, "n0")
    assert isinstance(error, ContraryDecisionError) == contrary
    assert error.definite == contrary


@pytest.mark.parametrize(
    ("remark", "leader"),
    [
        ("not the leader; leader is 127.0.0.1:10921", "127.0.0.1:10921"),
        ("not the leader; leader is [::1]:10921", "[::1]:10921"),
        ("not the leader; leader is unknown", None),
        ("the broker is shutting down", None),
        ("", None),
        (None, None),
    ],
)
def test_the_leader_s_hint(remark: str | None, leader: str | None) -> None:
    assert leader_of(remark) == leader
    error = error_of(14, remark, "n0")
    assert isinstance(error, NotLeaderError)
    assert error.leader == leader


@pytest.mark.parametrize("leader", ["127.0.0.1:10921", None])
def test_a_leader_s_hint_comes_back_from_its_remark(leader: str | None) -> None:
    assert leader_of(not_leader_remark(leader)) == leader


# Retries.

POLICY = RetryPolicy(attempt_timeout_ms=100, attempts_max=10, backoff_ms_min=10, backoff_ms_max=40)


def not_leader(leader: str | None = None) -> NotLeaderError:
    return NotLeaderError(14, "not the leader", "n0", leader)


def test_an_attempt_has_its_share_of_the_time() -> None:
    retries = Retries(POLICY, deadline_ms=250, may_move=True)
    assert retries.begin_attempt(0) == 100
    assert retries.begin_attempt(200) == 50
    assert retries.begin_attempt(250) == 0
    assert retries.attempts == 2


def test_another_group_only_while_everything_was_refused() -> None:
    retries = Retries(POLICY, deadline_ms=1_000, may_move=True)
    retries.begin_attempt(0)
    again = retries.after(BrokerUnreachableError("down"), now_ms=0, luck=0.0)
    assert isinstance(again, TryAgain)
    assert again.place is Place.ANOTHER_GROUP
    retries.begin_attempt(0)
    again = retries.after(UnansweredError("silence"), now_ms=0, luck=0.0)
    assert isinstance(again, TryAgain)
    assert again.place is Place.SAME_GROUP
    retries.begin_attempt(0)
    again = retries.after(BrokerUnreachableError("down"), now_ms=0, luck=0.0)
    assert isinstance(again, TryAgain)
    assert again.place is Place.SAME_GROUP


def test_two_nodes_that_name_each_other_make_nobody_spin() -> None:
    retries = Retries(POLICY, deadline_ms=1_000, may_move=False)
    waits = []
    for _ in range(5):
        retries.begin_attempt(0)
        again = retries.after(not_leader("n1"), now_ms=0, luck=0.0)
        assert isinstance(again, TryAgain)
        assert again.place is Place.LEADER_HINT
        waits.append(again.wait_ms)
    assert waits == [0, 0, 10, 20, 40]


errors: list[ClientError] = [
    BrokerBusyError(2, None, "n0"),
    BrokerUnreachableError("down"),
    UnansweredError("silence"),
    not_leader(),
    not_leader("n1"),
    error_of(1, None, "n0"),
    IllegalMessageError(13, None, "n0"),
]


@given(
    st.lists(st.sampled_from(errors), min_size=1, max_size=30),
    st.booleans(),
    st.floats(0, 1, exclude_max=True),
)
def test_every_request_ends_honestly_and_in_time(
    outcomes: list[ClientError], may_move: bool, luck: float
) -> None:
    retries = Retries(POLICY, deadline_ms=500, may_move=may_move)
    now_ms = 0.0
    unanswered = False
    for error in outcomes:
        budget_ms = retries.begin_attempt(now_ms)
        assert budget_ms > 0
        now_ms += min(budget_ms, 7)
        unanswered = unanswered or not error.definite
        again = retries.after(error, now_ms=now_ms, luck=luck)
        if isinstance(again, ClientError):
            assert again.definite == (not unanswered)
            assert isinstance(again, OutcomeUnknownError) == unanswered
            break
        assert error.retriable
        assert not (unanswered and again.place is Place.ANOTHER_GROUP)
        assert may_move or again.place is not Place.ANOTHER_GROUP
        assert now_ms + again.wait_ms < 500
        now_ms += again.wait_ms
    assert retries.attempts <= POLICY.attempts_max


def test_the_last_word_at_the_deadline() -> None:
    refused = Retries(POLICY, deadline_ms=5, may_move=False)
    refused.begin_attempt(0)
    end = refused.after(BrokerBusyError(2, None, "n0"), now_ms=4, luck=0.0)
    assert isinstance(end, DeadlineError)
    assert end.definite
    silent = Retries(POLICY, deadline_ms=5, may_move=False)
    silent.begin_attempt(0)
    end = silent.after(UnansweredError("silence"), now_ms=6, luck=0.0)
    assert isinstance(end, OutcomeUnknownError)


def test_a_contrary_decision_settles_what_was_unanswered() -> None:
    retries = Retries(POLICY, deadline_ms=1_000, may_move=False)
    retries.begin_attempt(0)
    retries.after(UnansweredError("silence"), now_ms=0, luck=0.0)
    retries.begin_attempt(0)
    error = ContraryDecisionError(604, "transaction already committed", "n0")
    assert retries.after(error, now_ms=0, luck=0.0) is error


@pytest.mark.parametrize("remark", ["recall failed, timestamp invalid", "recall handle is invalid"])
def test_a_refused_recall_is_definite_only_where_no_attempt_was_unanswered(remark: str) -> None:
    """The attempt without an answer may have recalled the message before its time had come."""
    error = error_of(604, remark, "n0")
    assert isinstance(error, NotRecalledError)
    first = Retries(POLICY, deadline_ms=1_000, may_move=False)
    first.begin_attempt(0)
    assert first.after(error, now_ms=0, luck=0.0) is error
    later = Retries(POLICY, deadline_ms=1_000, may_move=False)
    later.begin_attempt(0)
    later.after(UnansweredError("silence"), now_ms=0, luck=0.0)
    later.begin_attempt(0)
    end = later.after(error, now_ms=0, luck=0.0)
    assert isinstance(end, OutcomeUnknownError)
    assert not end.definite


@pytest.mark.parametrize(
    "fields",
    [
        {"attempt_timeout_ms": 0},
        {"attempts_max": 0},
        {"backoff_ms_min": 50, "backoff_ms_max": 10},
        {"jitter": 1.5},
    ],
)
def test_a_policy_says_what_is_wrong_with_it(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        RetryPolicy(**fields)


# Routes.


def route(*brokers: dict[str, Any]) -> bytes:
    return json.dumps(
        {
            "brokerDatas": [
                {
                    "brokerName": broker["name"],
                    "cluster": "C",
                    "brokerAddrs": broker["addresses"],
                }
                for broker in brokers
            ],
            "queueDatas": [
                {
                    "brokerName": broker["name"],
                    "perm": broker.get("perm", 6),
                    "readQueueNums": broker.get("read", 2),
                    "writeQueueNums": 2,
                    "topicSysFlag": 0,
                }
                for broker in brokers
            ],
            "filterServerTable": {},
        }
    ).encode()


def test_queues_of_a_group_without_a_leader_wait_while_there_are_others() -> None:
    led = {"name": "a", "addresses": {"0": "h:1", "2": "h:2"}}
    leaderless = {"name": "b", "addresses": {"1": "h:3"}}
    both = decode_topic_route("T", route(led, leaderless))
    assert both.write_queues == (MessageQueue("T", "a", 0), MessageQueue("T", "a", 1))
    assert len(both.read_queues) == 4
    assert both.groups == {"a": {0: "h:1", 2: "h:2"}, "b": {1: "h:3"}}
    alone = decode_topic_route("T", route(leaderless))
    assert alone.write_queues == (MessageQueue("T", "b", 0), MessageQueue("T", "b", 1))


def test_permissions_decide_which_queues_there_are() -> None:
    read_only = {"name": "a", "addresses": {"0": "h:1"}, "perm": 4, "read": 3}
    seen = decode_topic_route("T", route(read_only))
    assert seen.write_queues == ()
    assert len(seen.read_queues) == 3


def test_a_garbled_route_is_named() -> None:
    with pytest.raises(MalformedAnswerError, match="topic T"):
        decode_topic_route("T", b"{")


def test_the_default_topic_stands_in_with_four_queues() -> None:
    default = decode_topic_route("TBW102", route({"name": "a", "addresses": {"0": "h:1"}}))
    stand_in = default.as_default_for("new")
    assert stand_in.write_queues == (MessageQueue("new", "a", 0), MessageQueue("new", "a", 1))
