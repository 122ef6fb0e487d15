"""The broker process: the asyncio shell around state machine, log, processors and timers.

Place in the data path: accepts remoting connections, dispatches each request to its processor,
passes the clock's ticks to the pure parts, registers with the name servers.

Invariants: with access control on, no request is handled before it is authorised; a processor's
refusal is answered; a request that fails in an unforeseen way (`UNFORESEEN`) is answered too, and
logged with its traceback; any other exception stops the process with the reason; a log that failed
stops the process, and nothing is acknowledged after; on SIGTERM the broker unregisters from the
name servers, then the log is closed cleanly.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from broker.config.config import BrokerConfig, split_address
from broker.config.host_names import numeric_address
from broker.config.settings import load_settings
from broker.delay.delivery import DelayDelivery
from broker.entry.applied_entries import AppliedEntries
from broker.entry.payload import Run
from broker.entry.topics import TRACE_TOPIC, Topic, system_topics
from broker.failpoints.orders import Switches
from broker.index.index_file import IndexShape
from broker.index.indexer import Indexer
from broker.leader.proposer import Proposer
from broker.pop.revive import PopRevive
from broker.process.housekeeping import Housekeeper
from broker.process.master_copies import MasterCopies
from broker.process.processors import Processors
from broker.process.registration import Registration
from broker.process.replication import entry_reader, open_log
from broker.process.request_table import OPERATORS, ROW_OF, dispatch_of
from broker.process.rounds import TICK_MS, Rounds
from broker.process.security import access_control_of, encryption_of
from broker.queues.consume_queue import DamagedQueueError
from broker.queues.consume_queues import ConsumeQueues
from broker.queues.derived_files import FILES_MAX
from broker.queues.state_machine import BrokerStateMachine
from broker.request.clients import Clients
from broker.request.clock_exchange import ClockExchange
from broker.request.commit import propose
from broker.request.desk import Desk
from broker.request.forwarding import Forwarding
from broker.request.leadership import Leadership
from broker.request.long_polling import LongPolling
from broker.request.pop_polling import PopPolling
from broker.request.replica import Replica
from broker.request.request import UNFORESEEN, RefusedError, Request
from broker.request.tasks import TaskOwner
from broker.state.state import BrokerState
from broker.transaction.check_back import CheckBack
from raft.fail_stop import FailStop
from raft.replicated_log import LogStatus, ReplicatedLog, StateDivergedError
from raft.stalls import SAMPLE_S, Stalls
from raft.turn import Turn
from remoting.connections.connection import Connection
from remoting.connections.greeting import Greeting
from remoting.connections.open_files import open_files_max, raise_open_files_limit
from remoting.connections.rpc import RemotingClient
from remoting.connections.server import RemotingServer
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import UniqueIdGenerator

__all__ = ["Broker", "run_broker"]

_log = logging.getLogger(__name__)
_FAST_PORT_BELOW: Final = 2
"""RocketMQ's fastListenPort stands so far below the port of clients; its slaves dial it."""
_CLOCK_MS: Final = 200
_HELD_PULLS_SCAN_MS: Final = 100
_DELIVERY_MS: Final = 100
_DISK_POLL_MS: Final = 100
_HOUSEKEEPING_MS: Final = 1_000
_STATS_MS: Final = 1_000
_LOCKS_SWEEP_MS: Final = 60_000
_FILES_POLL_MS: Final = 1_000  # accounts and certificates
# A batch makes thousands of short-lived objects; the default of 700 would look for cycles, which
# requests don't have, several times in each.
_GC_ALLOCATIONS_MAX: Final = 50_000


def _wall_ms() -> int:
    """Return this machine's Unix time in milliseconds; the group's is `replica.clock_ms`."""
    return time.time_ns() // 1_000_000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Broker:
    """Broker process; `start`, then `serve` until it fails or is cancelled, then `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        stalls: Stalls | None = None,
        switches: Switches | None = None,
    ) -> None:
        """`stalls` measures what blocks the loop; `switches`: this process can be made to fail."""
        self.config = config
        self._switches = switches
        self._stalls = stalls
        self._edge = FailStop(self.fail)
        self._turn = Turn(self._edge)
        self._tasks = TaskOwner()
        self._queues = ConsumeQueues(
            # Two descriptors each: a quarter of what the process may have.
            config.store / "consumequeue",
            files_max=max(1, min(FILES_MAX, open_files_max() // 8)),
        )
        state = BrokerState(config.limits, system_topics(config.cluster, config.group))
        # What is applied is retained for the index where it is framed as the Raft log's.
        is_retained = config.message_index_enable and not config.is_master_slave
        applied = AppliedEntries() if is_retained else None
        self._machine = BrokerStateMachine(
            state,
            self._queues,
            on_arrival=self._on_arrival,
            on_role=self._on_role,
            on_topics=self._on_topics,
            applied=applied,
        )
        self.log: ReplicatedLog = open_log(config, self._machine, stalls, self._turn)
        self.replica = self._make_replica(state)
        self.leadership = self._make_leadership(self.replica, self._turn)
        self._access = access_control_of(config, _monotonic_ms, lambda: state.users)
        greeting, dial_tls = encryption_of(config)
        self._tls = greeting.tls
        self._remoting = RemotingClient(
            config.dial,
            tls=dial_tls,
            sign=None if self._access is None else self._access.signer(config.acl_inner_access_key),
        )
        parts = self.replica, self.leadership
        self._registration = Registration(*parts, self._remoting)
        clients = Clients(
            clients_max=config.clients_per_group_max,
            client_silence_ms_max=config.client_silence_ms_max,
        )
        self._housekeeper = Housekeeper(*parts, clients, self._tasks, self._remoting)
        self.desk = self._make_desk(clients)
        self._check_back = CheckBack(*parts, self.desk)
        self._delivery = DelayDelivery(*parts)
        self._revive = PopRevive(*parts)
        self._indexer = self._make_indexer(applied) if config.message_index_enable else None
        self._server = self._make_server(greeting, 0)
        self._fast_server = self._make_server(greeting, _FAST_PORT_BELOW)
        self._processors = Processors(
            *parts, self.desk, self._tasks, self._indexer, switches=switches
        )
        self._handlers = dispatch_of(self._processors)
        may_sign = self._access is None or bool(config.acl_inner_access_key)
        self._forwarding = Forwarding(*parts, self.desk, self._tasks, may_sign=may_sign)
        self._started = False

    def _make_server(self, greeting: Greeting, below: int) -> RemotingServer:
        """Return a server for clients, on the port so far below that of the configuration."""
        config = self.config
        host, port = split_address("listen", config.listen)
        return RemotingServer(
            host,
            port - below,
            self._on_request,
            self._on_close,
            connections_max=config.connections_max,
            reserved_max=config.connections_reserved,
            reserved_codes=OPERATORS,
            greeting=greeting,
            turn=self._turn,
        )

    def _make_replica(self, state: BrokerState) -> Replica:
        config = self.config
        clocks = ClockExchange(
            group=config.group,
            node=config.node,
            replicas=config.brokers,
            state=state,
            status=self.log.status,
            wall_ms=_wall_ms,
            monotonic_ms=_monotonic_ms,
        )
        return Replica(
            config=config,
            log=self.log,
            state=state,
            queues=self._queues,
            clocks=clocks,
            clock_ms=clocks.now_ms,
            monotonic_ms=_monotonic_ms,
            broker_addresses=config.brokers,
            store_address=numeric_address(config.advertised),
        )

    @staticmethod
    def _make_leadership(replica: Replica, turn: Turn) -> Leadership:
        proposer = Proposer(
            replica.log,
            replica.state,
            store_host=replica.store_host,
            clock_ms=replica.clocks.stamp_ms,
            lead_ms=replica.clocks.lead_ms,
            limits=replica.config.proposer,
            turn=turn,
        )
        return Leadership(replica, proposer)

    def _make_desk(self, clients: Clients) -> Desk:
        config, access, rng = self.config, self._access, random.Random()
        return Desk(
            clients=clients,
            long_polling=LongPolling(held_max=config.held_pulls_max),
            pop_polling=PopPolling(held_max=config.held_pulls_max),
            random=rng,
            unique_ids=UniqueIdGenerator(
                ip=split_address("advertised", self.replica.store_address)[0],
                pid=os.getpid(),
                instance=rng.getrandbits(32),
            ),
            remoting=self._remoting,
            stalls=self._stalls,
            wrong_clock=None if self._switches is None else self._switches.clock,
            is_super=(lambda _: True) if access is None else access.is_super,
            may_publish=(lambda *_: True) if access is None else access.may_publish,
            routes_changed=self._registration.changed,
            when_routes_registered=self._registration.when_registered,
            retain_now=self._housekeeper.retain_now,
        )

    # Life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the log and listen. Raises OSError, CorruptLogError and the like."""
        await self.log.start()
        await self._server.start()
        if self.config.is_master_slave and self.config.node == self.config.master_node:
            try:
                await self._fast_server.start()
            except OSError as error:
                _log.warning("RocketMQ's slaves can't copy topics from here: %s", error)
        self._started = True

    async def serve(self) -> None:
        """Run until cancelled, or until a part fails: then raise its exception."""
        async with asyncio.TaskGroup() as group:
            if self._stalls is not None:
                group.create_task(self._sample_stalls(self._stalls))
            if self._indexer is not None:
                group.create_task(self._indexer.start())
            group.create_task(self._fail_with(self.log.wait_failed()))
            group.create_task(self._fail_with(self._tasks.wait_failed()))
            group.create_task(self.replica.clocks.run(self._remoting))
            group.create_task(self._rounds().run())
            if self.config.master_is_foreign:
                copies = MasterCopies(self.replica, self._remoting, self._registration.changed)
                group.create_task(copies.run())
            for name_server in self.config.name_servers:
                group.create_task(self._registration.run(name_server))

    @staticmethod
    async def _sample_stalls(stalls: Stalls) -> None:
        """Sample by a timer of its own: its delay is the measurement."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            stalls.sample()

    def _rounds(self) -> Rounds:
        rounds = Rounds(_monotonic_ms, self._stalls)
        if self._indexer is not None:
            rounds.add(TICK_MS, "index", self._indexer.round, idle=self._indexer.is_idle)
        rounds.add(_CLOCK_MS, "clock", self._tick_clock)
        rounds.add(_HELD_PULLS_SCAN_MS, "held pulls", self._expire_pulls)
        rounds.add(_DELIVERY_MS, "delays", self._delivery.round)
        timers = self._processors.timers
        rounds.add(TICK_MS, "timers", timers.round, idle=timers.is_idle)
        rounds.add(_DELIVERY_MS, "revive", self._revive.round)
        rounds.add(_LOCKS_SWEEP_MS, "locks", self._processors.locks.sweep)
        rounds.add(_DISK_POLL_MS, "disk room", self._housekeeper.poll)
        rounds.add(_HOUSEKEEPING_MS, "housekeeping", self._housekeeper.round)
        rounds.add(_STATS_MS, "stats", self._sample)
        check_ms = min(1_000, self.config.transaction_check_interval_ms)
        rounds.add(check_ms, "check back", self._check_back.round)
        check_back = self._check_back
        rounds.add(TICK_MS, "check back", check_back.proceed, idle=check_back.is_idle)
        if self._access is not None:
            rounds.add(_FILES_POLL_MS, "accounts", self._access.reload)
        if self._tls is not None:
            rounds.add(_FILES_POLL_MS, "certificates", self._tls.poll)
        return rounds

    async def stop(self) -> None:
        """Stop: unregister first, then close the log, then disconnect clients."""
        if self._started and self.config.name_servers:
            with contextlib.suppress(TimeoutError):  # an entry that stays expires there
                async with asyncio.timeout(1):
                    await self._registration.unregister()
        await self.log.stop()
        if self._indexer is not None:
            self._indexer.stop()
        self.desk.long_polling.release_all()
        self.desk.pop_polling.release_all()
        await self._tasks.stop()
        await self._server.stop()
        await self._fast_server.stop()
        await self._remoting.close()
        self._queues.close()

    @staticmethod
    async def _fail_with(failure: Awaitable[BaseException]) -> None:
        raise await failure

    def _make_indexer(self, applied: AppliedEntries | None) -> Indexer:
        config = self.config
        return Indexer(
            self.log,
            config.store / "index",
            IndexShape(slot_count=config.max_hash_slot_num, unit_count=config.max_index_num),
            self._tasks,
            applied_position=lambda: self._machine.applied_position,
            applied=applied or AppliedEntries(),
            entries=entry_reader(config, self.log),
        )

    # Requests ----------------------------------------------------------------------------------

    def _on_request(self, connection: Connection, command: RemotingCommand) -> None:
        request = Request(connection, command)
        handler = self._handlers.get(command.code)
        if handler is None:
            request.reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {command.code} not supported",
            )
            return
        self._handle(request, handler)

    def _handle(
        self, request: Request, handler: Callable[[Request], None], *, is_new: bool = True
    ) -> None:
        """Authorise, forward or handle a request. `is_new` is False after a wait for a leader to
        forward it to: this node leads by now."""
        with self._edge:
            try:
                row = ROW_OF[request.command.code]
                if is_new and self._access is not None:
                    self._access.authorise(request, row.needs)
                if (
                    is_new
                    and not self.leadership.ready
                    and self._forwarding.takes(request, row.forwarded)
                ):
                    self._forwarding.forward(
                        request, partial(self._handle, handler=handler, is_new=False)
                    )
                else:
                    handler(request)
            except RefusedError as refused:
                request.refuse(refused)
            except UNFORESEEN as error:
                request.refuse_unforeseen(error)

    def fail(self, error: BaseException) -> None:
        """End `serve` with what went wrong in a request or a callback."""
        if not isinstance(error, DamagedQueueError):
            _log.error("the broker stops", exc_info=error)
        self._tasks.fail(error)

    def _on_close(self, connection: Connection) -> None:
        self.desk.clients.connection_closed(connection)

    # Notices of the log ------------------------------------------------------------------------

    def _on_arrival(self, run: Run) -> None:
        if self.leadership.ready:
            self.desk.stats.put(run.topic, run.count, run.size)
        self.desk.long_polling.on_arrival(run)
        self.desk.pop_polling.on_arrival(run)

    def _on_topics(self) -> None:
        self._registration.changed()

    def _on_role(self, status: LogStatus) -> None:
        _log.info(
            "%s/%s: %s in term %d, leader %s%s",
            self.config.group,
            self.config.node,
            status.role.value,
            status.term,
            status.leader_id or "unknown",
            ", ready" if status.ready else "",
        )
        # Not before the group's time is known, by the last stamp too: entries keep their stamps.
        self.replica.clocks.tick(leads=self.leadership.ready)
        ready = status.ready and self.replica.clocks.is_settled()
        was_ready = self.leadership.ready
        self.leadership.change(ready=ready, term=status.term)
        if was_ready and not ready:
            self._check_back.lost_leadership()
        elif ready and not was_ready and self.config.trace_topic_enable:
            asyncio.get_running_loop().call_soon(self._make_trace_topic)
        self._forwarding.role_changed(status)
        if not ready:
            self.desk.pop_polling.wake_all()
        self._registration.changed()

    def _make_trace_topic(self) -> None:
        """Create the trace topic if the group has none; on failure the next leader tries again."""
        if self.leadership.ready and self.leadership.proposer.topic(TRACE_TOPIC) is None:
            topic = Topic(name=TRACE_TOPIC, read_queue_count=1, write_queue_count=1)
            propose(self.leadership, [topic.command()])

    # Ticks -------------------------------------------------------------------------------------

    def _sample(self) -> None:
        self.desk.stats.sample(self.replica.clock_ms())

    def _tick_clock(self) -> None:
        self.replica.clocks.tick(leads=self.leadership.ready)
        if not self.leadership.ready and self.replica.clocks.is_settled():
            status = self.log.status()
            if status.ready:
                self._on_role(status)

    def _expire_pulls(self) -> None:
        now_ms = self.replica.monotonic_ms()
        self.desk.long_polling.expire(now_ms)
        self.desk.pop_polling.expire(now_ms)


async def run_broker(config: BrokerConfig, switches: Switches | None = None) -> None:
    """Run the process: serve until SIGTERM or SIGINT. `switches`: see `Broker`.

    Raises the error that stopped it: ConfigError, OSError (a port in use, a full disk),
    CorruptLogError.
    """
    raise_open_files_limit()
    gc.freeze()  # imported modules live as long as the process
    gc.set_threshold(_GC_ALLOCATIONS_MAX, 20, 100)
    stalls = Stalls()
    with stalls.watching_collections():
        while True:
            try:
                await _run_once(config, stalls, switches)
            except (StateDivergedError, DamagedQueueError) as error:
                _log.critical("%s/%s starts anew: %s", config.group, config.node, error)
            else:
                return


async def _run_once(config: BrokerConfig, stalls: Stalls, switches: Switches | None) -> None:
    """Run one broker, from an empty state machine to its stop."""
    broker = Broker(load_settings(config), stalls, switches)
    loop = asyncio.get_running_loop()

    def on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Stop the broker if a callback raises: that is a broken invariant, too."""
        error = context.get("exception")
        if "handle" in context and isinstance(error, Exception):
            broker.fail(error)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(on_exception)
    try:
        await broker.start()
        sys.stdout.write(
            f"ledgermq broker {config.group}/{config.node} listening on {config.listen}\n"
        )
        sys.stdout.flush()
        serving = loop.create_task(broker.serve())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, serving.cancel)
        await serving
    except asyncio.CancelledError:
        _log.info("%s/%s: stopping", config.group, config.node)
    except BaseExceptionGroup as group:
        raise _first_of(group) from group
    finally:
        await broker.stop()


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception of a group; its cause will be the group."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
