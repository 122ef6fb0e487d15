"""Planted violations of POP's rules: each script goes on where a run that did all right has ended.

What a script sends to be popped without order is also consumed by the ordered group, and the other
way round, unless that is the damage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.verify.clean_runs import retain_everywhere
from tests.verify.plants import Planted
from tests.verify.pop_runs import Pops, Script, popped_run
from tests.verify.synthetic import JOBS, SyntheticRun

__all__ = ["POP_PLANTS"]


def _no_rows(run: SyntheticRun) -> None:
    """Change nothing: the damage is in the script."""


@dataclass(frozen=True)
class PlantedPops(Planted):
    """A plant whose run is made by a script."""

    script: Script | None = None

    def run(self) -> SyntheticRun:
        run = popped_run(self.name, self.script)
        self.plant(run)
        return run


POP_PLANTS: list[PlantedPops] = []


def plant(
    check: str, *also: str, witness: str, behind: Callable[[SyntheticRun], None] = _no_rows
) -> Callable[[Script], Script]:
    """Register a script, and what is done to the run behind it. `also`: checks that rightly see the
    same damage."""

    def register(script: Script) -> Script:
        name = str(getattr(script, "__name__", "")).replace("_", "-")
        POP_PLANTS.append(
            PlantedPops(check, name, behind, True, frozenset(also), witness, script=script)
        )
        return script

    return register


@plant("P1", "P5", witness="x")
def popped_by_two_at_once(pops: Pops) -> None:
    pops.send("x")
    pops.pop("a1", "x")
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@plant("P1", witness="x")
def popped_before_its_longer_time_was_over(pops: Pops) -> None:
    pops.send("x")
    longer = pops.change(pops.pop("a1", "x"), "x", 800)
    pops.wait()
    pops.come_again("x", 1)
    pops.pop("a2", "x")
    pops.ack(longer, "x")
    pops.consume("b1", "x", in_order=True)


@plant("P1", witness="x")
def popped_in_order_by_two_at_once(pops: Pops) -> None:
    pops.send("x")
    pops.consume("a1", "x")
    pops.pop("b1", "x", in_order=True)
    pops.consume("b2", "x", in_order=True)


@plant("P1", "P5", witness="x")
def popped_twice_by_one_pop(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x", "x")
    pops.ack(popped | {"messages": popped["messages"][:1]}, "x")
    pops.consume("b1", "x", in_order=True)


@plant("P2", witness="x")
def popped_after_an_acknowledgement(pops: Pops) -> None:
    pops.send("x")
    pops.consume("a1", "x")
    pops.wait()
    pops.come_again("x", 1)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@plant("P2", witness="x")
def popped_after_an_acknowledgement_by_a_new_receipt(pops: Pops) -> None:
    pops.send("x")
    pops.ack(pops.change(pops.pop("a1", "x"), "x", 300), "x")
    pops.wait(400)
    pops.come_again("x", 1)
    pops.consume("a1", "x")
    pops.consume("b1", "x", in_order=True)


@plant("P2", witness="y")
def popped_in_order_after_all_was_acknowledged(pops: Pops) -> None:
    pops.send("x", "y")
    pops.consume("a1", "x", "y")
    pops.consume("b1", "x", "y", in_order=True)
    pops.consume("b2", "y", in_order=True)


@plant("P3", witness="x")
def never_came_again(pops: Pops) -> None:
    pops.send("x")
    pops.pop("a1", "x")
    pops.consume("b1", "x", in_order=True)


@plant("P3", witness="x")
def never_popped_at_all(pops: Pops) -> None:
    pops.send("x")
    pops.consume("b1", "x", in_order=True)


@plant("P3", witness="x")
def never_came_again_in_order(pops: Pops) -> None:
    pops.send("x")
    pops.consume("a1", "x")
    pops.pop("b1", "x", in_order=True)


@plant("P3", witness="x")
def acknowledged_only_by_a_replaced_receipt(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x")
    pops.change(popped, "x", 300)
    pops.ack(popped, "x")
    pops.consume("b1", "x", in_order=True)


@plant("P3", witness="x")
def acknowledged_only_before_it_came_again(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x")
    pops.wait()
    pops.come_again("x", 1)
    pops.pop("a2", "x")
    pops.ack(popped, "x")
    pops.consume("b1", "x", in_order=True)


@plant("P4", witness='"passed_offset": 6')
def passed_an_invisible_message(pops: Pops) -> None:
    pops.send("x", "y")
    pops.consume("a1", "x", "y")
    first = pops.pop("b1", "x", in_order=True)
    pops.consume("b2", "y", in_order=True)
    pops.ack(first, "x")


@plant("P4", witness='"passed_offset": 6')
def passed_a_message_nobody_had_yet(pops: Pops) -> None:
    pops.send("x", "y")
    pops.consume("a1", "x", "y")
    pops.consume("b1", "y", in_order=True)
    pops.consume("b1", "x", in_order=True)


@plant("P4", witness='"passed_offset": 7')
def left_out_one_between(pops: Pops) -> None:
    pops.send("x", "y", "z")
    pops.consume("a1", "x", "y", "z")
    pops.consume("b1", "x", "z", in_order=True)
    pops.consume("b1", "y", in_order=True)


@plant("P4", witness='"passed_offset": 6')
def passed_one_that_only_a_replaced_receipt_acknowledged(pops: Pops) -> None:
    pops.send("x", "y")
    pops.consume("a1", "x", "y")
    first = pops.pop("b1", "x", in_order=True)
    pops.wait()
    second = pops.pop("b2", "x", in_order=True)
    pops.ack(first, "x")
    pops.consume("b3", "y", in_order=True)
    pops.ack(second, "x")


@plant("P5", witness="the same count twice")
def came_again_with_the_same_count(pops: Pops) -> None:
    pops.send("x")
    pops.pop("a1", "x")
    pops.wait()
    pops.come_again("x", 0)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@plant("P5", witness="the count is too high")
def came_again_with_a_count_that_jumped(pops: Pops) -> None:
    pops.send("x")
    pops.pop("a1", "x")
    pops.wait()
    pops.come_again("x", 2)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@plant("P6", witness="dead before its retries were used up")
def dead_too_early(pops: Pops) -> None:
    pops.send("x")
    pops.pop("a1", "x")
    pops.wait()
    pops.die("x", 1)
    pops.consume("b1", "x", in_order=True)


@plant("P6", witness="dead twice")
def dead_twice(pops: Pops) -> None:
    pops.die("w4")


@plant("P6", witness="dead though it was acknowledged")
def dead_and_acknowledged(pops: Pops) -> None:
    pops.send("x")
    pops.consume("a1", "x")
    pops.wait()
    pops.die("x")
    pops.consume("b1", "x", in_order=True)


@plant("P6", witness="delivered after its last retry")
def delivered_once_too_often(pops: Pops) -> None:
    pops.send("x")
    for reconsume in range(1, 4):
        pops.pop("a1", "x")
        pops.wait()
        pops.come_again("x", reconsume)
    pops.consume("a1", "x")
    pops.consume("b1", "x", in_order=True)


@plant("P7", witness="x")
def acknowledged_by_the_receipt_of_another_pop(pops: Pops) -> None:
    pops.send("x", "y")
    one, other = pops.pop("a1", "x"), pops.pop("a2", "y")
    pops.ack(one, "x", ref=str(other["ref"]))
    pops.ack(one, "x")
    pops.ack(other, "y")
    pops.consume("b1", "x", "y", in_order=True)


@plant("P7", witness="x")
def changed_by_a_receipt_that_was_never_given(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x")
    pops.change(popped | {"ref": f"{popped['ref']}?"}, "x", 500, "fail")
    pops.ack(popped, "x")
    pops.consume("b1", "x", in_order=True)


@plant("P8", witness='"kind": "ack"')
def acknowledgement_was_answered_before_its_commit(pops: Pops) -> None:
    pops.send("x")
    pops.ack(pops.pop("a1", "x"), "x")["t_complete"] -= 1
    pops.consume("b1", "x", in_order=True)


@plant("P8", witness='"kind": "change"')
def change_was_answered_before_its_commit(pops: Pops) -> None:
    pops.send("x")
    changed = pops.change(pops.pop("a1", "x"), "x", 400)
    changed["t_complete"] -= 1
    pops.ack(changed, "x")
    pops.consume("b1", "x", in_order=True)


@plant("P8", witness='"kind": "pop"')
def pop_was_answered_before_its_commit(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x")
    popped["t_complete"] -= 1
    pops.ack(popped, "x")
    pops.consume("b1", "x", in_order=True)


@plant("P8", witness='"problem": "it is in no log"')
def one_of_two_was_not_acknowledged_with_the_other(pops: Pops) -> None:
    """Nobody pops it again before the run ends."""
    pops.send("x", "y")
    pops.ack(pops.pop("a1", "x", "y"), "x", "y")
    del pops.run.entries[-1].recs[1]
    pops.consume("b1", "x", "y", in_order=True)


@plant("P8", "P2", witness='"problem": "it was committed later"')
def one_in_order_was_not_acknowledged_with_the_other(pops: Pops) -> None:
    pops.send("x", "y")
    pops.consume("a1", "x", "y")
    pops.ack(pops.pop("b1", "x", "y", in_order=True), "x", "y")
    del pops.run.entries[-1].recs[0]
    pops.wait()
    pops.consume("b2", "x", in_order=True)


def retain_behind_x(run: SyntheticRun) -> None:
    """Retention took all before the message behind x."""
    index = max(row["index"] for row in run.logged("x", "message") if row["topic"] == JOBS)
    retain_everywhere(run, index + 1)


@plant("P10", witness="x", behind=retain_behind_x)
def retention_took_one_of_a_group(pops: Pops) -> None:
    pops.send("x", "y")
    pops.pop("a1", "x")
    pops.consume("a2", "y")
    pops.consume("b1", "x", "y", in_order=True)


@plant("P10", "P3", witness="x", behind=retain_behind_x)
def retention_took_one_held_in_order(pops: Pops) -> None:
    pops.send("x", "y")
    pops.consume("a1", "x", "y")
    pops.pop("b1", "x", "y", in_order=True)


@plant("P9", witness="x")
def held_pop_was_not_woken(pops: Pops) -> None:
    pops.hold_pop("x")


@plant("P9", witness="x")
def held_pop_was_not_woken_by_what_came_again(pops: Pops) -> None:
    pops.send("x")
    pops.pop("a2", "x")
    pops.wait()
    pops.hold_pop("x", 1)
