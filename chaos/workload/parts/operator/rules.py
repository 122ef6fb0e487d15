"""Name servers' settings in the part `operator`, and what each of them does once it is answered.

Place in the data path: UPDATE_NAMESRV_CONFIG at one name server; behind it registrations of two
groups of its own, entries of the namespace of ordered topics, routes and lists of topics, held
against a model that knows the settings in force.

| setting | what is looked at |
|---|---|
| deleteTopicWithBrokerRegistration | the route of a topic that its leader registers no more |
| supportActingMaster | who is shown as the leader of a group that has none and allows it |
| orderMessageEnable | the entry of an ordered topic in its route |
| returnOrderTopicConfigToBroker | the entries that a registration is answered with |
| enableAllTopicList, enableTopicList | whether the lists of topics are served |
| needWaitForService, waitSecondsForService | whether routes are served so soon after the start |

Invariants: it runs when all others have ended, since settings are of all groups; only one or two
change at a time, now and then to what they are, and what the others do is asked, too; where a
request had no answer it ends, with all settings as they were.

Source: RocketMQ NamesrvConfig, RouteInfoManager.registerBroker, pickupTopicRouteData; the run
format (ask; M12).
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from chaos.cluster.layout import NameServerPlace
from chaos.workload.expectations import Expectations
from chaos.workload.parts.operator.registered_group import addresses_of
from chaos.workload.parts.operator.requests import OperatorRequests, json_of
from client.errors import ClientError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    encode_register_body,
    register_body_crc,
)

__all__ = ["RuleEffects"]

CHANGES: Final = 12
QUESTIONS: Final = 3  # behind each change
ORDERED: Final = "ORDER_TOPIC_CONFIG"
_DELETES: Final = "deleteTopicWithBrokerRegistration"
_ACTING: Final = "supportActingMaster"
_ORDER: Final = "orderMessageEnable"
_RETURNS: Final = "returnOrderTopicConfigToBroker"
_ALL_LISTED: Final = "enableAllTopicList"
_LISTED: Final = "enableTopicList"
_DEFAULTS: Final[Mapping[str, bool]] = {
    _DELETES: False,
    _ACTING: False,
    _ORDER: True,
    _RETURNS: True,
    _ALL_LISTED: True,
    _LISTED: True,
}
_TERM: Final = 1
_LONG_S: Final = 3_600  # no run is that long; in milliseconds every one is
_C: Final = RequestCode


class RuleEffects:
    """Changes the settings of one name server, and queries what they do."""

    def __init__(
        self,
        requests: OperatorRequests,
        expectations: Expectations,
        *,
        place: NameServerPlace,
        rng: random.Random,
        is_young: bool,
    ) -> None:
        """`is_young`: the name server was started for this run."""
        self._is_young = is_young
        self._requests = requests
        self._expectations = expectations
        self._place = place
        self._rng = rng
        self._began_ns = time.monotonic_ns()
        self._settings = dict(_DEFAULTS)
        self._counter = 0
        name = f"operator-rules-{place.name}"
        host = place.address.rpartition(":")[0]
        # Nobody listens there: see `registrations`.
        self._led = _Group(f"{name}-led", f"{name}-led", [f"{host}:11"])
        self._followed = _Group(
            f"{name}-followed", f"{name}-followed", [f"{host}:12", f"{host}:13"]
        )
        self._topics = [f"{name}-{word}" for word in ("one", "two", "three")]

    async def show(self) -> None:
        """Change settings again and again, and put them back."""
        try:
            await self._change(self._settings)
            await self._show_effects()
            await self._show_waiting()
            await self._change(dict(_DEFAULTS))
        except ClientError:
            return  # a name server that does not answer

    async def _show_effects(self) -> None:
        """Raises ClientError."""
        ordered = self._topics[0]
        await self._store(_C.PUT_KV_CONFIG, ordered, value=f"{self._led.name}:4")
        for number in range(len(self._followed.addresses)):
            await self._register(self._followed, number + 1, self._topics[:1], acting=True)
        queries: list[Callable[[], Awaitable[None]]] = [
            self._query_deletion,
            self._query_deletion,
            self._query_acting,
            self._query_order,
            self._query_returned,
            self._query_lists,
        ]
        for _ in range(CHANGES):
            names = self._rng.sample(sorted(self._settings), self._rng.choice((1, 1, 2)))
            # Mostly to what they are not: what changes nothing shows nothing.
            await self._change(
                {name: self._settings[name] ^ (self._rng.random() < 0.8) for name in names}
            )
            for query in self._rng.sample(queries, QUESTIONS):
                await query()
        for group in (self._led, self._followed):
            for address in group.addresses:
                fields = group.identity(address, 0)
                await self._request(_C.UNREGISTER_BROKER, fields)
        await self._store(_C.DELETE_KV_CONFIG, ordered)

    async def _show_waiting(self) -> None:
        """Have routes refused for longer than the name server is there, then for shorter. Raises
        ClientError."""
        await self._register(self._led, 0, self._topics)
        waits = ((_LONG_S, "1"), (1, "0")) if self._is_young else ((1, "0"),)
        for wait_s, expected in waits:
            lines = f"needWaitForService=true\nwaitSecondsForService={wait_s}\n"
            await self._request(_C.UPDATE_NAMESRV_CONFIG, {}, lines.encode())
            answer = await self._request(_C.GET_ROUTEINFO_BY_TOPIC, {"topic": self._topics[0]})
            what = f"route where they are served {wait_s} s after the start"
            self._hold(what, expected, str(answer.code))
        usual = b"needWaitForService=false\nwaitSecondsForService=45\n"
        await self._request(_C.UPDATE_NAMESRV_CONFIG, {}, usual)
        await self._request(_C.UNREGISTER_BROKER, self._led.identity(self._led.addresses[0], 0))

    async def _change(self, values: Mapping[str, bool]) -> None:
        """Change settings, and query all of them. Raises ClientError."""
        lines = "".join(f"{name}={_word(value)}\n" for name, value in values.items())
        answer = await self._request(_C.UPDATE_NAMESRV_CONFIG, {}, lines.encode())
        self._hold(f"change to {lines.split()}", "0", str(answer.code))
        self._settings |= values
        answer = await self._request(_C.GET_NAMESRV_CONFIG, {})
        pairs = dict(line.partition("=")[::2] for line in answer.body.decode().splitlines())
        self._hold(
            "settings that are shown",
            " ".join(f"{name}={_word(value)}" for name, value in sorted(self._settings.items())),
            " ".join(f"{name}={pairs.get(name)}" for name in sorted(self._settings)),
        )

    # What settings do ----------------------------------------------------------------------------

    async def _query_deletion(self) -> None:
        """Have a leader register some topics, then fewer of them; the route of another one says
        whether it went. Raises ClientError."""
        retained, other = self._rng.sample(self._topics[1:], 2)
        await self._register(self._led, 0, [retained, other])
        await self._register(self._led, 0, [retained])
        for topic in (retained, other):
            is_there = topic == retained or not self._settings[_DELETES]
            answer = await self._request(_C.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            what = "still registered" if topic == retained else "registered no more"
            self._hold_in_force(
                f"route of {topic}, which is {what}", _there(is_there), _code_of(answer)
            )

    async def _query_acting(self) -> None:
        """Query the route of a group without a leader. Raises ClientError."""
        first, second = self._followed.addresses
        shown = f"{0 if self._settings[_ACTING] else 1}={first} 2={second}"
        body = await self._json(_C.GET_ROUTEINFO_BY_TOPIC, {"topic": self._topics[0]})
        answered = addresses_of(body.get("brokerDatas"), self._followed.name)
        self._hold_in_force("members of a group that has no leader, by a route", shown, answered)

    async def _query_order(self) -> None:
        body = await self._json(_C.GET_ROUTEINFO_BY_TOPIC, {"topic": self._topics[0]})
        expected = f"{self._led.name}:4" if self._settings[_ORDER] else "-"
        answered = str(body.get("orderTopicConf") or "-")
        self._hold_in_force("entry of an ordered topic in its route", expected, answered)

    async def _query_returned(self) -> None:
        answer = await self._register(self._led, 0, self._topics[1:])
        table = json_of(answer, self._place.address).get("table", {})
        expected = f"{self._led.name}:4" if self._settings[_RETURNS] else "-"
        answered = str(table.get(self._topics[0]) or "-")
        self._hold_in_force("entry that a registration brings back", expected, answered)

    async def _query_lists(self) -> None:
        cluster = {"cluster": self._followed.cluster}
        for name, code, fields in (
            (_ALL_LISTED, _C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
            (_LISTED, _C.GET_TOPICS_BY_CLUSTER, cluster),
        ):
            answer = await self._request(code, fields)
            listed = json_of(answer, "a name server").get("topicList") if answer.body else []
            is_shown = self._topics[0] in (listed or ())
            self._hold_in_force(
                f"whether {code.name.lower()} lists a topic",
                str(self._settings[name]),
                str(is_shown),
            )

    # Requests ------------------------------------------------------------------------------------

    async def _register(
        self, group: _Group, number: int, topics: list[str], *, acting: bool = False
    ) -> RemotingCommand:
        """Register a member of a group with some topics, in a new version. Raises ClientError."""
        self._counter += 1
        body = encode_register_body(
            RegisterBrokerBody(
                data_version=DataVersion(state_version=_TERM, counter=self._counter),
                topics=[_topic_config(topic) for topic in topics],
            ),
            compressed=False,
        )
        address = group.addresses[max(0, number - 1)]
        fields = group.identity(address, number) | {
            "haServerAddr": f"{address}0",
            "compressed": "false",
            "bodyCrc32": str(register_body_crc(body)),
            "enableActingMaster": _word(acting),
        }
        answer = await self._request(_C.REGISTER_BROKER, fields, body)
        self._hold(f"registration of {address} as {number}", "0", str(answer.code))
        return answer

    async def _store(self, code: RequestCode, key: str, **more: str) -> None:
        """Put or delete an entry of the namespace of ordered topics. Raises ClientError."""
        answer = await self._request(code, {"namespace": ORDERED, "key": key, **more})
        self._hold(f"{code.name.lower()} of {key}", "0", str(answer.code))

    async def _json(self, code: RequestCode, fields: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the body of an answer; an empty one where it is refused. Raises ClientError."""
        answer = await self._request(code, fields)
        return json_of(answer, self._place.address) if answer.body else {}

    async def _request(
        self, code: RequestCode, fields: Mapping[str, str], body: bytes = b""
    ) -> RemotingCommand:
        command = RemotingCommand(code=code, ext_fields=dict(fields), body=body)
        return await self._requests.any_at(self._place.address, command)

    def _hold_in_force(self, what: str, expected: str, answered: str) -> None:
        changed = [
            f"{name}={_word(value)}"
            for name, value in self._settings.items()
            if value != _DEFAULTS[name]
        ]
        self._hold(f"{what}, with {' '.join(changed) or 'settings by default'}", expected, answered)

    def _hold(self, what: str, expected: str, answered: str) -> None:
        self._expectations.hold(
            f"{what}, at {self._place.name}",
            expected=expected,
            answered=answered,
            calm_since=self._began_ns,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """A broker group that registers by hand: its name, its cluster, where its members are."""

    name: str
    cluster: str
    addresses: list[str]

    def identity(self, address: str, number: int) -> dict[str, str]:
        return {
            "brokerName": self.name,
            "brokerAddr": address,
            "clusterName": self.cluster,
            "brokerId": str(number),
        }


def _topic_config(topic: str) -> TopicConfig:
    return TopicConfig(
        topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=6, topic_sys_flag=0
    )


def _word(value: bool) -> str:
    return str(value).lower()


def _there(is_there: bool) -> str:
    return "0" if is_there else "17"


def _code_of(answer: RemotingCommand) -> str:
    return str(answer.code)
