"""mqadmin 5.3 with accounts: signed with the keys of its tools.yml, against brokers that check.

    python -m campaigns.interop.mqadmin_accounts [--output FILE]

A group of three with `acl_enable`. An administrator of `plain_acl.yml` makes a topic and a user of
5.x with permissions, asks any replica, and takes them away again; a wrong secret, no tools.yml, a
user without permission and one that is disabled are refused with 16, and change nothing. A few more
go to ports that take TLS only.
`python -m campaigns.interop.mqadmin --accounts FILE` puts the figures beside the other commands'.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from campaigns.interop.mqadmin import Tool, retained_text
from campaigns.interop.mqadmin_commands import filled, pattern
from campaigns.interop.run import print_line
from campaigns.interop.secured import secured
from campaigns.interop.toolchain import Toolchain
from campaigns.rig.processes import Processes, request
from campaigns.rig.waiting import await_until
from chaos.cluster import cluster
from remoting.protocol.command import RemotingCommand

READY_S = 60.0
ADMIN, USER = "admin001", "who"
ACCOUNTS = f"""\
accounts:
  - {{accessKey: {ADMIN}, secretKey: secret-of-admin, admin: true}}
  - {{accessKey: replicas, secretKey: secret-of-replicas, admin: true}}
"""
SECRETS = {
    "administrator": (ADMIN, "secret-of-admin"),
    "wrong secret": (ADMIN, "secret-of-another"),
    "nobody": ("nobody01", "secret-of-nobody"),
    "unsigned": None,
    "user": (USER, "secret-of-who"),
}
_PRODUCER = ("producer1", "secret-of-producer")
_REFUSED = r"CODE: 16\b"
_OF_ALL = r"(?:success[\s\S]*){3}"
_ONE_STORED = r"(?s)^broker-a\s+0\s+0\s+(?:0\s.*^broker-a\s+1\s+0\s+1|1\s.*^broker-a\s+1\s+0\s+0)\s"
# Who requests, what, and what must be printed.
CASES = tuple(
    tuple(part.strip() for part in line.split(" | "))
    for line in rf"""
unsigned | updateTopic -c DefaultCluster -t orders -r 2 -w 2 | {_REFUSED} +DESC: No accessKey
wrong secret | updateTopic -c DefaultCluster -t orders -r 2 -w 2 | {_REFUSED}.*Check signature
nobody | updateTopic -c DefaultCluster -t orders -r 2 -w 2 | {_REFUSED} +DESC: No acl config
administrator | topicList | \A(?![\s\S]*^orders$)
administrator | updateTopic -c DefaultCluster -t orders -r 2 -w 2 | success
administrator | topicStatus -t orders | ^broker-a\s+1\s+0\s+0
administrator | updateTopic -b $follower -t payments -r 1 -w 1 | success
administrator | updateSubGroup -c DefaultCluster -g readers | success
administrator | createUser -c DefaultCluster -u {USER} -p secret-of-who -t Normal | {_OF_ALL}
administrator | getUser -b $broker -u {USER} | ^{USER}\s+secret-of-who\s+Normal\s+enable
user | sendMessage -t orders -p hello | {_REFUSED}.*no matched policies
administrator | createAcl -c DefaultCluster -s User:{USER} -r Topic:ord* -a Pub -d Allow | {_OF_ALL}
user | sendMessage -t orders -p hello | SEND_OK
user | sendMessage -t payments -p hello | {_REFUSED}.*Topic:payments
user | updateTopic -c DefaultCluster -t mine -r 1 -w 1 | {_REFUSED}.*Topic:mine
user | createUser -b $broker -u mine -p x -t Super | {_REFUSED}.*Cluster:DefaultCluster
administrator | updateUser -b $broker -u {USER} -s disable | success
user | sendMessage -t orders -p hello | {_REFUSED}.*is disabled
administrator | deleteTopic -c DefaultCluster -t payments | success
administrator | deleteSubGroup -c DefaultCluster -g readers -r true | success
administrator | deleteUser -c DefaultCluster -u {USER} | {_OF_ALL}
administrator | topicList | \A(?![\s\S]*^(?:mine|payments)$)[\s\S]*^orders$
administrator | topicStatus -t orders | {_ONE_STORED}
""".strip().splitlines()
)

# The same over TLS, with the keys of a producer of `secured.ACCOUNTS`.
TLS_SECRETS = {
    "producer, TLS": (*_PRODUCER, True),
    "wrong secret, TLS": (_PRODUCER[0], "secret-of-another", True),
    "producer, plain text": (*_PRODUCER, False),
}
TLS_CASES = tuple(
    tuple(part.strip() for part in line.split(" | "))
    for line in rf"""
producer, TLS | clusterList | ^DefaultCluster\s+broker-a\s+0\s
producer, TLS | sendMessage -t orders -p hello | SEND_OK
producer, TLS | sendMessage -t payments -p hello | {_REFUSED}.*payments
wrong secret, TLS | sendMessage -t orders -p hello | {_REFUSED}.*Check signature
producer, plain text | sendMessage -t orders -p hello | No route info of this topic
producer, TLS | topicStatus -t orders | (?s)\A(?!(?:.*\s0\s+1\s+20\d\d-){{2}}).*\s0\s+1\s+20\d\d-
""".strip().splitlines()
)


def started(directory: Path) -> Processes:
    """Three brokers that check signatures."""
    group = Processes(directory, broker_settings={"acl_enable": True})
    accounts = directory / "plain_acl.yml"
    accounts.write_text(ACCOUNTS, encoding="utf-8")
    for name in group.brokers:
        config = group.config(name)
        text = config.read_text(encoding="utf-8")
        assert "[broker]\n" in text
        settings = f'[broker]\nacl_file = "{accounts}"\nacl_inner_access_key = "replicas"\n'
        config.write_text(text.replace("[broker]\n", settings, 1), encoding="utf-8")
    cluster.start_all(group.table, directory, group.layout)
    await_until(lambda: len(replicas(group)) == 3, "a leader and followers", READY_S)
    return group


def replicas(group: Processes) -> dict[str, str]:
    """Addresses by broker id, as a name server tells them: it asks for no signature."""
    answer = request(group.name_servers[0], RemotingCommand(code=106))
    if not isinstance(answer, RemotingCommand) or not answer.body:
        return {}
    table = json.loads(answer.body)["brokerAddrTable"]
    addresses: dict[str, str] = table.get("broker-a", {}).get("brokerAddrs", {})
    return addresses if "0" in addresses else {}


def tool_of(
    account: str,
    keys: tuple[str, str] | None,
    directory: Path,
    servers: str,
    tools: Toolchain,
    *flags: str,
) -> Tool:
    """mqadmin with the account's tools.yml."""
    home = directory / account.replace(" ", "-").replace(",", "")
    (home / "conf").mkdir(parents=True)
    if keys is not None:
        text = f"accessKey: {keys[0]}\nsecretKey: {keys[1]}\n"
        (home / "conf" / "tools.yml").write_text(text, encoding="utf-8")
    return Tool(home, servers, tools, f"-Drocketmq.home.dir={home}", *flags, "-")


class AccountCases:
    """The cases of one target, and what came of them."""

    def __init__(self, make: Callable[[str], Tool]) -> None:
        self._make = make
        self._tools: dict[str, Tool] = {}
        self.rows: list[dict[str, str]] = []

    def run_case(self, account: str, line: str, wanted: str, names: dict[str, str]) -> None:
        if account not in self._tools:
            self._tools[account] = self._make(account)
        words = [filled(word, names) for word in line.split()]
        text, _ = self._tools[account].run(words)
        if wanted.startswith(_REFUSED) and "TimeoutException" in text:
            text, _ = self._tools[account].run(words)  # no answer is no refusal: a busy machine
        ok = pattern(wanted, names).search(text) is not None
        self.record(
            line, account, wanted, "ok" if ok else _outcome_of(text), retained_text(text, {})[:500]
        )

    def record(
        self, command: str, account: str, wanted: str, verdict: str, printed: str = ""
    ) -> None:
        row = {"command": command, "account": account, "wanted": wanted, "verdict": verdict}
        self.rows.append({**row, "printed": printed})
        print_line(f"{verdict[:4]:5} {account}: {command}")

    def stop(self) -> None:
        for tool in self._tools.values():
            tool.stop()


def run(directory: Path, tools: Toolchain) -> list[dict[str, str]]:
    """A row per case; `verdict` is "ok", or what was printed instead."""
    with started(directory / "cluster") as group:
        servers = ";".join(group.name_servers)
        cases = AccountCases(lambda each: tool_of(each, SECRETS[each], directory, servers, tools))
        try:
            for account, line, wanted in CASES:
                addresses = replicas(group)
                follower = next(each for key, each in sorted(addresses.items()) if key != "0")
                names = {"broker": addresses["0"], "follower": follower}
                cases.run_case(account, line, wanted, names)
        finally:
            cases.stop()
        logs = "".join(group.output(name) for name in group.brokers)
        leaked = re.search(r"secret-of-\w+", logs)
        cases.record("the brokers' logs", "", "no secret", leaked[0] if leaked else "ok")
        return cases.rows


def run_tls(directory: Path, tools: Toolchain) -> list[dict[str, str]]:
    """Likewise, on ports that take TLS only."""
    (directory / "tls").mkdir()
    with secured("ledgermq-tls", directory / "tls", tools) as target:
        assert target.authority is not None
        trust = f"-Dtls.client.trustCertPath={target.authority.own.cert}"

        def make(account: str) -> Tool:
            key, secret, tls = TLS_SECRETS[account]
            flags = ("-Dtls.enable=true", "-Dtls.client.authServer=true", trust) if tls else ()
            servers = ";".join(target.name_servers)
            return tool_of(account, (key, secret), directory, servers, tools, *flags)

        cases = AccountCases(make)
        try:
            for account, line, wanted in TLS_CASES:
                cases.run_case(account, line, wanted, {})
        finally:
            cases.stop()
        return cases.rows


def _outcome_of(text: str) -> str:
    coded = re.search(r"CODE: .*", text)
    return (coded[0] if coded else text.strip())[:300]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    parent = Path("runs") / "interop"
    parent.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="mqadmin-accounts-", dir=parent)).resolve()
    tools = Toolchain.look_up()
    rows = run(root, tools) + run_tls(root, tools)
    wrong = [row for row in rows if row["verdict"] != "ok"]
    for row in wrong:
        print_line(f"FAIL  {row['account']}: {row['command']}: {row['verdict']}")
    print_line(f"{len(rows) - len(wrong)} of {len(rows)} as they should be")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
