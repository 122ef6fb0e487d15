"""A15: what was there once is there again; and no answer about a queue's end is stale.

Lost: a value that was acknowledged or read, a final read that began later and covers its offset
without it, and no read after that which shows it. Values seen too late are stale, which is legal.

Max offset: an answer below the end that somebody knew before it was asked. A queue's end is known
from acknowledged sends, from reads, and from earlier answers; all of them ended before.

Source: Jepsen's set-full; the run format's rule for A15; promise G6.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import PLACE, QUEUE, Frames

__all__ = ["stale_answers"]

_BLOCK_OFFSETS = 1024  # covers and values meet by blocks of offsets, so that no join is a product


def stale_answers(frames: Frames) -> DataFrame:
    """A15: values that a final read no more shows, and max offsets that were out of date."""
    return _lost_values(frames).unionByName(_low_max_offsets(frames))


def _lost_values(frames: Frames) -> DataFrame:
    covers = _final_covers(frames)
    blocks = F.sequence(_block(F.col("from_offset")), _block(F.col("to_offset") - 1))
    lost = (
        _seen_values(frames)
        .withColumn("block", _block(F.col("offset")))
        .join(covers.withColumn("block", F.explode(blocks)), [*QUEUE, "block"], how="inner")
        .where((F.col("offset") >= F.col("from_offset")) & (F.col("offset") < F.col("to_offset")))
        .where(F.col("t_known") < F.col("cover.t_invoke"))
        .where(F.coalesce(F.col("t_last_read") < F.col("cover.t_invoke"), F.lit(True)))
        .groupBy(*PLACE, "value", "t_known", "known_by")
        .agg(F.min("cover").alias("final_read"))
    )
    return findings(
        lost,
        check="A15",
        order=(*PLACE, "value"),
        witness=(*PLACE, "value", "t_known", "known_by", "final_read"),
    )


def _seen_values(frames: Frames) -> DataFrame:
    """Per value and place: when it was first known to be there, and the value's last read."""
    read = F.col("f").isin("poll", "deliver")
    ok = F.col("type") == "ok"
    placed = F.col("offset").isNotNull() & F.col("queue").isNotNull()
    known = ok & placed & F.col("t_complete").isNotNull()
    rows = frames.messages.where(F.col("f").isin("send", "poll", "deliver")).where(
        F.col("value").isNotNull() & (ok | read)
    )
    told = F.when(known, F.struct("t_complete", "op", "f"))
    places = rows.groupBy("value", *PLACE).agg(
        F.min(told).alias("known"), F.max(F.when(read, F.col("t_invoke"))).alias("t_read")
    )
    anywhere = Window.partitionBy("value")
    return (
        places.withColumn("t_last_read", F.max("t_read").over(anywhere))
        .where(F.col("known").isNotNull())
        .select(
            *PLACE,
            "value",
            "t_last_read",
            F.col("known.t_complete").alias("t_known"),
            F.struct("known.op", "known.f").alias("known_by"),
        )
    )


def _final_covers(frames: Frames) -> DataFrame:
    """What final reads went over: [from_offset, to_offset) of a queue.

    The polls of one process that begin at min_offset cover a drained queue whole; any other poll
    covers from the offset that it asked for to its last message.
    """
    last = F.array_max(F.transform("messages", lambda message: message["offset"]))
    final = (F.col("f") == "poll") & (F.col("type") == "ok") & F.col("final")
    polls = frames.ops.where(final & F.col("offset").isNotNull()).select(
        *QUEUE,
        "process",
        F.col("offset").alias("asked"),
        F.struct("t_invoke", "op", "process").alias("cover"),
        last.alias("last"),
    )
    queues = F.broadcast(
        frames.queues.select(*QUEUE, "min_offset", "max_offset", "floor", "was_drained")
    )
    walks = Window.partitionBy(*QUEUE, "process")
    placed = polls.join(queues, list(QUEUE), how="inner").withColumn(
        "is_whole", F.col("was_drained") & (F.min("asked").over(walks) <= F.col("min_offset"))
    )
    whole = (
        placed.where("is_whole")
        .groupBy(*QUEUE, "process", "floor", "max_offset")
        .agg(F.min("cover").alias("cover"))
        .select(
            *QUEUE,
            "cover",
            F.col("floor").alias("from_offset"),
            F.col("max_offset").alias("to_offset"),
        )
    )
    single = placed.where(~F.col("is_whole")).select(
        *QUEUE,
        "cover",
        F.greatest("asked", "floor").alias("from_offset"),
        (F.col("last") + 1).alias("to_offset"),
    )
    return whole.unionByName(single).where(F.col("from_offset") < F.col("to_offset"))


def _block(offset: Column) -> Column:
    return F.floor(offset / _BLOCK_OFFSETS)


def _low_max_offsets(frames: Frames) -> DataFrame:
    """Answers below an end that was known before they were asked for."""
    ok = (F.col("type") == "ok") & F.col("t_complete").isNotNull() & F.col("offset").isNotNull()
    by = F.struct("op", "f")
    shown = frames.messages.where(ok & F.col("f").isin("send", "poll", "deliver")).select(
        *QUEUE,
        F.col("t_complete").alias("at"),
        F.struct((F.col("offset") + 1).alias("end"), by.alias("by")).alias("known"),
    )
    answers = frames.ops.where(ok & (F.col("f") == "max_offset"))
    answered = answers.select(
        *QUEUE,
        F.col("t_complete").alias("at"),
        F.struct(F.col("offset").alias("end"), by.alias("by")).alias("known"),
    )
    questions = answers.select(
        *QUEUE,
        F.col("t_invoke").alias("at"),
        F.struct("op", "process", "node", "term", "t_invoke", "t_complete", "offset").alias(
            "asked"
        ),
    )
    before = (
        Window.partitionBy(*QUEUE)
        .orderBy("at", F.asc_nulls_last("asked.op"))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    violations = (
        shown.unionByName(answered)
        .unionByName(questions, allowMissingColumns=True)
        .withColumn("known_before", F.max("known").over(before))
        .where(F.col("asked.offset") < F.col("known_before.end"))
        .select(*QUEUE, "asked.*", F.col("known_before.end").alias("known_end"), "known_before.by")
    )
    return findings(
        violations,
        check="A15",
        order=(*QUEUE, "op"),
        witness=(
            *QUEUE, "op", "process", "node", "term", "t_invoke", "t_complete", "offset",
            "known_end", F.col("by").alias("known_by"),
        ),
    )  # fmt: skip
