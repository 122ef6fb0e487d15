"""What Spark's failures are to who asked: an error of one check, or an interrupt."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from verify.engines.engine import EngineError
from verify.spark.engine import _failing


def _fail(error: Exception, behind: BaseException | None = None) -> None:
    error.__context__ = behind
    raise error


def test_a_failure_is_told_with_what_was_asked() -> None:
    with pytest.raises(EngineError, match=r"^A4: the JVM is gone$"), _failing("A4"):
        _fail(Py4JError("the JVM is gone\n\tat java.lang.Thread"))


def test_an_interrupt_of_a_call_that_is_being_sent_stays_one() -> None:
    """py4j cancels what it was sending, and where it had not connected yet raises of its own."""
    error = Py4JError("Gateway must be connected to send cancel cmd.")
    with pytest.raises(KeyboardInterrupt), _failing("A4"):
        _fail(error, behind=KeyboardInterrupt())
