# Each target does its own setup and reports its steps and their durations; a second run is quick.
#
#   make test      linters, type checkers, import contracts and the tests, with a real control plane and real MPI
#   make test-full the tests that `make test` leaves out, because they take long or resemble others
#   make coverage  the tests, with line coverage of api and controller
#   make test-python   the tests on the image's Python, or PYTHON_VERSION=3.14; TESTS="tests/api" chooses some
#   make test-oldest   the tests that need a control plane, on the oldest supported Kubernetes
#   make test-newest   the same tests, on a Kubernetes newer than that of all tests
#   make demo      trains a PyTorchJob on real data, without a cluster
#   make examples  trains every kind with its framework, each in its own environment; ONLY="jax paddle" chooses some, SERVICES=per-job their Services
#   make takeover  tests with the real Go operators, compiled from their modules: jobs move to Rallypoint and back
#   make shadow    a shadow beside the real Go operators compares hundreds of jobs, which then move to Rallypoint and back
#   make ui        tests of the page in a real headless browser; SCREENSHOTS=docs/images draws the pictures of the docs
#   make chart     renders the Helm chart, and installs, upgrades, rolls back and uninstalls it on a real API server, with jobs running
#   make upgrade   jobs move from another version's operator, FROM=COMMIT, to this one and back
#   make lint      the static checks of `make test`
#   make fmt       formats the code and applies automatic fixes
#   make crds      writes manifests/base/crds from the models in api
#   make manifests writes what is generated in manifests: manifests/base/crds, and the dashboards from tools/dashboards
#   make deploy    writes manifests/base/crds, and the files in deploy from manifests, the Helm chart included, and the copy for rallypoint check
#   make docs      writes the generated pages of docs/reference: the fields of each kind, flags, events, labels and metrics
#   make site      builds the docs as a site in build/site, and tests it in a real headless browser
#   make bench     measures the controller on a real API server with simulated nodes; COMPARE="go COMMIT" compares it with the Go operators and a commit
#   make controlplane   finds, downloads or compiles etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok and kubectl
#   make cluster   starts a real cluster on this machine, of kubelets in namespaces, with the operator installed; Linux, root
#   make cluster-down   stops it and removes everything that it created
#   make e2e       tests jobs in real pods, on a cluster of its own: a selection
#   make e2e-full  all of these tests
#   make schedulers   compiles the real Kueue, Volcano, the coscheduling scheduler and Kubernetes 1.37 (slow the first time), and tests jobs under them; WITHOUT_OPERATOR=1 shows that each scenario needs the operator
#   make monitoring   evaluates dashboards and alerts in a real Prometheus, and sees each alert fire; WRITE=1 draws the pictures of the docs
#   make explain   submits broken jobs to a cluster and to local mode, and checks what is said about each; WRITE=1 writes the page with it
#   make version   writes another version everywhere, TO=0.2.0rc1, and renders deploy
#   make image     builds the operator's OCI image for each architecture, and its bill of materials, into dist/image, without Docker
#   make image-test   builds it from two clones, compares them, and starts it
#   make image-lock   writes requirements/debian.json, the packages of the image's base, with Debian's current versions
#   make release   builds and verifies everything that a release consists of in dist/VERSION, VERSION=0.2.0rc1, and publishes nothing
#   make release-check   builds a release in two fresh clones, as other users, and compares every byte
#   make workflows tests the forge's workflows with actionlint, which is compiled for it
#   make lock      resolves all dependencies again and writes requirements/
#
# PYTHON is the interpreter that creates the environments (3.11 or newer).

PYTHON ?= python3
SHELL := /bin/sh
# The Dockerfile defines the Python version of the image.
PYTHON_VERSION ?= $(shell sed -n 's/^ARG PYTHON=//p' Dockerfile)
VENV = .venv
BIN = $(VENV)/bin
STEPS := @$(PYTHON) tools/steps.py

ENVIRONMENT = "environment! $(PYTHON) tools/venv.py $(VENV) requirements/dev.txt $(VENV_PYTHON)"
CONTROLPLANE = "control plane! $(BIN)/python -m rallypoint.testing.controlplane build"
CRDS = "crds! $(BIN)/rallypoint crds --output manifests/base/crds"
DASHBOARDS = "dashboards! $(BIN)/python -m tools.dashboards"
MPI = "mpi (tests/rallypoint/local/test_mpi.py, tests/rallypoint/local/test_mpi_examples.py and tests/e2e/test_mpi.py need what is missing): \
	$(BIN)/python tools/packages.py gcc libc6-dev libopenmpi-dev openmpi-bin libmpich-dev mpich openssh-server"
BROWSER = "browser (tests/integration/test_nccl.py needs it for one test): \
	$(BIN)/python tools/packages.py chromium-headless-shell"
PROMETHEUS = "prometheus! $(BIN)/python tools/packages.py prometheus" \
	"kube-state-metrics! $(BIN)/python -m rallypoint.testing.controlplane build kube-state-metrics"
GO_OPERATORS = "Go operators! $(BIN)/python -m rallypoint.testing.controlplane build training-operator mpi-operator"
MACHINE = "machine! $(BIN)/python -m rallypoint.testing.cluster check"
HELM = "helm! $(BIN)/python -m rallypoint.testing.controlplane build helm"
NODES = "nodes! $(BIN)/python -m rallypoint.testing.cluster build"
# Two processes, for a machine of two cores; with more, tests in real time would run out of CPU.
# Up to five tests that failed run again by themselves, when the machine is quiet. One that hangs fails after five minutes, or a long one after half an hour.
PYTEST = $(BIN)/python tools/run_tests.py -n 2 --dist loadfile --no-loadscope-reorder --timeout=300
LINT = "lint: $(BIN)/ruff check" \
	"format: $(BIN)/ruff format --check" \
	"types: $(BIN)/mypy" \
	"layers: $(BIN)/lint-imports --no-cache" \
	"types, second opinion: $(BIN)/pyright"

.PHONY: test test-full coverage test-python test-oldest demo examples lint fmt crds manifests deploy docs bench controlplane cluster cluster-down e2e e2e-full schedulers lock takeover shadow monitoring ui upgrade explain version test-newest site image image-test image-lock workflows release release-check chart

# The whole system under faults runs by itself: beside other tests it does other things in each run, because its requests take real time.
WHOLE_SYSTEM = tests/controller/test_whole_system.py

test:
	$(STEPS) "make test" $(ENVIRONMENT) $(CONTROLPLANE) $(MPI) $(LINT) \
		"tests: $(PYTEST) --ignore=$(WHOLE_SYSTEM) -m 'not full'" "whole system: $(BIN)/python tools/run_tests.py $(WHOLE_SYSTEM)"

test-full:
	$(STEPS) "make test-full" $(ENVIRONMENT) $(CONTROLPLANE) $(MPI) $(BROWSER) "tests: $(PYTEST) -m full"

coverage:
	$(STEPS) "make coverage" $(ENVIRONMENT) $(CONTROLPLANE) $(MPI) $(BROWSER) "tests: $(PYTEST) --cov"

test-python: VENV = .venv-$(PYTHON_VERSION)
test-python: VENV_PYTHON = $(PYTHON_VERSION)
test-python:
	$(STEPS) "make test-python" $(ENVIRONMENT) $(CONTROLPLANE) $(MPI) $(BROWSER) "tests: $(PYTEST) $(TESTS)"

test-oldest:
	$(STEPS) "make test-oldest" $(ENVIRONMENT) $(CONTROLPLANE) \
		"oldest control plane! $(BIN)/python -m rallypoint.testing.controlplane oldest" $(MPI) \
		"tests: $(PYTEST) --oldest tests/integration tests/parity"

test-newest:
	$(STEPS) "make test-newest" $(ENVIRONMENT) $(CONTROLPLANE) \
		"newest control plane! $(BIN)/python -m rallypoint.testing.controlplane newest" $(MPI) \
		"tests: $(PYTEST) --newest tests/integration tests/parity"

workflows:
	$(STEPS) "make workflows" $(ENVIRONMENT) "actionlint! $(BIN)/python -m rallypoint.testing.controlplane build actionlint" \
		"workflows: $(BIN)/pytest tests/workflows"

release:
	$(STEPS) "make release" $(ENVIRONMENT) $(QEMU) "release: $(BIN)/python -m tools.release build $(VERSION)"

release-check:
	$(STEPS) "make release-check" $(ENVIRONMENT) "two builds: $(BIN)/python -m tools.release twice $(VERSION)"

takeover:
	$(STEPS) "make takeover" $(ENVIRONMENT) $(CONTROLPLANE) $(GO_OPERATORS) \
		"tests: $(BIN)/pytest tests/takeover"

shadow:
	$(STEPS) "make shadow" $(ENVIRONMENT) $(CONTROLPLANE) $(GO_OPERATORS) \
		"tests: $(BIN)/pytest tests/shadow"

upgrade:
	$(STEPS) "make upgrade" $(ENVIRONMENT) $(CONTROLPLANE) "tests: $(BIN)/pytest tests/upgrade --upgrade-from=$(FROM)"

chart:
	$(STEPS) "make chart" $(ENVIRONMENT) $(CONTROLPLANE) $(HELM) "tests: $(BIN)/pytest tests/chart"

monitoring:
	$(STEPS) "make monitoring" $(ENVIRONMENT) $(CONTROLPLANE) $(PROMETHEUS) "tests: $(BIN)/pytest tests/monitoring $(if $(WRITE),--write-pictures)"

explain:
	$(STEPS) "make explain" $(ENVIRONMENT) $(CONTROLPLANE) $(MPI) "tests: $(BIN)/pytest tests/explain $(if $(WRITE),--write-page)"

# Debian's chromium; tests/ui finds other browsers too.
ui: VENV = .venv-ui
ui:
	$(STEPS) "make ui" "environment! $(PYTHON) tools/venv.py $(VENV) requirements/ui.txt" \
		"browser! $(BIN)/python tools/packages.py chromium" \
		"tests: $(BIN)/pytest tests/ui $(if $(SCREENSHOTS),--screenshots=$(SCREENSHOTS))"

site: VENV = .venv-site
site:
	$(STEPS) "make site" "environment! $(PYTHON) tools/venv.py $(VENV) requirements/site.txt" \
		"browser! $(BIN)/python tools/packages.py chromium-headless-shell" \
		"site: $(BIN)/mkdocs build --strict" "tests: $(BIN)/pytest tests/site"

demo:
	$(STEPS) "make demo" "environment! $(PYTHON) tools/venv.py .venv-demo requirements/demo.txt" \
		"training: .venv-demo/bin/rallypoint run examples/pytorch/digits.yaml"

examples:
	$(STEPS) "make examples" $(ENVIRONMENT) $(if $(filter mpi,$(or $(ONLY),mpi)),$(MPI)) "training: $(BIN)/python tools/examples.py $(if $(SERVICES),--services=$(SERVICES)) $(ONLY)"

lint:
	$(STEPS) "make lint" $(ENVIRONMENT) $(LINT)

fmt:
	$(STEPS) "make fmt" $(ENVIRONMENT) "fix: $(BIN)/ruff check --fix --exit-zero" "format: $(BIN)/ruff format"

crds:
	$(STEPS) "make crds" $(ENVIRONMENT) $(CRDS)

manifests:
	$(STEPS) "make manifests" $(ENVIRONMENT) $(CRDS) $(DASHBOARDS)

deploy:
	$(STEPS) "make deploy" $(ENVIRONMENT) $(CRDS) "deploy: $(BIN)/python tools/deploy.py"

version:
	$(STEPS) "make version" $(ENVIRONMENT) "version! $(BIN)/python tools/version.py TO=$(TO)" "deploy: $(BIN)/python tools/deploy.py"

docs:
	$(STEPS) "make docs" $(ENVIRONMENT) "metrics: $(BIN)/python tools/metrics_page.py" \
		"reference: $(BIN)/python -m tools.reference"

bench:
	$(STEPS) "make bench" $(ENVIRONMENT) $(CONTROLPLANE) $(if $(filter go,$(COMPARE)),$(GO_OPERATORS)) \
		"measurement: $(BIN)/python -m bench controlplane$(foreach operator,$(COMPARE), --compare $(operator))"

controlplane:
	$(STEPS) "make controlplane" $(ENVIRONMENT) $(CONTROLPLANE)

cluster:
	$(STEPS) "make cluster" $(ENVIRONMENT) $(MACHINE) $(CONTROLPLANE) $(MPI) $(NODES) "cluster: $(BIN)/python -m rallypoint.testing.cluster up --detach"

cluster-down:
	$(STEPS) "make cluster-down" $(ENVIRONMENT) "end: $(BIN)/python -m rallypoint.testing.cluster down"

E2E = $(ENVIRONMENT) $(MACHINE) $(CONTROLPLANE) $(MPI) $(NODES) "tests: $(BIN)/pytest -o faulthandler_timeout=600 --durations=0 tests/e2e

e2e:
	$(STEPS) "make e2e" $(E2E) -m 'not full'"

e2e-full:
	$(STEPS) "make e2e-full" $(E2E)"

ABSENT = $(if $(WITHOUT_OPERATOR),--without-operator -rx)

schedulers:
	$(STEPS) "make schedulers" $(ENVIRONMENT) $(CONTROLPLANE) \
		"schedulers! $(BIN)/python -m tests.support.schedulers" \
		"newest control plane! $(BIN)/python -m rallypoint.testing.controlplane newest" \
		"tests: $(BIN)/pytest -o faulthandler_timeout=1800 tests/schedulers --ignore tests/schedulers/newest $(ABSENT)" \
		"native gangs: $(BIN)/pytest --newest tests/schedulers/newest $(ABSENT)"

QEMU = "qemu (the image for the other architecture is built and not started without it): $(BIN)/python tools/packages.py qemu-user-static"

image:
	$(STEPS) "make image" $(ENVIRONMENT) $(QEMU) "image: $(BIN)/python -m tools.image build --output dist/image"

image-test:
	$(STEPS) "make image-test" $(ENVIRONMENT) $(QEMU) "tests: $(BIN)/pytest -o faulthandler_timeout=1200 tests/image"

image-lock:
	$(STEPS) "make image-lock" $(ENVIRONMENT) "packages: $(BIN)/python -m tools.image lock"

# Hashes for every platform, no index URLs. The image's packages are resolved first and constrain the others.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	--no-emit-index-url --no-emit-find-links --no-emit-package rallypoint-operator --custom-compile-command 'make lock'

lock:
	$(STEPS) "make lock" $(ENVIRONMENT) \
		"operator! $(LOCK) deploy/operator/pyproject.toml -o requirements/operator.txt" \
		"tracing: $(LOCK) deploy/operator/pyproject.toml --extra tracing -c requirements/operator.txt -o requirements/tracing.txt" \
		"build: $(LOCK) --group build -o requirements/build.txt" \
		"sdk: $(LOCK) --group sdk -o requirements/sdk.txt" \
		"dev: $(LOCK) pyproject.toml --extra testing --group dev -c requirements/operator.txt -o requirements/dev.txt" \
		"ui: $(LOCK) pyproject.toml --group ui -c requirements/dev.txt -o requirements/ui.txt" \
		"site: $(LOCK) pyproject.toml --group site -c requirements/dev.txt -o requirements/site.txt" \
		$(foreach group,demo jax mpi paddle tensorflow xgboost,\
			"$(group): $(LOCK) pyproject.toml --group $(group) -c requirements/operator.txt -o requirements/$(group).txt")
