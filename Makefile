# The targets of this project. Each one installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FILE ?=
ARGS ?=
SEEDS ?= 1000
FIRST ?= 1
SEED ?=
# More processes than cores, because many tests wait for JVMs and timers.
PROCESSES ?= 5
SPARKS ?= 4.0 4.1

# Without .pyc files each process of the suite would compile hypothesis.
unexport PYTHONDONTWRITEBYTECODE

NATIVE := protocol/native/_native.abi3.so
CARGO := protocol/native/Cargo.toml
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Java's clients, tools and servers with ours, and stores and replicas of killed Java brokers.
JAVA := tests/interop
# Kills, power cuts, disk failures and seeds of the simulator.
FAULTS := tests/simulation tests/system/faults
PYTEST := $(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --quiet

.PHONY: install native tools run test test-more test-java test-faults test-long durations test-spark simulate check fuzz fuzz-native bench bench-spark build docs manual translations pictures clean

install: $(VENV)/.installed native ## create .venv with mq, without development tools

# `make native` builds the native path; `make run` does not wait for a compiler.
$(VENV)/.installed: pyproject.toml setup.py $(wildcard protocol/tube/*.proto)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	MQ_NATIVE=0 $(PIP) --editable .
	touch $@

# Replaced by a rename, because running brokers have the former library mapped.
native: $(NATIVE) ## build the native path, if there is a Rust compiler

$(NATIVE): protocol/native/Cargo.toml protocol/native/Cargo.lock $(wildcard protocol/native/src/*.rs)
	if command -v cargo >/dev/null; then \
	  cargo build --quiet --release --locked --manifest-path $< && \
	  cp protocol/native/target/release/lib_native.so $@.new && mv $@.new $@; \
	else echo "no Rust compiler (cargo): sends and pulls stay in Python" >&2; fi

tools: $(VENV)/.tools native ## add the tools for development: test tools, Spark

$(VENV)/.tools: $(VENV)/.installed
	MQ_NATIVE=0 $(PIP) --editable '.[dev]'
	touch $@

run: $(VENV)/.installed ## run the main job on real input: make run [FILE=any.txt]
	$(BIN)/python docs/tour.py $(FILE)

test: tools ## run the test suite in parallel, properties and seeds with a quarter of their examples: make test [PROCESSES=2]
	$(PYTEST) $(JAVA:%=--ignore=%) $(FAULTS:%=--ignore=%)

test-more: tools ## repeat properties and seeds of the suite with more examples, and run the parameters that it leaves out
	MQ_TEST_MORE=1 $(PYTEST) -m 'more or only_more or hypothesis' $(JAVA:%=--ignore=%) $(FAULTS:%=--ignore=%)

test-java: tools ## test with the real Java programs, after changes of the wire or of files
	$(PYTEST) $(JAVA)

test-faults: tools ## test crashes, power cuts, disk failures and seeds of the simulator, after changes of the store, replication or retries
	$(PYTEST) $(FAULTS)

test-long: tools ## run the long tests, an hour on a quiet machine: hostile clients, schemathesis, rounds of faults and crashes, a soak, Spark on a cluster: make test-long [ARGS='-k faults']
	MQ_TEST_LONG=1 $(BIN)/python -m pytest --quiet -s --show-capture=no -m 'long or longer or hypothesis' $(ARGS)

durations: tools ## run the suite and record the duration of each file, by which files are ordered
	MQ_TEST_DURATIONS=1 $(PYTEST)

test-spark: tools ## test the pipeline on earlier releases of Spark: make test-spark [SPARKS=4.1]
	for release in $(SPARKS); do \
	  test -x $(VENV)/spark-$$release/bin/mq && continue; \
	  $(PYTHON) -m venv $(VENV)/spark-$$release && \
	  $(VENV)/spark-$$release/bin/python -m pip install --quiet --disable-pip-version-check --editable . \
	    "pyspark==$$release.*" pyarrow numpy pandas pytest pytest-timeout pytest-xdist || exit 1; \
	done
	MQ_SPARK_PYTHONS=$$(echo $(foreach release,$(SPARKS),$(CURDIR)/$(VENV)/spark-$(release)/bin/python) | tr ' ' ':') \
	  $(BIN)/python -m pytest --quiet tests/pipeline/test_earlier_releases.py

simulate: tools ## run clusters on a simulated clock, disk and network: make simulate [SEEDS=1000] [FIRST=1], or [SEED=n] to print its events
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST)) $(ARGS)

check: tools ## check lint, format, types and wording
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet tests/test_words.py
	if cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1; then \
	  cargo fmt --check --manifest-path $(CARGO) && \
	  cargo clippy --quiet --locked --manifest-path $(CARGO) -- --deny warnings; \
	else echo "no cargo with clippy and rustfmt: the native path is not checked" >&2; fi

fuzz: tools ## search for inputs that crash a parser: make fuzz [ARGS='broker --inputs 1000000']
	$(PIP) atheris
	$(BIN)/python -m tests.fuzzing $(ARGS)

# The crate forbids unsafe code, but its dependencies have some. RUSTC_BOOTSTRAP allows sanitizers in a stable compiler.
fuzz-native: tools ## compare the native path, under AddressSanitizer and overflow checks, with Python on a million buffers of sends: make fuzz-native [ARGS='--cases 20000']
	host=$$(rustc -vV | sed -n 's/^host: //p') && checked=protocol/native/target/checked && \
	RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address -Cdebug-assertions=on -Coverflow-checks=on' \
	  cargo build --quiet --release --locked --manifest-path $(CARGO) --target $$host --target-dir $$checked && \
	LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
	  $(BIN)/python -m tests.fuzzing.both_paths --library $$checked/$$host/release/lib_native.so $(ARGS)

bench: tools ## compare the broker with Java's: make bench [ARGS='--only send,pull']
	$(BIN)/python -m bench.compare $(ARGS)

bench-spark: tools ## compare the Spark source and sink with Kafka's: make bench-spark [ARGS='--rows 50000']
	$(BIN)/python -m bench.spark $(ARGS)

docs: tools ## run the commands that the documents show, and update their output: make docs [FILE=docs/x.md]
	$(BIN)/python -m docs.runner $(FILE)

manual: tools ## write man pages, completions and docs/json-output.md from the commands
	$(BIN)/python -m mq.cli.manual.table
	$(BIN)/mq manual

translations: tools ## update the catalogues of the console's texts from its pages
	$(BIN)/python -m tests.daemons.console.catalogues

pictures: tools ## take the pictures of docs/jobs/console.md again, in Chromium
	MQ_TEST_LONG=1 MQ_PICTURES=1 $(BIN)/python -m pytest --quiet tests/daemons/console/browser/test_pictures.py

build: $(VENV)/.installed ## build a wheel and a source archive in dist/
	$(PIP) build
	$(BIN)/python -m build

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache *.egg-info
