"""Bugs planted into running clients and name servers."""

from __future__ import annotations

from campaigns.mutants.live.live_mutant import LiveMutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["LIVE_CLIENT_MUTANTS"]

LIVE_CLIENT_MUTANTS = (
    LiveMutant(
        name="every member takes all queues",
        breaks="members of a push group don't share its queues",
        expected=("A22", "A12"),
        laboratory=(
            SourcePatch(
                module="client.consume.rebalance",
                within="allocate",
                before="index = members.index(client_id)",
                after="""
                if planted("every member takes all queues"):
                    return ordered
                index = members.index(client_id)
                """,
            ),
        ),
    ),
    LiveMutant(
        name="queue never given up",
        breaks="a member keeps a queue that a rebalance gave to another one",
        expected=("A22", "A12"),
        laboratory=(
            SourcePatch(
                module="client.consume.rebalance",
                within="ownership_change",
                before="after = set(allocated)",
                after="""
                after = set(allocated)
                if before - after and planted("queue never given up"):
                    after |= before
                """,
            ),
        ),
    ),
    LiveMutant(
        name="timeout told as a failure",
        breaks="a send without an answer is told as surely not done",
        expected=("A19", "A3"),
        laboratory=(
            SourcePatch(
                module="client.errors",
                within="UnansweredError",
                before="definite = False",
                after='definite = planted("timeout told as a failure")',
            ),
        ),
    ),
    LiveMutant(
        name="refusal told as done",
        breaks="a send that a broker refused for want of leadership is told as stored",
        expected=("A1", "A4", "A20"),
        laboratory=(
            SourcePatch(
                module="client.produce.producer",
                within="Producer._attempt",
                before="status = send_status(answer.code)",
                after="""
                if answer.code == 14 and planted("refusal told as done", every=3):
                    answer.code = 0
                    answer.ext_fields |= {
                        "msgId": "7F00000100002A9F0000000000000000",
                        "queueId": str(target.queue_id),
                        "queueOffset": "77",
                    }
                status = send_status(answer.code)
                """,
            ),
        ),
    ),
    LiveMutant(
        name="retry with another key",
        breaks="an attempt after the first carries a new UNIQ_KEY",
        expected=("A2", "A11"),
        laboratory=(
            SourcePatch(
                module="client.produce.producer",
                within="Producer._stamp",
                before="if message.uniq_key is None:",
                after="""
                sent = self.__dict__.setdefault("_sent_keys", set())
                if message.uniq_key in sent and planted("retry with another key"):
                    message.uniq_key = None
                sent.add(message.uniq_key)
                if message.uniq_key is None:
                """,
            ),
        ),
    ),
    LiveMutant(
        name="committed before it is consumed",
        breaks="a member commits what it has pulled, whether its listener has had it or not",
        expected=("C19", "A5"),
        laboratory=(
            SourcePatch(
                module="client.consume.process_queue",
                within="ProcessQueue.commit_offset",
                before="lowest = self.next_offset",
                after="""
                lowest = self.next_offset
                if self.held and planted("committed before it is consumed"):
                    return lowest
                """,
            ),
        ),
    ),
    LiveMutant(
        name="failed message taken for consumed",
        breaks="a message that the listener wants again is neither sent back nor kept",
        expected=("A5",),
        laboratory=(
            SourcePatch(
                module="client.consume.queue_consumer",
                within="QueueConsumer._put_aside",
                before="is_last = self._settings.is_last_attempt(message.reconsume_times)",
                after="""
                if planted("failed message taken for consumed", every=2):
                    return True
                is_last = self._settings.is_last_attempt(message.reconsume_times)
                """,
            ),
        ),
    ),
    LiveMutant(
        name="begins where nothing was committed",
        breaks="a new owner begins at the queue's end in place of the committed offset",
        expected=("A5",),
        laboratory=(
            SourcePatch(
                module="client.consume.queue_consumer",
                within="QueueConsumer._first_offset",
                before="if stored is not None:",
                after="""
                if stored is not None and planted("begins where nothing was committed"):
                    return await self._requests.max_offset(self.queue)
                if stored is not None:
                """,
            ),
        ),
    ),
    LiveMutant(
        name="decision mixed up",
        breaks="one commit in fifteen leaves the producer as a rollback",
        expected=("T5", "T3", "T2", "A4"),
        laboratory=(
            SourcePatch(
                module="client.produce.transaction_producer",
                within="TransactionProducer._end_command",
                before="commit_or_rollback=_DECISION_BITS[decision],",
                after="""
                commit_or_rollback=_DECISION_BITS[
                    Decision.ROLLBACK
                    if decision is Decision.COMMIT and planted("decision mixed up", every=15)
                    else decision
                ],
                """,
            ),
        ),
    ),
    LiveMutant(
        name="properties of a message lost on arrival",
        breaks="one message in thirty reaches its reader without its tags",
        expected=("A18",),
        laboratory=(
            SourcePatch(
                module="client.delivery",
                within="delivered_message",
                before='properties = parse_properties_text(record.properties.decode(errors="replace"))',
                after="""
                properties = parse_properties_text(record.properties.decode(errors="replace"))
                if planted("properties of a message lost on arrival", every=30):
                    properties.pop("TAGS", None)
                """,
            ),
        ),
    ),
    LiveMutant(
        name="dead leader kept in the routes",
        breaks="name servers go on naming the first leader, whoever leads",
        expected=("M3", "M11", "A16", "A14"),
        namesrv=(
            SourcePatch(
                module="namesrv.route_table",
                within="RouteTable._broker_data",
                before="""
                broker_name=group.broker_name,
                broker_addrs=group.addresses(),
                enable_acting_master=group.enable_acting_master,
                """,
                after="""
                broker_name=group.broker_name,
                broker_addrs=self._with_first(group.addresses(), group.broker_name),
                enable_acting_master=group.enable_acting_master,
                """,
            ),
            SourcePatch(
                module="namesrv.route_table",
                within="RouteTable",
                before="def _broker_data(self, group: _Group) -> BrokerData:",
                after="""
                def _with_first(self, shown, broker_name):
                    first_of = self.__dict__.setdefault("_first_leaders", {})
                    first = first_of.setdefault(broker_name, shown.get(MASTER_ID))
                    place = next((at for at, one in shown.items() if one == first), MASTER_ID)
                    if place != MASTER_ID and planted("dead leader kept in the routes"):
                        return {**shown, place: shown.get(MASTER_ID, first), MASTER_ID: first}
                    return shown

                def _broker_data(self, group: _Group) -> BrokerData:
                """,
            ),
        ),
    ),
    LiveMutant(
        name="queue forgotten by the name servers",
        breaks="after a while routes lack each topic's last queue",
        expected=("A5", "A14", "A22"),
        namesrv=(
            SourcePatch(
                module="namesrv.route_table",
                within="RouteTable.route",
                before="names = sorted(queues)",
                after="""
                if topic == "orders" and planted("queue forgotten by the name servers", after=16):
                    queues = {
                        name: msgspec.structs.replace(one, read_queue_nums=1)
                        for name, one in queues.items()
                    }
                names = sorted(queues)
                """,
            ),
        ),
    ),
)
