"""Every sub-command of mqadmin 5.3, run against ledgermq and against RocketMQ, compared.

    python -m tests.interop.mqadmin [--target ledgermq-3] [--output FILE]

What a command prints is reduced to its shape: numbers, addresses, names and times are taken out,
equal lines counted once. A command of ours

    works           prints what RocketMQ's prints, in shape
    works (other)   succeeds, and prints something else; both are kept in the figures
    refused         is answered with a reason
    not served      is answered "request type ... not supported"

mqadmin exits with 0 whatever happens: only what it printed tells.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.interop.matrix import MARK
from tests.interop.programs import java_command
from tests.interop.run import say
from tests.interop.targets import started
from tests.interop.toolchain import Toolchain

LIKENESS_MIN = 0.8
CLUSTER = "DefaultCluster"

# In the order in which they run: what changes or deletes something comes last. "$name" is what
# the program furnished; every command gets "-n NAME_SERVERS" unless it begins with "!".
COMMANDS = """
clusterList
clusterList -m
topicList
topicList -c
topicRoute -t $topic
topicStatus -t $topic
topicClusterList -t $topic
brokerStatus -b $broker
brokerStatus -c DefaultCluster
getBrokerConfig -b $broker
getBrokerConfig -c DefaultCluster
getNamesrvConfig
getConsumerConfig -g $group
queryMsgById -t $topic -i $offset_id
queryMsgByKey -t $topic -k keyA
queryMsgByUniqueKey -t $topic -i $id
queryMsgByOffset -t $topic -b $name -i $queue -o 0
printMsg -t $topic -d true
printMsgByQueue -t $topic -a $name -i $queue -p true -d true
queryCq -t $topic -q $queue -i 0 -c 2 -b $broker
queryMsgTraceById -i $traced
sendMessage -t $topic -p hello -k sent -c TagB
sendMsgStatus -b $name -s 64 -c 2
checkMsgSendRT -t $topic -a 2 -s 64
consumeMessage -t $topic -c 3
producer -b $broker
producerConnection -g $producers -t $topic
consumerConnection -g $group
consumerProgress -g $group
consumerProgress
consumerStatus -g $group
consumerStatus -g $group -i $client
brokerConsumeStats -b $broker
statsAll -t $topic
allocateMQ -t $topic -i 10.0.0.1,10.0.0.2
haStatus -b $broker
updateTopic -c DefaultCluster -t made -r 3 -w 3
updateTopic -b $broker -t madeToo -r 2 -w 2 -p 6
updateTopicList -b $broker -f $topics_file
updateTopicPerm -b $broker -t made -p 4
updateTopicPerm -c DefaultCluster -t made -p 6
updateSubGroup -c DefaultCluster -g madeGroup -r 3
updateSubGroup -b $broker -g madeGroupToo -s true
updateSubGroupList -b $broker -f $groups_file
setConsumeMode -b $broker -t made -g madeGroup -m POP -q 4
setConsumeMode -b $broker -t made -g madeGroup -m PULL
updateOrderConf -m put -t made -v broker-a:3
updateOrderConf -m get -t made
updateOrderConf -m delete -t made
updateKvConfig -s SPACE -k KEY -v VALUE
deleteKvConfig -s SPACE -k KEY
updateBrokerConfig -b $broker -k fileReservedTime -v 70
updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 72
updateNamesrvConfig -k waitSecondsForService -v 44
wipeWritePerm -b $name
addWritePerm -b $name
cloneGroupOffset -s $group -d $idle -t $topic -o true
resetOffsetByTime -g $group -t $topic -s now
resetOffsetByTime -g $idle -t $topic -s 0
skipAccumulatedMessage -g $group -t $topic
cleanExpiredCQ -b $broker
cleanExpiredCQ -c DefaultCluster
cleanUnusedTopic -b $broker
deleteExpiredCommitLog -b $broker
exportMetadata -c DefaultCluster -f $directory/metadata
exportMetadata -b $broker -t -f $directory/metadata
exportConfigs -c DefaultCluster -f $directory/configs
exportMetrics -c DefaultCluster -f $directory/metrics
exportPopRecord -c DefaultCluster
getColdDataFlowCtrInfo -b $broker
updateColdDataFlowCtrGroupConfig -b $broker -g madeGroup -v 1024
removeColdDataFlowCtrGroupConfig -b $broker -g madeGroup
setCommitLogReadAheadMode -b $broker -m 0
updateStaticTopic -t static -qn 2 -b $name
remappingStaticTopic -t static -b $name
resetMasterFlushOffset -b $broker -o 0
createUser -b $broker -u who -p secret -t Normal
updateUser -b $broker -u who -p other
getUser -b $broker -u who
listUser -b $broker
createAcl -b $broker -s User:who -r Topic:made -a Pub -d Allow
updateAcl -b $broker -s User:who -r Topic:made -a Sub -d Allow
getAcl -b $broker -s User:who
listAcl -b $broker
deleteAcl -b $broker -s User:who
deleteUser -b $broker -u who
copyUser -f $broker -t $broker -u who
copyAcl -f $broker -t $broker -s User:who
getSyncStateSet -a 127.0.0.1:1 -b $name
getBrokerEpoch -b $name
getControllerMetaData -a 127.0.0.1:1
getControllerConfig -a 127.0.0.1:1
updateControllerConfig -a 127.0.0.1:1 -k x -v y
electMaster -a 127.0.0.1:1 -b 1 -n $name -c DefaultCluster
cleanBrokerMetadata -a 127.0.0.1:1 -bn $name -c DefaultCluster
addBroker -c 127.0.0.1:1 -b $directory/none.conf
removeBroker -c 127.0.0.1:1 -b DefaultCluster:broker-a:0
dumpCompactionLog -f $directory/none
exportMetadataInRocksDB -p $directory/none -t topics
rocksDBConfigToJson -p $directory/none -t topics
checkRocksdbCqWriteProgress -c DefaultCluster -t $topic
startMonitoring
deleteSubGroup -c DefaultCluster -g madeGroup -r true
deleteSubGroup -b $broker -g madeGroupToo
deleteTopic -c DefaultCluster -t made
deleteTopic -c DefaultCluster -t madeToo
clusterRT -a 2 -s 64 -i 1 -p true
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What one command printed on one target."""

    command: str
    text: str
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One command, compared."""

    command: str
    verdict: str
    reason: str
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
    r"^(?!MessageTrack).*(?:Exception(?::|$)|CODE: \d+|\berror\b|\bfailed\b)|^exit",
    re.IGNORECASE | re.MULTILINE,
)


def shape_of(text: str) -> list[str]:
    """Its lines without what differs between two runs, each kind of line once."""
    lines = []
    for line in text.splitlines():
        reduced = line
        for pattern, word in _UNSTABLE:
            reduced = pattern.sub(word, reduced)
        if reduced.strip() and not reduced.lstrip().startswith("at "):
            lines.append(reduced.strip())
    return list(dict.fromkeys(lines))


def likeness(ours: str, theirs: str) -> float:
    """1.0: the same shape."""
    first, second = shape_of(ours), shape_of(theirs)
    if not first and not second:
        return 1.0
    return difflib.SequenceMatcher(a=first, b=second, autojunk=False).ratio()


def compare(ours: Printed, theirs: Printed) -> Row:
    verdict, reason = _verdict(ours, theirs)
    return Row(
        command=ours.command,
        verdict=verdict,
        reason=reason,
        ours=ours.text[:4_000],
        theirs=theirs.text[:4_000],
    )


def _verdict(ours: Printed, theirs: Printed) -> tuple[str, str]:
    if ours.late != theirs.late:
        return "refused", "does not end" if ours.late else "ends; RocketMQ's does not"
    failed = _FAILED.search(ours.text)
    fails_there = _FAILED.search(theirs.text)
    like = likeness(ours.text, theirs.text)
    if failed and not fails_there:
        line = next(each for each in ours.text.splitlines() if _FAILED.search(each))
        return ("not served" if _NOT_SERVED.search(ours.text) else "refused"), line.strip()[:300]
    if fails_there:
        line = next(each for each in theirs.text.splitlines() if _FAILED.search(each))
        if _NOT_SERVED.search(ours.text) and not _NOT_SERVED.search(theirs.text):
            return "not served", f"RocketMQ refuses: {line.strip()[:200]}"
        told = "the same refusal" if like >= LIKENESS_MIN else "refused here as there"
        return "refused", f"{told}: {line.strip()[:200]}"
    if like >= LIKENESS_MIN:
        return "works", ""
    return "works (other)", f"likeness {like:.2f}"


def run_all(name: str, directory: Path, tools: Toolchain) -> list[Printed]:
    """Every command's text on the target `name`."""
    built = tools.java_client("5.3.3")
    with started(name, directory, tools) as target:
        command = java_command(tools.require_java(), built, directory / "home")
        command[-1] = "interop.Mqadmin"
        command.insert(1, "-Djava.security.manager=allow")
        servers = ";".join(target.name_servers)
        process = subprocess.Popen(
            [*command, servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            names = _told(process)
            names |= {"directory": str(directory), **_files(directory)}
            printed = []
            for line in COMMANDS.strip().splitlines():
                words = [_filled(word, names) for word in line.split()]
                assert process.stdin is not None
                process.stdin.write("\t".join([*words, "-n", servers]) + "\n")
                process.stdin.flush()
                told = _told(process)
                printed.append(
                    Printed(command=line, text=str(told["printed"]), late=bool(told["late"]))
                )
                say(f"{name}: {line}")
            return printed
        finally:
            process.kill()
            process.wait()


def _told(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(MARK):
            told: dict[str, object] = json.loads(line.removeprefix(MARK))
            return told
    raise AssertionError(f"mqadmin ended with {process.wait()}")


def _filled(word: str, names: dict[str, object]) -> str:
    for name in sorted(names, key=len, reverse=True):
        word = word.replace(f"${name}", str(names[name]))
    return word


def _files(directory: Path) -> dict[str, str]:
    topics = [{"topicName": f"listed{i}", "readQueueNums": 2, "writeQueueNums": 2} for i in "ab"]
    groups = [{"groupName": f"listedGroup{i}", "retryMaxTimes": 5} for i in "ab"]
    files = {"topics_file": topics, "groups_file": groups}
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content), encoding="utf-8")
    return {name: str(directory / name) for name in files}


def table(rows: list[Row]) -> str:
    """A line per command, and how many sub-commands work: one does where all its lines do."""
    lines = [f"{row.verdict:14} {row.command}  {row.reason}".rstrip() for row in rows]
    by_name: dict[str, set[str]] = {}
    for row in rows:
        by_name.setdefault(row.name, set()).add(row.verdict)
    order = ("not served", "refused", "works (other)", "works")
    worst = {name: next(each for each in order if each in found) for name, found in by_name.items()}
    counts = Counter(worst.values())
    told = ", ".join(f"{counts[each]} {each}" for each in reversed(order))
    return "\n".join([*lines, f"{len(worst)} sub-commands: {told}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", default="ledgermq-3")
    parser.add_argument("--theirs", type=Path, help="what RocketMQ printed, kept by an earlier run")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    parent = Path("runs") / "interop"
    parent.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="mqadmin-", dir=parent)).resolve()
    tools = Toolchain.look_up()
    kept = arguments.theirs
    if kept is not None and kept.exists():
        theirs = [Printed(**each) for each in json.loads(kept.read_text(encoding="utf-8"))]
    else:
        theirs = run_all("rocketmq", root / "rocketmq", tools)
        if kept is not None:
            values = [{"command": p.command, "text": p.text, "late": p.late} for p in theirs]
            kept.write_text(json.dumps(values, indent=1), encoding="utf-8")
    ours = run_all(arguments.target, root / arguments.target, tools)
    known = {each.command: each for each in theirs}
    rows = [compare(each, known[each.command]) for each in ours]
    say(table(rows))
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        values = [{name: getattr(row, name) for name in Row.__slots__} for row in rows]
        arguments.output.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
