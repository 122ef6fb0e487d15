"""What can't hold on the engines `async` and `sync`, and the page's section about them."""

from __future__ import annotations

import re
from fnmatch import fnmatch

from campaigns.interop.engine_limits import IMPOSSIBLE, LIMITS, judged, limit_of
from campaigns.interop.engines_document import BEGIN, DOCUMENT, END, document_section, updated
from campaigns.interop.master_slave import MASTER_SLAVE_TARGETS, MODES
from campaigns.interop.matrix import Matrix, Outcome
from campaigns.interop.matrix_document import document_table, role_cases, source_cases
from campaigns.interop.targets import TARGETS

SYNC, ASYNC = "ledgermq-sync-sync-roles", "ledgermq-async-async-roles"
STATUS = "status-slave-not-available"


def outcome(case: str, told: str, target: str, client: str = "java-5.5.0") -> Outcome:
    return Outcome(case=case, client=client, target=target, outcome=told, took_ms=7, detail="so")


def test_every_limit_is_of_a_case_and_a_target_that_there_are() -> None:
    cases = {*role_cases(), *(case for named in source_cases().values() for case in named)}
    for limit in LIMITS:
        assert any(fnmatch(case, limit.case) for case in cases), limit
        assert any(fnmatch(target, limit.target) for target in MODES), limit


def test_what_cannot_hold_is_no_failure_and_fails_where_it_holds() -> None:
    assert judged(outcome(STATUS, "fail", SYNC)).outcome == "fail"
    judgement = judged(outcome(STATUS, "fail", ASYNC))
    limit = limit_of(STATUS, ASYNC)
    assert limit is not None
    assert (judgement.outcome, judgement.detail) == (IMPOSSIBLE, limit.reason)
    assert judged(outcome(STATUS, "pass", ASYNC)).outcome == "fail"
    assert judged(outcome(STATUS, "none", ASYNC)).outcome == "none"
    matrix = Matrix()
    matrix.add([judgement])
    assert matrix.red == []


def test_what_may_hold_by_luck_is_as_it_is() -> None:
    target = "ledgermq-async-async-kill"
    assert judged(outcome("trace-of-sends", "pass", target)).outcome == "pass"
    assert judged(outcome("trace-of-sends", "fail", target)).outcome == IMPOSSIBLE
    assert judged(outcome("trace-of-sends", "fail", "ledgermq-async-async")).outcome == "fail"


def test_other_targets_have_no_limits() -> None:
    others = set(TARGETS) - set(MASTER_SLAVE_TARGETS)
    assert not any(limit_of(limit.case, target) for limit in LIMITS for target in others)


def test_the_section_counts_by_engine_and_client_and_names_failures() -> None:
    matrix = Matrix()
    matrix.add(
        [
            judged(outcome(STATUS, told, target))
            for told, target in (("pass", SYNC), ("fail", ASYNC))
        ]
    )
    matrix.add([outcome("send-sync", "pass", "ledgermq-sync-sync")])
    matrix.add([outcome("send-async", "fail", "ledgermq-sync-sync-kill", "java-4.9.8")])
    matrix.add([outcome("send-sync", "fail", "ledgermq-3")])
    matrix.skip("go-2.1.2", SYNC, "Go is not on this machine")
    section = document_section(matrix)
    assert f"Not run: go-2.1.2 on {SYNC}: Go is not on this machine.\n" in section
    assert "| sync, flush sync | java-5.5.0 | 1 hold |  | 1 hold |  |" in section
    assert "| sync, flush sync | java-4.9.8 |  | **1 fail** | 0 hold" not in section
    assert "| async, flush async | java-5.5.0 |  |  | 0 hold, 1 not possible |  |" in section
    assert f"| {STATUS} | holds |  |  | not possible |" in section
    assert "| send-async | java-4.9.8 | ledgermq-sync-sync-kill | so |" in section
    assert "ledgermq-3" not in section
    assert updated(f"before\n{BEGIN}stale\n{END}after\n", matrix) == (
        f"before\n{BEGIN}{section}{END}after\n"
    )


def test_the_table_of_other_targets_leaves_these_out() -> None:
    matrix = Matrix()
    matrix.add([outcome("send-sync", "pass", "ledgermq-sync-sync")])
    matrix.skip("all", "ledgermq-sync-sync", "there is no Java")
    table = document_table(matrix)
    assert "0 cells" in table
    assert "there is no Java" not in table


def test_the_page_tells_of_the_cases_that_there_are() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text[text.index(BEGIN) : text.index(END)]
    told = set(re.findall(r"^\| ((?:status|slave)-[\w-]+) \| (?!`)", section, re.MULTILINE))
    assert told == set(role_cases())
