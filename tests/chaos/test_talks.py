"""Talks that were recorded with a RocketMQ, held with a broker of ours."""

from __future__ import annotations

from pathlib import Path

from campaigns.interop.record_talks import hold_talks
from chaos.workload.talks.recorded import otherwise, recorded_talks
from chaos.workload.talks.talk import QUESTIONS
from tests.client.real_broker import real_broker


async def test_talks_go_as_with_rocketmq(tmp_path: Path) -> None:
    talks = recorded_talks()
    async with real_broker(tmp_path) as broker:
        told = await hold_talks(broker.address, talks)
    found = {seed: otherwise(talks[seed], told[seed]) for seed in talks}
    assert not any(found.values()), found


def test_what_is_recorded_is_worth_asking() -> None:
    talks = recorded_talks()
    steps = [step for talk in talks.values() for step in talk.values()]
    about = {about for about, _ in steps}
    assert {"send", "send a batch", "end a half", "pull", "query", "pop", "reset", "lock"} <= {
        one.removesuffix("_batch_mq") for one in about
    }
    assert len(steps) > len(talks) * QUESTIONS * 0.9
    assert len(set(steps)) > 400, "most of them answer what was set or sent before"


def test_each_answer_that_is_otherwise_is_told() -> None:
    (seed, *_) = recorded_talks()
    talk = dict(recorded_talks()[seed])
    (first, second, third, *_) = talk
    worse = {**talk, second: ("pull", "{}"), (1_000, 0): ("pull", "{}")}
    del worse[third]
    assert not otherwise(talk, dict(talk))
    told = otherwise(talk, worse)
    assert [line.split(":")[0] for line in told] == [str(second), str(third), "(1000, 0)"]
    assert str(first) not in str(told)
