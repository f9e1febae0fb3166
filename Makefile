# Every target builds the environment it needs in .venv; nothing installed by hand is needed.

PYTHON ?= $(shell command -v python3.11 || echo python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-quick lint bench soak compare conformance interaction clean

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[cli,demo]' --requirement requirements-dev.txt
	touch $@

demo: $(READY)          ## the main job on real servers
	$(BIN)/python -m deputy_mcp demo

test: $(READY)          ## the whole suite; servers from other registries are installed on first use
	$(BIN)/python tests/real/provision.py
	$(BIN)/python -m pytest -m 'not suite'

test-quick: $(READY)    ## without what is slow or needs a registry
	$(BIN)/python -m pytest -m 'not slow and not network'

lint: $(READY)          ## ruff and mypy strict
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(READY)         ## the benchmarks, as tables; kept in benchmarks/results and drawn in docs/explanation/speed.md
	$(BIN)/python -m benchmarks --write

soak: $(READY)          ## twenty misbehaving servers for ten minutes, and their books against ours
	$(BIN)/python -m tests.soak

compare: $(READY)       ## the scriptable server beside the bare SDK and fastmcp's client
	$(BIN)/python -m benchmarks.compare

conformance: $(READY)   ## the official client conformance suite
	$(BIN)/python tests/conformance/run.py

interaction: $(READY)   ## the SDK's own interaction suite
	$(BIN)/python tests/interaction/run.py

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
