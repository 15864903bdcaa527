# The verbs of this project. Each one does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FILE ?=
ARGS ?=
SEEDS ?= 1000
FIRST ?= 1
SEED ?=
# More than cores: many tests wait for JVMs and timers.
PROCESSES ?= 5
SPARKS ?= 4.0 4.1

# Each process of the suite would compile hypothesis for itself.
unexport PYTHONDONTWRITEBYTECODE

NATIVE := protocol/native/_native.abi3.so
CARGO := protocol/native/Cargo.toml
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Java's clients, tools and servers beside ours; Java's brokers that die and hand over their stores and replicas.
JAVA := tests/interop
# Processes killed, power and disks that fail, seeds of the simulator.
FAULTS := tests/simulation tests/system/faults
PYTEST := $(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --quiet

.PHONY: install native tools run test test-java test-faults test-long durations test-spark simulate check fuzz fuzz-native bench bench-spark build docs manual translations pictures clean

install: $(VENV)/.installed native ## a virtual environment with mq: nothing that only its tests need

# `make native` builds the native path; `make run` does not wait for a compiler.
$(VENV)/.installed: pyproject.toml setup.py $(wildcard protocol/tube/*.proto)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	MQ_NATIVE=0 $(PIP) --editable .
	touch $@

# Renamed, never written over: a broker that runs with the one before has it mapped.
native: $(NATIVE) ## the native path, where a Rust compiler is

$(NATIVE): protocol/native/Cargo.toml protocol/native/Cargo.lock $(wildcard protocol/native/src/*.rs)
	if command -v cargo >/dev/null; then \
	  cargo build --quiet --release --locked --manifest-path $< && \
	  cp protocol/native/target/release/lib_native.so $@.new && mv $@.new $@; \
	else echo "no Rust compiler (cargo): sends and pulls stay in Python" >&2; fi

tools: $(VENV)/.tools native ## what its developers need besides: test tools, Spark

$(VENV)/.tools: $(VENV)/.installed
	MQ_NATIVE=0 $(PIP) --editable '.[dev]'
	touch $@

run: $(VENV)/.installed ## the main job on real input: make run [FILE=any.txt]
	$(BIN)/python docs/tour.py $(FILE)

test: tools ## the suite, in parallel: make test [PROCESSES=2]
	$(PYTEST) $(JAVA:%=--ignore=%) $(FAULTS:%=--ignore=%)

test-java: tools ## the real Java programs beside ours, stores and replicas that go to Java's brokers and back: for who changes what goes over the wire or to the disk
	$(PYTEST) $(JAVA)

test-faults: tools ## rounds of crashes, power cuts and failing disks, and seeds of the simulator: for who changes stores, replication or retries
	$(PYTEST) $(FAULTS)

test-long: tools ## an hour of a quiet machine: hostile clients, the console's API under schemathesis, 200 rounds of faults, 300 masters killed, 30 rounds of crashes, a soak, Spark on a cluster, crash points, many examples of properties [ARGS='-k faults']
	MQ_TEST_LONG=1 $(BIN)/python -m pytest --quiet -s --show-capture=no -m 'long or longer or hypothesis' $(ARGS)

durations: tools ## run the suite and keep how long each part takes, by which the parts are ordered
	MQ_TEST_DURATIONS=1 $(PYTEST)

test-spark: tools ## tables, writes and jobs on earlier releases of Spark: make test-spark [SPARKS=4.1]
	for release in $(SPARKS); do \
	  test -x $(VENV)/spark-$$release/bin/mq && continue; \
	  $(PYTHON) -m venv $(VENV)/spark-$$release && \
	  $(VENV)/spark-$$release/bin/python -m pip install --quiet --disable-pip-version-check --editable . \
	    "pyspark==$$release.*" pyarrow numpy pandas pytest pytest-timeout pytest-xdist || exit 1; \
	done
	MQ_SPARK_PYTHONS=$$(echo $(foreach release,$(SPARKS),$(CURDIR)/$(VENV)/spark-$(release)/bin/python) | tr ' ' ':') \
	  $(BIN)/python -m pytest --quiet tests/pipeline/test_earlier_releases.py

simulate: tools ## whole clusters on a simulated clock, disk and network: make simulate [SEEDS=1000] [FIRST=1] or [SEED=n], with its story
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST)) $(ARGS)

check: tools ## lint, format, types and the wording of texts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet tests/test_words.py
	if cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1; then \
	  cargo fmt --check --manifest-path $(CARGO) && \
	  cargo clippy --quiet --locked --manifest-path $(CARGO) -- --deny warnings; \
	else echo "no cargo with clippy and rustfmt: the native path is not looked at" >&2; fi

fuzz: tools ## look for inputs that nothing expects: make fuzz [ARGS='broker --inputs 1000000']
	$(PIP) atheris
	$(BIN)/python -m tests.fuzzing $(ARGS)

# No unsafe code may be in it; what it is built upon has some. Sanitizers are for nightly compilers, and this variable.
fuzz-native: tools ## a million buffers of sends, taken natively - with each access to memory and each sum looked at - and by Python: make fuzz-native [ARGS='--cases 20000']
	host=$$(rustc -vV | sed -n 's/^host: //p') && checked=protocol/native/target/checked && \
	RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address -Cdebug-assertions=on -Coverflow-checks=on' \
	  cargo build --quiet --release --locked --manifest-path $(CARGO) --target $$host --target-dir $$checked && \
	LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
	  $(BIN)/python -m tests.fuzzing.both_paths --library $$checked/$$host/release/lib_native.so $(ARGS)

bench: tools ## this broker beside the Java one: make bench [ARGS='--only send,pull']
	$(BIN)/python -m bench.compare $(ARGS)

bench-spark: tools ## the Spark source and sink beside Kafka's: make bench-spark [ARGS='--rows 50000']
	$(BIN)/python -m bench.spark $(ARGS)

docs: tools ## run what the documents show again, and write it where it is otherwise: make docs [FILE=docs/x.md]
	$(BIN)/python -m docs.runner $(FILE)

manual: tools ## man pages, completions and docs/json-output.md, from the commands
	$(BIN)/python -m mq.cli.manual.table
	$(BIN)/mq manual

translations: tools ## the catalogues of the console's texts, from its pages
	$(BIN)/python -m tests.daemons.console.catalogues

pictures: tools ## the pictures of docs/jobs/console.md anew, taken in Chromium
	MQ_TEST_LONG=1 MQ_PICTURES=1 $(BIN)/python -m pytest --quiet tests/daemons/console/browser/test_pictures.py

build: $(VENV)/.installed ## a wheel and a source archive in dist/
	$(PIP) build
	$(BIN)/python -m build

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache *.egg-info
