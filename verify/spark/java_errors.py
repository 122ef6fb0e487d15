"""Failed calls into Spark's JVM as Python's errors: an OSError with one line, or an interrupt.

Place in the data path: around the calls that `verify.spark.hadoop_files` makes;
`verify.spark.engine` uses it to recognise a Ctrl-C among failures.

Invariants: no stack trace of Java's is reported; a missing file is reported in the words of this
machine's system calls, so that a reason does not depend on where the run is.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # no types
from pyspark.errors import PySparkException

__all__ = ["JAVA_ERRORS", "as_os_errors", "is_interrupted", "java_class", "os_error"]

JAVA_ERRORS: Final = (PySparkException, Py4JError)
"""The exceptions of a failed call into the JVM."""

_CLASS: Final = re.compile(r"(?:[a-z]\w*\.)+([A-Z][\w$]*)(?:: |$)")
_CAUSE: Final = re.compile(r"\(([^()]+)\)$")  # "/runs/x (Permission denied)"
_NOT_THERE: Final = {"FileNotFoundException", "NoSuchFileException"}
_SELF_EXPLAINING: Final = {
    "IOException",
    "UnsupportedFileSystemException",
    "IllegalArgumentException",
}


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Turn a failed call into the JVM, within the block, into an OSError.

    Raises:
        OSError: Java raised an error, or the JVM is gone.
        KeyboardInterrupt: the call was interrupted.
    """
    try:
        yield
    except JAVA_ERRORS as error:
        if is_interrupted(error):
            raise KeyboardInterrupt from error
        raise os_error(_text_of(error)) from error


def is_interrupted(error: BaseException | None) -> bool:
    """Return whether the cause is a Ctrl-C during the call, which makes it fail in many ways."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def os_error(text: str) -> OSError:
    """Make an OSError from Java's text of an exception, `class: message`, which may be nested."""
    name, message = "", text.strip()
    while (found := _CLASS.match(message)) is not None:
        name, message = found[1], message[found.end() :]
    line = message.splitlines()[0] if message else ""
    if name in _NOT_THERE:
        cause = _CAUSE.search(line)
        if cause is None or cause[1] == os.strerror(errno.ENOENT):
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return OSError(errno.EIO, cause[1])
    if not name or (name in _SELF_EXPLAINING and line):
        return OSError(errno.EIO, line or "the JVM is gone")
    return OSError(errno.EIO, f"{name}: {line}" if line else name)


def java_class(error: Exception) -> str:
    """Return the full name of the exception that Java raised; empty if it was not Java's."""
    return _text_of(error).partition(":")[0].strip() if isinstance(error, Py4JJavaError) else ""


def _text_of(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        try:
            return str(error.java_exception.toString())
        except Py4JError:  # the JVM ended meanwhile
            return ""
    return str(error)
