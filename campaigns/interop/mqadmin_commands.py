"""The sub-commands of mqadmin 5.5 and 5.3, how each is run, and what shows that it worked. Pure.

A line is a command; "$name" is what the program furnished. Behind "=>" stands what it must print
(a regular expression, searched over all lines). Lines indented below it show its effect, and what
must be seen there: another command, a file of the tool's, or a name server's answer to "ask CODE
field=value". Whatever must be there must be there on RocketMQ too. A command without an expectation
is compared with RocketMQ's by the shape of what it prints. What changes or deletes comes last.

`WHY` tells of the commands that don't work why they can't.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = [
    "WHY",
    "Command",
    "Expectation",
    "all_commands",
    "commands_of",
    "filled",
    "pattern",
]

CLUSTER = "DefaultCluster"
_FILE = "file "
_REQUEST = "ask "

_COMMANDS = r"""
clusterList => $name\s+0\s+$broker\s
clusterList -m => $name\s+\d+\s+\d+\s+[1-9]
topicList => ^$topic$
topicList -c => DefaultCluster\s+$topic\s+$group\s
topicRoute -t $topic
topicStatus -t $topic => ^$name\s+0\s+0\s+[1-9]
topicClusterList -t $topic
brokerStatus -b $broker => brokerVersionDesc\s+: V5_\d_\d
brokerStatus -c DefaultCluster => $broker\s+msgPutTotalTodayNow\s+: [1-9]
getBrokerConfig -b $broker => ^brokerName\s+=\s+$name$
getBrokerConfig -c DefaultCluster => ^=+Master: $broker=+$
getNamesrvConfig => ^waitSecondsForService\s+=\s+45$
getConsumerConfig -g $group => ^groupName\s+=\s+$group$
queryMsgById -t $topic -i $offset_id => UNIQ_KEY=$id\b
queryMsgByKey -t $topic -k keyA => ^$id\s
queryMsgByUniqueKey -t $topic -i $id => UNIQ_KEY=$id\b
queryMsgByOffset -t $topic -b $name -i $queue -o 0 => ^OffsetID:\s+$offset_id$
printMsg -t $topic -d true => ^MSGID: $id
printMsgByQueue -t $topic -a $name -i $queue -p true -d true => ^MSGID: $id
queryCq -t $topic -q $queue -i 0 -c 2 -b $broker
queryMsgTraceById -i $traced => ^Pub\s+trace_.*success
sendMessage -t $topic -p hello -k sent -c TagB => SEND_OK
    queryMsgByKey -t $topic -k sent => ^[0-9A-F]{32,}\s+\d
sendMsgStatus -b $name -s 64 -c 2 => (?s)SEND_OK.*SEND_OK
checkMsgSendRT -t $topic -a 2 -s 64 => $name\s+\d\s+true
consumeMessage -t $topic -c 3 => ^MSGID: [0-9A-F]{32,}
producer -b $broker => producer group \($producers\)
producerConnection -g $producers -t $topic
consumerConnection -g $group
consumerProgress -g $group => ^$topic\s+$name\s+0\s+[1-9]
consumerProgress => ^$group\s+1\s+V5_\d_\d\s+PUSH\s+CLUSTERING
consumerStatus -g $group => Rebalance OK
consumerStatus -g $group -i $client => ^pullBatchSize\s+: 32$
brokerConsumeStats -b $broker => ^$topic\s+$group\s+$name\s
statsAll -t $topic => ^$topic\s+$group\s+\d+\s+[\d.]+\s+[\d.]+
allocateMQ -t $topic -i 10.0.0.1,10.0.0.2
haStatus -b $broker => (?s)#MasterAddr\s+$broker.*#MasterCommitLogMaxOffset\s+[1-9]
updateTopic -c DefaultCluster -t made -r 3 -w 3 => success
    topicRoute -t made => (?s)"readQueueNums":3.*"writeQueueNums":3
updateTopic -b $broker -t madeToo -r 2 -w 2 -p 6 => success
    topicRoute -t madeToo => (?s)"perm":6.*"readQueueNums":2
updateTopicList -b $broker -f $topics_file => success
    topicRoute -t listeda => "readQueueNums":2
updateTopicPerm -b $broker -t made -p 4 => success
    topicRoute -t made => "perm":4
updateTopicPerm -c DefaultCluster -t made -p 6 => success
    topicRoute -t made => "perm":6
updateSubGroup -c DefaultCluster -g madeGroup -r 3 => success
    getConsumerConfig -g madeGroup => ^retryMaxTimes\s+=\s+3$
updateSubGroup -b $broker -g madeGroupToo -s true => success
    getConsumerConfig -g madeGroupToo => ^consumeEnable\s+=\s+true$
updateSubGroupList -b $broker -f $groups_file => success
    getConsumerConfig -g listedGroupa => ^retryMaxTimes\s+=\s+5$
setConsumeMode -b $broker -t made -g madeGroup -m POP -q 4 => mode\[POP\] popShareQueueNum\[4\]
setConsumeMode -b $broker -t made -g madeGroup -m PULL => mode\[PULL\]
updateOrderConf -m put -t made -v broker-a:3 => success
    updateOrderConf -m get -t made => orderConf=\[broker-a:3\]
updateOrderConf -m delete -t made => success
    updateOrderConf -m get -t made => \A(?![\s\S]*broker-a:3)
updateKvConfig -s SPACE -k KEY -v VALUE => success
    ask 101 namespace=SPACE key=KEY => ^0 .*"value": "VALUE"
deleteKvConfig -s SPACE -k KEY => success
    ask 101 namespace=SPACE key=KEY => ^22\s
updateBrokerConfig -b $broker -k fileReservedTime -v 70 => success
    getBrokerConfig -b $broker => ^fileReservedTime\s+=\s+70$
updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 72 => success
    getBrokerConfig -b $broker => ^fileReservedTime\s+=\s+72$
updateNamesrvConfig -k waitSecondsForService -v 44 => success
    getNamesrvConfig => ^waitSecondsForService\s+=\s+44$
wipeWritePerm -b $name => OK, [1-9]
    topicRoute -t $topic => "perm":4
addWritePerm -b $name => OK, [1-9]
    topicRoute -t $topic => "perm":6
cloneGroupOffset -s $group -d $idle -t $topic -o true => success
    brokerConsumeStats -b $broker => ^$topic\s+$idle\s+$name\s+0\s+\d+\s+[1-9]
resetOffsetByTime -g $group -t $topic -s now => ^$name\s+0\s+[1-9]
resetOffsetByTime -g $idle -t $topic -s 0 => ^$name\s+0\s+0\s
    brokerConsumeStats -b $broker => ^Diff Total: [1-9]
skipAccumulatedMessage -g $idle -t $topic => ^$name\s+0\s+[1-9]
    brokerConsumeStats -b $broker => ^$topic\s+$idle\s+$name\s+0\s+(\d+)\s+\1\s+0\s
cleanExpiredCQ -b $broker => success
cleanExpiredCQ -c DefaultCluster => success
cleanUnusedTopic -b $broker => success
deleteExpiredCommitLog -b $broker => success
exportMetadata -c DefaultCluster -f $directory/metadata => success
    file $directory/metadata/metadata.json => "madeGroup"
exportMetadata -b $broker -t -f $directory/metadata => success
    file $directory/metadata/topic.json => "made"
exportConfigs -c DefaultCluster -f $directory/configs => success
    file $directory/configs/configs.json => "brokerName":\s*"$name"
exportMetrics -c DefaultCluster -f $directory/metrics => success
    file $directory/metrics/metrics.json => "topicSize":\s*[1-9]
exportPopRecord -c DefaultCluster => Export broker records, brokerName=$name
getColdDataFlowCtrInfo -b $broker
updateColdDataFlowCtrGroupConfig -b $broker -g madeGroup -v 1024 => success
removeColdDataFlowCtrGroupConfig -b $broker -g madeGroup => success
setCommitLogReadAheadMode -b $broker -m 0 => success
updateStaticTopic -t static -qn 2 -b $name
remappingStaticTopic -t static -b $name
resetMasterFlushOffset -b $broker -o 0 => success
createUser -b $broker -u who -p secret -t Normal => success
    getUser -b $broker -u who => ^who\s+secret\s+Normal\s+enable
createUser -b $broker -u root -p secret -t Super => success
    listUser -b $broker => ^root\s+secret\s+Super\s+enable
updateUser -b $broker -u who -p other => success
    getUser -b $broker -u who => ^who\s+other\s+Normal\s+enable
updateUser -b $broker -u who -s disable => success
    getUser -b $broker -u who => ^who\s+other\s+Normal\s+disable
getUser -b $broker -u who
listUser -b $broker -f wh => \A(?![\s\S]*root)[\s\S]*^who\s
createAcl -b $broker -s User:who -r Topic:made,Group:madeGroup -a Pub,Sub -d Allow => success
    getAcl -b $broker -s User:who => ^User:who\s+Custom\s+Topic:made\s+\[Pub, Sub\]\s+\S+\s+Allow
updateAcl -b $broker -s User:who -r Topic:made -a Sub -i 10.0.0.0/8 -d Deny => success
    getAcl -b $broker -s User:who => ^User:who\s+Custom\s+Topic:made\s+\[Sub\]\s+\[10\S+\s+Deny
getAcl -b $broker -s User:who
listAcl -b $broker => ^User:who\s+Custom\s+Group:madeGroup\s
copyUser -f $broker -t $broker -u who => copy user of who from .* success
    getUser -b $broker -u who => ^who\s+other\s+Normal\s+disable
copyAcl -f $broker -t $broker -s User:who => copy acl of User:who from .* success
    getAcl -b $broker -s User:who => ^User:who\s+Custom\s+Topic:made\s+\[Sub\]
deleteAcl -b $broker -s User:who -r Topic:made => success
    getAcl -b $broker -s User:who => \A(?![\s\S]*Topic:made)[\s\S]*Group:madeGroup
deleteUser -b $broker -u who => success
    listUser -b $broker => \A(?![\s\S]*^who\s)[\s\S]*^root\s
getSyncStateSet -a 127.0.0.1:1 -b $name
getBrokerEpoch -b $name
getControllerMetaData -a 127.0.0.1:1
getControllerConfig -a 127.0.0.1:1
updateControllerConfig -a 127.0.0.1:1 -k x -v y
electMaster -a 127.0.0.1:1 -b 1 -bn $name -c DefaultCluster
cleanBrokerMetadata -a 127.0.0.1:1 -bn $name -c DefaultCluster
addBroker -c 127.0.0.1:1 -b $directory/none.conf
removeBroker -c 127.0.0.1:1 -b DefaultCluster:broker-a:0
dumpCompactionLog -f $directory/none
exportMetadataInRocksDB -p $directory/none -t topics => success
rocksDBConfigToJson -c DefaultCluster -t topics => success
checkRocksdbCqWriteProgress -c DefaultCluster -t $topic
deleteSubGroup -c DefaultCluster -g madeGroup -r true => success
    brokerConsumeStats -b $broker => \A(?![\s\S]*madeGroup\s)
deleteSubGroup -b $broker -g madeGroupToo => success
deleteTopic -c DefaultCluster -t made => success
    topicList => \A(?![\s\S]*^made$)
deleteTopic -c DefaultCluster -t madeToo => success
    topicList => \A(?![\s\S]*^madeToo$)
startMonitoring
    file $directory/home/logs/rocketmqlogs/tools_default.log => reportUndoneMsgs.*Group=$group
clusterRT -a 2 -s 64 -i 1 -p true => DefaultCluster\|$name\|\d
"""

# What 5.3 has not.
_COMMANDS_OF_5_5 = r"""
switchTimerEngine -b $broker -e F => success
getBrokerLiteInfo -b $broker
getLiteClientInfo -p $topic -g $group -c $client
getLiteGroupInfo -p $topic -g $group
getLiteTopicInfo -p $topic -l lite
getParentTopicInfo -p $topic
triggerLiteDispatch -p $topic -g $group
"""

_CONTROLLER = "there is no Controller: replicas agree through Raft"
_COLD = "who reads old messages is not held back: nothing counts what was cold"
_STATIC = "there are no static (logical) topics"
_ROCKSDB = "there is no RocksDB store"
_LITE = "there are no lite topics"
_CONTAINER = "brokers are processes of their own, in no container"
WHY = {
    "updateColdDataFlowCtrGroupConfig": _COLD,
    "removeColdDataFlowCtrGroupConfig": _COLD,
    "setCommitLogReadAheadMode": "the log is read by position, not mapped",
    "updateStaticTopic": _STATIC,
    "remappingStaticTopic": _STATIC,
    "getSyncStateSet": _CONTROLLER,
    "getBrokerEpoch": _CONTROLLER,
    "getControllerMetaData": _CONTROLLER,
    "getControllerConfig": _CONTROLLER,
    "updateControllerConfig": _CONTROLLER,
    "electMaster": _CONTROLLER,
    "cleanBrokerMetadata": _CONTROLLER,
    "addBroker": _CONTAINER,
    "removeBroker": _CONTAINER,
    "dumpCompactionLog": "there are no compacted topics",
    "exportMetadataInRocksDB": _ROCKSDB,
    "rocksDBConfigToJson": _ROCKSDB,
    "checkRocksdbCqWriteProgress": _ROCKSDB,
    "switchTimerEngine": "timers are kept in one way",
    "getBrokerLiteInfo": _LITE,
    "getLiteClientInfo": _LITE,
    "getLiteGroupInfo": _LITE,
    "getLiteTopicInfo": _LITE,
    "getParentTopicInfo": _LITE,
    "triggerLiteDispatch": _LITE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What must stand in what a command prints, or in a file; as written, names not filled in."""

    line: str
    wanted: str

    @property
    def file(self) -> str | None:
        return self.line.removeprefix(_FILE) if self.line.startswith(_FILE) else None

    @property
    def request(self) -> tuple[int, dict[str, str]] | None:
        """A request's code and fields."""
        if not self.line.startswith(_REQUEST):
            return None
        code, *fields = self.line.removeprefix(_REQUEST).split()
        return int(code), dict(field.split("=", 1) for field in fields)

    def __str__(self) -> str:
        return f"{self.line} => {self.wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`wanted` is empty where the shape of what is printed decides."""

    line: str
    wanted: str
    effects: tuple[Expectation, ...]

    @property
    def name(self) -> str:
        return self.line.split()[0]


def commands_of(version: str) -> list[Command]:
    """Those of mqadmin's `version`, in the order in which they run."""
    return all_commands(_COMMANDS if version.startswith("5.3.") else _COMMANDS_OF_5_5 + _COMMANDS)


def all_commands(text: str = _COMMANDS_OF_5_5 + _COMMANDS) -> list[Command]:
    """Raises ValueError for an effect without a command or an expectation."""
    commands: list[Command] = []
    for row in filter(None, text.splitlines()):
        line, _, wanted = (part.strip() for part in row.partition(" => "))
        if not row.startswith(" "):
            commands.append(Command(line=line, wanted=wanted, effects=()))
            continue
        if not commands or not wanted:
            raise ValueError(f"an effect of nothing, or one that shows nothing: {row}")
        last = commands[-1]
        effects = (*last.effects, Expectation(line=line, wanted=wanted))
        commands[-1] = Command(line=last.line, wanted=last.wanted, effects=effects)
    return commands


def filled(text: str, names: dict[str, str]) -> str:
    """With every "$name" in its place."""
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(f"${name}", names[name])
    return text


def pattern(wanted: str, names: dict[str, str]) -> re.Pattern[str]:
    """With names as they are, whatever stands in them."""
    escaped = {name: re.escape(value) for name, value in names.items()}
    return re.compile(filled(wanted, escaped), re.MULTILINE)
