# The two most important commands. Both need only python3 (with venv), make and git:
#   make demo   containers get devices of this host and simulated devices
#   make test   lint, types, import contracts, all tests but the slow ones
# `make help` lists all targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# --dist=worksteal: a worker has neighbouring tests, which share the fixtures of their file. --dist=loadgroup: one
# worker has all tests that share our image, or a cluster (tests/worker_groups.py).
# Most tests wait for other processes most of the time, so more workers than processors pay off. Each worker loads
# all tests first, which takes some seconds of a processor.
WORKERS ?= 5
SECONDS = 60
TARGETS ?=

# Settings of `make image` and `make deploy`; KUBECONFIG chooses the cluster. `make deploy` passes the
# variables of the simulator (RESOURCE_NAME, NUMBER_DEVICES, ENV_PREFIX, ...) from the environment on.
ENGINE ?= podman
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE ?= localhost/kubedevices:$(VERSION)
NAMESPACE ?= kubedevices
PLUGIN ?= simulate
MANIFEST_ARGS ?=
DEPLOY_ARGS ?=
CHOSEN = $(PLUGIN) --namespace $(NAMESPACE) $(MANIFEST_ARGS)
# The default of IMAGE exists only on the machine that built it, and a cluster cannot pull it. So `deploy`
# gets --image only if the user sets IMAGE; `kubedevices deploy` asks for --image otherwise.
CHOSEN_IMAGE = $(if $(filter file,$(origin IMAGE)),,--image $(IMAGE))
export RESOURCE_NAME NUMBER_DEVICES PLUGIN_NAME DEVICE_ID_PREFIX ANNOTATION_PREFIX ENV_PREFIX \
	DEVICE_FILE_PREFIX

.PHONY: help build onefile chart site pictures image deploy undeploy print-manifests venv demo demo-dra test test-slow test-elsewhere test-deps lint format types imports compiled tests fuzz mutants proto bench clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | sort

$(VENV)/runtime.done: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(VENV)/dev.done: $(VENV)/runtime.done requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
	@touch $@

venv: $(VENV)/runtime.done  ## .venv/bin/kubedevices, with pinned requirements

demo: venv  ## a container gets a device of this host, without Kubernetes
	@$(BIN)/python -m examples.demo

demo-dra: venv  ## a node changes from device plugin to DRA, on the Kubernetes of KUBEDEVICES_KUBERNETES
	@$(BIN)/python -m examples.demo_dra

test:  ## lint, types, import contracts, all tests but the slow ones
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint types imports compiled
	@$(MAKE) --no-print-directory tests

test-slow: $(VENV)/dev.done  ## the tests that take long: kill series, all mutants, the container image, a real Kubernetes
	$(BIN)/python -m compileall -q src tests examples benchmarks
	PYTHONDONTWRITEBYTECODE=1 $(BIN)/pytest -n $(WORKERS) --dist=loadgroup -m slow $(PYTEST_ARGS)

test-elsewhere:  ## a part of the tests as another user with Debian's Python; the units on each Python of this machine
	tests/elsewhere

test-deps:  ## Debian packages without which some tests are skipped (needs root)
	apt-get install --yes --no-install-recommends $$(sed 's/#.*//' tests/debian-packages.txt)

lint: $(VENV)/dev.done  ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/dev.done  ## let ruff correct rules and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(VENV)/dev.done  ## mypy --strict
	$(BIN)/mypy

imports: $(VENV)/dev.done  ## the import contracts of docs/architecture.md
	$(BIN)/lint-imports

# pytest rewrites the asserts of the tests and caches the result. This step fills the cache while the other
# checks run, if a test file has changed.
compiled: $(VENV)/compiled.done

$(VENV)/compiled.done: $(VENV)/dev.done $(shell find tests -name "*.py")
	-@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --collect-only -qq >/dev/null
	@touch $@

# The tests start thousands of processes. compileall compiles the sources once for all of them. The
# processes must not write .pyc files: some tests simulate a full disk, which would leave half a file.
tests: $(VENV)/dev.done  ## pytest, in parallel
	$(BIN)/python -m compileall -q src tests examples benchmarks
	PYTHONDONTWRITEBYTECODE=1 $(BIN)/pytest -n $(WORKERS) --dist=worksteal -m "not slow" \
		$(PYTEST_ARGS)

# bash has a variable SECONDS of its own, so only make's value reaches the command.
fuzz: $(VENV)/dev.done  ## search bugs with random inputs, SECONDS (60) for each of TARGETS (all)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(TARGETS)

# The mutants come from cosmic-ray, in an environment of its own: its packages are not ours.
$(VENV)/mutation.done: $(VENV)/dev.done tests/mutation/requirements.txt
	$(PYTHON) -m venv $(VENV)/mutation
	$(VENV)/mutation/bin/python -m pip install --quiet --disable-pip-version-check \
		--requirement tests/mutation/requirements.txt
	@touch $@

mutants: $(VENV)/mutation.done  ## change the code and see whether tests notice, SECONDS (60) for TARGETS (6 packages)
	$(BIN)/python -m tests.mutation --generator $(VENV)/mutation/bin/python --seconds $(SECONDS) $(TARGETS)

proto: $(VENV)/dev.done  ## tests/kubelet_api/descriptors.binpb from src/kubedevices/kubelet_api/proto
	$(BIN)/python -m tests.kubelet_api.generate_descriptors

bench: $(VENV)/dev.done  ## the measurements of docs/performance.md
	$(BIN)/python -m benchmarks

build: venv  ## dist/*.whl: the wheel for pip
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

onefile: $(VENV)/dev.done  ## dist/kubedevices: one executable for hosts without Python
	$(BIN)/pyinstaller --noconfirm --log-level WARN --distpath dist --workpath build/onefile \
		deploy/onefile/kubedevices.spec

site: $(VENV)/dev.done  ## build/site: the documentation as a site; PROJECT_URL is the URL of the sources
	$(BIN)/mkdocs build --strict --quiet

pictures: venv  ## docs/images: terminals, dashboard, report (needs Debian's prometheus and chromium)
	$(BIN)/python -m deploy.site.pictures
	$(BIN)/python -m deploy.site.dashboard_picture
	$(BIN)/python -m deploy.site.report_picture

image:  ## a container image with the name IMAGE, built by ENGINE (podman or docker)
	$(ENGINE) build --file deploy/image/Containerfile --build-arg VERSION=$(VERSION) --tag $(IMAGE) .

chart: venv  ## the files of the Helm chart that are generated from src/kubedevices/manifests
	$(BIN)/python deploy/helm/generate.py

print-manifests: venv  ## print the manifests that make deploy applies
	@$(BIN)/kubedevices manifests $(CHOSEN) --image $(IMAGE)

deploy: venv  ## PLUGIN (simulate or expose) as IMAGE into NAMESPACE of the cluster of KUBECONFIG
	@$(BIN)/kubedevices deploy $(CHOSEN) $(CHOSEN_IMAGE) $(DEPLOY_ARGS)

undeploy: venv  ## remove the plugin, and the namespace if deploy created it and it is empty
	@$(BIN)/kubedevices undeploy $(CHOSEN)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
