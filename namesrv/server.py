"""The name server process: decodes requests, calls the pure tables, sends the answers.

Place in the data path: brokers register here, clients look up here where a topic's queues are.

Invariants: every request that is not oneway is answered exactly once, at once unless
`namesrv.held_lookups` holds it; a malformed one with code 1 and its error; a broker whose
connection drops is out of the routes before any other event is handled.

Source: RocketMQ DefaultRequestProcessor, BrokerHousekeepingService.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from typing import Final

from namesrv.config import NameServerConfig
from namesrv.held_lookups import HeldLookups
from namesrv.kv_config import ORDER_TOPIC_CONFIG, KvConfig, KvLimitError
from namesrv.kv_file import KvFileError, NotStoredError, StoredKv
from namesrv.registration import (
    MinIdChange,
    Registration,
    RegistrationRefusedError,
    RemovedBroker,
    RoutePolicy,
)
from namesrv.reserved_requests import NOT_OF_CLIENTS
from namesrv.route_table import RouteTable
from namesrv.settings import Settings, SettingsError
from remoting.connections.connection import Connection
from remoting.connections.open_files import raise_open_files_limit
from remoting.connections.rpc import RemotingClient
from remoting.connections.security_config import SecurityConfigError
from remoting.connections.server import RemotingServer
from remoting.errors import BodyError, FrameError, HeaderError, RemotingError
from remoting.protocol import fastjson, headers, route
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.java_properties import (
    JavaPropertiesError,
    parse_java_properties,
    properties_lines,
)

__all__ = ["NameServer", "NameServerStartError", "run"]

_log = logging.getLogger(__name__)
_Handler = Callable[[Connection, RemotingCommand], RemotingCommand]
_FILES_POLL_S: Final = 1.0
_NOTIFY_TIMEOUT_MS: Final = 300
_NOTIFYING_MAX: Final = 1_024
_UNIT, _UNIT_SUB = 1, 2  # bits of topicSysFlag
_BLACK_LIST: Final = "configBlackList;configStorePath;kvConfigPath"


class NameServerStartError(OSError):
    """The name server can't serve; the text names the address and the reason."""


class NameServer:
    """One name server on the running event loop. The constructor raises NameServerStartError."""

    def __init__(self, config: NameServerConfig) -> None:
        self._config = config
        self._settings = config.settings
        self._table = RouteTable(config.limits, _policy(config.settings))
        try:
            greeting, dial_tls = config.security.greeting(), config.security.dial_context()
            self._kv = StoredKv(KvConfig(config.kv_entries_max), config.kv_config_path)
        except (SecurityConfigError, KvFileError) as error:
            raise NameServerStartError(str(error)) from error
        self._tls = greeting.tls
        self._lookups = HeldLookups(self._table, self._on_request)
        self._server = RemotingServer(
            config.host,
            config.port,
            self._lookups.on_request,
            self._on_close,
            connections_max=config.connections_max,
            reserved_max=config.connections_reserved,
            reserved_codes=NOT_OF_CLIENTS,
            greeting=greeting,
        )
        self._remoting = RemotingClient(tls=dial_tls)
        self._notifying: set[asyncio.Task[None]] = set()
        self._started_ms = 0
        self._scan_timer: asyncio.TimerHandle | None = None
        self._files_timer: asyncio.TimerHandle | None = None
        self._handlers: Final[dict[int, _Handler]] = {
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.BROKER_HEARTBEAT: self._broker_heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._get_member_group,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._get_unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._get_unit_sub_ununit_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv,
        }

    @property
    def address(self) -> str:
        """The "host:port" served on, with the actual port."""
        return self._server.address

    async def start(self) -> None:
        """Start serving. Raises NameServerStartError."""
        try:
            await self._server.start()
        except OSError as error:
            raise NameServerStartError(error.strerror) from error
        self._started_ms = self._now_ms()
        self._schedule_scan()
        if self._tls is not None:
            self._poll_files()

    async def stop(self) -> None:
        """Stop serving; every connection is closed when this returns."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        if self._files_timer is not None:
            self._files_timer.cancel()
        for task in list(self._notifying):
            task.cancel()
        await asyncio.gather(*self._notifying, return_exceptions=True)
        self._lookups.stop()
        await self._server.stop()
        await self._remoting.close()

    # Time, connections, logging.

    def _now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def _schedule_scan(self) -> None:
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        self._scan_timer = asyncio.get_running_loop().call_later(
            self._settings.scan_not_active_broker_interval / 1000, self._scan
        )

    def _poll_files(self) -> None:
        self._files_timer = asyncio.get_running_loop().call_later(_FILES_POLL_S, self._poll_files)
        if self._tls is not None:
            self._tls.poll()

    def _scan(self) -> None:
        self._on_removed(self._table.expire(self._now_ms()), "silent for too long")
        self._schedule_scan()

    def _on_close(self, connection: Connection) -> None:
        self._on_removed(self._table.connection_lost(connection), "its connection closed")

    def _on_removed(self, removed: list[RemovedBroker], reason: str) -> None:
        for broker in removed:
            _log.info(
                "dropped %s id %d at %s: %s",
                broker.broker_name,
                broker.broker_id,
                broker.broker_addr,
                reason,
            )
        self._notify_min_ids()

    def _notify_min_ids(self) -> None:
        """Send NOTIFY_MIN_BROKER_ID_CHANGE, oneway; who misses it learns it when registering."""
        for change in self._table.take_min_id_changes():
            for address in change.receivers:
                if len(self._notifying) >= _NOTIFYING_MAX:
                    _log.warning("%s is not told of a lowest id: too many are", address)
                    continue
                task = asyncio.get_running_loop().create_task(self._notify(address, change))
                self._notifying.add(task)
                task.add_done_callback(self._notifying.discard)

    async def _notify(self, address: str, change: MinIdChange) -> None:
        fields = {
            "minBrokerId": str(change.min_id),
            "brokerName": change.broker_name,
            "minBrokerAddr": change.min_addr,
        }
        if change.offline_addr is not None:
            fields["offlineBrokerAddr"] = change.offline_addr
        if change.ha_addr is not None:
            fields["haBrokerAddr"] = change.ha_addr
        command = RemotingCommand(code=RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext_fields=fields)
        try:
            await self._remoting.oneway(address, command, _NOTIFY_TIMEOUT_MS)
        except RemotingError as error:
            _log.info("%s was not told of a lowest id: %s", address, error)

    def _on_request(self, connection: Connection, command: RemotingCommand) -> None:
        handler = self._handlers.get(command.code)
        if handler is None:
            answer = command.response(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"request code {command.code} is not supported by a name server",
            )
        else:
            try:
                answer = handler(connection, command)
            except _REFUSALS as error:
                _log.info("refused request %d of %s: %s", command.code, connection.peer, error)
                answer = command.response(ResponseCode.SYSTEM_ERROR, str(error))
        if command.is_oneway:
            return
        try:
            connection.send(answer)
        except FrameError as error:
            connection.send(command.response(ResponseCode.SYSTEM_ERROR, str(error)))

    # Brokers.

    def _register_broker(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.RegisterBrokerRequestHeader.from_ext_fields(command.ext_fields)
        if header.body_crc32 != 0:
            actual = route.register_body_crc(command.body)
            if actual != header.body_crc32:
                raise BodyError(f"crc32 not match: body has {actual}, header {header.body_crc32}")
        body = route.decode_register_body(command.body, compressed=header.compressed)
        leader = self._table.register(
            Registration(
                cluster=header.cluster_name,
                broker_name=header.broker_name,
                broker_addr=header.broker_addr,
                broker_id=header.broker_id,
                ha_server_addr=header.ha_server_addr,
                data_version=body.data_version,
                topics=body.topics,
                heartbeat_timeout_ms=header.heartbeat_timeout_ms,
                enable_acting_master=bool(header.enable_acting_master),
            ),
            connection,
            self._now_ms(),
        )
        self._notify_min_ids()
        answer = headers.RegisterBrokerResponseHeader(
            ha_server_addr=leader.ha_server_addr if leader is not None else None,
            master_addr=leader.broker_addr if leader is not None else None,
        )
        return command.response(
            ResponseCode.SUCCESS,
            ext_fields=answer.to_ext_fields(),
            body=fastjson.encode({"table": self._order_config_for_brokers()}),
        )

    def _unregister(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.UnregisterBrokerRequestHeader.from_ext_fields(command.ext_fields)
        removed = self._table.unregister(header.broker_name, header.broker_addr, connection)
        self._on_removed([removed] if removed is not None else [], "it unregistered")
        return command.response(ResponseCode.SUCCESS)

    def _broker_heartbeat(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.BrokerHeartbeatRequestHeader.from_ext_fields(command.ext_fields)
        if self._table.heartbeat(header.broker_name, header.broker_addr, self._now_ms()):
            return command.response(ResponseCode.SUCCESS)
        return command.response(
            ResponseCode.BROKER_NOT_EXIST,
            f"broker {header.broker_name} at {header.broker_addr} is not registered",
        )

    def _query_data_version(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.QueryDataVersionRequestHeader.from_ext_fields(command.ext_fields)
        changed, known = self._table.query_data_version(
            header.broker_name,
            header.broker_addr,
            route.decode_data_version(command.body),
            self._now_ms(),
        )
        return command.response(
            ResponseCode.SUCCESS,
            ext_fields=headers.QueryDataVersionResponseHeader(changed=changed).to_ext_fields(),
            body=b"" if known is None else route.encode_json(known),
        )

    # Clients and administrators.

    def _get_route(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.GetRouteInfoRequestHeader.from_ext_fields(command.ext_fields)
        if self._settings.need_wait_for_service and not self._has_waited():
            return command.response(ResponseCode.SYSTEM_ERROR, "name server not ready")
        found = self._table.route(header.topic)
        if found is None:
            return command.response(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}",
            )
        order = self._kv.get(ORDER_TOPIC_CONFIG, header.topic)
        if order is not None and self._settings.order_message_enable:
            found = route.TopicRouteData(
                broker_datas=found.broker_datas,
                queue_datas=found.queue_datas,
                order_topic_conf=order,
            )
        return command.response(ResponseCode.SUCCESS, body=route.encode_json(found))

    def _has_waited(self) -> bool:
        """Return whether brokers have had the configured time to register."""
        waited_ms = self._now_ms() - self._started_ms
        return waited_ms >= 1_000 * self._settings.wait_seconds_for_service

    def _get_cluster_info(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.response(
            ResponseCode.SUCCESS, body=route.encode_json(self._table.cluster_info())
        )

    def _get_member_group(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.GetBrokerMemberGroupRequestHeader.from_ext_fields(command.ext_fields)
        group = self._table.member_group(header.broker_name) or route.BrokerMemberGroup(
            cluster=header.cluster_name, broker_name=header.broker_name, broker_addrs={}
        )
        return command.response(
            ResponseCode.SUCCESS, body=fastjson.encode({"brokerMemberGroup": group})
        )

    def _get_topics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        if not self._settings.enable_all_topic_list:
            return command.response(ResponseCode.SYSTEM_ERROR, "disable")
        topics = route.TopicList(topic_list=self._table.topics())
        return command.response(ResponseCode.SUCCESS, body=route.encode_json(topics))

    def _get_topics_by_cluster(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.TopicsByClusterRequestHeader.from_ext_fields(command.ext_fields)
        return self._topic_list(command, self._table.topics(header.cluster))

    def _get_system_topics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        names, address = self._table.system_topics()
        topics = route.TopicList(topic_list=names, broker_addr=address)
        return command.response(ResponseCode.SUCCESS, body=route.encode_json(topics))

    def _get_unit_topics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return self._topic_list(
            command, self._table.topics_of_flags(lambda flags: bool(flags & _UNIT))
        )

    def _get_unit_sub_topics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return self._topic_list(
            command, self._table.topics_of_flags(lambda flags: bool(flags & _UNIT_SUB))
        )

    def _get_unit_sub_ununit_topics(
        self, _: Connection, command: RemotingCommand
    ) -> RemotingCommand:
        wanted = self._table.topics_of_flags(lambda flags: flags & (_UNIT | _UNIT_SUB) == _UNIT_SUB)
        return self._topic_list(command, wanted)

    def _topic_list(self, command: RemotingCommand, names: list[str]) -> RemotingCommand:
        if not self._settings.enable_topic_list:
            return command.response(ResponseCode.SYSTEM_ERROR, "disable")
        topics = route.TopicList(topic_list=names)
        return command.response(ResponseCode.SUCCESS, body=route.encode_json(topics))

    def _register_topic(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        topic = headers.GetRouteInfoRequestHeader.from_ext_fields(command.ext_fields).topic
        self._table.register_topic(topic, route.decode_queues(command.body))
        return command.response(ResponseCode.SUCCESS)

    def _delete_topic(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.DeleteTopicRequestHeader.from_ext_fields(command.ext_fields)
        self._table.delete_topic(header.topic, header.cluster_name)
        return command.response(ResponseCode.SUCCESS)

    def _wipe_write_perm(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.PermOfBrokerRequestHeader.from_ext_fields(command.ext_fields)
        count = self._table.set_write_perm(header.broker_name, writable=False)
        return command.response(ResponseCode.SUCCESS, ext_fields={"wipeTopicCount": str(count)})

    def _add_write_perm(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.PermOfBrokerRequestHeader.from_ext_fields(command.ext_fields)
        count = self._table.set_write_perm(header.broker_name, writable=True)
        return command.response(ResponseCode.SUCCESS, ext_fields={"addTopicCount": str(count)})

    # Configuration.

    def _get_config(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        shown = {
            "listenPort": self._server.address.rpartition(":")[2],
            "kvConfigPath": str(self._config.kv_config_path or ""),
            "configBlackList": _BLACK_LIST,
            **self._settings.shown(),
        }
        return command.response(ResponseCode.SUCCESS, body=properties_lines(shown).encode())

    def _update_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        try:
            values = parse_java_properties(command.body.decode())
        except UnicodeDecodeError as error:
            raise BodyError(f"not UTF-8: {error}") from error
        if not values.keys().isdisjoint(_BLACK_LIST.split(";")):
            return command.response(
                ResponseCode.NO_PERMISSION, "Can not update config in black list."
            )
        before, self._settings = self._settings, self._settings.updated(values)
        interval_ms = self._settings.scan_not_active_broker_interval
        if before.scan_not_active_broker_interval != interval_ms:
            self._schedule_scan()
        self._table.policy = _policy(self._settings)
        _log.info("%s changed settings: %s", connection.peer, ", ".join(sorted(values)))
        return command.response(ResponseCode.SUCCESS)

    def _order_config_for_brokers(self) -> dict[str, str]:
        if not self._settings.return_order_topic_config_to_broker:
            return {}
        return self._kv.namespace(ORDER_TOPIC_CONFIG) or {}

    # Key-value configuration.

    def _put_kv(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.KvConfigRequestHeader.from_ext_fields(command.ext_fields)
        self._kv.put(header.namespace, header.key, header.value)
        return command.response(ResponseCode.SUCCESS)

    def _get_kv(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.KvKeyRequestHeader.from_ext_fields(command.ext_fields)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            return command.response(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return command.response(
            ResponseCode.SUCCESS,
            ext_fields=headers.KvConfigResponseHeader(value=value).to_ext_fields(),
        )

    def _delete_kv(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.KvKeyRequestHeader.from_ext_fields(command.ext_fields)
        self._kv.delete(header.namespace, header.key)
        return command.response(ResponseCode.SUCCESS)

    def _list_kv(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        header = headers.KvNamespaceRequestHeader.from_ext_fields(command.ext_fields)
        entries = self._kv.namespace(header.namespace)
        if entries is None:
            return command.response(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}"
            )
        return command.response(ResponseCode.SUCCESS, body=fastjson.encode({"table": entries}))


_REFUSALS: Final = (
    HeaderError,
    BodyError,
    RegistrationRefusedError,
    KvLimitError,
    SettingsError,
    JavaPropertiesError,
    NotStoredError,
)


def _policy(settings: Settings) -> RoutePolicy:
    return RoutePolicy(
        delete_missing_topics=settings.delete_topic_with_broker_registration,
        acting_master=settings.support_acting_master,
        notify_min_id=settings.notify_min_broker_id_changed,
    )


async def run(config: NameServerConfig) -> None:
    """Serve until SIGTERM or SIGINT; print one line on stdout once serving.

    Raises NameServerStartError.
    """
    raise_open_files_limit()
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        server = NameServer(config)
        await server.start()
        try:
            sys.stdout.write(f"ledgermq namesrv listening on {server.address}\n")
            sys.stdout.flush()
            await stopping.wait()
        finally:
            await server.stop()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
