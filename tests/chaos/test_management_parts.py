"""The parts on topics, routes, users and searches: what they record before any broker is asked."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pytest

from chaos.cluster.access import (
    LABORATORY_KEY,
    access_of,
    secured_settings,
    write_accounts,
)
from chaos.cluster.layout import ClusterLayout
from chaos.scenario.scenario import ScenarioError, parse_scenario, route_expiry_ms
from chaos.workload.parts.accounts.accounts import change_command
from chaos.workload.parts.accounts.model import (
    Change,
    Entry,
    Right,
    UserState,
    next_change,
    shown_text,
)
from chaos.workload.parts.administration.routes import members_text
from chaos.workload.parts.catalogue import PARTS
from chaos.workload.parts.common.leader_requests import request_leader
from client.connection.instance import ClientInstance
from client.errors import BrokerBusyError, UnansweredError
from remoting.errors import RequestTimeoutError
from remoting.protocol.command import RemotingCommand


def test_changes_take_the_right_away_and_give_it_back() -> None:
    rng = random.Random(4)
    state, seen, rights = UserState(), set[Change](), list[bool]()
    for _ in range(600):
        account = next_change(state, rng)
        seen.add(account.change)
        state = account.after
        rights.append(state.may_send)
    assert seen == set(Change)
    assert 100 < sum(rights) < 500


def test_deletion_takes_the_permissions_with_it() -> None:
    rng = random.Random(1)
    state = UserState()
    while not state.may_send:
        state = next_change(state, rng).after
    while state.exists:
        state = next_change(state, rng).after
    assert next_change(state, rng).after.entries == {}


@pytest.mark.parametrize(
    ("entries", "is_granted"),
    [
        ([Entry()], True),
        ([Entry(sources=("0.0.0.0/1", "128.0.0.0/1"))], True),
        ([Entry(sources=("192.0.2.7", "198.51.100.0/24"))], False),
        ([Entry(actions=("Sub",))], False),
        ([Entry(resource="Topic:*"), Entry(decision="Deny")], False),
        ([Entry(resource="Topic:*", decision="Deny"), Entry()], True),
        ([Entry(resource="Topic:acco*", decision="Deny"), Entry(resource="Topic:a*")], False),
        ([Entry(policy="Default"), Entry(resource="*", decision="Deny")], False),
        ([Entry(resource="*"), Entry(decision="Deny", sources=("192.0.2.7",))], True),
    ],
)
def test_most_specific_entry_that_matches_decides(entries: list[Entry], is_granted: bool) -> None:
    state = UserState(entries={entry.place: entry for entry in entries})
    assert state.is_granted is is_granted


def test_pulls_need_the_topic_and_the_group() -> None:
    known = UserState(exists=True, enabled=True, signs_right=True)

    def of(*entries: Entry) -> UserState:
        return dataclasses.replace(known, entries={each.place: each for each in entries})

    topic = Entry(actions=("Sub",))
    group = Entry(resource="Group:acco*", actions=("All",))
    assert not of(topic).may(Right.PULL)
    assert not of(group).may(Right.PULL)
    assert of(topic).may(Right.VIEW)
    assert not of(group).may(Right.VIEW)
    assert of(group).may(Right.JOIN)
    assert not of(topic).may(Right.JOIN)
    assert of().may(Right.SIGN)
    assert of(topic, group).may(Right.PULL)
    assert of(Entry(resource="*", actions=("All",))).may(Right.PULL)
    assert not of(topic, group).may(Right.ADMINISTRATE)
    assert of(Entry(resource="Cluster:*", actions=("Update",))).may(Right.ADMINISTRATE)


def test_every_change_names_its_user_and_its_entry() -> None:
    rng = random.Random(2)
    state = UserState()
    for _ in range(300):
        account = next_change(state, rng)
        command = change_command("somebody", account)
        state = account.after
        names = {name.removeprefix("User:") for name in command.ext_fields.values()}
        assert "somebody" in names
        assert not command.body or json.loads(command.body)
        if account.change is Change.REMOVE:
            assert account.entry is not None
            assert account.entry.resource in names


def test_answers_about_users_are_read_as_the_model_writes_them() -> None:
    entry = Entry(sources=("192.0.2.7",), actions=("Pub", "Sub"))
    state = UserState(exists=True, enabled=True, entries={entry.place: entry})
    user = {"username": "u", "userType": "Normal", "userStatus": "enable"}
    assert shown_text(json.dumps(user).encode(), "u", "user") == state.user_text()
    assert shown_text(json.dumps([user]).encode(), "v", "user") is None
    shown = {"resource": entry.resource, "actions": entry.actions, "sourceIps": entry.sources}
    policy = {"policyType": "Custom", "entries": [{**shown, "decision": "Allow"}]}
    acl = {"subject": "User:u", "policies": [policy]}
    assert shown_text(json.dumps([acl]).encode(), "u", "acl") == state.entries_text()
    assert shown_text(b"", "u", "acl") is None


def test_members_begin_with_the_leader() -> None:
    assert members_text("n1", {"n0", "n1", "n2"}) == "n1 n0 n2"
    assert members_text(None, {"n2", "n0"}) == "- n0 n2"


def test_users_need_access_control() -> None:
    with pytest.raises(ScenarioError, match=r"accounts needs cluster\.access"):
        parse_scenario("[workload.accounts]\n", name="x")


def test_secured_cluster_is_asked_with_its_account(tmp_path: Path) -> None:
    acl_file = tmp_path / "secrets" / "plain_acl.yml"
    write_accounts(acl_file, "a secret that is long")
    access = access_of(ClusterLayout(broker_settings=secured_settings(acl_file)))
    assert repr(access.signer) == f"Signer({LABORATORY_KEY!r})"
    assert acl_file.stat().st_mode & 0o777 == 0o600


def test_wrong_route_may_stay_for_an_interval() -> None:
    text = "[cluster]\nbroker = {registration_interval_ms = 1000}\n"
    assert route_expiry_ms(parse_scenario(text, name="x")) == 6_000
    assert route_expiry_ms(parse_scenario("[load]\n", name="x")) == 35_000


@pytest.mark.parametrize(
    "name", ["deletions", "routes", "accounts", "searches", "groups", "disputes", "operator"]
)
def test_names_of_a_part_begin_with_its_own(name: str) -> None:
    access = "[cluster]\naccess = true\n"
    section = parse_scenario(f"{access}[workload.{name}]\n", name="x").parts[name]
    spec = PARTS[name]
    named = [*spec.topics(section), *spec.slots(section)]
    assert named
    assert all(each.startswith(name) for each in named)


class _Rpc:
    """Answers with these codes, one after the other; None: no answer."""

    def __init__(self, *codes: int | None) -> None:
        self.codes = list(codes)

    async def request(self, address: str, command: RemotingCommand, timeout_ms: int) -> object:
        code = self.codes.pop(0)
        if code is None:
            raise RequestTimeoutError(f"{address} said nothing")
        return command.response(code, "")


async def _ask(*codes: int | None, timeout_ms: int = 5_000) -> tuple[int, list[int | None]]:
    instance = ClientInstance("127.0.0.1:1", dial={})
    rpc = _Rpc(*codes)
    instance.rpc = rpc  # type: ignore[assignment]
    instance.routes.learn_group("broker-a", {0: "127.0.0.1:2"})
    answer, _ = await request_leader(
        instance, "broker-a", lambda: RemotingCommand(code=17), timeout_ms=timeout_ms
    )
    return answer.code, rpc.codes


async def test_what_was_refused_for_now_is_asked_again() -> None:
    assert await _ask(215, 0) == (0, [])


async def test_what_went_unanswered_is_not_asked_again() -> None:
    with pytest.raises(UnansweredError):
        await _ask(None, 0)


async def test_busy_leader_is_no_unknown_outcome() -> None:
    with pytest.raises(Exception, match="no leader") as raised:
        await _ask(*[215] * 50, timeout_ms=120)
    assert raised.value.definite  # type: ignore[attr-defined]
    assert isinstance(raised.value.__cause__, BrokerBusyError)
