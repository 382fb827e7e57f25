# Two commands do everything on a machine with python3 (with venv), make and git:
#   make demo   the main job, on this host's real devices
#   make test   lint, types, import contracts, all tests
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=

# What `make image` builds and `make deploy` deploys; KUBECONFIG chooses the cluster. The variables
# of the simulator (RESOURCE_NAME, NUMBER_DEVICES, ENV_PREFIX, ...) are taken from the environment.
ENGINE ?= podman
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE ?= localhost/kubedevices:$(VERSION)
NAMESPACE ?= kubedevices
PLUGIN ?= simulate
MANIFEST_ARGS ?=
DEPLOY_ARGS ?=
CHOSEN = $(PLUGIN) --namespace $(NAMESPACE) $(MANIFEST_ARGS)
# Nobody can pull what `make image` makes by default: who deploys has to say which image is meant.
CHOSEN_IMAGE = $(if $(filter file,$(origin IMAGE)),,--image $(IMAGE))
export RESOURCE_NAME NUMBER_DEVICES PLUGIN_NAME DEVICE_ID_PREFIX ANNOTATION_PREFIX ENV_PREFIX \
	DEVICE_FILE_PREFIX

.PHONY: help build onefile chart site pictures image deploy undeploy manifests print-manifests venv demo demo-dra test test-deps lint format types imports compiled tests proto bench clean

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

demo: venv  ## a device of this host travels to a container, without Kubernetes
	@$(BIN)/python -m examples.demo

demo-dra: venv  ## a node changes from device plugin to DRA, on the Kubernetes of KUBEDEVICES_KUBERNETES
	@$(BIN)/python -m examples.demo_dra

test:  ## everything CI checks
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint types imports compiled
	@$(MAKE) --no-print-directory tests

test-deps:  ## Debian packages without which some tests are skipped (needs root)
	apt-get install --yes --no-install-recommends $$(sed 's/#.*//' tests/debian-packages.txt)

lint: $(VENV)/dev.done  ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/dev.done  ## mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(VENV)/dev.done  ## mypy --strict
	$(BIN)/mypy

imports: $(VENV)/dev.done  ## the import contracts of docs/architecture.md
	$(BIN)/lint-imports

# pytest compiles tests with asserts of its own: here, beside the other checks, if one has changed.
compiled: $(VENV)/compiled.done

$(VENV)/compiled.done: $(VENV)/dev.done $(shell find tests -name "*.py")
	-@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --collect-only -qq >/dev/null
	@touch $@

# The tests start thousands of processes, which shall not compile the sources again each. Nor shall
# they write what they compiled: some of them find their disk full, and would leave half a file.
tests: $(VENV)/dev.done  ## pytest, in parallel
	$(BIN)/python -m compileall -q src tests examples benchmarks
	PYTHONDONTWRITEBYTECODE=1 $(BIN)/pytest -n 7 $(PYTEST_ARGS)

proto: $(VENV)/dev.done  ## tests/kubelet_api/descriptors.binpb from src/kubedevices/kubelet_api/proto
	$(BIN)/python -m tests.kubelet_api.generate_descriptors

bench: $(VENV)/dev.done  ## what docs/performance.md quotes
	$(BIN)/python -m benchmarks

build: venv  ## dist/*.whl
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

onefile: $(VENV)/dev.done  ## dist/kubedevices: one executable for hosts without Python
	$(BIN)/pyinstaller --noconfirm --log-level WARN --distpath dist --workpath build/onefile \
		deploy/onefile/kubedevices.spec

site: $(VENV)/dev.done  ## build/site: the documentation as a site; PROJECT_URL leads to the sources
	$(BIN)/mkdocs build --strict --quiet

pictures: venv  ## docs/images: terminals, dashboard and report (needs Debian's prometheus and chromium)
	$(BIN)/python -m deploy.site.pictures
	$(BIN)/python -m deploy.site.dashboard_picture
	$(BIN)/python -m deploy.site.report_picture

image:  ## a container image of everything, with ENGINE (podman or docker) as IMAGE
	$(ENGINE) build --file deploy/image/Containerfile --build-arg VERSION=$(VERSION) --tag $(IMAGE) .

manifests: venv  ## deploy/kustomize from src/kubedevices/manifests
	$(BIN)/kubedevices manifests kustomize --directory deploy/kustomize

chart: venv  ## files of the Helm chart that have their source in src/kubedevices/manifests
	$(BIN)/python deploy/helm/generate.py

print-manifests: venv  ## what make deploy would apply
	@$(BIN)/kubedevices manifests $(CHOSEN) --image $(IMAGE)

deploy: venv  ## PLUGIN (simulate or expose) as IMAGE into NAMESPACE of the cluster of KUBECONFIG
	@$(BIN)/kubedevices deploy $(CHOSEN) $(CHOSEN_IMAGE) $(DEPLOY_ARGS)

undeploy: venv  ## take it away again, and the namespace if deploy made it and nothing is left in it
	@$(BIN)/kubedevices undeploy $(CHOSEN)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
