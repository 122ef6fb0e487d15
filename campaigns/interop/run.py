"""Real RocketMQ clients against ledgermq, and against Apache RocketMQ itself.

    python -m campaigns.interop.run [--target NAME ...] [--client NAME ...] [--only CASE ...]

Each case (one feature of a client: `Catalogue.java`, `go/`, `python_cases.py`) runs against each
target (`targets.py`). The same programs run against RocketMQ, so that what they expect is known
to hold there. What is missing on this machine (Java, Maven, Go) is said and skipped by name.
Prints a line per case, then the table; exits with 1 where a case is red.
"""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from campaigns.interop.master_slave import ENGINES, FLUSHES, MODES, ROLES, Roles
from campaigns.interop.master_slave import GROUPS as OWN_TESTS
from campaigns.interop.matrix import Matrix
from campaigns.interop.programs import java_command, run_program, suite_command
from campaigns.interop.secured import SecuredTarget
from campaigns.interop.security import SECURED_CASES, run_secured
from campaigns.interop.targets import TARGETS, Ledgermq, Target, started
from campaigns.interop.toolchain import MissingToolError, Toolchain

JAVA_CLIENTS = {"java-5.5.0": "5.5.0", "java-5.3.3": "5.3.3", "java-4.9.8": "4.9.8"}
GRPC = "grpc-5.2.0"
SUITE = "suite-5.5.0"  # RocketMQ's own integration tests
CLIENTS = (*JAVA_CLIENTS, GRPC, "go-2.1.2", "python", SUITE)
GROUPS = {
    "ledgermq": (
        "ledgermq-1",
        "ledgermq-3",
        "ledgermq-kill",
        "ledgermq-acl",
        "ledgermq-tls",
        "ledgermq-proxy",
        "ledgermq-proxy-kill",
        "ledgermq-groups",
    ),
    "rocketmq": ("rocketmq", "rocketmq-acl", "rocketmq-tls"),
}
ROLE_CLIENTS = tuple(JAVA_CLIENTS)  # whose programs say themselves what happens to the brokers
CASES_AT_ONCE = 8


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def client_program(client: str, tools: Toolchain, home: Path) -> list[str]:
    """The command that runs a client's cases. Raises MissingToolError."""
    if client in JAVA_CLIENTS:
        built = tools.java_client(JAVA_CLIENTS[client])
        return java_command(tools.require_java(), built, home)
    if client == GRPC:
        *command, main = java_command(tools.require_java(), tools.grpc_client(), home)
        return [*command, "-Dinterop.cases=interop.GrpcCases", main]
    if client == SUITE:
        return suite_command(tools.require_java(), tools.suite(), home)
    if client == "go-2.1.2":
        return [str(tools.go_client())]
    return [sys.executable, "-m", "campaigns.interop.python_cases"]


def serves(target: str, client: str) -> bool:
    """Whether the client is for that target: some are for their own alone."""
    mode = MODES.get(target)
    is_for_suite = target == "ledgermq-groups" or (mode is not None and mode.kind == OWN_TESTS)
    if is_for_suite or client == SUITE:
        return is_for_suite and client == SUITE
    if mode is not None and mode.kind == ROLES:
        return client in ROLE_CLIENTS
    return target.startswith("ledgermq-proxy") == (client == GRPC)


def chosen(cases: Sequence[str], patterns: list[str]) -> list[str]:
    """Those that match a pattern; all, without patterns."""
    if not patterns:
        return list(cases)
    return [name for name in cases if any(fnmatch.fnmatch(name, each) for each in patterns)]


def run_client(
    client: str, target: Target, tools: Toolchain, directory: Path, arguments: argparse.Namespace
) -> Matrix:
    matrix = Matrix()
    if not serves(target.name, client):
        return matrix
    if isinstance(target, SecuredTarget):
        if not chosen(SECURED_CASES, arguments.only):
            return matrix
        print_line(f"== {client} on {target.name}")
        try:
            matrix.add(run_secured(client, target, tools, directory))
        except MissingToolError as missing:
            matrix.skip(client, target.name, str(missing))
        for each in matrix.outcomes:
            print_line(f"{each.outcome:4} {each.case}  {each.detail}")
        return matrix
    try:
        program = client_program(client, tools, directory / f"home-{client}")
    except MissingToolError as missing:
        matrix.skip(client, target.name, str(missing))
        return matrix
    roles = target if isinstance(target, Roles) else None
    if roles is not None:
        *command, main = program
        program = [*command, "-Dinterop.cases=interop.RoleCases", main]
    listed = subprocess.run([*program, "list"], capture_output=True, text=True, check=True)
    cases = chosen(listed.stdout.split(), arguments.only)
    if not cases:
        return matrix
    print_line(f"== {client} on {target.name}: {len(cases)} cases")
    mode = "faults" if target.breaks else "steady"
    at_once = 1 if roles is not None else arguments.at_once
    command = [*program, ";".join(target.name_servers), str(at_once), mode, *cases]
    if isinstance(target, Ledgermq):
        target.await_whole()
    if isinstance(target, Ledgermq) and target.proxy is not None:
        command.insert(1, f"-Dinterop.proxy={target.proxy}")
    log = directory / f"{client}.log"
    carry_out = None if roles is None else roles.carry_out
    outcomes = run_program(
        command,
        client=client,
        target=target,
        cases=cases,
        log=log,
        report=print_line,
        carry_out=carry_out,
    )
    matrix.add(outcomes)
    return matrix


def store_figures(figures: Path, matrix: Matrix) -> None:
    """Write what is known by now: one target that does not come up costs no other its figures."""
    figures.parent.mkdir(parents=True, exist_ok=True)
    if figures.exists():
        matrix = matrix.merged_into(Matrix.from_json(figures.read_text(encoding="utf-8")))
    figures.write_text(matrix.to_json() + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", nargs="+", default=["ledgermq"], help=", ".join(TARGETS))
    parser.add_argument("--engine", default="raft", choices=("raft", *ENGINES))
    parser.add_argument("--flush", choices=FLUSHES, help="of the engines async and sync; both")
    parser.add_argument("--client", nargs="+", default=list(CLIENTS), choices=CLIENTS)
    parser.add_argument("--only", nargs="+", default=[], help="cases, with * and ?")
    parser.add_argument("--at-once", type=int, default=CASES_AT_ONCE)
    parser.add_argument("--directory", type=Path, help="kept; a new one in runs/interop otherwise")
    parser.add_argument("--output", type=Path, help="figures; what it holds of other cells stays")
    arguments = parser.parse_args()
    groups = GROUPS
    if arguments.engine != "raft":
        flushes = [arguments.flush] if arguments.flush else FLUSHES
        modes = [
            name
            for name, mode in MODES.items()
            if mode.engine == arguments.engine and mode.flush in flushes
        ]
        groups = {"ledgermq": tuple(modes)}
    named = [name for each in arguments.target for name in groups.get(each, (each,))]
    targets = list(dict.fromkeys(named))
    unknown = sorted(set(targets) - set(TARGETS))
    if unknown:
        parser.error(f"no target is called {unknown[0]}")
    if arguments.directory is None:
        parent = Path("runs") / "interop"
        parent.mkdir(parents=True, exist_ok=True)
        arguments.directory = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    root = arguments.directory.resolve()
    tools = Toolchain.look_up()
    matrix = Matrix()
    began = time.monotonic()
    for name in targets:
        try:
            with started(name, root / name, tools) as target:
                for client in arguments.client:
                    part = run_client(client, target, tools, root / name, arguments)
                    matrix.add(part.outcomes)
                    matrix.skipped += part.skipped
        except MissingToolError as missing:
            matrix.skip("all", name, str(missing))
        if arguments.output is not None:
            store_figures(arguments.output, matrix)
    print_line(matrix.table())
    print_line(f"{time.monotonic() - began:.0f} s; everything they printed is in {root}")
    return 1 if matrix.red else 0


if __name__ == "__main__":
    sys.exit(main())
