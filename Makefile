# The verbs of this project. Each one does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FILE ?=
ARGS ?=
SPARKS ?= 4.0 4.1

.PHONY: install run test test-long test-spark check fuzz bench bench-spark build types docs manual clean

install: $(VENV)/.installed ## a virtual environment with mq and the tools of its developers

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

run: install ## the main job on real input: make run [FILE=any.txt]
	$(BIN)/python docs/tour.py $(FILE)

test: install ## the whole suite, in parallel
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --quiet

test-long: install ## tests that take minutes of a quiet machine: a thousand hostile clients
	MQ_TEST_LONG=1 $(BIN)/python -m pytest --quiet -s tests/system/test_hostile_load.py

test-spark: install ## tables, writes and jobs on earlier releases of Spark: make test-spark [SPARKS=4.1]
	for release in $(SPARKS); do \
	  test -x $(VENV)/spark-$$release/bin/mq && continue; \
	  $(PYTHON) -m venv $(VENV)/spark-$$release && \
	  $(VENV)/spark-$$release/bin/python -m pip install --quiet --disable-pip-version-check --editable . \
	    "pyspark==$$release.*" pyarrow numpy pandas pytest pytest-timeout pytest-xdist || exit 1; \
	done
	MQ_SPARK_PYTHONS=$$(echo $(foreach release,$(SPARKS),$(CURDIR)/$(VENV)/spark-$(release)/bin/python) | tr ' ' ':') \
	  $(BIN)/python -m pytest --quiet tests/pipeline/test_earlier_releases.py

check: install types ## lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

types: install ## mypy cannot rename folders, so show it a tree that has the right names
	mkdir -p .typing/mq
	ln -sfn $(addprefix ../../,mq/__init__.py mq/__main__.py mq/py.typed cli client daemons pipeline protocol) .typing/mq/

fuzz: install ## look for inputs that nothing expects: make fuzz [ARGS='broker --inputs 1000000']
	$(BIN)/python -m pip install --quiet --disable-pip-version-check atheris
	$(BIN)/python -m tests.fuzzing $(ARGS)

bench: install ## this broker beside the Java one: make bench [ARGS='--only send,pull']
	$(BIN)/python -m bench.compare $(ARGS)

bench-spark: install ## the Spark source and sink beside Kafka's: make bench-spark [ARGS='--rows 50000']
	$(BIN)/python -m bench.spark $(ARGS)

docs: install ## run what the documents show again, and write it where it is otherwise: make docs [FILE=docs/x.md]
	$(BIN)/python -m docs.runner $(FILE)

manual: install ## man pages, completions and docs/json-output.md, from the commands
	$(BIN)/mq manual

build: install ## a wheel and a source archive in dist/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build

clean:
	rm -rf build dist .typing .mypy_cache .pytest_cache .ruff_cache *.egg-info
