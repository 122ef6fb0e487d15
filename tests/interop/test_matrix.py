"""The pure parts of the interop runner: what lines tell, what tables say, what shapes are alike."""

from __future__ import annotations

import json

from tests.interop.matrix import Matrix, MidpointReached, Outcome, parse_line
from tests.interop.mqadmin import COMMANDS, Printed, compare, shape_of, table


def outcome(case: str, told: str, client: str = "java") -> Outcome:
    return Outcome(
        case=case, client=client, target="one", outcome=told, took_ms=7, detail="because"
    )


def test_lines_tell_outcomes_and_midpoints_and_nothing_else():
    told = '@@{"case":"send","outcome":"pass","took_ms":12,"detail":"\\"20\\" 中"}'
    parsed = parse_line(told, "java", "one")
    assert parsed == Outcome(
        case="send", client="java", target="one", outcome="pass", took_ms=12, detail='"20" 中'
    )
    assert isinstance(parse_line('@@{"event":"midpoint"}', "java", "one"), MidpointReached)
    assert parse_line("a warning", "java", "one") is None


def test_a_case_without_an_end_is_red():
    matrix = Matrix()
    matrix.add([outcome("a", "pass"), outcome("b", "none"), outcome("c", "fail")])
    matrix.add([outcome("d", "skip")])
    assert [each.case for each in matrix.red] == ["b", "c"]
    assert json.loads(matrix.to_json())["totals"] == {
        "java one": {"pass": 1, "none": 1, "fail": 1, "skip": 1}
    }


def test_the_table_has_a_column_per_client_and_names_what_is_red_and_missing():
    matrix = Matrix()
    matrix.add([outcome("a", "pass"), outcome("a", "fail", "go"), outcome("b", "pass", "go")])
    matrix.skip("java: Maven is not on this machine")
    matrix.skip("java: Maven is not on this machine")
    lines = matrix.table().splitlines()
    assert lines[0].split() == ["case", "java", "go"]
    assert lines[2].split() == ["a", "ok", "FAIL"]
    assert lines[3].split() == ["b", "ok"]
    assert "FAIL a of go on one: because" in lines
    assert lines.count("not run: java: Maven is not on this machine") == 1


def test_shapes_forget_numbers_addresses_and_names():
    ours = "broker-a  0  127.0.0.1:10911  12.5 %\nbroker-a  1  127.0.0.1:10921  0.1 %\n"
    theirs = "broker-a  0  127.0.0.1:10911  99 %\n"
    assert shape_of(ours) == shape_of(theirs)


def test_commands_are_told_apart():
    def verdict(ours: str, theirs: str, late: bool = False) -> str:
        one = Printed(command="topicList", text=ours, late=late)
        return compare(one, Printed(command="topicList", text=theirs, late=False)).verdict

    assert verdict("delete topic [a] from 1 success", "delete topic [a] from 2 success") == "works"
    assert verdict("CODE: 3  DESC: request type 9 not supported", "done 1") == "not served"
    assert verdict("CODE: 1  DESC: no such thing", "done 1") == "refused"
    assert verdict("something else altogether\nin two lines", "done") == "works (other)"
    assert verdict("done", "done", late=True) == "refused"


def test_a_sub_command_works_where_all_its_lines_do():
    rows = [
        compare(
            Printed(command=f"{name} {number}", text=text, late=False),
            Printed(command=f"{name} {number}", text="done", late=False),
        )
        for name, number, text in (
            ("one", 1, "done"),
            ("one", 2, "done"),
            ("two", 1, "done"),
            ("two", 2, "CODE: 3 not supported"),
        )
    ]
    last = table(rows).splitlines()[-1]
    assert last == "2 sub-commands: 1 works, 0 works (other), 0 refused, 1 not served"


def test_every_command_is_given_what_it_needs():
    names = [line.split()[0] for line in COMMANDS.strip().splitlines()]
    assert len(set(names)) >= 80
