"""The report in words: from the reduced tables to the values that the template shows.

Place in the data path: the last pure step. Every text of the run stays plain text here; the
template escapes it.

Invariants: lists are bounded, and where something was left out the page says how much; a check,
promise or effect of an unknown name is shown unchanged, never dropped.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from statistics import median

from verify.catalogue.rule_files import BUILT_IN_RULES, read_rules
from verify.report.activity import Activity
from verify.report.faults import Fault
from verify.report.replicas import Replicas
from verify.report.source import RunSource
from verify.report.unavailability import Pause
from verify.report.wording import (
    EFFECT_WORDS,
    MODE_SENTENCES,
    PROMISES,
    VERDICT_SENTENCES,
    clipped,
    count_words,
    duration,
    number,
    seconds,
)

__all__ = ["Reduced", "page_values"]

_CELL_MAX = 400
_LINE_MAX = 150
_TEXT_MAX = 64 * 1024
_ROWS_MAX = 200
_VERDICTS = ("pass", "fail", "unknown")
_NOT_PROMISED = "not promised"
_BADGE_OF_NONE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """The tables of a run after their reduction; `pauses` by number of the fault."""

    activity: Activity
    faults: Sequence[Fault]
    replicas: Replicas
    pauses: Mapping[int, Pause]
    end_ns: int


@cache
def _meanings() -> Mapping[str, str]:
    """Return what holds if a check passes, by rule id, from the rules' files."""
    return {rule.id: rule.holds for rule in read_rules(BUILT_IN_RULES)}


def page_values(source: RunSource, reduced: Reduced) -> dict[str, object]:
    """Return all values that the template uses."""
    manifest, verdict = source.manifest, source.verdict
    outcome = _verdict_of(verdict.get("verdict"))
    scenario = _members(manifest.get("scenario"))
    checks = [_check(check) for check in _list(verdict.get("checks"))]
    found = [check for check in checks if check["violations"] or check["witnesses"]]
    mode = clipped(_text(verdict.get("mode"), ""), _CELL_MAX)
    sentences = MODE_SENTENCES if mode else VERDICT_SENTENCES
    return {
        "verdict": outcome,
        "verdict_sentence": sentences[outcome] if verdict else "This run has not been verified.",
        "mode": mode,
        "acknowledged_lost": number(_count(verdict.get("acknowledged_lost"))),
        "not_promised": [_not_promised(each) for each in _list(verdict.get("not_promised"))],
        "system": _text(manifest.get("system"), "a system that run.json does not name"),
        "version": _text(manifest.get("version"), ""),
        "engine": clipped(_text(manifest.get("engine"), "raft"), _CELL_MAX),
        "scenario": _text(scenario.get("name"), "unnamed"),
        "scenario_text": clipped(_text(scenario.get("text"), ""), _TEXT_MAX),
        "seed": _text(manifest.get("seed"), "unknown"),
        "world": _text(manifest.get("world"), "unknown"),
        "started_at": _moment(_text(manifest.get("started_at"), "unknown")),
        "length": duration(reduced.end_ns),
        "run_name": source.run.resolve().name,
        "commands": _commands(source),
        "judges": " and ".join(clipped(_text(name, ""), _CELL_MAX) for name in _judges(verdict)),
        "notes": source.notes,
        "cards": _cards(reduced),
        "promises": _promises(verdict, checks),
        "faults": [_fault_row(fault, reduced.pauses.get(fault.number)) for fault in reduced.faults],
        "effects": _effects(reduced.faults),
        "not_tried": _not_tried(manifest, reduced.faults),
        "checks": checks,
        "broken": [check for check in found if check["promised"]],
        "excused": [check for check in found if not check["promised"]],
        "not_shown": [
            clipped(_text(line, ""), _CELL_MAX * 4) for line in _list(verdict.get("not_shown"))
        ],
        "coverage": _coverage(verdict),
        "facts": _facts(manifest),
        "environment": _pairs(manifest.get("environment")),
        "tables": _tables(manifest),
    }


def _judges(verdict: Mapping[str, object]) -> Sequence[object]:
    """Return the engines that judged; a single one means that its verdict was not confirmed."""
    return _list(verdict.get("engines"))[:_ROWS_MAX]


def _moment(text: str) -> str:
    """Format a date and time to the second; text that is no date is only clipped."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return clipped(text, _LINE_MAX)
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z").strip()


def _commands(source: RunSource) -> dict[str, str]:
    """Return the commands that repeat run, verification and report, with quoted, existing paths.

    The scenario is the copy in the run directory; for a run without one, `saved_first` names the
    file into which the reader has to save its text.
    """
    world = _text(source.manifest.get("world"), "local")
    seed = _text(source.manifest.get("seed"), "0")
    engine = _text(source.manifest.get("engine"), "raft")
    if source.manifest.get("flush") == "sync":
        engine += "-flush"
    chosen = _members(source.manifest.get("world_settings"))
    settings = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    directory = source.run.resolve()
    copy = directory / "scenario.toml"
    scenario = str(copy) if copy.is_file() else "SCENARIO.toml"
    run = str(directory)
    return {
        "saved_first": "" if copy.is_file() else scenario,
        "run": shlex.join(
            [
                *("ledgermq", "chaos", "run", scenario),
                *("--world", world, *settings, "--seed", seed),
                # The scenario's own may be another.
                *(("--engine", engine) if source.manifest.get("engine") is not None else ()),
            ]
        ),
        "verify": shlex.join(["ledgermq", "verify", run]),
        "report": shlex.join(["ledgermq", "report", run]),
    }


def _cards(reduced: Reduced) -> list[tuple[str, str, str]]:
    """Return the key figures: value, label, detail."""
    activity, faults = reduced.activity, reduced.faults
    taken = [fault for fault in faults if fault.effect == "taken"]
    lengths = [pause.length for pause in reduced.pauses.values() if pause.length is not None]
    halves = activity.count("half", "ok")
    commits = activity.count("decide", "ok", "commit")
    rollbacks = activity.count("decide", "ok", "rollback")
    p50, p99 = activity.overall_percentile_ms(0.5), activity.overall_percentile_ms(0.99)
    return [
        (
            number(activity.count("send", "ok") + halves),
            "sends acknowledged",
            f"{number(halves)} of them halves of transactions",
        ),
        (
            number(commits + rollbacks),
            "transactions decided",
            f"{number(commits)} committed, {number(rollbacks)} rolled back",
        ),
        (
            f"{len(taken)} / {len(faults)}",
            "faults took effect",
            f"{number(reduced.replicas.leaderships)} leaders elected",
        ),
        (
            duration(max(lengths)) if lengths else "–",
            "longest pause by a fault",
            f"median {duration(round(median(lengths)))}" if lengths else "none seen",
        ),
        (
            "–" if p50 is None else f"{p50:.1f} ms",
            "median send",
            "–" if p99 is None else f"p99 {p99:.0f} ms",
        ),
        (
            number(sum(n for (_, kind, _), n in activity.counts.items() if kind == "info")),
            "outcomes unknown",
            f"of {count_words(activity.operations, 'operation')}",
        ),
    ]


def _promises(
    verdict: Mapping[str, object], checks: Sequence[Mapping[str, object]]
) -> list[dict[str, object]]:
    words = _members(verdict.get("promises"))
    rows: list[dict[str, object]] = []
    for name in [*PROMISES, *(key for key in words if key not in PROMISES)]:
        title, meaning = PROMISES.get(name, (name, ""))
        given = words.get(name) != _NOT_PROMISED
        word = _verdict_of(words.get(name)) if given else _NOT_PROMISED
        rows.append(
            {
                "id": name,
                "title": title,
                "meaning": meaning,
                "word": word,
                "badge": word if given else _BADGE_OF_NONE,
                "checks": [check["id"] for check in checks if check["promise"] == name],
            }
        )
    return rows


def _not_promised(value: object) -> dict[str, object]:
    """Return what of a promise the mode does not give, as the page shows it."""
    each = _members(value)
    name = _text(each.get("promise"), "?")
    title, _ = PROMISES.get(name, (name, ""))
    checks = [_text(check, "?") for check in _list(each.get("checks"))]
    because = list(_members(each.get("because")).items())[:_ROWS_MAX]
    violations = list(_members(each.get("violations")).items())[:_ROWS_MAX]
    return {
        "id": name,
        "title": title,
        "what": clipped("all of it" if each.get("whole") is True else ", ".join(checks), _CELL_MAX),
        "because": [clipped(f"{hazard}: {_cell(faults)}", _CELL_MAX) for hazard, faults in because],
        "found": [clipped(f"{check}: {_cell(count)}", _CELL_MAX) for check, count in violations],
    }


def _check(value: object) -> dict[str, object]:
    check = _members(value)
    name = _text(check.get("id"), "?")
    witnesses = [
        witness if isinstance(witness, dict) else {"witness": witness}
        for witness in _list(check.get("witnesses"))[:_ROWS_MAX]
    ]
    columns: list[str] = []
    for witness in witnesses:
        columns += [key for key, cell in witness.items() if key not in columns and cell is not None]
    violations = _count(check.get("violations"))
    verdict, promised = _verdict_of(check.get("verdict")), check.get("promised") is not False
    return {
        "id": name,
        "name": _text(check.get("name"), ""),
        "meaning": _meanings().get(name, ""),
        "promise": _text(check.get("promise"), "–"),
        "promised": promised,
        "badge": verdict if promised else _BADGE_OF_NONE,
        "word": verdict if promised else f"{verdict}, {_NOT_PROMISED}",
        "reason": clipped(_text(check.get("reason"), ""), _CELL_MAX * 4),
        "examined": number(_count(check.get("examined"))),
        "violations": violations,
        "violations_text": number(violations),
        "columns": columns,
        "witnesses": [[_cell(witness.get(key)) for key in columns] for witness in witnesses],
        "left_out": max(0, violations - len(witnesses)),
    }


def _fault_row(fault: Fault, pause: Pause | None) -> dict[str, object]:
    return {
        "number": fault.number,
        "name": clipped(fault.name, _CELL_MAX),
        "targets": clipped(", ".join(fault.targets), 2 * _LINE_MAX),
        "params": _params(fault.params),
        "start": seconds(fault.t_start),
        "effect_at": seconds(fault.t_effect),
        "healed": seconds(fault.t_healed),
        "effect": fault.effect if fault.effect in EFFECT_WORDS else "unknown",
        "effect_word": EFFECT_WORDS.get(fault.effect, fault.effect),
        "evidence": clipped(fault.evidence, _CELL_MAX * 10),
        "evidence_short": clipped(fault.evidence, _LINE_MAX),
        "pause": "–" if pause is None else _pause(pause),
        "group": "" if pause is None else clipped(pause.group, _CELL_MAX),
        "detect": duration(pause.detect if pause else None),
        "elect": duration(pause.elect if pause else None),
        "recover": duration(pause.recover if pause else None),
    }


def _params(text: str) -> str:
    """Format a fault's parameters in words, or unchanged if they are not JSON."""
    try:
        params = json.loads(text or "{}")
    except (ValueError, RecursionError):
        params = text
    return "" if params == {} else _cell(params)


def _pause(pause: Pause) -> str:
    return "until the load ended" if pause.length is None else duration(pause.length)


def _effects(faults: Sequence[Fault]) -> str:
    """Count the faults by effect, as `7 took effect, 1 did not take`."""
    counted = {
        effect: sum(fault.effect == effect for fault in faults)
        for effect in dict.fromkeys(fault.effect for fault in faults)
    }
    return ", ".join(
        f"{count} {EFFECT_WORDS.get(effect, effect)}" for effect, count in counted.items()
    )


def _not_tried(manifest: Mapping[str, object], faults: Sequence[Fault]) -> list[str]:
    """Return the faults that the run's world could have had and that were not tried."""
    tried = {fault.name for fault in faults}
    names = (_text(name, "") for name in _list(manifest.get("faults_possible"))[:_ROWS_MAX])
    return [clipped(name, _LINE_MAX) for name in names if name not in tried]


def _coverage(verdict: Mapping[str, object]) -> dict[str, object]:
    coverage = _members(verdict.get("coverage"))
    operations = _members(coverage.get("operations"))
    rows = []
    for f, by_type in list(operations.items())[:_ROWS_MAX]:
        counts = _members(by_type)
        rows.append([f, *(number(_count(counts.get(kind))) for kind in ("ok", "fail", "info"))])
    rest = {key: value for key, value in coverage.items() if key not in {"operations", "faults"}}
    return {
        "operations": rows,
        "rest": [(key.replace("_", " "), value) for key, value in _pairs(rest)],
    }


def _facts(manifest: Mapping[str, object]) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if manifest.get("engine") is not None:
        facts.append(("engine", _cell(manifest["engine"])))
    for group, voters in _members(manifest.get("groups")).items():
        facts.append((f"group {group}", ", ".join(str(voter) for voter in _list(voters))))
    for name, bounds in _members(manifest.get("phases")).items():
        ends = [end if isinstance(end, int) else None for end in _list(bounds)]
        facts.append((f"phase {name}", " – ".join(seconds(end) for end in ends)))
    queues = [_members(queue) for queue in _list(manifest.get("queues"))]
    topics = sorted({_text(queue.get("topic"), "?") for queue in queues})
    facts.append(
        ("queues", f"{len(queues)} of {count_words(len(topics), 'topic')}: {', '.join(topics)}")
    )
    for name, kind in _members(manifest.get("consumer_groups")).items():
        traits = [f"{key}: {_cell(value)}" for key, value in _members(kind).items()]
        facts.append((f"consumers {name}", ", ".join(traits)))
    for key in ("transactions", "dedupe", "limits"):
        if key in manifest:
            value = manifest[key]
            facts.append((key, "off" if value is None else _cell(value)))
    return [(clipped(key, _CELL_MAX), clipped(value, _CELL_MAX)) for key, value in facts]


def _tables(manifest: Mapping[str, object]) -> list[tuple[str, str, str]]:
    rows = []
    for name, listed in _members(manifest.get("tables")).items():
        files = [_members(file) for file in _list(_members(listed).get("files"))]
        count = sum(_count(file.get("rows")) for file in files)
        rows.append((name, number(len(files)), number(count) if count else "–"))
    return rows


def _pairs(value: object) -> list[tuple[str, str]]:
    return [
        (clipped(str(key), _CELL_MAX), _cell(item))
        for key, item in list(_members(value).items())[:_ROWS_MAX]
    ]


def _cell(value: object) -> str:
    """Format any JSON value in one line."""
    if value is None:
        return ""
    if value in ([], {}):
        return "none"
    if isinstance(value, str):
        return clipped(value, _CELL_MAX)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict) and all(not isinstance(v, dict | list) for v in value.values()):
        return clipped(", ".join(f"{key} {_cell(v)}" for key, v in value.items()), _CELL_MAX)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return clipped(", ".join(value), _CELL_MAX)
    return clipped(json.dumps(value, ensure_ascii=False, default=str), _CELL_MAX)


def _verdict_of(value: object) -> str:
    return value if isinstance(value, str) and value in _VERDICTS else "unknown"


def _members(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _text(value: object, otherwise: str) -> str:
    return otherwise if value is None else str(value)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
