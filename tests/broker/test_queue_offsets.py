"""Offsets by queue: a dict, whose keys of one topic are found without walking those of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.entry.payload import DeleteTopicCommand, Payload
from broker.entry.topics import Topic
from broker.state.queue_offsets import QueueOffsets
from broker.state.state import BrokerState, StateLimits
from remoting.protocol.group_topics import pop_retry_topic
from tests.work import counted

KEYS = st.tuples(st.sampled_from("GH"), st.sampled_from("ABC"), st.integers(0, 2))


@given(
    st.lists(st.one_of(st.tuples(KEYS, st.integers(0, 9)), KEYS.map(lambda key: (key, None)))),
    st.integers(0, 20),
)
def test_it_is_a_dict_that_knows_the_keys_of_each_topic(steps, restarts_after):
    offsets: QueueOffsets[tuple[str, str, int]] = QueueOffsets()
    model: dict[tuple[str, str, int], int] = {}
    for number, (key, offset) in enumerate(steps):
        if offset is not None:
            offsets[key] = model[key] = offset
        elif key in model:
            del offsets[key], model[key]
        if number == restarts_after:
            offsets = QueueOffsets(dict(offsets))
        assert list(offsets.items()) == list(model.items())
        for topics in ("A", "CB", "ABCD"):
            assert offsets.of_topics(topics) == [key for key in model if key[1] in topics]


def test_what_would_pass_by_the_index_is_not_there():
    offsets = QueueOffsets({("T", 0): 1})
    for change in ("clear", "pop", "popitem", "setdefault", "update"):
        with pytest.raises(TypeError):
            getattr(offsets, change)()
    with pytest.raises(TypeError):
        offsets |= {("T", 1): 1}


def broker_of(count: int) -> BrokerState:
    """So many topics of two queues, which three groups have popped."""
    retries = [pop_retry_topic("T1", group) for group in ("G0", "G1", "G2")]
    names = [*(f"T{number}" for number in range(count)), *retries]
    state = BrokerState(StateLimits(), {name: Topic(name=name) for name in names})
    for queue_id in range(2):
        for name in names:
            state.next_offsets[name, queue_id] = 5
            for number in range(3):
                is_others = name in retries and name != retries[number]
                if not is_others:
                    state.consumer_offsets[f"G{number}", name, queue_id] = 4
    state.consumer_offsets["G0", retries[2], 0] = 1  # shared, so it stays
    return state


def test_a_deletion_walks_what_the_topic_has():
    """Thousands of topics are deleted one after the other, on every replica's loop."""
    work_of = []
    for count in (20, 2_000):
        state = broker_of(count)
        payload = Payload(1_000, [], [DeleteTopicCommand("T1")])
        with counted() as work:
            deleted = state.apply(payload, 100)
        work_of.append(work.lines)
        retries = [pop_retry_topic("T1", group) for group in ("G0", "G1")]
        assert deleted == {"T1", *retries}
        queues = [(name, queue_id) for queue_id in range(2) for name in ("T1", *retries)]
        assert list(state.floors.all()) == queues, "in the order of the queues"
        assert not {key[1] for key in state.consumer_offsets} & deleted
        assert len(state.consumer_offsets) == 2 * 3 * (count - 1) + 3
    assert work_of[1] < work_of[0] + 50
