"""An operator's changes of a topic, and the record of settings."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pytest

from broker.access.accounts import parse_table
from broker.entry.permission import Permission
from chaos.recording.history import HistoryWriter
from chaos.scenario.scenario import parse_scenario
from chaos.workload.context import WorkContext
from chaos.workload.parts.accounts.file import FileAccount, next_accounts
from chaos.workload.parts.common.settings_record import ABSENT, NOW, NotSureError, SettingsRecord
from chaos.workload.parts.operator.model import TopicSettings, lists_text, next_change
from chaos.workload.parts.operator.topics import route_text
from client.errors import NameServerError, UnansweredError
from tests.chaos.histories import ops_of

TOPIC = TopicSettings(read=4, write=2, perm=6, order=False, flag=3, filter_type="SINGLE_TAG")


def test_change_without_attributes_leaves_them() -> None:
    rng = random.Random(7)
    settings = next_change(None, rng).after
    left = changed = deleted = 0
    for _ in range(300):
        change = next_change(settings, rng)
        expected = dict(settings.attributes)
        for name, value in change.changes.items():
            if name.startswith("-"):
                del expected[name[1:]]
                deleted += 1
            else:
                expected[name[1:]] = value
        assert change.after.attributes == expected
        left += bool(expected) and not change.changes
        changed += bool(change.changes)
        settings = change.after
    assert left > 30
    assert changed > 100
    assert deleted > 10


def test_queues_are_taken_from_the_senders_alone_now_and_then() -> None:
    rng = random.Random(3)
    drained = 0
    for _ in range(300):
        after = next_change(TOPIC, rng).after
        drained += dataclasses.replace(after, write=TOPIC.write) == TOPIC
    assert drained > 10


def test_topic_is_in_the_lists_of_its_flags() -> None:
    assert TOPIC.lists_text() == "all cluster unit unit-sub"
    assert dataclasses.replace(TOPIC, flag=2).lists_text() == "all cluster unit-sub unit-sub-ununit"
    assert lists_text({"all": False}) == ABSENT


def test_route_says_what_the_topic_is() -> None:
    queues = {"readQueueNums": 4, "writeQueueNums": 2, "perm": 6, "topicSysFlag": 3}
    route = {"queueDatas": [{"brokerName": "b", "perm": 4}, {"brokerName": "a", **queues}]}
    assert route_text(route, "a") == TOPIC.route_text()
    assert route_text(route, "c") is None


async def test_every_setting_of_a_request_has_its_outcome(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "history", started_ns=0) as history:
        context = WorkContext(
            scenario=parse_scenario("[load]\n", name="x"),
            world=None,  # type: ignore[arg-type]  # nobody is asked
            history=history,
            queues=(),
            nodes={"1:2": "n1"},
        )
        record = SettingsRecord(context, root="r", client="c", client_group="g")

        async def done() -> str:
            return "1:2"

        async def refused() -> str:
            raise NameServerError("busy")

        async def unanswered() -> str:
            raise UnansweredError("silence")

        async def shown() -> tuple[dict[str, str], str]:
            return {"a": "1"}, "ns"

        async def unsure() -> tuple[dict[str, str], str]:
            raise NotSureError("it moved")

        values = {"a": "1", "b": "2"}
        assert await record.change(values, done, how="x") == "ok"
        assert await record.change(values, refused, how="x") == "fail"
        assert await record.change(values, unanswered, how="x") == "info"
        assert await record.query(["a", "b"], shown, how="y", when=NOW) == {"a": "1", "b": ABSENT}
        assert await record.query(["a"], unsure, how="y") == {}
    rows = [
        (row["f"], row["type"], row["key"], row.get("status"), row.get("node"))
        for row in ops_of(tmp_path / "history")
    ]
    assert rows[:2] == [("set", "ok", "a", "1", "n1"), ("set", "ok", "b", "2", "n1")]
    assert [row[1] for row in rows[2:6]] == ["fail", "fail", "info", "info"]
    assert rows[6:] == [
        ("get", "ok", "a", "1", "ns"),
        ("get", "ok", "b", ABSENT, "ns"),
        ("get", "info", "a", None, None),
    ]


@pytest.mark.parametrize(
    ("account", "may_send"),
    [
        (FileAccount(white="", default="PUB", by_name=None), True),
        (FileAccount(white="", default="SUB|PUB", by_name="SUB"), False),
        (FileAccount(white="", default="DENY", by_name="PUB|SUB"), True),
        (FileAccount(white="", default="DENY", by_name=None, admin=True), True),
        (FileAccount(white="", default="PUB", by_name="DENY", admin=True), False),
        (FileAccount(white="", default="PUB", by_name=None, secret="other-secret"), False),
        (FileAccount(white="0-255.*.*.*", default="DENY", by_name=None, secret="other"), True),
        (FileAccount(white="192.0.2.{7,8}", default="DENY", by_name=None), False),
    ],
)
def test_account_of_the_file_may_what_it_says(account: FileAccount, may_send: bool) -> None:
    assert account.may_send() is may_send


@pytest.mark.parametrize(
    ("account", "may_pull"),
    [
        (FileAccount(white="", default="SUB", by_name=None), True),
        (FileAccount(white="", default="SUB", by_name=None, group_default="DENY"), False),
        (FileAccount(white="", default="DENY", by_name=None, group_default="SUB"), False),
        (FileAccount(white="", default="SUB", by_name=None, group_default=None), False),
        (FileAccount(white="", default="SUB", by_name=None, group_by_name="PUB"), False),
        (
            FileAccount(
                white="", default=None, by_name="SUB", group_default="DENY", group_by_name="PUB|SUB"
            ),
            True,
        ),
        (FileAccount(white="", default=None, by_name=None, group_default=None, admin=True), True),
        (FileAccount(white="", default="SUB", by_name=None, secret="other-secret"), False),
    ],
)
def test_account_of_the_file_consumes_where_topic_and_group_allow_it(
    account: FileAccount, may_pull: bool
) -> None:
    assert account.may_pull() is may_pull


def test_drawn_accounts_may_what_the_brokers_say_of_them() -> None:
    rng = random.Random(6)
    seen = set()
    for _ in range(100):
        accounts = {
            name: account
            for name, account in next_accounts(rng).items()
            if account.white not in ("0-255.*.*.*", "*.*.*.*")
            and not account.secret.startswith("a")
        }
        rows = [account.row(name) for name, account in accounts.items()]
        table = parse_table(json.dumps({"accounts": rows})).accounts
        for name, account in accounts.items():
            may_read = table[name].may("accounts", Permission.SUB)
            may_join = table[name].may("%RETRY%accounts-readers", Permission.SUB)
            assert account.may_pull() is (may_read and may_join)
            assert account.may_send() is table[name].may("accounts", Permission.PUB)
            seen.add((may_read, may_join))
    assert len(seen) == 4


def test_files_that_are_drawn_are_legal_and_of_all_kinds() -> None:
    rng = random.Random(5)
    seen = set()
    for _ in range(60):
        accounts = next_accounts(rng)
        rows = [account.row(name) for name, account in accounts.items()]
        assert len(parse_table(json.dumps({"accounts": rows})).accounts) == len(accounts)
        seen |= {account.may_send() for account in accounts.values()}
    assert seen == {True, False}
