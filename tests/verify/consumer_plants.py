"""Planted violations of the rules of consumption (C3 to C15, M8): see `tests.verify.plants`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.verify.consumer_runs import (
    RESET,
    RETRIED,
    TAGGED,
    add,
    come_again_late,
    consumer_run,
    deliver,
    drop,
    of_group,
    ops_of,
    renumber,
    reset_by_time,
    stored_at,
    swap,
)
from tests.verify.plants import Plant, Planted
from tests.verify.synthetic import MS, Row, SyntheticRun

CONSUMER_PLANTS: list[Planted] = []


@dataclass(frozen=True)
class _ConsumerPlanted(Planted):
    dead: tuple[str, ...] = ("r2",)

    def run(self) -> SyntheticRun:
        return consumer_run(self.name, self.plant, dead=self.dead)


def plant(
    check: str, *also: str, witness: str, dead: tuple[str, ...] = ("r2",)
) -> Callable[[Plant], Plant]:
    def register(function: Plant) -> Plant:
        name = function.__name__.replace("_", "-")
        planted = _ConsumerPlanted(
            check, name, function, False, frozenset(also), witness, sql_only=True, dead=dead
        )
        CONSUMER_PLANTS.append(planted)
        return function

    return register


def refused_later(run: SyntheticRun, like: Row, after_ms: int) -> Row:
    """Add a refused request for the lock, so long after the one that it is like."""
    return add(run, like, after_ms, type="fail", status="REFUSED", process=f"{after_ms}")


def left_and_back(run: SyntheticRun) -> None:
    """A broadcast member leaves in good order and comes back under its name."""
    _heard_of(run, 100, assigned=[])
    _heard_of(run, 200)


def died_and_back(run: SyntheticRun, after_ms: int) -> None:
    """A broadcast member comes back under its name; it was heard of until then."""
    _heard_of(run, after_ms, f="fetch_offset", type="fail", assigned=None)
    _heard_of(run, after_ms + 100)


def given_again(run: SyntheticRun, name: str) -> Row:
    """The member that came back is given a message that it had been given before."""
    row = add(run, of_group(run, "broadcast", name)[1], 30_000)
    renumber(run)
    return row


def _heard_of(run: SyntheticRun, after_ms: int, **columns: object) -> None:
    """The second member does something behind the last that it was given: it takes the queue."""
    taken = next(op for op in ops_of(run, "b2", "assign") if op["assigned"])
    at = of_group(run, "broadcast", "b4")[1]["t_complete"] + after_ms * MS
    row = taken | {"t_invoke": at, "t_complete": at + MS, "op": len(run.ops) + 1_000} | columns
    run.ops.append(row)
    renumber(run)


def longpolls_of(run: SyntheticRun) -> list[Row]:
    return [op for op in run.ops if op["f"] == "poll" and op["client_group"] == "longpolls"]


def withheld(run: SyntheticRun) -> None:
    """The member that would have got the lock next is refused it twice."""
    ours = ops_of(run, "m2")[-1]
    for after_ms in (8_000, 9_500):
        refused_later(run, ours, after_ms)
    drop(run, ours)


@plant("C3", witness='"queue": 0')
def two_members_at_once(run: SyntheticRun) -> None:
    """The listener of the member that left had not returned yet."""
    last, first = of_group(run, "orderly", "o2")[-1], of_group(run, "orderly", "o3")[0]
    last["t_complete"] = first["t_invoke"] + 1


@plant("C3", witness='"queue": 0')
def member_that_left_goes_on(run: SyntheticRun) -> None:
    (theirs,) = of_group(run, "orderly", "o4")
    ours = add(run, theirs, process=f"{run.name}.m1.listener", client=f"{run.name}.m1")
    ours |= {"type": "fail", "t_invoke": theirs["t_invoke"] + 1}
    ours["t_complete"] = ours["t_invoke"] + 1


@plant("C17", witness="assigned to too many")
def queue_assigned_to_two(run: SyntheticRun) -> None:
    _round_of(run, "two")[1]["assigned"] = _round_of(run, "two")[0]["assigned"]


@plant("C17", witness="assigned to too few")
def queue_assigned_to_nobody(run: SyntheticRun) -> None:
    _round_of(run, "one")[1]["assigned"] = []


@plant("C17", witness="too different numbers")
def one_member_gets_all(run: SyntheticRun) -> None:
    first, second = _round_of(run, "one")
    first["assigned"] = [*first["assigned"], *second["assigned"]]
    second["assigned"] = []


def _round_of(run: SyntheticRun, ref: str) -> list[Row]:
    return [op for op in run.ops if op.get("ref") == f"{run.name}.{ref}"]


@plant("C12", witness="granted to two")
def lock_granted_before_it_was_given_back(run: SyntheticRun) -> None:
    (given,) = ops_of(run, "m1", "unlock")
    late = ops_of(run, "m2")[-1]["t_complete"] + MS
    given |= {"t_invoke": late, "t_complete": late + MS}


@plant("C12", witness="granted to two")
def lock_granted_while_its_owner_is_silent(run: SyntheticRun) -> None:
    """It never gave the lock back, and had renewed it less than half a minute before."""
    drop(run, *ops_of(run, "m1", "unlock"))
    theirs = ops_of(run, "m2")[-1]
    theirs["t_complete"] = ops_of(run, "m1")[-1]["t_invoke"] + 29_999 * MS


@plant("C12", witness="withheld from all")
def lock_given_back_and_withheld(run: SyntheticRun) -> None:
    withheld(run)


@plant("C4", witness="o5")
def two_of_a_queue_exchanged(run: SyntheticRun) -> None:
    swap(of_group(run, "orderly", "o4")[0], of_group(run, "orderly", "o5")[0])


@plant("C4", witness="o3")
def refused_message_is_overtaken(run: SyntheticRun) -> None:
    """What was refused did not make the queue wait."""
    swap(of_group(run, "orderly", "o2")[-1], of_group(run, "orderly", "o3")[0])


@plant("C5", witness="b2")
def member_missed_one_between(run: SyntheticRun) -> None:
    drop(run, of_group(run, "broadcast", "b2")[1])


@plant("C5", witness="b4")
def member_missed_the_last(run: SyntheticRun) -> None:
    drop(run, of_group(run, "broadcast", "b4")[0])


@plant("C5", witness="b3")
def member_got_nothing_of_a_queue(run: SyntheticRun) -> None:
    """It had taken the queue long before; the other member was given all."""
    theirs = [of_group(run, "broadcast", f"b{number}")[1] for number in range(5)]
    drop(run, *theirs)
    (taken,) = (
        op
        for op in run.ops
        if op["f"] == "assign" and op["client"] == f"{run.name}.b2" and op["assigned"]
    )
    taken |= {name: taken[name] - 30_000 * MS for name in ("t_invoke", "t_complete")}


@plant("C13", witness="wanted and never given")
def wanted_by_its_second_tag_only(run: SyntheticRun) -> None:
    drop(run, *of_group(run, "filters", "t2"), *of_group(run, "filters", "t5"))


@plant("C13", witness="given and not wanted")
def given_in_spite_of_the_filter(run: SyntheticRun) -> None:
    deliver(run, "t1", "filters", TAGGED, "t4")["op"] = len(run.ops) + 1


@plant("C15", witness="h1")
def held_poll_is_answered_when_its_time_is_up(run: SyntheticRun) -> None:
    """A message had come at its beginning."""
    held = longpolls_of(run)[1]
    held["t_complete"] = held["due"]


@plant("C15", witness='"messages": 0')
def held_poll_ends_without_what_came(run: SyntheticRun) -> None:
    held = longpolls_of(run)[1]
    held |= {"t_complete": held["due"] + MS, "messages": []}
    again = held | {"t_invoke": held["t_complete"], "t_complete": held["t_complete"] + MS}
    again |= {"op": max(op["op"] for op in run.ops) + 1, "process": f"{run.name}.h2"}
    run.ops.append(again)


@plant("C14", witness="b1")
def broadcast_member_goes_back(run: SyntheticRun) -> None:
    """It had left in good order, and is given the second message once more."""
    left_and_back(run)
    given_again(run, "b1")


@plant("C14", witness="b0")
def broadcast_member_lost_its_file(run: SyntheticRun) -> None:
    """It died, six seconds after what it consumed last; its progress was stored long before."""
    died_and_back(run, after_ms=6_000)
    given_again(run, "b0")


@plant("C6", witness="r1")
def refused_and_never_again(run: SyntheticRun) -> None:
    drop(run, of_group(run, "retries", "r1")[-1])


@plant("C6", witness="r2", dead=())
def dead_letter_is_lost(run: SyntheticRun) -> None:
    """Refused for the last time, and nowhere since."""


@plant("C6", witness='"never delivered"')
def acknowledged_and_withheld(run: SyntheticRun) -> None:
    drop(run, *of_group(run, "retries", "r0"))


@plant("C7", witness='"twice"', dead=("r2", "r2"))
def dead_letter_twice(run: SyntheticRun) -> None:
    """Refused once for the last time."""


@plant("C7", witness="r1", dead=("r2", "r1"))
def dead_letter_too_early(run: SyntheticRun) -> None:
    """Refused once, and it had come again."""


@plant("C7", witness="r0", dead=("r2", "r0"))
def dead_letter_that_was_consumed(run: SyntheticRun) -> None:
    """Consumed at once, and among the dead letters, too."""


@plant("C8", witness='"it jumped"')
def reconsume_count_jumps(run: SyntheticRun) -> None:
    of_group(run, "retries", "r1")[-1]["messages"][0]["reconsume"] = 2


@plant("C8", witness='"beyond the last retry"')
def came_again_beyond_the_last_retry(run: SyntheticRun) -> None:
    row = add(run, of_group(run, "retries", "r2")[-1])
    row["messages"][0]["reconsume"] = 3


@plant("C8", "C7", witness='"it did not rise"')
def reconsume_count_stays(run: SyntheticRun) -> None:
    """The first retry was refused, and came once more as the first."""
    for op in come_again_late(run, "r2"):
        op["messages"][0]["reconsume"] = 1


@plant("C8", "C6", "C7", witness='"it did not rise"', dead=())
def reconsume_count_is_lost(run: SyntheticRun) -> None:
    for op in come_again_late(run, "r2"):
        op["messages"][0]["reconsume"] = 0


@plant("C18", witness="%RETRY%")
def retry_is_shown_as_of_the_retry_topic(run: SyntheticRun) -> None:
    retried = of_group(run, "retries", "r1")[-1]
    retried["messages"][0]["origin"] = retried["topic"]


@plant("C18", witness='"another%')
def name_of_a_namespace_is_left_on(run: SyntheticRun) -> None:
    of_group(run, "retries", "r0")[0]["messages"][0]["origin"] = f"another%{RETRIED}"


def commit_before(run: SyntheticRun, client: str, offset: int, delivery: Row) -> Row:
    """A commit that failed, just before that delivery was invoked."""
    row = add(run, ops_of(run, client, "commit_offset")[0], type="fail", offset=offset)
    row |= {"t_invoke": delivery["t_invoke"] - 2, "t_complete": delivery["t_invoke"] - 1}
    row["process"] = f"{row['client']}.early"
    return row


@plant("C19", witness='"t_given": null')
def commits_what_nobody_was_given(run: SyntheticRun) -> None:
    """Beyond the end of the queue."""
    add(run, ops_of(run, "r1", "commit_offset")[0], 5_000, type="fail", offset=9, process="r1.x")


@plant("C19", witness='"offset": 2')
def commits_what_is_given_later(run: SyntheticRun) -> None:
    commit_before(run, "r1", 2, of_group(run, "retries", "r1")[0])


@plant("C10", witness="r1")
def retried_before_its_delay(run: SyntheticRun) -> None:
    refused, retried = of_group(run, "retries", "r1")
    retried["t_invoke"] = refused["t_complete"] + MS


@plant("C9", witness='"found_offset": 4')
def reset_is_not_followed(run: SyntheticRun) -> None:
    """The member then went over what stands before 4 by itself."""
    drop(run, *_behind_the_reset(run))


@plant("C9", witness='"found_offset": 2')
def reset_is_not_followed_where_nobody_went_elsewhere(run: SyntheticRun) -> None:
    reset_is_not_followed(run)
    drop(run, _seek(run))


@plant("C9", witness='"found_offset": 5')
def reset_is_followed_but_for_the_last(run: SyntheticRun) -> None:
    drop(run, *of_group(run, "resets", "s5")[1:])


@plant("C9", witness="went on before it")
def group_goes_on_before_the_reset(run: SyntheticRun) -> None:
    """It was sent to the last message, and went on as it had been."""
    _reset(run)["offset"] = 5
    for op in run.ops:
        if op["client"] == f"{run.name}.s1" and op["t_invoke"] > _reset(run)["t_complete"]:
            op |= {name: op[name] + 11_000 * MS for name in ("t_invoke", "t_complete")}


@plant("C9", witness="went on elsewhere")
def seek_is_not_followed(run: SyntheticRun) -> None:
    drop(run, of_group(run, "resets", "s4")[-1])


@plant("C9", witness="went on elsewhere")
def seek_is_ignored(run: SyntheticRun) -> None:
    """The member goes on with what it had prefetched."""
    _seek(run)["offset"] = 3


def _sent_by_time(run: SyntheticRun, offset: int | None, from_ms: int, ref: str = "force") -> None:
    """Send the group to `offset`, and then to the end as it was before."""
    reset_by_time(run, offset, from_ms, ref)
    reset_by_time(run, 6, -1)


@plant("M8", witness="behind what belongs to it")
def reset_by_time_goes_too_far(run: SyntheticRun) -> None:
    _sent_by_time(run, 3, stored_at(run, 2))


@plant("M8", witness="at what is older")
def reset_by_time_goes_too_far_back(run: SyntheticRun) -> None:
    _sent_by_time(run, 1, stored_at(run, 2))


@plant("M8", witness="at what is older")
def reset_that_is_forced_goes_where_the_group_was(run: SyntheticRun) -> None:
    reset_by_time(run, 2, stored_at(run, 2))
    _sent_by_time(run, 2, stored_at(run, 4))


@plant("M8", witness="forward, though it was not forced")
def reset_goes_forward_that_was_not_forced(run: SyntheticRun) -> None:
    reset_by_time(run, 2, stored_at(run, 2))
    _sent_by_time(run, 4, stored_at(run, 4), "no-force")


@plant("M8", witness="at what is older")
def reset_that_was_not_forced_goes_nowhere_it_should(run: SyntheticRun) -> None:
    reset_by_time(run, 2, stored_at(run, 2))
    _sent_by_time(run, 1, stored_at(run, 4), "no-force")


@plant("M8", witness='"known_offset": 5')
def reset_to_the_end_stops_before_it(run: SyntheticRun) -> None:
    _sent_by_time(run, 5, -1)


@plant("M8", witness='"later_offset": 3')
def reset_to_the_end_goes_beyond_it(run: SyntheticRun) -> None:
    """The fourth message and those behind it had not been sent yet."""
    began = next(op for op in run.ops if op["f"] == "send" and _value(op) == f"{run.name}.s3")
    row = reset_by_time(run, 4, -1)
    row |= {"t_invoke": began["t_invoke"] - 2, "t_complete": began["t_invoke"] - 1}


@plant("M8", witness="no place was named")
def reset_leaves_a_queue_out(run: SyntheticRun) -> None:
    _sent_by_time(run, None, stored_at(run, 2))


@plant("M8", witness="there is no such place")
def reset_goes_beyond_the_queue(run: SyntheticRun) -> None:
    _sent_by_time(run, 7, stored_at(run, 5) + 1)


def _value(op: Row) -> str:
    return str(op["messages"][0]["value"])


def _reset(run: SyntheticRun) -> Row:
    """Return the administrator's reset."""
    return next(op for op in run.ops if op["f"] == "reset" and op["client"].endswith("tool"))


def _seek(run: SyntheticRun) -> Row:
    """Return the member's own reset."""
    return next(op for op in run.ops if op["f"] == "reset" and op["client"] == f"{run.name}.s1")


def _behind_the_reset(run: SyntheticRun) -> list[Row]:
    behind = _reset(run)["t_invoke"]
    return [
        op
        for op in run.ops
        if op["client_group"] == "resets"
        and op.get("topic") == RESET
        and op["f"] == "deliver"
        and op["t_invoke"] > behind
    ]
