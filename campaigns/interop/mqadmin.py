"""Every sub-command of mqadmin, run against ledgermq and against RocketMQ, compared.

    python -m campaigns.interop.mqadmin [--version 5.5.0] [--target ledgermq-3] [--theirs FILE]
        [--output FILE]
    python -m campaigns.interop.mqadmin --document docs/INTEROP.md

mqadmin exits with 0 whatever happens: only what it printed, and what it changed, tells. Where
`mqadmin_commands` says what a command must print, and which other command or file must show its
effect, that decides; it must hold on RocketMQ as well. Else the shape of what it prints does:
numbers, addresses, names and times are taken out, equal lines counted once. A command of ours

    works           does what RocketMQ's does
    works (other)   succeeds, and prints something else; both are stored in the figures
    refused         is answered with a reason
    not served      is answered "request type ... not supported"

The tool and RocketMQ are of the same version; figures of other versions stay in the output.
`--document` writes the table of a document anew from the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from campaigns.interop.matrix import MARK
from campaigns.interop.mqadmin_commands import (
    WHY,
    Command,
    Expectation,
    commands_of,
    filled,
    pattern,
)
from campaigns.interop.programs import java_command
from campaigns.interop.rocketmq import Rocketmq
from campaigns.interop.run import print_line
from campaigns.interop.targets import Ledgermq, Target, started
from campaigns.interop.toolchain import Toolchain
from campaigns.rig.processes import request
from remoting.protocol.command import RemotingCommand

FIGURES = Path("figures") / "mqadmin.json"
BEGIN = "<!-- mqadmin: python -m campaigns.interop.mqadmin --document docs/INTEROP.md -->\n"
END = "<!-- end of mqadmin -->"
VERSIONS = ("5.5.0", "5.3.3")  # the newest first
VERDICTS = ("not served", "refused", "works (other)", "works")  # the worst first
LIKENESS_MIN = 0.8
_BY = {"file": "its file", "ask": "the name server's answer"}
_TEXT_MAX = 3_000
_FILE_S_MAX = 90.0  # startMonitoring looks once a minute

# What its users' and permissions' commands need, and those that look into its mapped files.
_ROCKETMQ_SETTINGS = """\
authenticationMetadataProvider=org.apache.rocketmq.auth.authentication.provider.\
LocalAuthenticationMetadataProvider
authorizationMetadataProvider=org.apache.rocketmq.auth.authorization.provider.\
LocalAuthorizationMetadataProvider
"""
_ROCKETMQ_FLAGS = (
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What one command printed on one target, and what showed its effects there."""

    command: str
    text: str
    late: bool
    effects: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One command, compared."""

    version: str
    command: str
    verdict: str
    judged_by: str
    reason: str
    likeness: float
    ours: str
    theirs: str

    @property
    def name(self) -> str:
        return self.command.split()[0]


_UNSTABLE = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"(?<!\S)/\S+"), "PATH"),
    (re.compile(r"/\S+/(?=[\w.]+)"), "DIRECTORY/"),
    (re.compile(r"(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?(?:@\S+)?"), "ADDRESS"),
    (re.compile(r"\b[0-9A-F]{24,}\b"), "ID"),
    (re.compile(r"\b(?:t|g|p|i|idle|trace)_mqadmin_x?\w*"), "NAME"),
    (re.compile(r"broker-a|V\d_\d_\d|rocketmq|ledgermq"), "WORD"),
    (re.compile(r"-?\d+(?:\.\d+)?%?"), "9"),
    (re.compile(r"(?:9[-/:., ]*)+"), "9 "),
    (re.compile(r"\s+"), " "),
)
_NOT_SERVED = re.compile(r"CODE: 3\b|not supported")
# Not of the lines that tell which groups have read a message: of those that never came one can't.
_FAILED = re.compile(
    r"^(?!MessageTrack).*(?:Exception(?::|$)|CODE: \d+|\berror\b|\bfailed\b|is invalid\.)"
    r"|^exit|^usage: mqadmin|^Missing required option",
    re.IGNORECASE | re.MULTILINE,
)
_REASON = re.compile(r"CODE: \d+ .*|connect to \S+ failed|^(?!Caused by|\s*at ).*", re.MULTILINE)


def shape_of(text: str) -> list[str]:
    """Its lines without what differs between two runs, each kind of line once."""
    lines = []
    for line in text.splitlines():
        reduced = line
        for unstable, word in _UNSTABLE:
            reduced = unstable.sub(word, reduced)
        if reduced.strip() and not reduced.lstrip().startswith("at "):
            lines.append(reduced.strip())
    return list(dict.fromkeys(lines))


def likeness(ours: str, theirs: str) -> float:
    """1.0: the same shape."""
    first, second = shape_of(ours), shape_of(theirs)
    if not first and not second:
        return 1.0
    return difflib.SequenceMatcher(a=first, b=second, autojunk=False).ratio()


def retained_text(text: str, names: dict[str, str]) -> str:
    """What the figures keep: without where it ran, and without lines of a stack."""
    here = names.get("directory", "")
    lines = [line for line in text.splitlines() if not line.startswith(("\tat ", "\t... "))]
    shortened = "\n".join(lines)
    shortened = shortened.replace(here, "DIRECTORY") if here else shortened
    return re.sub(r"\b(?!127\.|10\.)(?:\d{1,3}\.){3}\d{1,3}(?=[@:])", "HOST", shortened)[:_TEXT_MAX]


def compare(version: str, command: Command, ours: Printed, theirs: Printed) -> Row:
    like = likeness(ours.text, theirs.text)
    verdict, reason = _verdict(command, ours, theirs, like)
    by = [_BY.get(word, word) for word in (effect.line.split()[0] for effect in command.effects)]
    by = by or ["its output" if command.wanted else "its output's shape"]
    return Row(
        version=version,
        command=command.line,
        verdict=verdict,
        judged_by=", ".join(dict.fromkeys(by)),
        reason=reason,
        likeness=round(like, 2),
        ours=retained_text(ours.text, ours.names),
        theirs=retained_text(theirs.text, theirs.names),
    )


def _verdict(command: Command, ours: Printed, theirs: Printed, like: float) -> tuple[str, str]:
    why = WHY.get(command.name, "")
    if ours.late != theirs.late:
        return "refused", "does not end" if ours.late else "ends; RocketMQ's does not"
    failed, fails_there = _FAILED.search(ours.text), _FAILED.search(theirs.text)
    if failed:
        verdict = "not served" if _NOT_SERVED.search(ours.text) else "refused"
        reason = why or _reason(ours.text)
        return verdict, f"{reason}; refused there too in this setting" if fails_there else reason
    if fails_there:
        return "works (other)", f"RocketMQ refuses: {_reason(theirs.text)}"
    missing = _missing(command, ours)
    if missing is not None:
        return "works (other)" if not why else "refused", why or f"lacks {missing}"
    missing = _missing(command, theirs)
    if missing is not None:
        return "works (other)", f"RocketMQ lacks {missing}"
    if not command.wanted and like < LIKENESS_MIN:
        return "works (other)", f"likeness {like:.2f}"
    return "works", ""


def _missing(command: Command, printed: Printed) -> str | None:
    """What should stand there and doesn't."""
    if command.wanted and not pattern(command.wanted, printed.names).search(printed.text):
        return command.wanted
    for effect, text in zip(command.effects, printed.effects, strict=True):
        if not pattern(effect.wanted, printed.names).search(text):
            return str(effect)
    return None


def _reason(text: str) -> str:
    """The broker's words, where there are any."""
    coded = re.search(r"CODE: \d+ .*|connect to \S+ failed", text)
    if coded is not None:
        return coded[0].split(" BROKER: ")[0].strip()[:200]
    return next(line for line in text.splitlines() if _FAILED.search(line)).strip()[:200]


# Running -----------------------------------------------------------------------------------------


class Tool:
    """mqadmin in a machine of its own, which takes commands one after the other."""

    def __init__(
        self,
        directory: Path,
        servers: str,
        tools: Toolchain,
        *flags: str,
        version: str = VERSIONS[0],
    ) -> None:
        """`flags` end with "-" where nothing is to be furnished."""
        command = java_command(tools.require_java(), tools.java_client(version), directory / "home")
        command[-1] = "interop.Mqadmin"
        options = [flag for flag in flags if flag != "-"]
        command[1:1] = ["-Djava.security.manager=allow", *options]
        self.servers = servers
        self._process = subprocess.Popen(
            [*command, servers, *(flag for flag in flags if flag == "-")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=directory,  # it leaves files where it runs
        )
        self.furnished = {name: str(value) for name, value in self._marked_line().items()}

    def run(self, words: Sequence[str]) -> tuple[str, bool]:
        """What it printed, and whether it had to be interrupted."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join([*words, "-n", self.servers]) + "\n")
        self._process.stdin.flush()
        fields = self._marked_line()
        return str(fields["printed"]), bool(fields["late"])

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _marked_line(self) -> dict[str, object]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                fields: dict[str, object] = json.loads(line.removeprefix(MARK))
                return fields
        raise AssertionError(f"mqadmin ended with {self._process.wait()}")


@contextlib.contextmanager
def _target(name: str, directory: Path, tools: Toolchain, version: str) -> Iterator[Target]:
    if name != "rocketmq":
        with started(name, directory, tools) as target:
            yield target
        return
    directory.mkdir(parents=True)
    real = Rocketmq(
        directory, tools, version=version, settings=_ROCKETMQ_SETTINGS, flags=_ROCKETMQ_FLAGS
    )
    try:
        real.start()
        yield real
    finally:
        real.stop()


def run_all(name: str, directory: Path, tools: Toolchain, version: str) -> list[Printed]:
    """Every command's text on the target `name`."""
    with _target(name, directory, tools, version) as target:
        tool = Tool(directory, ";".join(target.name_servers), tools, version=version)
        try:
            names = {**tool.furnished, "directory": str(directory), **_files(directory)}
            master = _master_of(target)
            return [_run(command, tool, names, master) for command in commands_of(version)]
        finally:
            tool.stop()


def _run(
    command: Command, tool: Tool, names: dict[str, str], master: Callable[[], str | None]
) -> Printed:
    names = {**names, "broker": master() or names["broker"]}
    text, late = tool.run([filled(word, names) for word in command.line.split()])
    effects = tuple(_shown(effect, tool, names) for effect in command.effects)
    print_line(command.line)
    return Printed(command=command.line, text=text, late=late, effects=effects, names=names)


def _shown(effect: Expectation, tool: Tool, names: dict[str, str]) -> str:
    """What stands where the effect is to be seen."""
    if effect.file is not None:
        return _await_in(Path(filled(effect.file, names)), pattern(effect.wanted, names))
    if effect.request is None:
        return tool.run([filled(word, names) for word in effect.line.split()])[0]
    code, fields = effect.request
    answer = request(tool.servers.split(";")[0], RemotingCommand(code=code, ext_fields=fields))
    if not isinstance(answer, RemotingCommand):
        return str(answer)
    return f"{answer.code} {json.dumps(answer.ext_fields)} {answer.body.decode()}"


def _await_in(file: Path, wanted: re.Pattern[str]) -> str:
    """The first line that is wanted, waited for; the end of the file where none comes."""
    deadline = time.monotonic() + _FILE_S_MAX
    while True:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        found = next((line for line in text.splitlines() if wanted.search(line)), None)
        if found is not None or time.monotonic() > deadline:
            return text[-_TEXT_MAX:] if found is None else found
        time.sleep(0.5)


def _master_of(target: Target) -> Callable[[], str | None]:
    """Where the leader is now, which may move on a machine that is busy."""
    if not isinstance(target, Ledgermq):
        return lambda: None
    group = target.group
    return lambda: group.place(group.leader()).address


def _files(directory: Path) -> dict[str, str]:
    topics = [{"topicName": f"listed{i}", "readQueueNums": 2, "writeQueueNums": 2} for i in "ab"]
    groups = [{"groupName": f"listedGroup{i}", "retryMaxTimes": 5} for i in "ab"]
    files = {"topics_file": topics, "groups_file": groups}
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content), encoding="utf-8")
    return {name: str(directory / name) for name in files}


# Telling -----------------------------------------------------------------------------------------


def by_name(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each sub-command the row that tells of it: the first of its worst."""
    worst: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row["command"].split()[0]
        before = worst.get(name)
        if before is None or VERDICTS.index(row["verdict"]) < VERDICTS.index(before["verdict"]):
            worst[name] = row
    return worst


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """How many sub-commands work: one does where all its lines do."""
    worst = by_name(rows)
    counts = Counter(row["verdict"] for row in worst.values())
    figures = ", ".join(f"{counts[each]} {each}" for each in reversed(VERDICTS))
    return f"{len(worst)} sub-commands: {figures}"


def document_table(figures: dict[str, Any]) -> str:
    """The table of docs/INTEROP.md, as Markdown."""
    rows = figures["rows"]
    versions = sorted({row["version"] for row in rows}, reverse=True)
    by_version = {
        each: by_name([row for row in rows if row["version"] == each]) for each in versions
    }
    lines = [f"mqadmin {each}: {summary(list(by_version[each].values()))}.\n" for each in versions]
    lines.append(f"| sub-command | {' | '.join(versions)} | judged by | reason |")
    lines.append("|---" * (len(versions) + 3) + "|")
    for name, row in sorted(by_name(rows).items()):
        works = row["verdict"] == "works"
        judged = {each["judged_by"] for each in rows if each["command"].split()[0] == name}
        by = ", ".join(sorted(judged)) if works else ""
        reason = re.sub(r"\s*\|\s*", " / ", row["reason"])
        verdicts = [
            by_version[each][name]["verdict"] if name in by_version[each] else ""
            for each in versions
        ]
        lines.append(f"| {name} | {' | '.join(verdicts)} | {by} | {reason} |")
    lines += ["", "| with accounts | as | must say | |", "|---|---|---|---|"]
    for row in figures["accounts"]:
        wanted = row["wanted"].replace("|", "\\|")
        lines.append(f"| {row['command']} | {row['account']} | `{wanted}` | {row['verdict']} |")
    return "\n".join(lines) + "\n"


def updated(document: str, figures: dict[str, Any]) -> str:
    """The document with the table between its marks as it is now. Raises ValueError."""
    begin, end = document.index(BEGIN) + len(BEGIN), document.index(END)
    return f"{document[:begin]}{document_table(figures)}{document[end:]}"


def _stored_or_new(path: Path | None, run: Callable[[], list[Printed]]) -> list[Printed]:
    """What an earlier run has stored, or a new one that is stored."""
    if path is not None and path.exists():
        values = json.loads(path.read_text(encoding="utf-8"))
        return [Printed(**(value | {"effects": tuple(value["effects"])})) for value in values]
    printed = run()
    if path is not None:
        path.write_text(json.dumps([asdict(each) for each in printed], indent=1), encoding="utf-8")
    return printed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--version", default=VERSIONS[0], help="of mqadmin and of RocketMQ")
    parser.add_argument("--target", default="ledgermq-3")
    parser.add_argument("--theirs", type=Path, help="what RocketMQ printed, kept by an earlier run")
    parser.add_argument("--ours", type=Path, help="likewise")
    parser.add_argument(
        "--accounts", type=Path, help="figures of campaigns.interop.mqadmin_accounts"
    )
    parser.add_argument("--output", type=Path)
    parser.add_argument("--document", type=Path)
    arguments = parser.parse_args()
    if arguments.document is not None:
        figures = json.loads(FIGURES.read_text(encoding="utf-8"))
        text = updated(arguments.document.read_text(encoding="utf-8"), figures)
        arguments.document.write_text(text, encoding="utf-8")
        return 0
    parent = Path("runs") / "interop"
    parent.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="mqadmin-", dir=parent)).resolve()
    tools = Toolchain.look_up()
    version, target = arguments.version, arguments.target
    theirs = _stored_or_new(
        arguments.theirs, lambda: run_all("rocketmq", root / "rocketmq", tools, version)
    )
    ours = _stored_or_new(arguments.ours, lambda: run_all(target, root / target, tools, version))
    known = {each.command: each for each in theirs}
    commands = {command.line: command for command in commands_of(version)}
    rows = [
        asdict(compare(version, commands[each.command], each, known[each.command])) for each in ours
    ]
    for row in rows:
        print_line(f"{row['verdict']:14} {row['command']}  {row['reason']}".rstrip())
    print_line(summary(rows))
    if arguments.output is not None:
        figures = {"rows": rows, "accounts": []}
        if arguments.output.exists():
            earlier = json.loads(arguments.output.read_text(encoding="utf-8"))
            figures["rows"] += [row for row in earlier["rows"] if row["version"] != version]
            figures["accounts"] = earlier["accounts"]
        if arguments.accounts is not None:
            figures["accounts"] = json.loads(arguments.accounts.read_text(encoding="utf-8"))
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
