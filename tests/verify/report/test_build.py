"""The whole report of a synthetic run: self-contained, escaped, honest about what is missing."""

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pyarrow.parquet as pq
import pytest

from tests.verify.master_slave_runs import lose, master_slave_run, strike, take_over
from tests.verify.report.synthetic_run import HOSTILE, write_run
from verify.report.build import build_report
from verify.run import verify_run


class Page(HTMLParser):
    """A page's visible text, its tags, addresses and data blocks."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.figures: dict[str, object] = {}
        self.words: list[str] = []
        self._inside: dict[str, str | None] | None = None
        self.feed(text)
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        self.addresses += [
            value or "" for key, value in attrs if key in {"src", "href", "action", "data"}
        ]
        self._inside = named if tag in {"script", "style"} else None

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside is None:
            self.words.append(data)
        elif self._inside.get("type") == "application/json":
            self.figures[str(self._inside["id"])] = json.loads(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    run = write_run(tmp_path_factory.mktemp("report") / "run-1")
    build_report(run, run / "report.html")
    return Page((run / "report.html").read_text(encoding="utf-8"))


def report_of(run: Path) -> Page:
    output = run / "report.html"
    build_report(run, output)
    return Page(output.read_text(encoding="utf-8"))


def test_it_asks_nothing_of_the_network(page: Page) -> None:
    assert page.addresses == []
    assert not {"link", "img", "iframe", "object"} & set(page.tags)


def test_text_of_the_run_stays_text(page: Page) -> None:
    assert page.tags.count("script") == 4  # two figures, plotly, the call
    assert page.text.count(HOSTILE) >= 4
    drawn = json.dumps(page.figures)
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn


def test_it_says_what_matters(page: Page) -> None:
    assert "Judged by duckdb and spark" in page.text
    for words in (
        "✕ Fail",
        "At least one promise was broken",
        "G1 Durable",
        "scenario leader-partition",
        "Save the scenario below as SCENARIO.toml, then:",
        "ledgermq chaos run SCENARIO.toml --world local --set version=5.3.3 --seed 42",
        "2 faults that this world could have had were not tried",
        "bit-rot",
        "A5 acknowledged but unseen",
        "35 violations",
        "p3-0",
        "4711",
        "32 more are not listed",
        "the trace of broker-a/n2 ends before the run does",
        "took effect",
        "did not take",
        "Only what this run did is judged.",
        "3.11.7",
        "n0, n1, n2",
        "kill target leader",
        "2026-11-21 03:00:00 UTC",
        "the last of it",
    ):
        assert words in page.text


def test_what_it_says_to_type_names_paths_that_exist(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    write_run(run)
    (run / "scenario.toml").write_text("[load]\n", encoding="utf-8")
    build_report(run, run / "report.html")
    text = Page((run / "report.html").read_text(encoding="utf-8")).text
    typed = re.findall(r"ledgermq (?:chaos run|verify|report) (?:'([^']+)'|(\S+))", text)
    assert len(typed) == 3
    assert all(Path(quoted or plain).exists() for quoted, plain in typed)


def test_figures_are_what_plotly_draws(page: Page) -> None:
    for figure in page.figures.values():
        go.Figure(figure)  # raises on whatever is no plotly figure


def test_every_fault_is_shaded_by_its_effect(page: Page) -> None:
    timeline = page.figures["timeline-figure"]
    assert isinstance(timeline, dict)
    shapes = timeline["layout"]["shapes"]
    assert [(shape["x0"], shape["x1"]) for shape in shapes] == [
        (10.02, 16),
        (24.02, 31),
        (38, 42),
        (46, 50),
    ]
    assert len({shape["fillcolor"] for shape in shapes}) == 3


def test_pauses_are_split(page: Page) -> None:
    pauses = page.figures["pauses-figure"]
    assert isinstance(pauses, dict)
    parts = {trace["name"]: trace["x"] for trace in pauses["data"]}
    assert set(parts) == {"detect", "elect", "recover"}
    assert parts["elect"] == [100, 200]
    assert parts["detect"][0] == pytest.approx(420, abs=15)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [("pass", "✓ Pass Every check"), ("unknown", "? Unknown Nothing was seen to be broken")],
)
def test_other_verdicts(tmp_path: Path, outcome: str, words: str) -> None:
    page = report_of(write_run(tmp_path / "run", outcome))
    assert words in page.text
    assert "What was broken" not in page.text


def test_a_run_without_a_verdict(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "verdict.json").unlink()
    page = report_of(run)
    assert "? Unknown This run has not been verified." in page.text
    assert "There is no verdict.json." in page.text


def test_a_run_that_did_not_end(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "run.json").unlink()
    page = report_of(run)
    assert "There is no run.json." in page.text
    assert "partition_leader" in page.text  # what is on disk is still shown


def test_damaged_files_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "history" / "part-0.parquet").write_bytes(b"PAR1 not really")
    (run / "raft" / "part-1.parquet").unlink()
    (run / "verdict.json").write_text("{", encoding="utf-8")
    page = report_of(run)
    assert "history/part-0.parquet can't be read" in page.text
    assert "raft/part-1.parquet can't be read" in page.text
    assert "verdict.json can't be read" in page.text


@pytest.mark.parametrize("name", ["history/pipe", "history/circle", "history/\0"])
def test_what_is_no_file_is_named(tmp_path: Path, name: str) -> None:
    """Nobody waits at a pipe, and no report ends in a traceback."""
    run = write_run(tmp_path / "run")
    os.mkfifo(run / "history" / "pipe")
    (run / "history" / "circle").symlink_to("circle")
    (run / "verdict.json").unlink(missing_ok=True)
    (run / "verdict.json").mkdir()
    manifest = json.loads((run / "run.json").read_text())
    manifest["tables"]["ops"]["files"][0]["name"] = name
    (run / "run.json").write_text(json.dumps(manifest))
    page = report_of(run)
    assert "no plain file" in page.text
    assert "verdict.json is no plain file" in page.text


def test_columns_of_another_type_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    path = run / "history" / "part-0.parquet"
    table = pq.read_table(path)
    spoilt = table.set_column(table.schema.get_field_index("t_invoke"), "t_invoke", table["f"])
    pq.write_table(spoilt, path)
    pq.write_table(table.drop_columns(["type"]), run / "history" / "part-1.parquet")
    page = report_of(run)
    assert "history/part-0.parquet can't be read" in page.text
    assert "history/part-1.parquet lacks the column type." in page.text


def test_files_outside_the_run_are_not_read(tmp_path: Path) -> None:
    other = write_run(tmp_path / "other")
    run = write_run(tmp_path / "run")
    manifest = json.loads((run / "run.json").read_text(encoding="utf-8"))
    manifest["tables"]["faults"]["files"] = [
        {"name": "../other/faults/part-0.parquet", "rows": 2, "sha256": ""},
        {"name": str(other / "faults" / "part-1.parquet"), "rows": 2, "sha256": ""},
    ]
    (run / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    page = report_of(run)
    assert "outside the run" in page.text
    assert "The run tells of no fault." in page.text


@pytest.mark.parametrize(
    "manifest",
    [
        "[]",
        "{}",
        '{"phases": 5, "groups": [], "tables": {"ops": 1}, "queues": {}, "scenario": "x"}',
        '{"phases": {"load": [1]}, "tables": {"ops": {"files": [1, {}, {"name": 5}]}}}',
    ],
)
def test_nonsense_is_survived(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "run.json").write_text(manifest, encoding="utf-8")
    nonsense = {"checks": [5, {}, {"witnesses": [1, {"a": {}}]}], "promises": [], "not_shown": 5}
    (tmp_path / "verdict.json").write_text(json.dumps(nonsense), encoding="utf-8")
    assert "? Unknown" in report_of(tmp_path).text


def test_an_empty_directory(tmp_path: Path) -> None:
    assert "There is no run.json." in report_of(tmp_path).text


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="is not a run directory"):
        build_report(tmp_path / "none", tmp_path / "out.html")


def test_a_mode_tells_what_it_does_not_promise(tmp_path: Path) -> None:
    run = master_slave_run("async", "sync")
    lose(run, "v13")
    fault = strike(run, "wiped-store")
    take_over(run, "n1", fault["t_start"] + 50)
    folder = run.write(tmp_path / "run-1")
    assert verify_run(folder, engine="duckdb").outcome.value == "pass"
    page = report_of(folder)
    assert "(replication/flush async/sync )" in page.text
    assert "What the mode promises under the faults of this run held." in page.text
    assert "What async/sync does not promise here" in page.text
    assert "Acknowledged messages that no log has: 1 ." in page.text
    row = page.text[page.text.index("G1 Durable all of it") :]
    assert row.startswith(
        "G1 Durable all of it a slave was made the master: wiped-store "
        "A5 (acknowledged but unseen): 3"
    )
    assert "– not promised" in page.text
    assert "– fail, not promised" in page.text
    assert "What was lost and not promised" in page.text
    assert "What was broken" not in page.text
    assert "--engine async-flush" in page.text


def test_a_mode_that_outlived_everything_says_so(tmp_path: Path) -> None:
    run = master_slave_run("sync", "sync")
    run.faults[0]["name"] = "cut-clients"
    folder = run.write(tmp_path / "run-1")
    verify_run(folder, engine="duckdb")
    page = report_of(folder)
    assert "Nothing happened in this run that the mode would not outlive" in page.text
    assert "not promised" not in page.text.replace("does not promise", "")


def test_the_command_names_the_engine_that_ran(tmp_path: Path) -> None:
    """The scenario's own may be another, where the command line chose."""
    run = write_run(tmp_path / "run-1")
    manifest = json.loads((run / "run.json").read_text())
    manifest["engine"] = "raft"
    manifest["scenario"]["text"] = '[cluster]\nengine = "pysyncobj"\n'
    (run / "run.json").write_text(json.dumps(manifest))
    assert "--seed 42 --engine raft" in report_of(run).text


def test_a_report_that_can_not_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run-1")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(IsADirectoryError):
        build_report(run, tmp_path / "folder")
    assert sorted(tmp_path.iterdir()) == before
