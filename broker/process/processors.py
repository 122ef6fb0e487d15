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
from broker.failpoints.handler import FailpointsProcessor
from broker.failpoints.orders import Switches
from broker.groups.clients import ClientProcessor
from broker.groups.groups import GroupProcessor
from broker.groups.locks import LockProcessor
from broker.index.indexer import Indexer
from broker.index.query_message import QueryMessageProcessor
from broker.pop.assignment import AssignmentProcessor
from broker.pop.pop import PopProcessor
from broker.pop.pop_ack import PopAckProcessor
from broker.pop.pop_peek import PopPeekProcessor
from broker.pull.offsets import OffsetProcessor
from broker.pull.pull import PullProcessor
from broker.pull.queries import QueryProcessor
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.tasks import TaskOwner
from broker.send.reply import ReplyProcessor
from broker.send.send import SendProcessor
from broker.send.send_back import SendBackProcessor
from broker.transaction.end_transaction import EndTransactionProcessor
from broker.transaction.half_admin import HalfAdminProcessor

__all__ = ["Processors"]


class Processors:
    def __init__(
        self,
        replica: Replica,
        leadership: Leadership,
        desk: Desk,
        tasks: TaskOwner,
        indexer: Indexer | None = None,
        *,
        switches: Switches | None = None,
    ) -> None:
        self.leadership = leadership  # behind which `request_table` puts handlers
        self.send = SendProcessor(replica, leadership, desk)
        self.reply = ReplyProcessor(replica, desk, tasks, self.send)
        self.send_back = SendBackProcessor(replica, leadership, desk)
        self.clocks = replica.clocks
        self.end_transaction = EndTransactionProcessor(replica, leadership, tasks)
        self.half_admin = HalfAdminProcessor(replica, leadership, tasks)
        self.pull = PullProcessor(replica, leadership, desk, tasks)
        self.offsets = OffsetProcessor(replica, leadership, tasks)
        self.queries = QueryProcessor(replica, leadership, tasks)
        self.query_message = QueryMessageProcessor(replica, leadership, tasks, indexer)
        self.timers = Timers(replica, leadership, desk)
        self.recall = RecallProcessor(replica, leadership, tasks, self.timers)
        self.locks = LockProcessor(replica, leadership, desk)
        self.pop = PopProcessor(replica, leadership, desk)
        self.pop_ack = PopAckProcessor(replica, leadership, desk)
        self.pop_peek = PopPeekProcessor(replica, leadership, desk)
        self.assignment = AssignmentProcessor(replica, leadership, desk, tasks)
        self.clients = ClientProcessor(replica, leadership, desk)
        self.groups = GroupProcessor(replica, leadership, desk)
        self.admin = AdminProcessor(replica, leadership, desk)
        self.ha_status = HaStatusProcessor(replica, leadership, desk, tasks)
        self.runtime_info = RuntimeInfoProcessor(replica, leadership, desk)
        self.raft_members = RaftMembersProcessor(replica, leadership, tasks)
        self.client_listing = ClientListingProcessor(replica, desk)
        self.consume_stats = ConsumeStatsProcessor(replica, leadership, desk, tasks)
        self.offset_reset = OffsetResetProcessor(replica, leadership, desk)
        self.consumer_relay = ConsumerRelayProcessor(replica, desk, tasks)
        self.stats = StatsProcessor(replica, desk)
        self.settings = SettingsProcessor(replica, desk)
        self.failpoints = FailpointsProcessor(replica, switches)
        self.maintenance = MaintenanceProcessor(replica, leadership, desk)
        changes = AccessChanges(leadership)
        self.users = UserProcessor(replica, desk, changes)
        self.acl_admin = AclAdminProcessor(replica, changes)
