"""How mqadmin's commands are judged, and that the document tells of every one of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from campaigns.interop.mqadmin import (
    VERDICTS,
    VERSIONS,
    Printed,
    by_name,
    compare,
    document_table,
    likeness,
    summary,
)
from campaigns.interop.mqadmin_accounts import CASES, SECRETS, TLS_CASES, TLS_SECRETS
from campaigns.interop.mqadmin_commands import WHY, all_commands, commands_of, filled, pattern

ROOT = Path(__file__).parents[2]
ALL_CASES = (*CASES, *TLS_CASES)
NAMES = {"topic": "t.1", "topics_file": "/x", "name": "broker-a"}
SET = 'updateTopic -t $topic => success\n    topicRoute -t $topic => "perm":4\n'


def judged(text: str, ours: str, theirs: str, *, effects: tuple[str, str] = ("", "")) -> tuple:
    (command,) = all_commands(text)
    printed = [
        Printed(
            command=command.line,
            text=shown,
            late=False,
            effects=(effect,) * len(command.effects),
            names=NAMES,
        )
        for shown, effect in zip((ours, theirs), effects, strict=True)
    ]
    row = compare("5.5.0", command, *printed)
    return row.verdict, row.reason


def test_names_are_filled_in_longest_first_and_mean_themselves():
    assert filled("-f $topics_file -t $topic", NAMES) == "-f /x -t t.1"
    assert pattern("^$topic$", NAMES).search("other\nt.1\n")
    assert not pattern("^$topic$", NAMES).search("tX1")


def test_an_effect_needs_a_command_and_something_to_see():
    for text in ("    topicList => x\n", "updateTopic\n    topicList\n"):
        with pytest.raises(ValueError, match="effect"):
            all_commands(text)


def test_what_is_printed_and_what_is_changed_decides():
    good = '"perm":4'
    assert judged(SET, "success", "success", effects=(good, good)) == ("works", "")
    verdict, reason = judged(SET, "success", "success", effects=('"perm":6', good))
    assert verdict == "works (other)"
    assert "topicRoute" in reason
    verdict, reason = judged(SET, "success", "success", effects=(good, '"perm":6'))
    assert (verdict, reason.startswith("RocketMQ lacks")) == ("works (other)", True)
    assert judged(SET, "", "success", effects=(good, good))[0] == "works (other)"


def test_a_refusal_is_told_in_the_brokers_words():
    refusal = (
        "org.apache.rocketmq.tools.command.SubCommandException: X failed\n\tat a.b(C.java:1)\n"
        "Caused by: MQBrokerException: CODE: 14  DESC: not the leader BROKER: 127.0.0.1:1\n"
    )
    assert judged("topicList", refusal, "a") == ("refused", "CODE: 14  DESC: not the leader")
    refusal = refusal.replace("14  DESC: not the leader", "3  DESC: request type 9 not supported")
    assert judged("topicList", refusal, "a")[0] == "not served"
    verdict, reason = judged("getBrokerEpoch", refusal, refusal)
    assert verdict == "not served"
    assert reason.startswith(WHY["getBrokerEpoch"])
    assert judged("topicList", "a", refusal)[0] == "works (other)"


@pytest.mark.parametrize(
    "text", ["usage: mqadmin x", "Missing required option: b", "RocksDB path is invalid.", "exit 1"]
)
def test_help_is_no_success(text):
    assert judged("topicList", text, text)[0] == "refused"


def test_without_an_expectation_the_shape_decides():
    ours, theirs = "#A #B\n127.0.0.1:5 7\n127.0.0.1:6 9", "#A #B\n127.0.0.1:99 123"
    assert likeness(ours, theirs) == 1.0
    assert judged("allocateMQ", ours, theirs) == ("works", "")
    assert judged("allocateMQ", "something else", theirs)[0] == "works (other)"


def test_a_sub_command_is_as_good_as_its_worst_line():
    rows = [
        {"command": "a -x", "verdict": "works"},
        {"command": "a -y", "verdict": "refused"},
        {"command": "b", "verdict": "works"},
    ]
    assert by_name(rows)["a"]["command"] == "a -y"
    assert summary(rows) == "2 sub-commands: 1 works, 0 works (other), 1 refused, 0 not served"


def document_rows(title: str) -> list[list[str]]:
    """The cells of the document's table that begins with this column."""
    _, _, behind = (ROOT / "docs" / "INTEROP.md").read_text("utf-8").partition(f"| {title} |")
    table = behind.split("\n\n")[0].split("<!--")[0].strip().splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in table]


def test_the_document_names_every_sub_command():
    rows = document_rows("sub-command")
    for column, version in enumerate(VERSIONS, 1):
        verdicts = {row[0]: row[column] for row in rows if row[column]}
        assert sorted(verdicts) == sorted({command.name for command in commands_of(version)})
        told = [{"command": name, "verdict": verdict} for name, verdict in verdicts.items()]
        document = (ROOT / "docs" / "INTEROP.md").read_text("utf-8")
        assert f"mqadmin {version}: {summary(told)}.\n" in document
        assert set(verdicts.values()) <= set(VERDICTS)
    wrong = {row[0]: row[-1] for row in rows if {*row[1:3]} - {"works", ""}}
    assert sorted(wrong) == sorted(WHY)
    assert all(wrong.values())
    assert not any(row[-1] for row in rows if row[0] not in wrong)


def test_the_document_names_every_case_with_accounts():
    shown = [(who, line, wanted) for line, who, wanted, _ in document_rows("with accounts")]
    cases = [(who, line, f"`{wanted}`".replace("|", "\\|")) for who, line, wanted in ALL_CASES]
    assert [row for row in shown if row[0]] == cases
    assert {account for account, _, _ in CASES} == SECRETS.keys()
    assert {account for account, _, _ in TLS_CASES} == TLS_SECRETS.keys()


def test_a_table_survives_what_stands_in_its_cells():
    row = {"version": "5.5.0", "command": "a", "verdict": "refused", "judged_by": ""}
    older = row | {
        "version": "5.3.3",
        "command": "b",
        "verdict": "works",
        "judged_by": "its output",
    }
    rows = [row | {"reason": "x | y"}, older | {"reason": ""}]
    table = document_table({"rows": rows, "accounts": []})
    assert "| a | refused |  |  | x / y |" in table
    assert "| b |  | works | its output |  |" in table
