# The commands of the project. `make help` lists those whose line ends in a "##" comment.

GO        ?= go
BIN       := bin
TOOLS     := $(BIN)/tools
LAB       := $(BIN)/lab
PACKAGES  := ./cmd/... ./plugin/... ./cnichain/... ./discovery/... ./policy/... ./slices/... ./deploy/... ./docs/...
# Those without goroutines and locks, in which the race detector has nothing to find: it makes their tests, which compute, take eight times as
# long. Their callers, such as ./plugin, are tested with it. A test in ./docs holds that they are so.
PURE      := ./policy/... ./slices/... ./deploy/... ./docs/... ./cnichain ./cnichain/addresses ./cnichain/claimspec/... ./cnichain/deviceclasses ./cnichain/sanitize ./cnichain/v1alpha1/... ./plugin/nodeapi/... ./cmd/netdra/internal/importer ./cmd/netdra/internal/simulate ./cmd/netdra/internal/classes ./cmd/netdra/internal/manifest ./cmd/netdra/internal/offers ./cmd/netdra/internal/picture ./cmd/netdra/internal/printer ./cmd/netdra/internal/view
E2E_FLAGS ?=
KERNEL_FLAGS ?=
MINUTES   ?= 10
PODS      ?= 60
SEED      ?= 0
SAMPLES   ?= 50
NODES     ?= 1000
DEVICES   ?= 64
SHAPE     ?= functions
LEAST     ?= 0
SRIOV_FLAGS ?=
RDMA_FLAGS ?=
OVS_FLAGS ?=
# Modules of programs of others, beside those whose go.sum names the cache of the local Kubernetes.
MODULES   := e2e/kwok e2e/karpenter e2e/kubevirt e2e/multus e2e/ovscni e2e/coredns
# Tests of e2e/suite that take the cluster apart or take long: "make test-all" runs them, on a cluster of their own.
LONG      := ^(TestAPIServerDown|TestLifecycle|TestSoak|TestFullNode|TestTightLoop|TestTimes.*|TestSharedClaimWhoseUserIsLost\
	|TestStaticPodWhileTheAPIServerIsDown|TestDriverThatHangs|TestDeviceThatCannotBeCleaned|TestChainOfSixSeconds\
	|TestSchedulerBypassed|TestRollingUpdate|TestUpgrade|TestGang|TestMultus.*|TestMigrationFromMultus|TestNetworkStatusBesideMultus\
	|TestOVNKubernetes(Layer2|Refusals|ServerIsDown|WithoutAMapping|LocalnetWithADevice)|TestAddressRange)$$
# Lanes of tests in virtual machines that "test-all" has, the slowest first. Without KVM each machine takes a processor for up to 20
# minutes, so rdma-pods is part of "rdma-test" only, and sriov-crashes and sriov-multus of "sriov-test": sriov-chains kills chains on
# virtual functions at each step, and e2e-node kills the components of a node.
MACHINES  := sriov-pods sriov-chains rdma-exclusive rdma-shared ovs-vm
empty     :=
LONG      := $(subst $(empty) ,,$(LONG))
# gRPC's pages of traces are templates, which call methods by their names: with them the linker keeps every method of every type,
# and the driver has 75 MB in place of 44.
TAGS      := grpcnotrace
# Results of lanes, and the command that prints them and fails if one of them has failed.
LANES     := $(BIN)/lanes
SUMMARY   := echo; cat $(LANES)/*; ! grep -q FAILED $(LANES)/*
# All that has no race detector is built with the same flags, so that Go compiles what it stands on once.
export GOFLAGS := $(strip $(filter-out -trimpath -tags=%,$(shell $(GO) env GOFLAGS)) -trimpath -tags=$(TAGS))
export CGO_ENABLED := 0
# Without the tables for debuggers, which a fifth of the time of linking goes into.
RACE      := CGO_ENABLED=1 $(GO) test -race -ldflags=-w

.PHONY: help build image demo test test-all lanes-test test-unit test-race test-race-rest test-kernel test-allocator karpenter-check dns-check kwok scale e2e e2e-lab e2e-node e2e-planes e2e-long e2e-fleet e2e-scale fleet-long e2e-older e2e-schedulers soak model browser-test pictures diagrams docs-site docs-site-test bench-e2e duel vm-doubles sriov-test sriov-chains sriov-pods kubevirt-reader sriov-multus sriov-crashes sriov-inside sriov-lab rdma-test rdma-exclusive rdma-shared rdma-pods rdma-lab verify generate lint bench cluster-up cluster-down clean release release-verify release-again release-try privileges ovs-test ovs-vm ovs-ovnkube ovs-lab

help: ## Show this help
	@bold=; plain=; \
	if [ -t 1 ] && [ -z "$$NO_COLOR" ] && [ "$$TERM" != dumb ]; then bold="$$(printf '\033[1m')"; plain="$$(printf '\033[0m')"; fi; \
	awk -F ':.*## ' -v bold="$$bold" -v plain="$$plain" \
		'/^[a-z0-9-]+:.*## / {printf "  %s%-14s%s %s\n", bold, $$1, plain, $$2}' $(MAKEFILE_LIST)

build: ## Build the driver, the controller and the CNI plugins (static) and the lab command into bin/
	@mkdir -p $(BIN)
	$(GO) build -ldflags "-s -w" -o $(BIN)/ ./cmd/... ./e2e/cmd/lab ./e2e/cmd/demo
	@ln -sf netdra $(BIN)/kubectl-netdra
	@mkdir -p $(BIN)/cni && ln -sf ../dra-network-cni $(BIN)/cni/netdev

image: build ## Pack driver and controller into OCI image archives in bin/images/
	$(LAB) pack --bin $(BIN) --out $(BIN)/images

demo: build ## Show the whole way on a real local Kubernetes (root; KEEP=1 leaves it up to play with; NAME=another beside one that runs)
	@$(BIN)/demo --bin $(BIN) $(if $(KEEP),--keep) $(if $(NAME),--name "$(NAME)")

test: build ## Run what a change has to pass: unit tests, real plugins, a real local Kubernetes (root; 9 minutes)
	@rm -rf $(LANES)
	@if [ "$$(id -u)" = 0 ]; then $(LAB) build; else echo "not root: tests that need namespaces or the local Kubernetes are skipped"; fi
	@$(MAKE) lanes-test
	@$(SUMMARY)

lanes-test:
	@$(MAKE) lane-test-race
	@$(MAKE) lane-e2e-lab
	@$(MAKE) -j 2 --output-sync=target $(addprefix lane-,e2e-node e2e-planes test-kernel test-allocator)

# The older Kubernetes is compiled while the tests of "test" wait. In the second half, the slowest lanes start first, two at a time:
# beside two others, an emulated virtual machine is too slow for the time limits of kubelet and CNI plugins.
test-all: build ## Run every test: "test", then an older Kubernetes, long ones, and virtual machines (root; 65 minutes)
	@rm -rf $(LANES)
	@if [ "$$(id -u)" = 0 ]; then $(LAB) build; else echo "not root: tests that need namespaces or the local Kubernetes are skipped"; fi
	@$(MAKE) -j 2 lanes-test lane-e2e-older
	@machines="$(MACHINES)"; \
	if [ "$$(id -u)" = 0 ]; then $(MAKE) vm-doubles || exit; \
	else machines=; echo "not root: tests in virtual machines are skipped"; fi; \
	$(MAKE) -j 2 --output-sync=target SRIOV_FLAGS=--optional RDMA_FLAGS=--optional OVS_FLAGS=--optional \
		$$(printf 'lane-%s ' e2e-long $$machines e2e-schedulers e2e-fleet test-race-rest browser-test e2e-scale docs-site)
	@$(SUMMARY)

# A lane is a target whose result is a file: one that fails does not keep the others from running.
lane-%:
	@mkdir -p $(LANES); start=$$(date +%s); result=passed; $(MAKE) $* || result=FAILED; \
	printf '%-16s %s in %d s\n' "$*" $$result $$(($$(date +%s) - start)) >$(LANES)/$*

test-unit: $(TOOLS)/helm ## Run the tests that need no cluster and no real plugins, as fast as they go
	$(GO) test -short -ldflags=-w $$($(GO) list $(PACKAGES) | grep -v -x -F "$$($(GO) list ./cnichain/kerneltest)")

test-race: $(TOOLS)/helm ## Run the tests of test-unit, with the race detector where there are goroutines
	$(RACE) -short $$($(GO) list $(PACKAGES) | grep -v -x -F -e "$$($(GO) list $(PURE) ./cnichain/kerneltest)")
	$(GO) test -short -ldflags=-w $(PURE)

test-race-rest: ## Run with the race detector the tests that test-race makes short
	$(RACE) ./cmd/dra-network-controller/internal/blocks

test-allocator: ## Hold what is published against the real allocator, with thousands of random sequences of claims
	$(GO) test -count=1 -v ./slices

# Karpenter's own code, of the version in e2e/karpenter/go.mod. It takes a minute to compile, so it is no part of "test-all".
karpenter-check: ## Hold Karpenter's allocator against kube-scheduler's, on random claims for what is published
	@mkdir -p $(BIN)
	cd e2e/karpenter && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$(BIN)/karpenter-allocator .
	$(GO) test -count=1 -v -run '^TestKarpenterAgrees$$' ./slices -karpenter=$(CURDIR)/$(BIN)/karpenter-allocator

# CoreDNS itself, of the version in e2e/coredns/go.mod, which takes two minutes to compile.
dns-check: build ## Ask the DNS server of clusters for the names of Services on second networks (root)
	cd e2e/coredns && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$(BIN)/coredns tool
	$(GO) test -count=1 -v -run '^TestDNSNamesEndpoints$$' ./e2e/controller -coredns=$(CURDIR)/$(BIN)/coredns

test-kernel: build ## Run chains of real CNI plugins on machines of their own: failures, kills (root)
	@if [ "$$(id -u)" = 0 ]; then export CNI_PLUGIN_DIR="$$($(LAB) build --dir)/cni"; \
	else echo "test-kernel: SKIPPED, because it needs root"; exit; fi; \
	$(RACE) -count=1 -timeout 30m -parallel 4 -v $(KERNEL_FLAGS) ./cnichain/kerneltest ./cmd/netdra ./cmd/internal/netdev ./cmd/dra-network-cni/...

e2e: e2e-lab ## Run the tests on a real local Kubernetes (root)
	$(MAKE) -j 2 --output-sync=target e2e-node e2e-planes

e2e-lab: build $(TOOLS)/helm
	@if [ "$$(id -u)" = 0 ]; then $(LAB) build; fi
	$(RACE) -count=1 -timeout 30m ./e2e/lab/... ./e2e/internal/... ./e2e/image/... ./e2e/cmd/lab ./e2e/cmd/ovn-k8s-cni-overlay
	$(GO) test -count=1 ./e2e/monitoring ./e2e/release ./e2e/cmd/release ./e2e/cmd/docsite ./e2e/cmd/demo ./e2e/duel

# A node's tests wait most of the time, so those that need a control plane only, or another cluster, run beside them, and in "test" those
# that need no cluster.
e2e-node: $(TOOLS)/helm
	$(GO) test -count=1 -timeout 45m -v -skip '$(LONG)' $(E2E_FLAGS) ./e2e/suite -samples=2

e2e-planes:
	$(GO) test -count=1 -timeout 30m -v $(E2E_FLAGS) ./e2e/controller/...
	$(GO) test -count=1 -timeout 30m -v $(E2E_FLAGS) ./e2e/tutorial/...

e2e-long: build $(TOOLS)/helm ## Run the tests that take a cluster apart or take long, one with PODS (60) pods at once (root)
	$(GO) test -count=1 -timeout 60m -v -run '$(LONG)' $(E2E_FLAGS) ./e2e/suite -cluster=suite-alone -soak=3m -samples=2 -pods=$(PODS)

e2e-fleet: build ## Run the tests on three nodes: reboots, lost nodes, partitions, two versions, gangs (root)
	$(GO) test -count=1 -timeout 45m -v $(E2E_FLAGS) ./e2e/fleet

fleet-long: build ## Leave a node without the API server for MINUTES (10) while pods come and go (root)
	$(GO) test -count=1 -timeout $$(($(MINUTES) + 20))m -v -run '^TestPartition$$' ./e2e/fleet -partition=$(MINUTES)m

e2e-older: build
	@if [ "$$(id -u)" = 0 ]; then nice -n 19 $(LAB) build --kubernetes 1.36; fi

e2e-schedulers: e2e-older ## Hold the schedulers of two versions of Kubernetes against what is published (root)
	$(GO) test -count=1 -timeout 30m -v -parallel 16 $(E2E_FLAGS) ./e2e/scheduler/...

browser-test: ## Look at the pages of "netdra report" with Chromium, where there is one; pictures go to bin/pictures
	@mkdir -p $(BIN)/pictures
	$(GO) test -count=1 -v ./e2e/browser -pictures=$(CURDIR)/$(BIN)/pictures

pictures: ## Draw the pictures of the documentation anew, with Chromium
	$(GO) test -count=1 -v -run '^TestPictures$$' ./e2e/browser -documentation=$(CURDIR)/docs

diagrams: ## Draw the diagrams of the documentation of their texts in docs/diagrams
	$(GO) run ./e2e/cmd/docsite diagrams docs/diagrams

# A version is a folder of its own in $(BIN)/site; the list of versions is of those that are there.
docs-site: $(TOOLS)/hugo ## Build the site of the documentation in bin/site, as VERSION (main), and check its links; needs no network
	HUGO_PARAMS_VERSION=$(or $(VERSION),main) $(TOOLS)/hugo build --quiet --panicOnWarning --noBuildLock --cleanDestinationDir \
		--source . --config docs/site/hugo.toml --destination $(BIN)/site/$(or $(VERSION),main)
	$(GO) run ./e2e/cmd/docsite versions $(BIN)/site
	$(GO) run ./e2e/cmd/docsite check $(BIN)/site

docs-site-test: docs-site ## Build the site, and look at it with Chromium; pictures go to bin/pictures
	@mkdir -p $(BIN)/pictures
	$(GO) test -count=1 -v -run '^TestSite$$' ./e2e/browser -site=$(CURDIR)/$(BIN)/site -pictures=$(CURDIR)/$(BIN)/pictures

# The doubles of CNI plugins that the machines run, and what boots them.
vm-doubles:
	$(RACE) -count=1 ./e2e/vm/... ./e2e/cmd/sriov/... ./e2e/cmd/bond/... ./e2e/cmd/ovn-k8s-cni-overlay/...
	$(LAB) build

sriov-test: build ## Run the tests on virtual functions, in virtual machines, of which some are nodes of Kubernetes (root)
	$(MAKE) vm-doubles
	$(MAKE) -j 3 --output-sync=target sriov-chains sriov-pods sriov-crashes sriov-multus

sriov-chains:
	$(LAB) vm test $(SRIOV_FLAGS) --skip '^TestCluster' ./e2e/sriov
	$(LAB) vm test --vfs 1 --env KERNELTEST_VF=0000:41:10.0 --run 'VF|LeaveNoFiles' $(SRIOV_FLAGS) ./cnichain/kerneltest

sriov-pods: # the reader is no prerequisite: the lane that takes longest would begin after all others
	$(MAKE) kubevirt-reader
	$(LAB) --name sriov-pods vm test --cluster --pfs 3 --share $(BIN)/share --timeout 45m $(SRIOV_FLAGS) --run '^TestClusterPods' ./e2e/sriov

# KubeVirt's own code, of the version in e2e/kubevirt/go.mod, that reads what containers of virtual machines see.
kubevirt-reader:
	@mkdir -p $(BIN)/share
	cd e2e/kubevirt && GOFLAGS= GOWORK=off $(GO) test .
	cd e2e/kubevirt && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$(BIN)/share/kubevirt-reader .

# Multus itself, of the version in e2e/multus/go.mod, which one in EXTRA_CNI_DIR replaces. Emulated it takes five minutes.
sriov-multus:
	@mkdir -p $(BIN)/share
	cd e2e/multus && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$(BIN)/share/multus tool
	$(LAB) --name sriov-multus vm test --cluster --pfs 3 --share $(BIN)/share $(SRIOV_FLAGS) --run '^TestClusterMultus' ./e2e/sriov

sriov-crashes: # with the time that containerd really gives
	$(LAB) --name sriov-crashes vm test --cluster --nri-timeout 2s --pfs 3 --timeout 30m $(SRIOV_FLAGS) --run '^TestClusterCrashes' ./e2e/sriov

sriov-inside: build ## Run the test on a virtual machine that is all of a cluster, control plane included; 5 minutes, not part of "test" (root)
	$(LAB) --name sriov-inside vm test --cluster=inside --pfs 3 $(SRIOV_FLAGS) --run '^TestClusterInside' ./e2e/sriov

sriov-lab: build ## Open a shell in a virtual machine with SR-IOV cards (CMD="..." runs that instead; CLUSTER=outside or inside adds Kubernetes)
	@$(LAB) vm $(if $(CMD),run,shell) --vfs 4 $(if $(CLUSTER),--cluster=$(CLUSTER)) $(if $(CMD),-- bash -c "$$CMD")

rdma-test: build ## Run the tests on RDMA devices, in virtual machines with Soft RoCE, of which one is a node of Kubernetes (root)
	$(LAB) build
	$(MAKE) -j 3 --output-sync=target rdma-exclusive rdma-shared rdma-pods

rdma-exclusive:
	$(LAB) vm test --rdma=exclusive $(RDMA_FLAGS) --skip '^TestCluster' ./e2e/rdma

rdma-shared:
	$(LAB) vm test --rdma=shared $(RDMA_FLAGS) --skip '^TestCluster' ./e2e/rdma
	$(LAB) vm test --rdma=shared $(RDMA_FLAGS) --run '^TestKernelSoftRoCE$$' ./discovery

rdma-pods:
	$(LAB) --name rdma-pods vm test --cluster --rdma=exclusive --timeout 45m $(RDMA_FLAGS) --run '^TestCluster' ./e2e/rdma
	$(LAB) --name rdma-pods vm test --cluster --rdma=shared $(RDMA_FLAGS) --run '^TestCluster(PodsExchangeData|LinksExchangeData|SharedPort)$$' ./e2e/rdma

rdma-lab: build ## Open a shell in a virtual machine with RDMA (MODE=exclusive or shared; CMD and CLUSTER as for sriov-lab)
	@$(LAB) vm $(if $(CMD),run,shell) --rdma=$(or $(MODE),exclusive) --vfs 4 $(if $(CLUSTER),--cluster=$(CLUSTER)) $(if $(CMD),-- bash -c "$$CMD")

ovs-test: build ## Run the tests on Open vSwitch, with the real ovs-cni, in a virtual machine (root)
	$(LAB) build
	$(MAKE) ovs-vm

ovs-vm:
	$(LAB) vm test --ovs $(OVS_FLAGS) ./e2e/ovs

# The real OVN-Kubernetes if EXTRA_CNI_DIR has ovnkube, ovn-k8s-cni-overlay and the folder crds, else a double.
ovs-ovnkube: build ## Run pods on networks of OVN-Kubernetes, on Open vSwitch in a virtual machine; 10 minutes, not part of "test" (root)
	$(LAB) --name ovs-ovnkube vm test --ovs --cluster --pfs 3 --processors 2 --memory 4096 --share deploy/samples/examples --timeout 40m $(OVS_FLAGS) --run '^TestClusterOVNKubernetes$$' ./e2e/ovs

ovs-lab: build ## Open a shell in a virtual machine with Open vSwitch and OVN (CMD and CLUSTER as for sriov-lab)
	@$(LAB) vm $(if $(CMD),run,shell) --ovs --vfs 4 $(if $(CLUSTER),--cluster=$(CLUSTER)) $(if $(CMD),-- bash -c "$$CMD")

# What keeps nodes and pods without kubelets, of the version in e2e/kwok/go.mod.
kwok:
	@mkdir -p $(BIN)
	cd e2e/kwok && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$(BIN)/kwok sigs.k8s.io/kwok/cmd/kwok

scale: build kwok ## Measure what NODES (1000) with DEVICES (64) of a SHAPE (functions, mixed-functions, links, mixed-links) cost the control plane, and 500 topologies the controller; profiles of the scheduler go to PROFILES (root)
	$(GO) test -count=1 -timeout 60m -v -run '^TestScale$$' ./e2e/scale -nodes=$(NODES) -devices=$(DEVICES) -shape=$(SHAPE) \
		-pods=1000 -least=$(LEAST) -output=$(CURDIR)/$(BIN)/scale.jsonl $(if $(PROFILES),-profiles="$(abspath $(PROFILES))")
	$(GO) test -count=1 -timeout 15m -v -run '^TestAtScale$$' ./e2e/controller

# A few nodes of "scale", for what it wants of any number: each slice is written once, drivers that start again write none, and all pods
# are scheduled.
e2e-scale: build kwok ## Let the control plane have 40 nodes with 64 devices; the drivers of 20 start at once (root)
	$(GO) test -count=1 -timeout 15m -v -run '^TestScale$$' ./e2e/scale -nodes=40 -pods=100 -shape=mixed-functions -layouts=one-pool,driver

soak: build ## Let pods come and go while components are killed, for MINUTES (10); SEED repeats its decisions (root)
	$(GO) test -count=1 -timeout $$(($(MINUTES) + 20))m -v -run '^TestSoak$$' ./e2e/suite -soak=$(MINUTES)m -seed=$(SEED)

model: build ## Hold the promise of the gate against random faults for MINUTES (10); SEED repeats its decisions (root)
	$(GO) test -count=1 -timeout $$(($(MINUTES) * 3 + 20))m -v -run '^TestModel$$' ./e2e/suite -model=$(MINUTES)m -model-journal -seed=$(SEED)

bench-e2e: build $(TOOLS)/helm ## Measure how long pods take until they are Ready, with 0 to 8 interfaces and with late ones, SAMPLES (50) of each (root)
	$(GO) test -count=1 -timeout 60m -v -run '^TestTimes' ./e2e/suite -samples=$(SAMPLES)

privileges: build ## Take CAPABILITIES (all documented) from the driver, one at a time, and compare what breaks with docs/security.md (root)
	$(GO) test -count=1 -timeout 30m -v -run '^TestPrivileges$$' ./e2e/suite -cluster=suite-privileges -privileges=$(or $(CAPABILITIES),documented)

duel: build ## Measure pods of this driver beside others whose binaries are in PEERS (dranet, multus, and before: another version of it), SAMPLES (50) of each (root)
	$(GO) build -ldflags "-s -w" -o bin/ ./e2e/cmd/duel
	bin/duel run --samples $(SAMPLES) --rounds $(or $(ROUNDS),1) $(if $(PEERS),--peers "$(PEERS)")

verify: generate ## Generate, tidy, vet, lint, and check subjects of commits; fails when that changes anything
	$(GO) mod tidy
	cd e2e && $(GO) mod tidy
	@for module in $(MODULES); do (cd "$$module" && GOFLAGS= GOWORK=off $(GO) mod tidy) || exit 1; done
	$(GO) vet ./... ./e2e/...
	$(MAKE) lint
	.ci/check-commits
	@git diff --exit-code || { echo "verify: the files above were out of date: commit them"; exit 1; }

$(TOOLS)/hugo: .ci/site/go.mod .ci/site/go.sum
	@mkdir -p $(TOOLS); echo "Compiling hugo, once: minutes if Go has nothing of it in its cache."
	cd .ci/site && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$@ github.com/gohugoio/hugo

# One tool, of those that .ci/tools/go.mod lists: all of them take many minutes.
$(TOOLS)/%: .ci/tools/go.mod .ci/tools/go.sum
	@mkdir -p $(TOOLS); echo "Compiling $*, once: minutes if Go has nothing of it in its cache."
	cd .ci/tools && GOFLAGS= GOWORK=off $(GO) build -o $(CURDIR)/$@ "$$(grep '/cmd/$*$$' go.mod | tr -d '[:space:]')"

generate: $(TOOLS)/controller-gen $(TOOLS)/helm ## Generate CRDs, deepcopy functions, manifests from the chart, and the reference
	$(TOOLS)/controller-gen object crd:maxDescLen=400 paths=./policy/v1alpha1 paths=./cnichain/v1alpha1 output:crd:dir=deploy/crds
	$(GO) run ./deploy/internal/serveversions deploy/crds/*.yaml
	@mkdir -p $(BIN)
	@for template in deploy/chart/templates/*.yaml; do \
		name="$$(basename "$$template")"; \
		[ "$$name" != monitoring.yaml ] || continue; \
		$(TOOLS)/helm template dra-network deploy/chart --namespace dra-network --set namespace.create=true \
			--show-only "templates/$$name" >$(BIN)/rendered.yaml 2>$(BIN)/rendered.log || { cat $(BIN)/rendered.log; exit 1; }; \
		{ echo "# Made from chart/templates/$$name by \`make generate\`."; sed -e '/^# Source: /d' -e '/^$$/d' $(BIN)/rendered.yaml; } >"deploy/$$name"; \
	done
	UPDATE_REFERENCE=1 $(GO) test -count=1 -run '^(TestReference|TestAPI|TestAttributes)$$' ./cmd/... ./docs/reference >$(BIN)/rendered.log || { cat $(BIN)/rendered.log; exit 1; }

lint: $(TOOLS)/golangci-lint ## Run golangci-lint
	$(TOOLS)/golangci-lint run --allow-parallel-runners ./... ./e2e/...

chart: $(TOOLS)/helm build ## Pack the Helm chart into bin/
	$(TOOLS)/helm package deploy/chart --destination $(BIN)

# What a release is made of and by follows from the commit: docs/release.md. The program is built with the flags of everything else.
RELEASE   := $(BIN)/release-$(VERSION)
release: ## Make release VERSION (v0.1.0) of this commit in bin/release-VERSION; REGISTRY its images go to, KEY signs it
	@mkdir -p $(BIN)/release
	$(GO) build -o $(BIN)/release/ ./e2e/cmd/release
	$(BIN)/release/release make $(VERSION) --out $(RELEASE) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(KEY),--key $(KEY)) \
		$(if $(BUILDER),--builder $(BUILDER))

release-verify: ## Verify release VERSION with the public key PUBLIC, or UNSIGNED=1, without a network, and run its programs
	@mkdir -p $(BIN)/release
	$(GO) build -o $(BIN)/release/ ./e2e/cmd/release
	$(BIN)/release/release verify $(RELEASE) $(if $(UNSIGNED),--unsigned,--key $(PUBLIC)) --version $(VERSION) \
		--run --topology deploy/samples/topologies.yaml

release-again: ## Make release VERSION a second time, elsewhere, and compare
	rm -rf $(BIN)/again && git clone --quiet . $(BIN)/again/clone
	$(MAKE) -C $(BIN)/again/clone release VERSION=$(VERSION) REGISTRY=$(REGISTRY) KEY=$(abspath $(KEY)) BUILDER=$(BUILDER)
	diff --recursive --brief $(RELEASE) $(BIN)/again/clone/$(RELEASE)
	rm -rf $(BIN)/again

release-try: $(TOOLS)/helm ## Install release VERSION, made without REGISTRY, on a local Kubernetes (root)
	$(GO) test -count=1 -timeout 15m -v -run '^TestReleased$$' ./e2e/suite -release=$(CURDIR)/$(RELEASE)

bench: ## Measure speed and memory
	$(GO) test -run '^$$' -bench . -benchmem $(PACKAGES)

cluster-up: build ## Start a local Kubernetes with the driver, to play with (root); then: bin/lab kubectl get pods -A
	$(LAB) up
	$(LAB) deploy

cluster-down: ## End it
	$(LAB) down

clean: ## Remove what was built here; the cache of Kubernetes binaries stays
	rm -rf $(BIN)
