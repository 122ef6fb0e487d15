"""Scripts of the pure core: commands, and what a group of cores answers, as text to be read.

A script is a file of blocks, as in CockroachDB's datadriven and etcd's raft:

    # why this is tried
    COMMAND [ARGUMENT ...] [KEY=VALUE ...]
    ----
    what came of it

Commands (`n1` is a node):

    group COUNT [joiners=N] [sync=by-hand] [SETTING=N ...]   begin anew; settings are RaftConfig's
    log n1 terms=1,1,2 [term=N] [commit=N]                   n1 has lived through that
    tick n1 [until=ROLE] | elect n1                          its next deadline; until it leads
    propose n1 [TEXT] | read n1 ID | transfer n1 n2
    add n1 n4 | promote n1 n4 | remove n1 n2                 asked of n1
    deliver [KIND] [from=n1] [to=n2]                         what is on the network now
    drop [KIND] [from=n1] [to=n2]
    stabilize [n1 n2 ...]                                    among them, until nothing moves
    sync n1                                                  what n1 wrote is durable now
    unreachable n1 n2                                        n1 hears that a connection broke
    crash n1 [lies=INDEX] | restart n1                       `lies`: durable entries behind it go
    snapshot n1 [INDEX] | compact n1 INDEX
    state | network                                          every node; what is under way

Answers are the steps of the cores, in order: each event's effects, one per line, under the node's
name. Times are not drawn: each node has the least of each range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from raft.events import Ready, Role
from raft.membership import Member
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    NodeId,
    RequestVote,
    RequestVoteReply,
)
from tests.raft.core_group import Group

__all__ = ["Block", "ScriptError", "Session", "blocks_of", "text_of"]

_SEPARATOR: Final = "----"
_TICKS_MAX: Final = 100


class ScriptError(Exception):
    """A script can't be read or carried out; names the line."""


@dataclass(slots=True)
class Block:
    """`head` holds the comments and blank lines above the command, as they stand."""

    head: list[str]
    line: int
    command: str
    answer: str


def blocks_of(text: str) -> list[Block]:
    """Raises ScriptError."""
    blocks: list[Block] = []
    head: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            head.append(lines[at])
            at += 1
            continue
        if lines[at + 1 : at + 2] != [_SEPARATOR]:
            raise ScriptError(f"line {at + 1}: {lines[at]!r} has no {_SEPARATOR} behind it")
        end = at + 2
        while end < len(lines) and lines[end].strip():
            end += 1
        blocks.append(Block(head, at + 1, lines[at], "\n".join(lines[at + 2 : end])))
        head, at = [], end
    return blocks


def text_of(blocks: list[Block]) -> str:
    parts = []
    for block in blocks:
        answer = [block.answer] if block.answer else []
        parts += [*block.head, block.command, _SEPARATOR, *answer]
    return "\n".join(parts) + "\n"


@dataclass(slots=True)
class Session:
    """One group and what it did since it was asked last."""

    group: Group | None = None
    _lines: list[str] = field(default_factory=list)
    _before: dict[NodeId, tuple[Role, int, int]] = field(default_factory=dict)

    def run(self, block: Block) -> str:
        """What comes of the command. Raises ScriptError."""
        name, *words = block.command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        command: Callable[[list[str], dict[str, str]], None] | None
        command = getattr(self, f"_do_{name}", None)
        if command is None:
            raise ScriptError(f"line {block.line}: there is no command {name!r}")
        self._lines.clear()
        try:
            command(plain, options)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ScriptError(f"line {block.line}: {block.command}: {error!r}") from error
        return "\n".join(self._lines) or "nothing"

    # Commands.

    def _do_group(self, plain: list[str], options: dict[str, str]) -> None:
        joiners = int(options.pop("joiners", "0"))
        by_hand = options.pop("sync", "") == "by-hand"
        settings = {name: int(value) for name, value in options.items()}
        self.group = group = Group(
            int(plain[0]),
            auto_sync=not by_hand,
            joiners=joiners,
            has_roster=joiners > 0,
            **settings,
        )
        group.on_ready = self._on_ready
        self._before = {name: _standing(group, name) for name in group.nodes}
        self._lines.append(" ".join(group.nodes))

    def _do_log(self, plain: list[str], options: dict[str, str]) -> None:
        terms = [int(term) for term in options["terms"].split(",")]
        current_term = int(options.get("term", terms[-1]))
        commit = int(options.get("commit", "0"))
        self._group.set_up(plain[0], terms=terms, current_term=current_term, commit=commit)
        self._before[NodeId(plain[0])] = _standing(self._group, NodeId(plain[0]))
        self._do_state(plain, {})

    def _do_tick(self, plain: list[str], options: dict[str, str]) -> None:
        """`until`: again and again, while all that is sent is lost; what is sent is not shown."""
        if "until" not in options:
            self._group.tick(plain[0])
            return
        until, count = Role(options["until"]), 0
        while self._group.core(plain[0]).role is not until:
            if count == _TICKS_MAX:
                raise ValueError(f"{plain[0]} is no {until.value} after {count} ticks")
            self._group.tick(plain[0])
            self._group.network.clear()
            count += 1
        self._lines = [line for line in self._lines if " sends " not in line]
        self._lines.append(f"{count} ticks")

    def _do_elect(self, plain: list[str], _: dict[str, str]) -> None:
        self._group.elect(plain[0])

    def _do_propose(self, plain: list[str], _: dict[str, str]) -> None:
        self._group.propose(plain[0], " ".join(plain[1:]).encode() or b"x")

    def _do_read(self, plain: list[str], _: dict[str, str]) -> None:
        self._group.read(plain[0], int(plain[1]))

    def _do_unreachable(self, plain: list[str], _: dict[str, str]) -> None:
        self._group.unreachable(plain[0], plain[1])

    def _do_transfer(self, plain: list[str], _: dict[str, str]) -> None:
        self._group.transfer(plain[0], plain[1])

    def _do_add(self, plain: list[str], _: dict[str, str]) -> None:
        self._group.add(plain[0], plain[1])

    def _do_promote(self, plain: list[str], _: dict[str, str]) -> None:
        self._group.promote(plain[0], plain[1])

    def _do_remove(self, plain: list[str], _: dict[str, str]) -> None:
        self._group.remove(plain[0], plain[1])

    def _do_deliver(self, plain: list[str], options: dict[str, str]) -> None:
        self._group.deliver(_wanted(plain, options))

    def _do_drop(self, plain: list[str], options: dict[str, str]) -> None:
        for message in self._group.take(_wanted(plain, options)):
            self._lines.append(f"lost {_shown(message)}")

    def _do_stabilize(self, plain: list[str], _: dict[str, str]) -> None:
        self._group.stabilize(plain or None)

    def _do_sync(self, plain: list[str], _: dict[str, str]) -> None:
        sent = len(self._group.network)
        self._group.sync(plain[0])
        self._lines[:0] = [f"sent {_shown(message)}" for message in self._group.network[sent:]]
        self._group.tell(plain[0])

    def _do_crash(self, plain: list[str], options: dict[str, str]) -> None:
        last_index = int(options["lies"]) if "lies" in options else None
        self._group.node(plain[0]).crash(last_index=last_index)
        self._lines.append(f"{plain[0]} is down")

    def _do_restart(self, plain: list[str], _: dict[str, str]) -> None:
        self._group.node(plain[0]).restart(self._group.now_ms)
        self._before[NodeId(plain[0])] = _standing(self._group, NodeId(plain[0]))
        self._do_state(plain, {})

    def _do_snapshot(self, plain: list[str], _: dict[str, str]) -> None:
        node = self._group.node(plain[0])
        node.take_snapshot(int(plain[1]) if len(plain) > 1 else None)
        assert node.snapshot is not None
        self._lines.append(f"{plain[0]} has a snapshot up to {node.snapshot.index}")

    def _do_compact(self, plain: list[str], _: dict[str, str]) -> None:
        self._group.node(plain[0]).compact(int(plain[1]))
        self._do_state(plain[:1], {})

    def _do_state(self, plain: list[str], _: dict[str, str]) -> None:
        for name in plain or list(self._group.nodes):
            node = self._group.node(name)
            if not node.is_up:
                self._lines.append(f"{name} is down")
                continue
            base = node.storage.base_index
            terms = " ".join(map(str, node.log_terms()[base:])) or "empty"
            behind = f" behind {base}" if base else ""
            self._lines.append(
                f"{name} {node.core.role.value}, term {node.core.current_term}, "
                f"log{behind}: {terms}, commit {node.core.commit_index}"
            )

    def _do_network(self, _plain: list[str], _: dict[str, str]) -> None:
        self._lines += [_shown(message) for message in self._group.network]

    # What cores do.

    @property
    def _group(self) -> Group:
        if self.group is None:
            raise ValueError("a script begins with `group`")
        return self.group

    def _on_ready(self, name: NodeId, ready: Ready) -> None:
        self._lines += [f"{name} {effect}" for effect in self._effects(name, ready)]

    def _effects(self, name: NodeId, ready: Ready) -> Iterator[str]:
        role, term, commit_index = self._before[name]
        now = self._before[name] = (ready.role, ready.term, ready.commit_index)
        if (role, term) != now[:2]:
            yield f"is {ready.role.value} in term {ready.term}"
        if ready.hard_state is not None and ready.hard_state.voted_for is not None:
            yield f"votes for {ready.hard_state.voted_for}"
        if ready.install is not None:
            yield f"installs the snapshot up to {ready.install.snapshot_index}"
        if ready.truncate_from is not None:
            yield f"truncates from {ready.truncate_from}"
        if ready.entries:
            yield f"appends {_shown_entries(ready.entries)}"
        if ready.configuration is not None:
            voters = _names(ready.configuration.membership.voters)
            learners = _names(ready.configuration.membership.learners)
            yield f"goes by voters {voters}" + (f", learners {learners}" if learners else "")
        if ready.change_refused is not None:
            yield f"refuses the change: {ready.change_refused.reason.value}"
        if commit_index != ready.commit_index:
            yield f"commits up to {ready.commit_index}"
        for state in ready.read_states:
            where = "can't tell" if state.index is None else f"at {state.index}"
            yield f"answers read {state.request_id}: {where}"
        for message in ready.messages:
            yield f"sends {_shown(message)}"
        for message in ready.messages_after_sync:
            yield f"sends, once durable, {_shown(message)}"


def _names(members: Iterable[Member]) -> str:
    return " ".join(sorted(member.node_id for member in members))


def _standing(group: Group, name: NodeId) -> tuple[Role, int, int]:
    core = group.nodes[name].core
    return core.role, core.current_term, core.commit_index


def _wanted(plain: list[str], options: dict[str, str]) -> Callable[[Message], bool]:
    """Of that kind, from there, to there, as far as it is said."""
    kind = plain[0] if plain else None
    sender, receiver = options.get("from"), options.get("to")

    def is_wanted(message: Message) -> bool:
        return (
            kind in {None, type(message).__name__}
            and sender in {None, message.sender}
            and receiver in {None, message.receiver}
        )

    return is_wanted


def _shown(message: Message) -> str:
    way = f"{message.sender}->{message.receiver}"
    match message:
        case RequestVote():
            kind = "pre-vote" if message.pre_vote else "vote"
            transfer = ", by transfer" if message.leadership_transfer else ""
            last = f"{message.last_log_index}/{message.last_log_term}"
            told = f"asks for a {kind}, last {last}{transfer}"
        case RequestVoteReply():
            kind = "pre-vote" if message.pre_vote else "vote"
            told = f"{kind} {'granted' if message.granted else 'refused'}"
        case AppendEntries():
            what = _shown_entries(message.entries) if message.entries else "no entries"
            told = (
                f"append after {message.prev_log_index}/{message.prev_log_term}: {what}, "
                f"commit {message.leader_commit}"
            )
        case AppendEntriesReply():
            told = (
                f"matches up to {message.match_index}"
                if message.success
                else f"refuses {message.rejected_prev_index}, "
                f"go on from {message.conflict_index}/{message.conflict_term}"
            )
        case InstallSnapshot():
            told = f"snapshot up to {message.snapshot_index}, from byte {message.offset}"
        case InstallSnapshotReply():
            told = (
                f"has installed up to {message.snapshot_index}"
                if message.installed
                else f"has {message.next_offset} bytes"
            )
        case _:
            words = re.findall("[A-Z][a-z]+", type(message).__name__)
            told = " ".join(words).lower()
    term = getattr(message, "term", None)
    return f"{way} {told}" + ("" if term is None else f" (term {term})")


def _shown_entries(entries: tuple[Entry, ...]) -> str:
    return " ".join(map(_shown_entry, entries))


def _shown_entry(entry: Entry) -> str:
    what = entry.payload.decode() if entry.kind is EntryKind.DATA else entry.kind.name
    return f"{entry.index}/{entry.term}:{what}"
