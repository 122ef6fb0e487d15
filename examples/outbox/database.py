"""SQLite or PostgreSQL by a URL, one connection for each transaction.

`sqlite:///tmp/shop.db` is a file; `postgresql://user@host:port/name` a server, through pg8000. The
statements of this example are the same for both.
"""

from __future__ import annotations

import contextlib
import importlib
import sqlite3
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Transaction", "create_tables", "transaction"]


class Transaction:
    """An open transaction. Parameters of statements are question marks."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, *values: object) -> None:
        self._connection.cursor().execute(statement, values)

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows that the statement answers, `returning` included."""
        cursor = self._connection.cursor()
        cursor.execute(statement, values)
        return [tuple(row) for row in cursor.fetchall()]


@contextlib.contextmanager
def transaction(url: str) -> Iterator[Transaction]:
    """Commit at the end of the block; roll back where it raises. A second transaction on the same
    rows waits for the first."""
    connection = _connect(url)
    try:
        yield Transaction(connection)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.close()


def create_tables(url: str, statements: str) -> None:
    """Execute statements that a semicolon ends, each of which may be repeated without harm."""
    with transaction(url) as database:
        for statement in filter(None, map(str.strip, statements.split(";"))):
            database.execute(statement)


def _connect(url: str) -> Any:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        connection = sqlite3.connect(parts.path, timeout=30, isolation_level=None)
        connection.execute("begin immediate")
        return connection
    if parts.scheme == "postgresql":
        driver: Any = importlib.import_module("pg8000.dbapi")
        driver.paramstyle = "qmark"
        return driver.connect(
            user=parts.username or "postgres",
            password=parts.password,
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 5432,
            database=parts.path.lstrip("/"),
        )
    raise ValueError(f"{url}: a database is sqlite:///PATH or postgresql://USER@HOST:PORT/NAME")
