"""Options and arguments that several commands share, and the settings of `cluster up --set`.

Place in the data path: `ledgermq.cli` declares its commands with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from verify.sources.run_uri import RunUri, run_place

__all__ = [
    "AccessKey",
    "Directory",
    "Group",
    "Json",
    "LocalRun",
    "NameServers",
    "Node",
    "Patience",
    "Process",
    "SecretKey",
    "Settings",
    "Tls",
    "local_run",
    "name_server_list",
    "settings_of",
]


def local_run(text: str) -> Path:
    """Parse a run that must be on this machine. Raises typer.BadParameter for a URI."""
    place = run_place(text)
    if isinstance(place, RunUri):
        raise typer.BadParameter(
            f"{text} is a URI: `ledgermq verify {text} --engine spark` judges such a run, and"
            " nothing else reads one"
        )
    return place


LocalRun = Annotated[Path, typer.Argument(metavar="RUN", parser=local_run)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Directory = Annotated[Path, typer.Argument(metavar="DIR")]
Node = Annotated[str, typer.Argument(metavar="NODE", help="A node's name, such as n3.")]
Process = Annotated[str, typer.Argument(metavar="NODE", help="n1, broker-a-n1 or namesrv-0.")]
Group = Annotated[str | None, typer.Option(help="Default: the only one.")]
Patience = Annotated[float, typer.Option("--timeout", help="Seconds to wait for a catch-up.")]
NameServers = Annotated[str, typer.Option("--namesrv", help="Name servers, HOST:PORT;HOST:PORT.")]
AccessKey = Annotated[str, typer.Option(envvar="LEDGERMQ_ACCESS_KEY", help="Of an account.")]
SecretKey = Annotated[
    str, typer.Option(envvar="LEDGERMQ_SECRET_KEY", help="Better given by the environment.")
]
Tls = Annotated[bool, typer.Option("--tls", help="Dial with TLS; any certificate is taken.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="KEY=VALUE, a setting of the brokers; may be repeated."),
]


def name_server_list(text: str) -> list[str]:
    """Parse the addresses in "A;B", host names or numbers. Raises ValueError naming a bad one."""
    addresses = [part.strip() for part in text.split(";") if part.strip()]
    if not addresses:
        raise ValueError("--namesrv: names no name server")
    for address in addresses:
        host, separator, port = address.rpartition(":")
        if not separator or not host or not port.isascii() or not port.isdecimal():
            raise ValueError(f"--namesrv: {address!r} is not HOST:PORT")
        if not 0 < int(port) <= 0xFFFF:
            raise ValueError(f"--namesrv: {address!r} has no port of 1..65535")
    return addresses


def settings_of(texts: Iterable[str]) -> dict[str, int | bool | str]:
    """Parse settings "KEY=VALUE": a whole number, true or false, a file's path, or else text.

    Raises ValueError naming a setting that is not KEY=VALUE.
    """
    settings: dict[str, int | bool | str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise ValueError(f"--set {text}: not KEY=VALUE")
        if value in {"true", "false"}:
            settings[key] = value == "true"
        elif key.endswith("_file"):
            settings[key] = str(Path(value).resolve())
        else:
            settings[key] = int(value) if value.isascii() and value.isdecimal() else value
    return settings
