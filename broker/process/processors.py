"""All processors of one broker, by the names that paths of the request table begin with.

Place in the data path: `broker.process.server` creates it once, and dispatches each request to one
of its methods.
"""

from __future__ import annotations

from broker.access.acl_admin import AclAdminProcessor
from broker.access.users import AccessChanges, UserProcessor
from broker.admin.admin import AdminProcessor
from broker.admin.client_listing import ClientListingProcessor
from broker.admin.consume_stats import ConsumeStatsProcessor
from broker.admin.consumer_relay import ConsumerRelayProcessor
from broker.admin.ha_status import HaStatusProcessor
from broker.admin.maintenance import MaintenanceProcessor
from broker.admin.offset_reset import OffsetResetProcessor
from broker.admin.raft_members import RaftMembersProcessor
from broker.admin.runtime_info import RuntimeInfoProcessor
from broker.admin.settings import SettingsProcessor
from broker.admin.stats import StatsProcessor
from broker.delay.recall import RecallProcessor
from broker.delay.timers import Timers
from broker.groups.clients import ClientProcessor
from broker.groups.groups import GroupProcessor
from broker.groups.locks import LockProcessor
from broker.index.indexer import Indexer
from broker.index.query_message import QueryMessageProcessor
from broker.leader.rebalance_lock import RebalanceLocks
from broker.pop.assignment import AssignmentProcessor
from broker.pop.pop import PopProcessor
from broker.pop.pop_ack import PopAckProcessor
from broker.pop.pop_peek import PopPeekProcessor
from broker.pull.offsets import OffsetProcessor
from broker.pull.pull import PullProcessor
from broker.pull.queries import QueryProcessor
from broker.request.context import BrokerContext
from broker.request.tasks import TaskOwner
from broker.send.reply import ReplyProcessor
from broker.send.send import SendProcessor
from broker.send.send_back import SendBackProcessor
from broker.transaction.end_transaction import EndTransactionProcessor

__all__ = ["Processors"]


class Processors:
    def __init__(
        self,
        context: BrokerContext,
        tasks: TaskOwner,
        locks: RebalanceLocks,
        indexer: Indexer | None = None,
    ) -> None:
        self.context = context
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
        self.ha_status = HaStatusProcessor(context, tasks)
        self.runtime_info = RuntimeInfoProcessor(context)
        self.raft_members = RaftMembersProcessor(context, tasks)
        self.client_listing = ClientListingProcessor(context)
        self.consume_stats = ConsumeStatsProcessor(context, tasks)
        self.offset_reset = OffsetResetProcessor(context)
        self.consumer_relay = ConsumerRelayProcessor(context, tasks)
        self.stats = StatsProcessor(context)
        self.settings = SettingsProcessor(context)
        self.maintenance = MaintenanceProcessor(context)
        changes = AccessChanges(context)
        self.users = UserProcessor(context, changes)
        self.acl_admin = AclAdminProcessor(context, changes)
