"""A few seconds of the fuzzer, and that it would see what it looks for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.fuzz.campaign import Findings, attempt, report, run
from campaigns.fuzz.mutations import Attempt, Mutator, is_answered
from campaigns.fuzz.structures import Structures
from remoting.errors import FrameError
from remoting.protocol.acl_signature import Signer
from remoting.protocol.command import FLAG_ONEWAY, RemotingCommand
from remoting.protocol.frame import FrameDecoder, encode


@settings(deadline=None)  # the first one makes the bombs
@given(st.integers(0, 2**32))
def test_mutated_frames_are_read_or_refused_however_they_are_cut(seed: int) -> None:
    made = Mutator(seed).next()
    assert decoded(made.pieces) == decoded((b"".join(made.pieces),))


def decoded(pieces: tuple[bytes, ...]) -> tuple[list[RemotingCommand], int] | None:
    """The commands and what is left; None where the stream can't be read."""
    decoder = FrameDecoder()
    try:
        commands = [command for piece in pieces for command in decoder.feed(piece)]
    except FrameError:
        return None
    return commands, decoder.pending_size


def test_the_same_seed_makes_the_same_attempts() -> None:
    one, other = Mutator(3), Mutator(3)
    attempts = [one.next() for _ in range(500)]
    assert attempts == [other.next() for _ in range(500)]
    kinds = {"bytes", "header", "body", "code", "stream", "structure"}
    assert {made.what for made in attempts} == kinds
    assert sum(made.is_answered for made in attempts) > 100


def test_which_requests_must_be_answered() -> None:
    asks, oneway = RemotingCommand(code=30), RemotingCommand(code=30, flag=FLAG_ONEWAY)
    assert is_answered(encode(asks))
    assert not is_answered(encode(oneway))
    assert not is_answered(encode(asks)[:-1])
    assert not is_answered(encode(RemotingCommand(code=11)))
    assert not is_answered(b"")


async def test_silence_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.fuzz.campaign.ANSWER_S", 0.05)
    monkeypatch.setattr("campaigns.fuzz.campaign.CLOSE_S", 0.05)
    done = asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    findings = Findings()
    frame = encode(RemotingCommand(code=30))
    await attempt(f"127.0.0.1:{port}", Attempt((frame,), True, "test"), findings)
    assert (len(findings.unanswered), len(findings.not_closed)) == (1, 1)
    done.set()
    server.close()


def test_structures_are_whole_frames_most_of_which_must_be_answered() -> None:
    structures = Structures(5)
    frames = [structures.next(for_name_server=number % 3 == 0) for number in range(600)]
    assert sum(map(is_answered, frames)) > 300
    again = Structures(5)
    assert frames[:50] == [again.next(for_name_server=number % 3 == 0) for number in range(50)]
    codes = {command.code for frame in frames for command in commands_in(frame)}
    assert len(codes) > 60, "all that is served, and by name servers too"


def commands_in(frame: bytes) -> list[RemotingCommand]:
    """None of them where the header is meant to be unreadable."""
    try:
        return FrameDecoder().feed(frame)
    except FrameError:
        return []


def test_some_of_what_an_account_sends_is_signed() -> None:
    signer = Signer("fuzzer01", "secret-of-fuzzer")
    mutator = Mutator(9)
    made = [mutator.next(sign=signer.sign) for _ in range(400)]
    signed = [each for each in made if each.what == "signed structure"]
    assert len(signed) > 20
    frames = [commands_in(b"".join(each.pieces)) for each in signed]
    assert sum("Signature" in frame[0].ext_fields for frame in frames if frame) > 20


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["single", "secured"])
def test_a_broker_and_a_name_server_live_through_it(tmp_path: Path, kind: str) -> None:
    findings = run(tmp_path / "cluster", seed=11, seconds=5.0, kind=kind)
    assert findings.is_clean, (report(findings, 11, 5.0, kind), findings.unanswered[:3])
    assert findings.answered > 100
    assert sum(findings.attempts.values()) > 300
