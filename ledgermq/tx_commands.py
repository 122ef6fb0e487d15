"""The commands `ledgermq tx list|show|discard|resume`: an operator's hand on transactions.

Place in the data path: `ledgermq.cli` adds them; `ledgermq.transactions` does the work. What to do
with an undecided half is in docs/TRANSACTIONS.md.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgermq.endings import stop_with
from ledgermq.exit_codes import EXIT_USAGE
from ledgermq.options import AccessKey, Json, NameServers, SecretKey, Tls, name_server_list

if TYPE_CHECKING:
    from client.connection.instance import InstanceSettings

__all__ = ["tx_app"]

tx_app = typer.Typer(help="Transactions that wait for a decision.", no_args_is_help=True)

_Broker = Annotated[
    str | None, typer.Option(help="A broker group. Default: all, or the one that an id names.")
]
_MessageId = Annotated[str, typer.Argument(metavar="ID", help="As `tx list` prints it.")]
_MessageIds = Annotated[list[str], typer.Argument(metavar="ID...", help="As `tx list` prints it.")]


@tx_app.command("list")
def tx_list(
    topic: Annotated[str | None, typer.Option(help="Halves for this topic only.")] = None,
    group: Annotated[str | None, typer.Option(help="Of this producer group only.")] = None,
    broker: _Broker = None,
    discarded: Annotated[
        bool, typer.Option("--discarded", help="Those that were given up or discarded.")
    ] = False,
    first: Annotated[
        int, typer.Option("--from", min=0, metavar="OFFSET", help="Where a list goes on.")
    ] = 0,
    count: Annotated[int, typer.Option(min=1, help="Print at most so many.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    name_servers: NameServers = "127.0.0.1:9876",
    access_key: AccessKey = "",
    secret_key: SecretKey = "",
    tls: Tls = False,
) -> None:
    """List undecided halves, the oldest first: id, place, topic, group, age, checks, keys."""
    from ledgermq.transactions import list_halves  # noqa: PLC0415

    servers = _servers(name_servers)
    _run(
        lambda instance: list_halves(
            servers,
            state="discarded" if discarded else "undecided",
            topic=topic,
            group=group,
            broker=broker,
            first=first,
            count=count,
            as_json=as_json,
            instance=instance,
        ),
        access_key=access_key,
        secret_key=secret_key,
        tls=tls,
    )


@tx_app.command("show")
def tx_show(
    message_id: _MessageId,
    broker: _Broker = None,
    as_json: Json = False,
    name_servers: NameServers = "127.0.0.1:9876",
    access_key: AccessKey = "",
    secret_key: SecretKey = "",
    tls: Tls = False,
) -> None:
    """Print one half: what became of it, its properties, the beginning of its body."""
    from ledgermq.transactions import show_half  # noqa: PLC0415

    servers = _servers(name_servers)
    _run(
        lambda instance: show_half(
            servers, message_id, broker=broker, as_json=as_json, instance=instance
        ),
        access_key=access_key,
        secret_key=secret_key,
        tls=tls,
    )


@tx_app.command("discard")
def tx_discard(
    message_ids: _MessageIds,
    broker: _Broker = None,
    as_json: Json = False,
    name_servers: NameServers = "127.0.0.1:9876",
    access_key: AccessKey = "",
    secret_key: SecretKey = "",
    tls: Tls = False,
) -> None:
    """Give undecided halves up: they are no longer checked, and a late commit is refused."""
    from ledgermq.transactions import discard_halves  # noqa: PLC0415

    servers = _servers(name_servers)
    _run(
        lambda instance: discard_halves(
            servers, message_ids, broker=broker, as_json=as_json, instance=instance
        ),
        access_key=access_key,
        secret_key=secret_key,
        tls=tls,
    )


@tx_app.command("resume")
def tx_resume(
    message_ids: _MessageIds,
    broker: _Broker = None,
    as_json: Json = False,
    name_servers: NameServers = "127.0.0.1:9876",
    access_key: AccessKey = "",
    secret_key: SecretKey = "",
    tls: Tls = False,
) -> None:
    """Make discarded halves undecided again, so that their producers are asked anew."""
    from ledgermq.transactions import resume_halves  # noqa: PLC0415

    servers = _servers(name_servers)
    _run(
        lambda instance: resume_halves(
            servers, message_ids, broker=broker, as_json=as_json, instance=instance
        ),
        access_key=access_key,
        secret_key=secret_key,
        tls=tls,
    )


def _servers(text: str) -> list[str]:
    try:
        return name_server_list(text)
    except ValueError as error:
        stop_with(error, EXIT_USAGE)


def _run(
    work: Callable[[InstanceSettings], Coroutine[Any, Any, None]],
    *,
    access_key: str,
    secret_key: str,
    tls: bool,
) -> None:
    import uvloop  # noqa: PLC0415

    from ledgermq.quick_try import QuickTryError, instance_settings  # noqa: PLC0415
    from ledgermq.transactions import TransactionError  # noqa: PLC0415

    try:
        instance = instance_settings(access_key=access_key, secret_key=secret_key, tls=tls)
        uvloop.run(work(instance))
    except (QuickTryError, TransactionError) as error:
        stop_with(error)
