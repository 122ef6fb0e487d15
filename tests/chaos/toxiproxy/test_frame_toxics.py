"""Toxics of whole frames against a model that knows whole frames only, in any chunking."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.peers.frame_reader import frame_prefix
from remoting.protocol.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from remoting.protocol.frame import FRAME_SIZE_MAX, FrameDecoder, encode
from tests.chaos.toxiproxy.bench import Bench, toxic
from toxiproxy.frames.frame_counts import FrameCounts
from toxiproxy.frames.link_frames import LinkFrames, OpenRequests
from toxiproxy.toxic import Direction, Toxic

SEND, PULL, HEART_BEAT = 10, 11, 34


class FrameBench(Bench):
    """A link that follows frames, alone or as one of the two of a connection."""

    def __init__(
        self,
        *toxics: Toxic,
        seed: str = "1",
        counts: FrameCounts | None = None,
        direction: Direction = Direction.UPSTREAM,
        other: "FrameBench | None" = None,
    ) -> None:
        self.counts = counts or (other.counts if other else FrameCounts())
        self.own = OpenRequests()
        opposite = other.own if other else OpenRequests()
        self.frames = LinkFrames(direction, self.counts, own=self.own, opposite=opposite)
        super().__init__(*toxics, seed=seed, frames=self.frames)

    def feed(self, data: bytes, cuts: Sequence[int] = ()) -> None:
        """Feed in chunks that end at the cuts."""
        begin = 0
        for end in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
            if end > begin:
                self.route(data[begin:end])
            begin = end

    def commands(self) -> list[RemotingCommand]:
        return FrameDecoder().feed(self.destination.bytes)

    def affected(self, name: str = "t") -> dict[int | None, int]:
        return dict(self.counts.tally(name, "", "").affected)


def request(code: int, opaque: int, body: bytes = b"body", *, binary: bool = False) -> bytes:
    form = SerializeType.ROCKETMQ if binary else SerializeType.JSON
    return encode(RemotingCommand(code=code, opaque=opaque, body=body, serialize_type=form))


def answer(opaque: int, code: int = 0, body: bytes = b"") -> bytes:
    return encode(RemotingCommand(code=code, opaque=opaque, flag=FLAG_RESPONSE, body=body))


FRAMES = st.lists(
    st.builds(
        lambda code, opaque, size, binary: (
            code,
            request(code, opaque, bytes(size), binary=binary),
        ),
        st.sampled_from([SEND, PULL, HEART_BEAT]),
        st.integers(0, 1000),
        st.integers(0, 300),
        st.booleans(),
    ),
    max_size=12,
)
CUTS = st.lists(st.integers(0, 10_000), max_size=20)
KINDS = st.sampled_from(["frame_drop", "frame_duplicate", "frame_reorder", "frame_delay"])
CODES = st.sampled_from([(), (SEND,), (PULL, HEART_BEAT), (99,)])


def joined(frames: Sequence[tuple[int, bytes]]) -> bytes:
    return b"".join(raw for _, raw in frames)


def modelled(kind: str, frames: Sequence[tuple[int, bytes]], codes: tuple[int, ...]) -> bytes:
    """What leaves a toxic to which all frames come within its time."""
    out: list[bytes] = []
    held: list[bytes] = []
    for code, raw in frames:
        hit = not codes or code in codes
        if kind == "frame_drop":
            out += [] if hit else [raw]
        elif kind == "frame_duplicate":
            out += [raw, raw] if hit else [raw]
        elif kind == "frame_reorder" and hit and not held:
            held = [raw]
        elif kind == "frame_delay" and hit:
            held.append(raw)
        elif kind == "frame_reorder":
            out += [raw, *held]
            held = []
        else:
            out.append(raw)
    return b"".join([*out, *held])


@given(
    frames=FRAMES,
    cuts=CUTS,
    codes=CODES,
    kind=KINDS,
    rest=st.integers(0, 40),
)
def test_whole_frames_whatever_the_chunks(
    frames: list[tuple[int, bytes]], cuts: list[int], codes: tuple[int, ...], kind: str, rest: int
) -> None:
    """An unfinished frame at the end goes on as it came, behind everything held."""
    bench = FrameBench(toxic(kind, codes=codes, **({"delay": 50} if kind == "frame_delay" else {})))
    unfinished = request(SEND, 5)[:rest]
    bench.feed(joined(frames) + unfinished, cuts)
    bench.link.finish()
    bench.timers.run_until(5)
    assert bench.destination.bytes == modelled(kind, frames, codes) + unfinished
    assert bench.destination.closed_at is not None
    assert bench.timers.pending == 0


@given(
    frames=FRAMES,
    cuts=CUTS,
    kind=KINDS,
    places=st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)),
)
def test_a_toxic_hits_the_frames_that_begin_and_end_in_its_time(
    frames: list[tuple[int, bytes]], cuts: list[int], kind: str, places: tuple[int, int]
) -> None:
    """It is added and removed anywhere in the stream, in the middle of frames too."""
    data = joined(frames)
    added_at, removed_at = sorted(place % (len(data) + 1) for place in places)
    bench = FrameBench()
    bench.feed(data[:added_at], cuts)
    bench.link.add(toxic(kind, delay=70))
    bench.feed(data[added_at:removed_at], cuts)
    bench.link.remove("t")
    bench.feed(data[removed_at:], cuts)
    bench.link.finish()
    before, during, after = [], [], []
    end = 0
    for frame in frames:
        begin, end = end, end + len(frame[1])
        part = during if end <= removed_at else after
        (before if begin < added_at else part).append(frame)
    assert bench.destination.bytes == joined(before) + modelled(kind, during, ()) + joined(after)
    assert bench.timers.pending == 0


@given(
    frames=FRAMES,
    cuts=CUTS,
    kind=KINDS,
    places=st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)),
    other=st.sampled_from(["slicer", "frame_delay", "frame_duplicate"]),
)
def test_behind_another_toxic_frames_stay_whole(
    frames: list[tuple[int, bytes]],
    cuts: list[int],
    kind: str,
    places: tuple[int, int],
    other: str,
) -> None:
    """What the other one holds when it comes or goes is no frame's beginning for the new one."""
    data = joined(frames)
    added_at, removed_at = sorted(place % (len(data) + 1) for place in places)
    bench = FrameBench(toxic(other, "o", average_size=9, delay=300))
    bench.feed(data[:added_at], cuts)
    bench.link.add(toxic(kind, delay=70))
    bench.feed(data[added_at:removed_at], cuts)
    bench.link.remove("o")
    bench.feed(data[removed_at:], cuts)
    bench.link.finish()
    bench.timers.run_until(600)
    whole = FrameDecoder().feed(data)
    allowed = whole * 4
    for command in bench.commands():
        allowed.remove(command)
    if kind != "frame_drop":
        assert all(command in bench.commands() for command in whole)
    assert bench.counts.tally("t", "", "").foreign_count == 0
    assert bench.timers.pending == 0


@given(
    frames=FRAMES,
    cuts=CUTS,
    header=st.sampled_from([0, 1]),
    count=st.integers(1, 20),
    seed=st.integers(0, 50),
)
def test_damage_stays_within_its_part(
    frames: list[tuple[int, bytes]], cuts: list[int], header: int, count: int, seed: int
) -> None:
    damage = toxic("frame_damage", codes=(SEND,), header=header, bytes=count)
    bench = FrameBench(damage, seed=str(seed))
    data = joined(frames)
    bench.feed(data, cuts)
    came = bench.destination.bytes
    assert len(came) == len(data)
    at = affected = 0
    for code, raw in frames:
        got = came[at : at + len(raw)]
        at += len(raw)
        body_begin = 8 + int.from_bytes(raw[5:8])
        changed = [place for place in range(len(raw)) if raw[place] != got[place]]
        part = range(9, body_begin) if header else range(body_begin, len(raw))
        assert len(changed) == (min(count, len(part)) if code == SEND else 0)
        assert set(changed) <= set(part)
        affected += bool(changed)
    assert sum(bench.affected().values()) == affected
    again = FrameBench(damage, seed=str(seed))
    again.feed(data)
    assert again.destination.bytes == came, "the seed decides, not the chunks"


def test_an_answer_is_hit_by_the_code_of_its_request() -> None:
    up = FrameBench()
    down = FrameBench(toxic("frame_drop", codes=(SEND,)), direction=Direction.DOWNSTREAM, other=up)
    up.feed(request(SEND, 1) + request(PULL, 2) + request(SEND, 3))
    down.feed(answer(2) + answer(3) + answer(4) + answer(1), cuts=[10, 90])
    assert [command.opaque for command in down.commands()] == [2, 4]
    assert down.affected() == {SEND: 2}
    passed = {
        (row["kind"], row["code"]): row["count"]
        for row in down.counts.to_json()["passed"]  # type: ignore[attr-defined]
        if row["stream"] == "downstream"
    }
    assert passed == {("response", PULL): 1, ("response", None): 1}


def test_a_copy_of_an_answer_has_its_code_too() -> None:
    up = FrameBench()
    down = FrameBench(toxic("frame_duplicate"), direction=Direction.DOWNSTREAM, other=up)
    up.feed(request(SEND, 1))
    down.feed(answer(1))
    assert down.commands() == FrameDecoder().feed(answer(1) * 2)
    assert down.counts.to_json()["passed"] == [
        {"stream": "downstream", "kind": "response", "code": SEND, "count": 2},
        {"stream": "upstream", "kind": "request", "code": SEND, "count": 1},
    ]


def test_a_request_of_before_the_toxic_is_known() -> None:
    up = FrameBench()
    up.feed(request(PULL, 7))
    down = FrameBench(direction=Direction.DOWNSTREAM, other=up)
    for opaque in range(100, 3000):
        up.feed(request(SEND, opaque))
    down.link.add(toxic("frame_drop", codes=(PULL,)))
    down.feed(answer(7))
    assert down.affected() == {PULL: 1}


def test_count_is_of_the_whole_proxy() -> None:
    counts = FrameCounts()
    drop = toxic("frame_drop", codes=(SEND,), count=3)
    benches = [FrameBench(drop, seed=str(seed), counts=counts) for seed in range(2)]
    for opaque in range(4):
        for bench in benches:
            bench.feed(request(SEND, opaque) + request(PULL, opaque))
    left = [len(bench.commands()) for bench in benches]
    assert sum(left) == 16 - 3
    assert benches[0].affected() == {SEND: 3}
    assert counts.tally("t", "", "").seen == {SEND: 8, PULL: 8}


def test_share_is_drawn_by_the_seed() -> None:
    def left(seed: str, share: int) -> list[int]:
        bench = FrameBench(toxic("frame_drop", share=share), seed=seed)
        bench.feed(b"".join(request(SEND, opaque) for opaque in range(400)))
        return [command.opaque for command in bench.commands()]

    assert 200 < len(left("1", 30)) < 350
    assert left("1", 30) == left("1", 30) != left("2", 30)
    assert len(left("1", 0)) == 400


def test_delayed_frames_are_overtaken_and_come_in_time() -> None:
    bench = FrameBench(toxic("frame_delay", codes=(SEND,), delay=100))
    bench.feed(request(SEND, 1) + request(PULL, 2))
    bench.timers.run_until(0.05)
    bench.feed(request(SEND, 3))
    bench.link.finish()
    bench.timers.run_until(1)
    times = [time for time, _ in bench.destination.arrivals]
    assert [command.opaque for command in bench.commands()] == [2, 1, 3]
    assert times == pytest.approx([0, 0.1, 0.15])
    assert bench.destination.closed_at == pytest.approx(0.15)


def test_delayed_frames_pause_the_source_at_their_bound() -> None:
    bench = FrameBench(toxic("frame_delay", delay=100))
    bench.feed(b"".join(request(SEND, opaque) for opaque in range(1024)))
    assert bench.source.paused
    bench.timers.run_until(1)
    assert not bench.source.paused
    assert len(bench.commands()) == 1024


def test_a_frame_that_nothing_overtakes_goes_after_its_wait() -> None:
    bench = FrameBench(toxic("frame_reorder", wait=200))
    bench.feed(request(SEND, 1))
    bench.timers.run_until(0.19)
    assert bench.commands() == []
    bench.timers.run_until(0.21)
    assert [command.opaque for command in bench.commands()] == [1]
    assert bench.affected() == {}
    bench.feed(request(SEND, 2) + request(SEND, 3))
    assert [command.opaque for command in bench.commands()] == [1, 3, 2]
    assert bench.affected() == {SEND: 1}


@pytest.mark.parametrize(
    "stream",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        bytes(64),
        b"\x00\x00\x00\x20\x00\x00\x00\x08abcdefgh" + bytes(40),
        b"\x00\x00\x00\x40\x02\x00\x00\x20{" + bytes(60),
        b"\x00\x00\x00\x40\x00\x00\x00\x41{" + bytes(60),
        b"\x00\x00\x00\x40\x01\x00\x00\x08" + bytes(60),
        (FRAME_SIZE_MAX - 3).to_bytes(4) + b"\x00\x00\x00\x20{" + bytes(60),
    ],
)
@pytest.mark.parametrize("cut", [1, 4, 7, 8, 9, 1000])
def test_what_is_no_frame_passes_untouched(stream: bytes, cut: int) -> None:
    reported: list[tuple[str, str]] = []
    counts = FrameCounts(lambda name, direction: reported.append((name, direction)))
    bench = FrameBench(toxic("frame_drop"), counts=counts)
    for begin in range(0, len(stream), cut):
        bench.route(stream[begin : begin + cut])
    bench.route(request(SEND, 1))
    assert bench.destination.bytes == stream + request(SEND, 1)
    assert reported == [("t", "upstream")]
    assert counts.tally("t", "", "").foreign_count == 1
    assert counts.to_json()["foreign"] == {"upstream": 1}
    bench.link.remove("t")
    assert bench.route == bench.destination.write, "nothing is followed any more"


def test_a_frame_beyond_the_maximum_passes_unparsed_and_the_next_one_is_found() -> None:
    size = FRAME_SIZE_MAX + 100
    oversized = (size - 4).to_bytes(4) + b"\x00\x00\x00\x20{" + bytes(size - 9)
    bench = FrameBench(toxic("frame_drop", codes=(SEND,)), toxic("frame_delay", "d", delay=9_000))
    bench.feed(request(PULL, 1))
    assert bench.destination.bytes == b""
    bench.feed(oversized + request(SEND, 2) + request(PULL, 3), cuts=[5, 100, 1 << 20])
    assert bench.destination.bytes == request(PULL, 1) + oversized, "what was held goes before it"
    bench.timers.run_until(10)
    assert bench.destination.bytes == request(PULL, 1) + oversized + request(PULL, 3)


def test_a_spared_connection_is_followed_and_can_be_hit_later() -> None:
    bench = FrameBench(toxic("frame_drop", toxicity=0.0))
    bench.feed(request(SEND, 1) + request(SEND, 2)[:20])
    bench.link.update(toxic("frame_drop", toxicity=1.0))
    bench.feed(request(SEND, 2)[20:] + request(SEND, 3))
    assert [command.opaque for command in bench.commands()] == [1]
    assert bench.affected() == {SEND: 2}


def test_a_connection_that_is_spared_later_gets_what_was_held() -> None:
    bench = FrameBench(toxic("frame_delay", delay=10_000))
    bench.feed(request(SEND, 1) + request(SEND, 2)[:20])
    bench.link.update(toxic("frame_delay", toxicity=0.0, delay=10_000))
    assert [command.opaque for command in bench.commands()] == [1]
    bench.feed(request(SEND, 2)[20:])
    assert [command.opaque for command in bench.commands()] == [1, 2]


def test_damaged_headers_do_not_lose_the_frames_behind_them() -> None:
    bench = FrameBench(toxic("frame_damage", header=1, bytes=500))
    bench.feed(request(SEND, 1))
    bench.link.add(toxic("frame_drop", "d"))
    bench.feed(request(SEND, 2) + request(SEND, 3))
    assert len(bench.destination.bytes) == len(request(SEND, 1))
    assert bench.affected("d") == {None: 2}


def test_what_is_remembered_is_bounded() -> None:
    requests = OpenRequests()
    for opaque in range(10_000):
        requests.note_sent(opaque, SEND)
    assert requests.code_of(10_000 - 4096 - 1) is None
    assert requests.code_of(10_000 - 4096) == SEND
    counts = FrameCounts()
    for code in range(1000):
        counts.note_passed("upstream", "request", code)
        counts.begin(f"t{code}", "frame_drop", "upstream")
    body = counts.to_json()
    assert len(body["passed"]) == 513  # type: ignore[arg-type]
    assert len(body["toxics"]) == 256  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [b"x", b"\x01", b"\x16\x03", b"\0\0\0\x03"])
def test_a_few_bytes_that_begin_no_frame_do_not_wait(first: bytes) -> None:
    bench = FrameBench(toxic("frame_drop"))
    bench.feed(first)
    assert bench.destination.bytes == first


def test_the_handshake_of_raft_is_foreign() -> None:
    for seed in range(200):
        hello = [random.Random(seed).randbytes(180 + seed)]
        stream = frame_prefix(hello) + hello[0]
        bench = FrameBench(toxic("frame_drop"))
        bench.feed(stream, cuts=[seed])
        assert bench.destination.bytes == stream


def test_a_header_that_nests_too_deep_is_unreadable() -> None:
    header = b'{"code":1,"opaque":2,"unknown":' + b"[" * 60_000 + b"]" * 60_000 + b"}"
    frame = (4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header
    shallow = b'{"code":1,"opaque":2,"unknown":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    other = (4 + len(shallow)).to_bytes(4) + len(shallow).to_bytes(4) + shallow
    bench = FrameBench(toxic("frame_duplicate"))
    bench.feed(frame + other)
    assert bench.destination.bytes == frame * 2 + other * 2
    assert bench.affected() == {None: 2}


@given(data=st.binary(max_size=200), cuts=CUTS)
def test_no_bytes_are_lost_whatever_they_are(data: bytes, cuts: list[int]) -> None:
    rng = random.Random(len(data))
    first = request(SEND, 1) if rng.random() < 0.5 else b""
    bench = FrameBench(toxic("frame_duplicate", share=0))
    bench.feed(first + data, cuts)
    bench.link.finish()
    assert bench.destination.bytes == first + data
