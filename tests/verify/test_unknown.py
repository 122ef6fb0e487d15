"""What is damaged, cut off or empty proves nothing: unknown with its reason, never pass or fail."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.disk_calls import DiskCalls
from tests.verify.synthetic import SyntheticRun, write_manifest
from verify.run import load_rules, main, verify_run
from verify.sources.run_files import LocalFiles
from verify.verdict import CheckResult, Outcome, Verdict

OPS = "history/part-0.parquet"


def _edit(run: Path, change: Callable[[dict[str, object]], object]) -> None:
    manifest = json.loads((run / "run.json").read_text())
    change(manifest)
    write_manifest(run, manifest)


def _truncate_history(run: Path) -> None:
    content = (run / OPS).read_bytes()
    (run / OPS).write_bytes(content[: len(content) // 2])


def _drop_rows(run: Path) -> None:
    table = pq.read_table(run / OPS)
    pq.write_table(table.slice(0, table.num_rows - 5), run / OPS)


def _other_count(run: Path) -> None:
    _edit(run, lambda m: m["tables"]["ops"]["files"][0].update(rows=7))  # type: ignore[index]


def _rename(run: Path, name: str) -> None:
    _edit(run, lambda m: m["tables"]["ops"]["files"][0].update(name=name))  # type: ignore[index]


def _pipe_for_manifest(run: Path) -> None:
    (run / "run.json").unlink()
    os.mkfifo(run / "run.json")


def _pipe_for_history(run: Path) -> None:
    (run / OPS).unlink()
    os.mkfifo(run / OPS)


def _links_in_a_circle(run: Path) -> None:
    (run / OPS).unlink()
    (run / OPS).symlink_to("other")
    (run / OPS).with_name("other").symlink_to((run / OPS).name)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda run: (run / "run.json").unlink(), "no run.json"),
    "broken manifest": (lambda run: (run / "run.json").write_text('{"format": 1'), "can't be read"),
    "incomplete": (lambda run: _edit(run, lambda m: m.update(complete=False)), "not complete"),
    "other format": (lambda run: _edit(run, lambda m: m.update(format=2)), "format 2"),
    "key missing": (lambda run: _edit(run, lambda m: m.pop("dedupe")), "dedupe"),
    "path outside": (
        lambda run: _edit(
            run,
            lambda m: m["tables"]["ops"]["files"][0].update(name="../ops"),  # type: ignore[index]
        ),
        "relative path",
    ),
    "file missing": (lambda run: (run / OPS).unlink(), "can't be read"),
    "history truncated": (_truncate_history, "sha256 differs"),
    "rows dropped": (_drop_rows, "sha256 differs"),
    "other row count": (_other_count, "7 are listed"),
    "manifest is a pipe": (_pipe_for_manifest, "no plain file"),
    "file is a pipe": (_pipe_for_history, "no plain file"),
    "links in a circle": (_links_in_a_circle, "can't be read"),
    "NUL in a name": (lambda run: _rename(run, "history/\0"), "no relative path"),
    "no text in a name": (lambda run: _rename(run, "history/\ud800"), "can't be read"),
    "pattern in a name": (lambda run: _rename(run, "history/*.parquet"), "take for many"),
    "transactions without settings": (
        lambda run: _edit(run, lambda m: m.update(transactions={})),
        "transactions.timeout_ms",
    ),
    "transactions without checks": (
        lambda run: _edit(run, lambda m: m["transactions"].update(check_max=None)),  # type: ignore[attr-defined]
        "transactions.check_max",
    ),
    "no number": (
        lambda run: _edit(run, lambda m: m.update(limits={"rto_ms": float("nan")})),
        "NaN is no number",
    ),
    "number beyond bounds": (
        lambda run: _edit(run, lambda m: m.update(limits={"rto_ms": 1e300})),
        "limits.rto_ms",
    ),
    "integer beyond 64 bits": (
        lambda run: _edit(run, lambda m: m["queues"][0].update(max_offset=1 << 63)),  # type: ignore[index]
        "max_offset",
    ),
}


def test_a_verdict_is_durable_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = DiskCalls(monkeypatch)
    LocalFiles(tmp_path).replace("verdict.json", "{}")
    assert disk.synced_before_named(tmp_path / "verdict.json") == {
        tmp_path.resolve() / "verdict.json.tmp"
    }
    assert disk.is_name_durable(tmp_path / "verdict.json")


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_run_is_unknown(case: str, tmp_path: Path) -> None:
    """Found before Spark starts, and left in verdict.json."""
    damage, reason = DAMAGE[case]
    SyntheticRun().write(tmp_path)
    damage(tmp_path)
    verdict = verify_run(tmp_path, engine="duckdb")
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.outcome.exit_code == 2
    assert all(reason in str(check.reason) for check in verdict.checks), verdict.checks[0].reason
    written = json.loads((tmp_path / "verdict.json").read_text())
    assert written["verdict"] == "unknown"
    assert set(written["promises"].values()) == {"unknown"}


def test_verdict_that_can_not_be_written_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found before anything is judged."""
    SyntheticRun().write(tmp_path)
    (tmp_path / "verdict.json").mkdir()
    assert main(tmp_path, engine="duckdb", master=None, rules=load_rules(), as_json=True) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "unknown"
    assert "verdict.json can't be written: Is a directory" in told["not_shown"][0]


def _result(verdict: Verdict, check: str) -> CheckResult | None:
    return next((item for item in verdict.checks if item.id == check), None)


def test_unread_values_of_an_undrained_queue_are_unknown(tmp_path: Path) -> None:
    run = SyntheticRun()
    for queue in run.manifest["queues"]:
        queue["drained"] = False
    gone = f"{run.name}.v13"
    for op in run.ops:
        if op["client_group"] == "pull" and op.get("messages"):
            op["messages"] = [m for m in op["messages"] if m["value"] != gone]
    verdict = verify_run(run.write(tmp_path), engine="duckdb")
    unseen = _result(verdict, "A5")
    assert unseen is not None
    assert unseen.verdict is Outcome.UNKNOWN
    assert "not drained" in str(unseen.reason)
    assert [witness["value"] for witness in unseen.witnesses] == [gone]
    assert verdict.outcome is Outcome.UNKNOWN


def test_history_without_any_read_is_unknown(tmp_path: Path) -> None:
    """Where reads were not recorded, nobody can be said not to have read."""
    run = SyntheticRun()
    run.ops = [op for op in run.ops if op["f"] not in {"poll", "deliver"}]
    verdict = verify_run(run.write(tmp_path), engine="duckdb")
    assert verdict.outcome is Outcome.UNKNOWN
    for check in ("A3", "A4", "A5", "A11", "S6"):
        found = _result(verdict, check)
        assert found is not None
        assert found.verdict is Outcome.UNKNOWN, check
    unseen = _result(verdict, "A5")
    assert unseen is not None
    assert "no read was recorded" in str(unseen.reason)


def test_what_the_end_leaves_open_is_unknown(tmp_path: Path) -> None:
    """The traces of two voters begin late: what they had made durable by then is not known.

    And a producer that has committed leaves before it told anybody.
    """

    def undecided(run: SyntheticRun) -> None:
        run.half("t6", "x6", 0)
        run.local("t6", "x6", "commit")

    run = SyntheticRun(live=undecided)
    late = run.raft[len(run.raft) // 2]["t"]
    run.raft = [row for row in run.raft if row["node"] == "n0" or row["t"] > late]
    verdict = verify_run(run.write(tmp_path), engine="duckdb")
    reasons = {
        "R9": "the trace of broker-a/n1 does not tell of",
        "T11": "undecided at the end of the run",
    }
    for check, reason in reasons.items():
        found = _result(verdict, check)
        assert found is not None
        assert found.verdict is Outcome.UNKNOWN, check
        assert reason in str(found.reason)


def test_empty_and_unlisted_tables_are_unknown(tmp_path: Path) -> None:
    run = SyntheticRun()
    run.ops, run.raft = [], []
    verdict = verify_run(
        run.write(tmp_path, tables=("ops", "faults", "raft", "log")), engine="duckdb"
    )
    assert verdict.outcome is Outcome.UNKNOWN
    for check in ("A1", "A5", "T1", "R1", "S1"):
        found = _result(verdict, check)
        assert found is not None
        assert found.verdict is Outcome.UNKNOWN, check
        assert "empty" in str(found.reason) or "no table cq" in str(found.reason)


def test_other_systems_leave_out_what_they_do_not_have(tmp_path: Path) -> None:
    run = SyntheticRun()
    run.manifest |= {"system": "another", "transactions": None}
    verdict = verify_run(run.write(tmp_path, tables=("ops",)), engine="duckdb")
    assert verdict.outcome is Outcome.PASS
    told = {check.id for check in verdict.checks}
    of_ops = {"S5", "S7", "S8"} | {f"C{number}" for number in range(3, 20)}
    assert of_ops & told == {name for name in told if name[0] != "A"}, "what ops alone can show"
    assert any("no table raft" in sentence for sentence in verdict.not_shown)
    assert any("T1" in sentence and "left out" in sentence for sentence in verdict.not_shown)


def test_null_is_as_good_as_absent(tmp_path: Path) -> None:
    run = SyntheticRun()
    run.manifest |= {"engine": None, "left_behind": None}
    verdict = verify_run(run.write(tmp_path), engine="duckdb")
    assert verdict.outcome is Outcome.PASS, verdict.checks[0].reason
    assert _result(verdict, "A17") is None, "nobody looked who caught up"
    assert _result(verdict, "R1") is not None, "the engine is raft"


def test_a_group_that_gives_up_may_leave_at_least_once_out(tmp_path: Path) -> None:
    run = SyntheticRun()
    groups = run.manifest["consumer_groups"]
    told = {name: groups[name].copy() for name in ("retries", "orderly")}
    groups |= told
    del told["retries"]["at_least_once"]
    assert verify_run(run.write(tmp_path), engine="duckdb").outcome is Outcome.PASS
    del told["orderly"]["at_least_once"]
    verdict = verify_run(run.write(tmp_path), engine="duckdb")
    assert "consumer_groups.orderly.at_least_once is missing" in str(verdict.checks[0].reason)


@pytest.mark.parametrize("tables", [(), ("faults",), ("faults", "cq")])
def test_run_that_tells_nothing_is_unknown(tables: tuple[str, ...], tmp_path: Path) -> None:
    run = SyntheticRun()
    run.manifest |= {"system": "another"}
    verdict = verify_run(run.write(tmp_path, tables=tables), engine="duckdb")
    assert verdict.outcome is Outcome.UNKNOWN
    assert {check.reason for check in verdict.checks} == {
        "the run lists no table ops, raft or log, so nothing is proven"
    }


def test_missing_column_is_unknown(tmp_path: Path) -> None:
    run = SyntheticRun()
    run.write(tmp_path)
    table = pq.read_table(tmp_path / OPS).drop_columns(["decision"])
    pq.write_table(table, tmp_path / OPS)
    import hashlib

    digest = hashlib.sha256((tmp_path / OPS).read_bytes()).hexdigest()
    run.manifest["tables"]["ops"]["files"][0]["sha256"] = digest
    write_manifest(tmp_path, run.manifest)
    verdict = verify_run(tmp_path, engine="duckdb")
    assert verdict.outcome is Outcome.UNKNOWN
    assert "decision" in str(verdict.checks[0].reason)
