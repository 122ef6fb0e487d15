"""Bugs planted into running brokers: pulls, bounds of queues, consumer offsets, queries by key."""

from __future__ import annotations

import textwrap

from campaigns.mutants.live.live_mutant import LiveMutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["READING_MUTANTS"]

_FOUND = """
at = found.next_offset
if found.records:
"""


def _in_answer(after: str) -> tuple[SourcePatch, ...]:
    """Between reading the log and answering a pull."""
    return (
        SourcePatch(
            module="broker.pull.pull",
            within="PullProcessor._answer_found",
            before=_FOUND,
            after=textwrap.dedent(after) + _FOUND,
        ),
    )


READING_MUTANTS = (
    LiveMutant(
        name="message skipped at the end of a batch",
        breaks="a pull whose batch is full passes over the message behind it",
        expected=("A4", "A5", "A15"),
        broker=(
            SourcePatch(
                module="broker.queues.queue_reader",
                within="read_matching",
                before="if len(records) >= count_max or (records and size_total + size > size_max):",
                after="""
                if len(records) >= count_max and planted("message skipped at the end of a batch"):
                    at += 1
                if len(records) >= count_max or (records and size_total + size > size_max):
                """,
            ),
        ),
    ),
    LiveMutant(
        name="message left out of a member's pull",
        breaks="members of the push group don't get one message in some sixty",
        expected=("A5",),
        broker=_in_answer(
            """
            if (
                len(found.records) > 1
                and pull.group == "push-consumers"
                and planted("message left out of a member's pull", every=15)
            ):
                found.records.pop(0)
            """
        ),
    ),
    LiveMutant(
        name="another queue's messages",
        breaks="one pull in fifteen brings what the other queue has",
        expected=("A1", "A2", "A5", "A6", "A21"),
        broker=_in_answer(
            """
            other = replica.queues.find(pull.topic, 1 - pull.queue_id)
            if (
                found.records
                and pull.topic == "orders"
                and other is not None
                and pull.offset < other.next_offset
                and planted("another queue's messages", every=15)
            ):
                found = read_matching(
                    replica.log,
                    other,
                    1 - pull.queue_id,
                    pull.offset,
                    count_max=pull.count_max,
                    size_max=pull.size_max,
                    scan_max=_SCAN_UNITS_MAX,
                    wanted=pull.filter,
                )
            """
        ),
    ),
    LiveMutant(
        name="batch in the wrong order",
        breaks="one pull in ten brings its messages last one first",
        expected=("A6", "A13", "A5"),
        broker=_in_answer(
            """
            if len(found.records) > 1 and planted("batch in the wrong order", every=10):
                found.records.reverse()
            """
        ),
    ),
    LiveMutant(
        name="the same batch once more",
        breaks="one pull in twenty is told to go on where it began",
        expected=("A12", "A6"),
        broker=_in_answer(
            """
            if found.records and planted("the same batch once more", every=20):
                found.next_offset = pull.offset
            """
        ),
    ),
    LiveMutant(
        name="a tag is filtered that was asked for",
        breaks="one message in ten with tag T3 is passed over, as if nobody wanted it",
        expected=("A5", "A4", "A15"),
        broker=(
            SourcePatch(
                module="broker.queues.queue_reader",
                within="read_matching",
                before="if codes is None or code in codes:",
                after="""
                if (codes is None or code in codes) and not (
                    code == 2655
                    and planted("a tag is filtered that was asked for", every=10)
                ):
                """,
            ),
        ),
    ),
    LiveMutant(
        name="shown before it is committed",
        breaks="a pull at a queue's end gets what its leader has just proposed",
        expected=("A21",),
        broker=(
            SourcePatch(
                module="broker.leader.proposer",
                within="Proposer._encode",
                before="""
                for record in records:
                    pieces += record.encode_at(at, store_ms, self._store_host)
                """,
                after="""
                for record in records:
                    shown = record.encode_at(at, store_ms, self._store_host)
                    place = run.topic, run.queue_id, record.queue_offset
                    _SHOWN[place] = b"".join(shown)
                    pieces += shown
                """,
            ),
            SourcePatch(
                module="broker.leader.proposer",
                before="_WAITING_PER_KEY_MAX = 1_000",
                after="""
                _WAITING_PER_KEY_MAX = 1_000
                _SHOWN: dict[tuple[str, int, int], bytes] = {}
                """,
            ),
            SourcePatch(
                module="broker.pull.pull",
                within="PullProcessor._run",
                before="elif pull.offset == queue.next_offset:",
                after="""
                elif (
                    pull.offset == queue.next_offset
                    and (
                        shown := __import__("sys").modules["broker.leader.proposer"]._SHOWN.get(
                            (pull.topic, pull.queue_id, pull.offset)
                        )
                    )
                    is not None
                    and planted("shown before it is committed")
                ):
                    self._answer(pull, ResponseCode.SUCCESS, "FOUND", pull.offset + 1, shown)
                elif pull.offset == queue.next_offset:
                """,
            ),
        ),
    ),
    LiveMutant(
        name="maximum offset of what is only proposed",
        breaks="GET_MAX_OFFSET counts messages that are not committed",
        expected=("A21",),
        broker=(
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor._answer_bound",
                before="offset = queue.next_offset if want_max else queue.min_offset",
                after="""
                offset = queue.next_offset if want_max else queue.min_offset
                if want_max:
                    proposed = self._leadership.proposer._next_offsets.get((topic, queue_id), offset)
                    if proposed > offset and planted("maximum offset of what is only proposed"):
                        offset = proposed
                """,
            ),
        ),
    ),
    LiveMutant(
        name="maximum offset of a while ago",
        breaks="GET_MAX_OFFSET is answered from a cache that is read five times",
        expected=("A15",),
        broker=(
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor._answer_bound",
                before="offset = queue.next_offset if want_max else queue.min_offset",
                after="""
                offset = queue.next_offset if want_max else queue.min_offset
                if want_max:
                    held = self.__dict__.setdefault("_held", {})
                    if planted("maximum offset of a while ago", every=5):
                        held[topic, queue_id] = offset
                    offset = held.get((topic, queue_id), offset)
                """,
            ),
        ),
    ),
    LiveMutant(
        name="offsets read without ReadIndex",
        breaks="a leader that was deposed answers with what it knows",
        expected=("A15", "S5"),
        broker=(
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor._query",
                before="await answer_at_read_point(self._leadership, request, answer)",
                after="""
                if planted("offsets read without ReadIndex"):
                    answer(request)
                else:
                    await answer_at_read_point(self._leadership, request, answer)
                """,
            ),
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor._bound",
                before="answer = partial(self._answer_bound, header, want_max=want_max)",
                after="""
                answer = partial(self._answer_bound, header, want_max=want_max)
                if planted("offsets read without ReadIndex"):
                    answer(request)
                    return
                """,
            ),
        ),
    ),
    LiveMutant(
        name="older committed offset returned",
        breaks="one fetch in three is answered with an offset from before",
        expected=("S5",),
        broker=(
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor._answer_query",
                before="queue = self._replica.queues.find(topic, queue_id)",
                after="""
                queue = self._replica.queues.find(topic, queue_id)
                if offset and planted("older committed offset returned", every=3):
                    offset = max(0, offset - 9)
                """,
            ),
        ),
    ),
    LiveMutant(
        name="offset commit answered when proposed",
        breaks="a consumer's commit is answered before it is committed",
        expected=("S5",),
        broker=(
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor.update",
                before="offsets = replica.state.consumer_offsets",
                after="""
                offsets = replica.state.consumer_offsets
                if planted("offset commit answered when proposed"):
                    from broker.leader.proposer import Proposal
                    command = OffsetCommand(group, topic, queue_id, offset)
                    proposal = Proposal(commands=[command], on_done=lambda _: None)
                    self._leadership.proposer.submit(proposal)
                    request.reply(ResponseCode.SUCCESS, None, {"ledgermqTerm": str(self._leadership.term)})
                    return
                """,
            ),
        ),
    ),
    LiveMutant(
        name="offset commit dropped",
        breaks="one commit in four is answered and forgotten",
        expected=("S5",),
        broker=(
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor.update",
                before="offsets = replica.state.consumer_offsets",
                after="""
                offsets = replica.state.consumer_offsets
                if planted("offset commit dropped", every=4):
                    request.reply(ResponseCode.SUCCESS, None, {"ledgermqTerm": str(self._leadership.term)})
                    return
                """,
            ),
        ),
    ),
    LiveMutant(
        name="offsets lost on failover",
        breaks="a leader that is not the first one knows nothing of what was committed, one time in "
        "three",
        expected=("S5",),
        broker=(
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor._answer_query",
                before="queue = self._replica.queues.find(topic, queue_id)",
                after="""
                queue = self._replica.queues.find(topic, queue_id)
                if self._leadership.term > 1 and planted("offsets lost on failover", every=3):
                    offset = None
                """,
            ),
        ),
    ),
    LiveMutant(
        name="query shows another key's message",
        breaks="one query in five is answered with the message that the last one asked for",
        expected=("S8",),
        broker=(
            SourcePatch(
                module="broker.index.query_message",
                within="QueryMessageProcessor._records",
                before="stored = self._replica.read_record(position)",
                after="""
                last = self.__dict__.get("_last", position)
                self._last = position
                wrong = last != position and planted(
                    "query shows another key's message", every=5
                )
                stored = self._replica.read_record(last if wrong else position)
                """,
            ),
            SourcePatch(
                module="broker.index.query_message",
                within="QueryMessageProcessor._records",
                before="and key in record_keys(record.properties)",
                after="and (wrong or key in record_keys(record.properties))",
            ),
        ),
    ),
    LiveMutant(
        name="query finds nothing",
        breaks="one query in five says that there is no such message",
        expected=("S8",),
        broker=(
            SourcePatch(
                module="broker.index.query_message",
                within="QueryMessageProcessor._answer",
                before="if count > 0 and begin_ms <= end_ms:",
                after="""
                if planted("query finds nothing", every=5):
                    count = 0
                if count > 0 and begin_ms <= end_ms:
                """,
            ),
        ),
    ),
    LiveMutant(
        name="retry of a failed message lost",
        breaks="a message that a listener sends back is answered and never stored",
        expected=("A5",),
        broker=(
            SourcePatch(
                module="broker.send.send_back",
                before="commit(leadership, request, commands, records=[pending], answer=answer)",
                after="""
                if planted("retry of a failed message lost", every=3):
                    answer()
                    return
                commit(leadership, request, commands, records=[pending], answer=answer)
                """,
            ),
        ),
    ),
)
