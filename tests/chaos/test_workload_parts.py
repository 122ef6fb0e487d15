"""Parts of the workload against one broker in this process: what they record, and when they end."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import cast

import pytest

from campaigns.rig.waiting import until
from chaos.experiment.load import part_manifest
from chaos.scenario.part_sections import PART_SECTIONS
from chaos.scenario.scenario import ScenarioError, parse_scenario
from chaos.scenario.schedule import FaultStep
from chaos.workload.messages import tag_of
from chaos.workload.parts.catalogue import PARTS
from chaos.workload.parts.consumers.sql_readers import KINDS
from chaos.workload.parts.producers.awaited_values import AwaitedValues
from client.consume.local_offsets import LocalOffsets
from client.consume.process_queue import ProcessQueue
from client.consume.push_consumer import PushConsumer
from client.trace import tracer
from tests.chaos.part_at_work import Row, asked_of, by_kind, otherwise, part_at_work
from verify.catalogue.rule_files import BUILT_IN_RULES, read_rules


def test_every_section_has_its_part_and_rules_that_judge_it() -> None:
    assert set(PARTS) == set(PART_SECTIONS)
    rules = {rule.id for rule in read_rules(BUILT_IN_RULES)}
    for name, spec in PARTS.items():
        section = PART_SECTIONS[name]()
        assert spec.judged_by
        assert set(spec.judged_by) <= rules
        assert all(each.startswith(name) for each in (*spec.topics(section), *spec.slots(section)))


def test_a_number_out_of_its_range_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"workload\.timers\.rate must be"):
        parse_scenario("[workload.timers]\nrate = 0\n", name="x")
    with pytest.raises(ScenarioError, match=r"unknown key 'rates'"):
        parse_scenario("[workload.timers]\nrates = 1\n", name="x")


def test_parts_add_to_the_manifest() -> None:
    assert part_manifest(parse_scenario("[workload.sends]\n", name="x")) == {}
    added = part_manifest(parse_scenario("[workload.timers]\n", name="x"))
    assert set(added) == {"delays"}


@pytest.mark.parametrize(
    ("params", "more_ms"),
    [
        ({}, 0),
        ({"latency_ms": 250, "jitter_ms": 50}, 175),
        ({"latency_ms": 1_500, "jitter_ms": 0}, 500),
    ],
)
def test_slow_links_may_put_the_time_of_a_group_wrong(params: dict, more_ms: int) -> None:
    """Seed 3003 of all-faults: a link was slower by half a second in one direction, and what waited
    until the next start came 30 ms early."""
    scenario = parse_scenario("[workload.timers]\n", name="x")
    steps = [
        FaultStep(name=name, at_s=1, duration_s=1, group=None, params=of)
        for name, of in (("slow", params), ("kill", {"target": "leader"}))
    ]
    by_default = part_manifest(scenario)["delays"]["early_ms"]
    assert part_manifest(scenario, steps)["delays"]["early_ms"] == by_default + more_ms


def test_values_are_awaited_until_they_come_or_are_overdue() -> None:
    awaited = AwaitedValues(patience_s=2.0)
    assert not awaited.outstanding(0.0)
    awaited.expect("a", 5.0)
    assert awaited.outstanding(6.9)
    assert not awaited.outstanding(7.1), "what never comes does not hold the run up for ever"
    awaited.seen(["a", "b"], 7.2)
    assert not awaited.outstanding(0.0)
    awaited.expect("b", 9.0)
    assert not awaited.outstanding(0.0), "it came before its acknowledgement"
    awaited.expect("c", 5.0)
    awaited.forget("c")
    assert not awaited.outstanding(0.0)


def test_a_reader_that_has_fallen_behind_is_waited_for_while_it_comes_nearer() -> None:
    awaited = AwaitedValues(patience_s=2.0)
    for value in ("a", "b", "last"):
        awaited.expect(value, 5.0)
    awaited.seen(["a"], 6.5)
    assert awaited.outstanding(8.4), "it is long overdue, and others of its queue come"
    awaited.seen(["b"], 8.4)
    assert awaited.outstanding(10.3)
    awaited.seen(["a"], 10.3)
    assert not awaited.outstanding(10.5), "what came a second time brings nobody nearer"


def _values(rows: list[Row]) -> set[str]:
    return {message["value"] for row in rows for message in row.get("messages") or ()}


@pytest.mark.timeout(60)
async def test_timers_come_unless_they_are_recalled(tmp_path: Path) -> None:
    keys = "rate = 40\nlevel_share = 0.1\nlevels = 1\ndelay_ms_max = 400\nafter_stop_share = 0.3\n"
    keys += "after_stop_ms_max = 300\n"

    def has_recalled_and_more() -> bool:
        kinds = by_kind(tmp_path / "history")
        recalled = any(row["type"] == "ok" for row in kinds["recall"])
        return recalled and len(kinds["delay"]) > 15

    # Its end, behind which some are due, is far enough for a machine that is busy.
    async with part_at_work(tmp_path, "timers", keys, load_s=5) as (_, stop):
        await until(has_recalled_and_more)
        stop.set()
    kinds = by_kind(tmp_path / "history")
    outcomes = {(row["f"], row["type"]) for rows in kinds.values() for row in rows}
    assert {("delay", "ok"), ("recall", "ok")} <= outcomes
    recalled = {row["ref"] for row in kinds["recall"] if row["type"] == "ok"}
    due = {value: row["due"] for row in kinds["delay"] for value in _values([row])}
    assert recalled < set(due)
    shown: dict[str, int] = {}
    for row in kinds["poll"]:
        for value in _values([row]):
            shown.setdefault(value, row["t_complete"])
    assert set(shown) == set(due) - recalled
    assert all(shown[value] > due[value] - 20_000_000 for value in shown)
    last_sent = max(row["t_complete"] for row in kinds["delay"])
    assert any(at > last_sent for at in due.values()), "some are due when nobody sends any more"


def _answered(folder: Path) -> list[Row]:
    return [row for row in by_kind(folder / "history")["request"] if row["type"] == "ok"]


@pytest.mark.timeout(60)
async def test_requests_get_the_answers_that_responders_name(tmp_path: Path) -> None:
    keys = "rate = 40\nresponders = 1\nrefuse_share = 0.2\nmute_share = 0\nthink_ms = 1\n"
    async with part_at_work(tmp_path, "requests", keys, load_s=1.5) as (_, stop):
        await until(lambda: len(_answered(tmp_path)) > 5)
        stop.set()
    kinds = by_kind(tmp_path / "history")
    answered = _answered(tmp_path)
    named = {(row["ref"], *_values([row])) for row in kinds["deliver"]}
    assert {(row["ref"], *_values([row])) for row in answered} <= named
    refused = [row for row in kinds["deliver"] if row["type"] == "fail"]
    assert _values(refused) <= _values([row for row in kinds["deliver"] if row["type"] == "ok"])


@pytest.mark.timeout(60)
async def test_unusual_sends_are_stored_as_they_were_sent(tmp_path: Path) -> None:
    keys = "rate = 25\nbig_share = 0.03\nbatch_share = 0.4\nhasty_share = 0.1\n"

    def has_sent_each_kind() -> bool:
        sends = by_kind(tmp_path / "history")["send"]
        acked = [len(row["messages"]) for row in sends if row["type"] == "ok"]
        return max(acked, default=0) > 10 and any(row.get("status") == "ONEWAY" for row in sends)

    async with part_at_work(tmp_path, "sends", keys, load_s=1.5) as (_, stop):
        await until(has_sent_each_kind)
        stop.set()
    kinds = by_kind(tmp_path / "history")
    acked = [row for row in kinds["send"] if row["type"] == "ok"]
    oneway = [row for row in kinds["send"] if row.get("status") == "ONEWAY"]
    assert {row["type"] for row in oneway} == {"info"}
    assert max(len(row["messages"]) for row in acked) > 10
    sent = {m["value"]: m["digest"] for row in kinds["send"] for m in row["messages"]}
    read = {m["value"]: m["digest"] for row in kinds["poll"] for m in row["messages"] or ()}
    assert _values(acked) <= set(read)
    assert all(sent[value] == digest for value, digest in read.items())


@pytest.mark.timeout(60)
async def test_polls_are_held_and_carry_the_offset(tmp_path: Path) -> None:
    keys = "rate = 20\nhold_ms = 300\nrestart_s = 0\n"
    async with part_at_work(tmp_path, "longpolls", keys, load_s=2):
        await until(lambda: len(by_kind(tmp_path / "history")["send"]) > 15)
    kinds = by_kind(tmp_path / "history")
    polls = [row for row in kinds["poll"] if row["type"] == "ok"]
    assert _values(kinds["send"]) == _values(polls)
    assert all(row["due"] <= row["t_invoke"] + 300_000_000 for row in polls)
    assert any(not row["messages"] and row["t_complete"] >= row["due"] for row in polls)
    rode = {row["commit_offset"] for row in polls}
    assert rode == {row["offset"] or None for row in polls}
    assert {row["offset"] for row in kinds["fetch_offset"]} & (rode - {None}), "none was stored"


@pytest.mark.timeout(60)
async def test_groups_are_given_the_tags_that_they_want(tmp_path: Path) -> None:
    keys = "rate = 40\nsql_rate = 40\nsql_compositions = 2\nrestart_s = 0\n"
    async with part_at_work(tmp_path, "filters", keys, load_s=1) as (part, _):
        await until(lambda: len(by_kind(tmp_path / "history")["send"]) > 40)
        groups = part.consumer_groups()
    kinds = by_kind(tmp_path / "history")
    tags = {}
    for row in kinds["send"]:
        for message in row["messages"]:
            value = message["value"]
            own_kind = f"K{int(value.rpartition('-')[2]) % len(KINDS)}"
            is_sql = row["client_group"] == "filters-sql-producers"
            tags[value] = own_kind if is_sql else tag_of(value)
    sent = _values([row for row in kinds["send"] if row["type"] == "ok"])
    for name, group in groups.items():
        given = _values([row for row in kinds["deliver"] if row["client_group"] == name])
        wanted = cast("list[str]", group["tags"])
        assert given >= {value for value in sent if tags[value] in wanted}
        assert {tags[value] for value in given} <= set(wanted)
    by_sql = [set(cast("list[str]", groups[name]["tags"])) for name in groups if "-sql-" in name]
    assert len(by_sql) > 20
    assert {"K0", "T0"} <= set.union(*by_sql)


@pytest.mark.timeout(60)
async def test_rounds_of_assignments_tell_of_every_member(tmp_path: Path) -> None:
    def rounds(group: str) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = collections.defaultdict(list)
        for row in by_kind(tmp_path / "history")["assignment"]:
            if row["client_group"] == group:
                found[row["ref"]].append(row)
        return found

    keys = "members_min = 3\nmembers_max = 3\nevery_s = 0.1\nchange_s = 1000\n"
    async with part_at_work(tmp_path, "assignments", keys, load_s=1):
        await until(lambda: any(len(rows) == 3 for rows in rounds("assignments-pull").values()))
    (rows, *_) = [rows for rows in rounds("assignments-pull").values() if len(rows) == 3]
    assert sorted(queue["queue"] for row in rows for queue in row["assigned"]) == [0, 1]
    assert {row["offset"] for row in rows} == {1}
    assert not rounds("assignments-pop"), "with more members than queues its shares are not told"


@pytest.mark.timeout(120)
async def test_calls_are_answered_as_is_expected(tmp_path: Path) -> None:
    async with part_at_work(tmp_path, "calls", "rate = 40.0", load_s=2.0):
        calls = ("message id", "broker groups", "progress of", "messages under", "in its route")
        await until(lambda: all(words in asked_of(tmp_path) for words in calls), seconds=90)
    expectations = by_kind(tmp_path / "history")["ask"]
    assert [op for op in expectations if op["ref"] not in (None, op["status"])] == []
    for words in (
        *("message id", "start of a group", "traced", "trace of a message sent by"),
        *("what SyncAdmin.reset_offsets passes on", "behind its deletion"),
    ):
        assert words in asked_of(tmp_path)


@pytest.mark.timeout(60)
async def test_clients_of_applications_are_served_as_is_expected(tmp_path: Path) -> None:
    async with part_at_work(tmp_path, "applications", "calm_s = 0", load_s=0.1):
        pass
    assert otherwise(tmp_path) == set()
    for words in (
        *("ids that several producers", "suspended before its start", "suspended before a member"),
        *("GET_PRODUCER_CONNECTION_LIST", "GET_CONSUMER_CONNECTION_LIST", "half that it sent"),
        *(
            "request of a client",
            "without a trace",
            "popper that lost",
            "deliveries that are missing",
        ),
        *(
            "dead letters of a group",
            "first message at",
            "begins at the end",
            "polled behind a seek",
        ),
        *("the newest", "trace messages that are found by", "successor of a member"),
        *("holds that has consumed all", "queue which it has lost", "is said to subscribe"),
        "as RocketMQ answers",
    ):
        assert words in asked_of(tmp_path)


@pytest.mark.timeout(60)
async def test_mistakes_of_clients_are_not_what_applications_expect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PushConsumer, "suspend", lambda *_: None)
    monkeypatch.setattr(tracer, "record_text", lambda _: "")
    monkeypatch.setattr(ProcessQueue, "has_room", True)
    monkeypatch.setattr(LocalOffsets, "flush", _do_nothing)
    async with part_at_work(tmp_path, "applications", "calm_s = 0", load_s=0.1):
        pass
    text = "\n".join(otherwise(tmp_path))
    for words in (
        *("suspended before its start", "suspended before a member left", "without a trace"),
        *("whether a member holds more than it may", "how a broadcasting member ends"),
    ):
        assert words in text


async def _do_nothing(_: object) -> None:
    return


@pytest.mark.timeout(60)
async def test_members_record_the_locks_that_they_request_and_give_back(tmp_path: Path) -> None:
    keys = "rate = 20\nclients = 1\nrestart_s = 0\nslow_share = 0\n"
    async with part_at_work(tmp_path, "orderly", keys, load_s=1):
        await until(lambda: bool(by_kind(tmp_path / "history")["deliver"]))
    kinds = by_kind(tmp_path / "history")
    for f in ("lock", "unlock"):
        assert {("orderly", queue) for queue in range(2)} <= {
            (row["topic"], row["queue"]) for row in kinds[f] if row["type"] == "ok"
        }
    assert min(row["t_complete"] for row in kinds["lock"]) <= min(
        row["t_invoke"] for row in kinds["deliver"]
    )


@pytest.mark.timeout(120)
async def test_drills_are_answered_as_they_expect(tmp_path: Path) -> None:
    def asked() -> set[str]:
        rows = by_kind(tmp_path / "history")["ask"]
        return {row["key"].partition(" ")[0] for row in rows if row["type"] == "ok"}

    wanted = {"pop", "ack", "change", "peek", "would", "reset", "offset", "pull", "commit", "at"}
    wanted |= {"message", "send", "recall", "lock", "heartbeat", "members", "topic", "answer"}
    wanted.add("decision")
    keys = "runners = 2\npause_ms = 1\nstretches = 0\n"
    async with part_at_work(tmp_path, "drills", keys, load_s=2):
        await until(lambda: wanted <= asked(), seconds=90)
    rows = by_kind(tmp_path / "history")["ask"]
    wrong = [row for row in rows if row["type"] == "ok" and row["status"] != row["ref"]]
    assert not wrong, [(row["key"], row["ref"], row["status"]) for row in wrong]


@pytest.mark.timeout(120)
async def test_operator_is_shown_what_it_has_set(tmp_path: Path) -> None:
    def shown() -> set[str]:
        return {
            f"{row['key'].split()[0]}, {row['ref']}"
            for row in by_kind(tmp_path / "history")["get"]
            if row["type"] == "ok"
        }

    wanted = {
        "topic, topic", "topic, among all topics", "route, route", "order, route",
        "lists, lists of topics", "offset, query", "offset, progress", "offset, progress of all",
        "offset, all offsets", "entry, entry", "entry, list of a namespace",
        "waitSecondsForService, settings", "members, connections", "kind, connections",
        "subscription, query_subscription_by_consumer", "known, query_topic_consume_by_who",
        "members, get_consumer_list_by_group", "asked, get_consumer_running_info",
        "status, invoke_broker_to_get_consumer_status", "group, group", "pull, pull",
        "listed, among all groups", "connected, while connected", "fileReservedTime, settings",
        "cluster, cluster info",
        "member, member group", "copies, ha status", "active, runtime",
    }  # fmt: skip
    keys = "change_s = 0.05\ncalm_s = 0\ntakes_write = 0\n"
    async with part_at_work(tmp_path, "operator", keys, load_s=1):
        await until(lambda: wanted <= shown())
    kinds = by_kind(tmp_path / "history")
    # Brokers hear of members by heartbeats, so that answers about these may be late.
    by_heartbeats = {"members", "kind", "subscription", "known", "asked", "status"}
    effects = {row["key"]: (row["status"], row["ref"]) for row in kinds["ask"]}
    assert "send_message_v2 where timerWheelEnable is false" in effects
    assert "send where diskSpaceWarningLevelRatio is 99" in effects
    assert any(key.startswith("route of operator-registrations-") for key in effects)
    assert all(answered == expected for answered, expected in effects.values() if expected)
    refusals = [row["status"] for row in kinds["get"] if row["key"].startswith("refusal ")]
    assert set(refusals) == {"refused"}
    for key in {row["key"] for row in kinds["get"]}:
        if key.split()[0] in by_heartbeats:
            continue
        rows = [row for row in (*kinds["set"], *kinds["get"]) if row["key"] == key]
        value = None
        for row in sorted(rows, key=lambda row: row["t_invoke"]):
            if row["f"] == "set":
                value = row["status"] if row["type"] == "ok" else value
            elif row["type"] == "ok" and value is not None:
                assert row["status"] == value, (row, value)
