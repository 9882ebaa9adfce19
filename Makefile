# Variables: CLUSTER=lab  RELEASE=bookworm|trixie  ROLE=munge  TESTS=FILES  MARK=proof  LAYER=vm  SINCE=main
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON  ?= python3
RELEASE ?= bookworm
CLUSTER ?= lab
VENV    := .venv
BIN     := $(VENV)/bin
SUDO    := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# Waits for another `make`, and for another process that installs, but not for a running `apt-get update`.
APT     := $(SUDO) env DEBIAN_FRONTEND=noninteractive \
  flock /run/lock/muster-apt apt-get -o DPkg::Lock::Timeout=600

# A variable that a target does not use is refused on the command line.
VARIABLES := CLUSTER RELEASE ROLE MARK TESTS LAYER SINCE
of-check := CLUSTER
of-secrets := CLUSTER
of-configure := CLUSTER
of-slurmctld-package := RELEASE
of-demo := RELEASE
of-demo-up := RELEASE
of-cloud-demo := RELEASE
of-test := SINCE
of-proof := LAYER
of-unit := MARK TESTS
of-molecule := ROLE
of-isolated := ROLE
of-cluster := MARK TESTS
of-cloud := MARK TESTS RELEASE
of-vm := MARK TESTS RELEASE
of-engine := MARK TESTS
of-bench := RELEASE
given := $(foreach name,$(VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
$(foreach goal,$(MAKECMDGOALS),$(foreach name,$(filter-out $(of-$(goal)),$(given)),$(error \
  make $(goal) does not use $(name); it uses $(or $(of-$(goal)),no variable))))

# Tests start `make` too: variables of this one's command line are not theirs.
unexport MAKEFLAGS

# Tests start hundreds of Python programs, each of which would compile the project's modules again.
unexport PYTHONDONTWRITEBYTECODE

export RELEASE
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Packages of the containers on this machine.
MACHINE_PACKAGES := podman runc netavark aardvark-dns iptables mmdebstrap debian-archive-keyring openssh-client
# Packages of the virtual machines, in addition.
VM_PACKAGES := qemu-system-x86 qemu-utils e2fsprogs

.PHONY: help
help: ## Print this help
	@echo "Muster: an ML team's SLURM cluster from one definition"; echo
	@declare -A of=($(foreach name,$(filter of-%,$(.VARIABLES)),["$(name:of-%=%)"]="$($(name))")); \
	grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | while IFS=$$'\t' read -r target text; do \
	  printf '%-20s%s%s\n' "$$target" "$$text" "$${of[$$target]:+ [$${of[$$target]}]}"; done
	@echo; head -n 1 $(MAKEFILE_LIST) | sed 's/^# //'

##-- set-up -------------------------------------------------------------------------------------

.PHONY: setup
setup: $(VENV)/.complete ## Install Muster and its locked dependencies into .venv

$(VENV)/.complete: requirements.txt pyproject.toml muster_sandbox/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python 3.11 or later is needed, $$($(PYTHON) --version) found; make PYTHON=... setup"; exit 1; }
	@if ! $(PYTHON) -c 'import ensurepip' 2>/dev/null; then \
	  echo "installing python3-venv with apt"; \
	  $(APT) update -qq && $(APT) install -y -qq python3-venv; fi
	@echo "installing Muster and its dependencies into $(VENV) (half a minute)"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@awk '/^uv==/ {uv = 1; print; next} /^[a-z]/ {uv = 0} uv' requirements.txt > $(VENV)/uv.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(VENV)/uv.txt
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable . --editable muster_sandbox
	@touch $@

# Installs the missing ones of some packages.
define install
	@missing=$$(for p in $(1); do \
	  dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  echo "installing with apt:" $$missing; \
	  $(APT) update -qq; \
	  $(APT) install -y -qq --no-install-recommends $$missing >/dev/null; fi
endef

.PHONY: machine-packages vm-packages
machine-packages: ## Install what containers with systemd need on this machine (apt)
	$(call install,$(MACHINE_PACKAGES))
	@if [ "$$(cat /proc/sys/fs/inotify/max_user_instances)" -lt 1024 ]; then \
	  echo "raising fs.inotify.max_user_instances to 1024: about 20 machines use up 128"; \
	  $(SUDO) sysctl -q -w fs.inotify.max_user_instances=1024; fi

vm-packages: machine-packages # Install what virtual machines need too
	$(call install,$(VM_PACKAGES))

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

# Of the hosts where models are added.
HUB_LOCK := roles/models/files/usr/local/lib/muster/muster_models/requirements.txt
# Of the host that builds Python environments.
UV_LOCK := roles/software/files/usr/local/lib/muster/uv.txt

.PHONY: lock
lock: $(BIN)/uv ## Write requirements.txt, requirements-vm.txt and the roles' from pyproject.toml, with hashes
	@$(LOCK) pyproject.toml muster_sandbox/pyproject.toml --extra laptop --extra dev \
	  --output-file requirements.txt $(LOCK_OPTIONS)
	@# The versions of the whole: one project, one version of each package.
	@$(LOCK) pyproject.toml --constraints requirements.txt --output-file requirements-vm.txt
	@$(LOCK) --group hub --constraints requirements.txt --output-file $(HUB_LOCK)
	@$(LOCK) --group uv --constraints requirements.txt --output-file $(UV_LOCK)

##-- your own machines --------------------------------------------------------------------------

.PHONY: check
check: setup ## Check the definition of CLUSTER
	@muster check $(CLUSTER)

.PHONY: secrets
secrets: setup ## Make the munge key and the passwords of CLUSTER, once
	@muster secrets $(CLUSTER)

.PHONY: configure
configure: setup ## Run site.yml on CLUSTER, one line a role (the rest in build/CLUSTER.log)
	@mkdir -p build
	@ANSIBLE_STDOUT_CALLBACK=muster.slurm.muster_roles ANSIBLE_LOG_PATH=build/$(CLUSTER).log \
	  ansible-playbook -i inventories/$(CLUSTER) ansible/site.yml

.PHONY: slurmctld-package
slurmctld-package: setup machine-packages ## Build Debian's slurmctld so that it starts scripts early
	@python -m muster_sandbox.containers.slurmctld_package $(RELEASE)

##-- the lab on this machine --------------------------------------------------------------------

.PHONY: demo
demo: setup machine-packages ## Raise the lab in containers and run its jobs
	@muster demo all

.PHONY: demo-up
demo-up: setup machine-packages ## Raise the lab in containers only
	@muster demo up

.PHONY: demo-shell
demo-shell: setup ## Log in to the demo's access node as ada
	@muster demo shell

.PHONY: demo-down
demo-down: setup ## Remove the demo: containers, network, files
	@muster demo down

##-- the cloud on this machine ------------------------------------------------------------------

.PHONY: cloud-demo
cloud-demo: setup machine-packages ## pulumi up, jobs on VMs, pulumi destroy: without an account
	@muster cloud demo

##-- proof --------------------------------------------------------------------------------------

# Which tests of a layer: 'not proof' are those of `make test`, proof those of `make proof` alone.
MARK ?= not proof

# Which files of tests of a layer; none: all.
TESTS ?=

.PHONY: test
test: setup vm-packages ## What every change must pass (SINCE=main: what the changed paths can touch)
	@python tests/prove.py test $(SINCE:%=--since %)

.PHONY: proof
proof: setup vm-packages ## The rest, before a release (LAYER=vm: one layer)
	@python tests/prove.py proof $(patsubst %,--layer %,$(LAYER))

# Its cache is that of all checkouts. A second process would not wait for a locked cache, but fail.
MYPY := flock $(HOME)/.cache/muster/mypy.lock mypy --cache-dir $(HOME)/.cache/muster/mypy

# Needs Go. No other tool here checks the schema of workflows.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

.PHONY: lint
lint: setup ## ruff, mypy, ansible-lint, yamllint, shellcheck, actionlint
	@ruff check .
	@ruff format --check .
	@mkdir -p ~/.cache/muster
	@$(MYPY)
	@# With the oldest Python of the systems that roles support, that of Ubuntu 22.04.
	@$(MYPY) --python-version 3.10 $$(python tests/host_python.py)
	@yamllint --strict .
	@python tests/lint_ansible.py
	@if command -v go >/dev/null; then go run $(ACTIONLINT) .github/workflows/*.yml; \
	  else echo "actionlint: skipped, Go is not installed"; fi
	@git grep -lE '^#!(/bin/|/usr/bin/env )(ba)?sh' -- ':!*.j2' ':!*.md' ':!*.py' | xargs shellcheck --severity=warning
	@git ls-files '*.j2' | xargs grep -lE '^#!/bin/(ba)?sh' -- | while read -r template; do \
	  sed -E 's/^\{\{ ansible_managed.*//; s/\{\{[^}]*\}\}/value/g' $$template | shellcheck --severity=warning - || \
	  { echo "in $$template"; exit 1; }; done

# Many of its tests wait, so three at a time keep two cores busy (four take longer). Those of the proof run in real time.
UNIT_PROCESSES = $(if $(filter-out proof,$(MARK)),3,2)

.PHONY: unit
unit: setup ## Schema, rendering, modules, docs
	@pytest --numprocesses $(UNIT_PROCESSES) --dist worksteal $(or $(TESTS),tests/unit) -m '$(MARK)'

.PHONY: coverage
coverage: setup ## Lines and branches of the autoscaler that its tests reach
	@# Without the randomized fault-injection tests, which are slow when each line is counted.
	@coverage run -m pytest tests/unit/autoscaler $(addprefix --ignore tests/unit/autoscaler/, \
	  test_daemon_in_trouble.py test_daemon_killed.py test_planted_bugs.py \
	  reconcile/test_reconcile_in_time.py)
	@coverage report
	@coverage json --quiet -o - | python -c 'import json, sys; \
	  of = json.load(sys.stdin)["totals"]; \
	  lines = 100 * of["covered_lines"] / of["num_statements"]; \
	  branches = 100 * of["covered_branches"] / of["num_branches"]; \
	  print(f"lines: {lines:.1f} % (at least 90), branches: {branches:.1f} % (at least 80)"); \
	  sys.exit(lines < 90 or branches < 80)'

# The layers of `make proof` for roles.
CEPH_ROLES := ceph_client ceph_cluster cephadm
SLURM_ROLES := accounts mariadb munge slurm slurmctld slurmd slurmdbd
REST_ROLES := $(filter-out $(CEPH_ROLES) $(SLURM_ROLES),$(patsubst molecule/%/break.yml,%,$(wildcard molecule/*/break.yml)))

.PHONY: molecule
molecule: setup machine-packages ## Roles together on both releases (ROLE=munge: one, with what breaks it)
	@python tests/scenarios.py $(ROLE)

.PHONY: isolated
isolated: setup machine-packages ## Roles on bare machines, with what breaks them (ROLE=munge: one)
	@python tests/scenarios.py --bare $(or $(ROLE),$(REST_ROLES))

.PHONY: isolated-slurm
isolated-slurm: setup machine-packages ## The roles of a SLURM cluster, as by `make isolated`
	@python tests/scenarios.py --bare $(SLURM_ROLES)

.PHONY: ceph
ceph: setup machine-packages ## The roles of Ceph, as by `make isolated`
	@python tests/scenarios.py --bare $(CEPH_ROLES)

.PHONY: cluster
cluster: setup machine-packages ## Clusters raised by site.yml, and what must hold on them
	@pytest --verbose $(or $(TESTS),tests/live) -m '$(MARK)'

.PHONY: cloud
cloud: setup machine-packages ## fakecloud with machines that boot
	@# In this order: the cloud of cloudcluster/ stays up until the end, and a machine has room for one.
	@pytest --verbose $(or $(TESTS),tests/cloud/test_*.py tests/cloud/cloudcluster) -m '$(MARK)'

.PHONY: cloud-trixie
cloud-trixie: setup machine-packages
	@RELEASE=trixie pytest --verbose tests/cloud/cloudcluster/test_autoscaler.py \
	  tests/cloud/cloudcluster/test_changes.py::test_replaced_controller_has_lost_nothing \
	  tests/cloud/cloudcluster/test_destroy.py

.PHONY: vm
vm: setup vm-packages ## A cluster of virtual machines with kernels of their own
	@pytest --verbose $(or $(TESTS),tests/vm) -m '$(MARK)'

.PHONY: engine
engine: setup ## Pulumi's engine on small programs and on Muster's own (PROVIDER=real|stand-in)
	@pytest $(or $(TESTS),tests/engine) -m '$(MARK)'

# Without `setup`: a machine with a GPU may reach nothing. With it gres.conf is rendered too.
.PHONY: gpu-check
gpu-check: ## What Muster makes of this machine's NVIDIA GPUs, and a CUDA job, for real
	@$(PYTHON) -m muster.gpu_check

.PHONY: bench
bench: setup vm-packages ## Counts, CPU seconds and wall time of what should be fast
	@for bench in tests/bench/bench_*.py; do echo "=== $$bench"; python $$bench; done

.PHONY: bench-training
bench-training: setup machine-packages ## The same training on 1 to n nodes of the lab: an hour (docs/training.md)
	@python tests/bench/training_table.py

.PHONY: docs
docs: setup ## Write the generated pages of docs/
	@muster schema --write

.PHONY: clean
clean: ## Remove .venv and build/ (after `make demo-down`)
	@rm -rf $(VENV) build
