"""All processors of one broker, by name: what the paths in `broker.request_table` begin with.

Place in the data path: `broker.server` makes it once, and hands each request to one of its methods.
"""

from __future__ import annotations

from broker.context import BrokerContext
from broker.delay.timers import Timers
from broker.indexer import Indexer
from broker.processor.admin import AdminProcessor
from broker.processor.assignment import AssignmentProcessor
from broker.processor.clients import ClientProcessor
from broker.processor.connections import ConnectionProcessor
from broker.processor.grants import GrantProcessor
from broker.processor.groups import GroupProcessor
from broker.processor.locks import LockProcessor
from broker.processor.maintenance import MaintenanceProcessor
from broker.processor.members import MemberProcessor
from broker.processor.offsets import OffsetProcessor
from broker.processor.pop import PopProcessor
from broker.processor.pop_ack import PopAckProcessor
from broker.processor.pop_peek import PopPeekProcessor
from broker.processor.progress import ProgressProcessor
from broker.processor.pull import PullProcessor
from broker.processor.queries import QueryProcessor
from broker.processor.query_message import QueryMessageProcessor
from broker.processor.recall import RecallProcessor
from broker.processor.relays import RelayProcessor
from broker.processor.replicas import ReplicaProcessor
from broker.processor.reply import ReplyProcessor
from broker.processor.resets import ResetProcessor
from broker.processor.runtime_info import RuntimeInfoProcessor
from broker.processor.send import SendProcessor
from broker.processor.send_back import SendBackProcessor
from broker.processor.settings import SettingsProcessor
from broker.processor.stats import StatsProcessor
from broker.processor.transaction import EndTransactionProcessor
from broker.processor.users import AccessChanges, UserProcessor
from broker.rebalance_lock import RebalanceLocks
from broker.tasks import TaskOwner

__all__ = ["Processors"]


class Processors:
    def __init__(
        self,
        context: BrokerContext,
        tasks: TaskOwner,
        locks: RebalanceLocks,
        indexer: Indexer | None = None,
    ) -> None:
        self.send = SendProcessor(context)
        self.reply = ReplyProcessor(context, tasks, self.send)
        self.send_back = SendBackProcessor(context)
        self.clocks = context.clocks
        self.end_transaction = EndTransactionProcessor(context, tasks)
        self.pull = PullProcessor(context, tasks)
        self.offsets = OffsetProcessor(context, tasks)
        self.queries = QueryProcessor(context, tasks)
        self.query_message = QueryMessageProcessor(context, tasks, indexer)
        self.timers = Timers(context)
        self.recall = RecallProcessor(context, tasks, self.timers)
        self.locks = LockProcessor(context, locks)
        self.pop = PopProcessor(context)
        self.pop_ack = PopAckProcessor(context)
        self.pop_peek = PopPeekProcessor(context)
        self.assignment = AssignmentProcessor(context, tasks)
        self.clients = ClientProcessor(context)
        self.groups = GroupProcessor(context)
        self.admin = AdminProcessor(context)
        self.replicas = ReplicaProcessor(context, tasks)
        self.runtime_info = RuntimeInfoProcessor(context)
        self.members = MemberProcessor(context, tasks)
        self.connections = ConnectionProcessor(context)
        self.progress = ProgressProcessor(context, tasks)
        self.resets = ResetProcessor(context)
        self.relays = RelayProcessor(context, tasks)
        self.stats = StatsProcessor(context)
        self.settings = SettingsProcessor(context)
        self.maintenance = MaintenanceProcessor(context)
        changes = AccessChanges(context)
        self.users = UserProcessor(context, changes)
        self.grants = GrantProcessor(context, changes)
