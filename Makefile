# make demo    four nodes on this machine, two of them broken, and what netdoctor says about them
# make quick   the tests to run while you type: pure and in one process
# make fuzz    hostile peers, reports, facts files and machines from fresh seeds, for SECONDS=600
# make metamorphic   clusters changed in ways whose effect on the verdict is known, for SECONDS=600
# make worlds   printed fixes pasted on drawn files of a node, in a namespace, for SECONDS=600
# make mutants COUNT=40   small changes of the product, one at a time, that the quick tests should notice
# make truth   verdicts held against torchrun jobs that really start, for NAMES or all of some 70 situations
# make test    every test that this machine and user can run
# make weekly   the slow tests that `make test` leaves out, as others cover most of what they do
# make onefile   dist/netdoctor: one executable file with its own Python
# make lock    the newest releases of what netdoctor needs, for the image and the one file
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LAB_PACKAGES := $(shell cat scripts/lab-packages.txt)
export PYTHON

.PHONY: demo quick test weekly fuzz metamorphic worlds mutants truth lint docs bench onefile lock clean system

demo: $(VENV)/netdoctor
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo.sh

quick: $(VENV)/dev
	$(BIN)/pytest -q -n 2

# In the two steps of .ci/run: what measures rates has the machine for itself.
test: $(VENV)/dev
	$(BIN)/pytest --all -m "not rates" -n $$((2 * $$(nproc))) --dist worksteal
	$(BIN)/pytest -m rates

weekly: $(VENV)/dev
	$(BIN)/pytest --weekly -m "weekly and not rates" -n $$((2 * $$(nproc))) --dist worksteal
	$(BIN)/pytest --weekly -m "weekly and rates"

SECONDS := 600
fuzz: $(VENV)/dev
	$(BIN)/python scripts/fuzz.py $(SECONDS) $(NAMES)

metamorphic: $(VENV)/dev
	$(BIN)/python scripts/fuzz.py $(SECONDS) $(or $(NAMES),metamorphic)

worlds: $(VENV)/dev
	$(BIN)/python scripts/fuzz.py $(SECONDS) $(or $(NAMES),worlds fixes)

COUNT := 40
mutants: $(VENV)/dev
	$(BIN)/python scripts/mutants.py $(COUNT) $(SEED)

truth: $(VENV)/dev
	$(BIN)/python scripts/truth.py $(NAMES)

lint: $(VENV)/dev
	$(BIN)/ruff check
	$(BIN)/mypy
	MYPYPATH=benchmarks $(BIN)/mypy scripts/*.py benchmarks/*.py
	$(BIN)/lint-imports
	$(BIN)/python scripts/house.py

docs: $(VENV)/dev
	$(BIN)/python scripts/gen_docs.py

bench: $(VENV)/dev
	$(BIN)/python benchmarks/fanout.py

onefile: $(VENV)/netdoctor
	rm -rf build  # setuptools would pack what an earlier build left there
	wheels=$$(mktemp -d); trap 'rm -rf "$$wheels"' EXIT; \
	$(PIP) wheel -q -w "$$wheels" --require-hashes -r requirements.lock; \
	PYTHON=$(BIN)/python scripts/docker-install.sh build . "$$wheels"; \
	$(BIN)/python scripts/onefile.py "$$wheels" dist/netdoctor

lock: | $(BIN)/python
	$(PIP) install -q uv
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.10 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# What the lab and virtual environments need of Debian. Without root nothing is installed, and netdoctor itself says
# what it then cannot do.
system:
	@if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
		scripts/system-packages.sh $(LAB_PACKAGES); \
		scripts/python.sh >/dev/null 2>&1 || scripts/system-packages.sh python3 python3-venv; \
	fi

$(BIN)/python: | system
	"$$(scripts/python.sh)" -m venv $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=25.1'

$(VENV)/netdoctor: pyproject.toml | $(BIN)/python
	$(PIP) install -qq --editable .
	@touch $@

$(VENV)/dev: pyproject.toml | $(BIN)/python
	$(PIP) install -qq --editable . --group dev
	@touch $@ $(VENV)/netdoctor
