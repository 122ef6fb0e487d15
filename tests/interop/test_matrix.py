"""The pure parts of the interop runner: what lines tell, what tables say."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from campaigns.interop.matrix import Matrix, MidpointReached, Outcome, RequestedAction, parse_line
from campaigns.interop.matrix_document import (
    BEGIN,
    DOCUMENT,
    END,
    document_cases,
    source_cases,
    updated,
)
from campaigns.interop.run import CLIENTS, client_program, serves
from campaigns.interop.toolchain import MissingToolError, Toolchain


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
    asked = parse_line('@@{"event":"ask","what":"slave kill"}', "java", "one")
    assert asked == RequestedAction(what="slave kill")
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
    matrix.skip("java", "two", "Maven is not on this machine")
    lines = matrix.table().splitlines()
    assert lines[0].split() == ["case", "java", "go"]
    assert lines[2].split() == ["a", "ok", "FAIL"]
    assert lines[3].split() == ["b", "ok"]
    assert "FAIL a of go on one: because" in lines
    assert "not run: java on two: Maven is not on this machine" in lines


@pytest.mark.parametrize(
    ("client", "tool"),
    [
        ("java-5.5.0", "Java"),
        ("java-4.9.8", "Java"),
        ("grpc-5.2.0", "Java"),
        ("suite-5.5.0", "Java"),
        ("go-2.1.2", "Go"),
    ],
)
def test_a_missing_tool_is_named(client, tool, tmp_path, monkeypatch):
    monkeypatch.setattr("campaigns.interop.toolchain.BUILD", tmp_path)
    nothing = Toolchain(java=None, maven="/bin/false", go=None)
    with pytest.raises(MissingToolError, match=f"{tool}.* is not on this machine"):
        client_program(client, nothing, tmp_path)


def test_clients_meet_the_targets_that_are_for_them():
    assert [client for client in CLIENTS if serves("ledgermq-groups", client)] == ["suite-5.5.0"]
    assert [client for client in CLIENTS if serves("ledgermq-proxy-kill", client)] == ["grpc-5.2.0"]
    others = [client for client in CLIENTS if client not in {"suite-5.5.0", "grpc-5.2.0"}]
    for target in ("ledgermq-kill", "rocketmq", "ledgermq-tls", "ledgermq-sync-sync-kill"):
        assert [client for client in CLIENTS if serves(target, client)] == others
    own_tests = [client for client in CLIENTS if serves("ledgermq-async-sync-groups", client)]
    assert own_tests == ["suite-5.5.0"]
    roles = [client for client in CLIENTS if serves("ledgermq-sync-sync-roles", client)]
    assert roles == ["java-5.5.0", "java-5.3.3", "java-4.9.8"]


def test_figures_of_a_later_run_replace_its_own_cells_only():
    earlier, later = Matrix(), Matrix()
    earlier.add([outcome("a", "fail"), outcome("b", "pass"), outcome("a", "pass", "go")])
    earlier.skip("python", "one", "nobody knows")
    earlier.skip("all", "two", "Maven is not on this machine")
    later.add([outcome("a", "pass"), outcome("a", "pass", "python")])
    merged = Matrix.from_json(later.merged_into(earlier).to_json())
    assert not merged.red
    assert {(each.case, each.client) for each in merged.outcomes} == {
        ("a", "java"),
        ("b", "java"),
        ("a", "go"),
        ("a", "python"),
    }
    assert [(each.client, each.target) for each in merged.skipped] == [("all", "two")]


def test_the_document_names_where_a_case_holds_and_where_it_does_not():
    matrix = Matrix()
    for target, told in (("ledgermq-1", "pass"), ("ledgermq-kill", "fail"), ("rocketmq", "skip")):
        matrix.add([replace(outcome("a", told, "java-5.3.3"), target=target)])
    matrix.add([replace(outcome("python-a", "pass", "python"), target="rocketmq-acl")])
    document = updated(f"before\n{BEGIN}stale\n{END}after\n", matrix)
    assert "| a | 1 **kill** (R) | R-acl |" in document
    assert "stale" not in document
    assert document.startswith("before\n")
    assert document.endswith("after\n")
    assert document_cases(document) == {"java-5.3.3": ["a"], "python": ["a"]}


def test_the_document_tells_of_the_cases_that_there_are():
    told = document_cases(DOCUMENT.read_text(encoding="utf-8"))
    known = {
        client: [case.removeprefix("python-") for case in cases]
        for client, cases in source_cases().items()
    }
    assert {client: sorted(cases) for client, cases in told.items()} == {
        client: sorted(cases) for client, cases in known.items()
    }
