.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help install demo test test-system check format

help:  ## Print this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[worker,embedded,s3,dev]'
	@touch $@

install: $(INSTALLED)  ## Create .venv and install Expunge with everything it needs

demo: $(INSTALLED)  ## Delete real samples from a real network and print the audit report
	$(BIN)/expunge demo

test: $(INSTALLED)  ## Run the test suite against real PostgreSQL and Valkey
	$(BIN)/pytest --numprocesses 2 --dist loadfile

test-system: $(INSTALLED)  ## Run the tests that need more: Docker Compose (x86-64), or root
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[system]'
	$(BIN)/pytest -m system

check: $(INSTALLED)  ## Format, lint, types, migrations, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile
	$(BIN)/python -m tests.alembic_check
	$(BIN)/pytest tests/test_architecture.py

format: $(INSTALLED)  ## Rewrite files in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
