# Commands of the project. `make help` lists the targets with a "##" comment.

GO        ?= go
BIN       := bin
TOOLS     := $(BIN)/tools
LAB       := $(BIN)/lab
# An emulated machine that waits for a processor exceeds timeouts of the kubelet and CNI plugins, so machines get priority.
VM        := $(shell [ "$$(id -u)" = 0 ] && echo nice -n -5) $(LAB)
PACKAGES  := ./cmd/... ./plugin/... ./cnichain/... ./discovery/... ./policy/... ./slices/... ./deploy/... ./docs/...
# Packages without goroutines or locks. The race detector cannot find anything in them and would make their tests eight times slower.
# Their callers, such as ./plugin, are tested with it. A test in ./docs checks that these packages use neither goroutines nor locks.
PURE      := ./policy/... ./slices/... ./deploy/... ./docs/... ./cnichain ./cnichain/addresses ./cnichain/claimspec/... ./cnichain/deviceclasses ./cnichain/sanitize ./cnichain/v1alpha1/... ./plugin/nodeapi/... ./cmd/netdra/internal/importer ./cmd/netdra/internal/simulate ./cmd/netdra/internal/manifest ./cmd/netdra/internal/offers ./cmd/netdra/internal/printer ./cmd/netdra/internal/view
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
# Modules of third-party programs, except those whose go.sum is part of the cache key for the local Kubernetes.
MODULES   := e2e/kwok e2e/karpenter e2e/kubevirt e2e/multus e2e/ovscni e2e/coredns
# Tests of e2e/suite that break the cluster or are slow: "make test-all" runs them on a separate cluster.
LONG      := ^(TestAPIServerDown|TestLifecycle|TestSoak|TestFullNode|TestTimes.*|TestSharedClaimWhoseUserIsLost\
	|TestStaticPodWhileTheAPIServerIsDown|TestDriverThatHangs|TestDeviceThatCannotBeCleaned|TestChainOfSixSeconds\
	|TestSchedulerBypassed|TestRollingUpdate|TestUpgrade|TestGang|TestMultus.*|TestMigrationFromMultus|TestNetworkStatusBesideMultus\
	|TestOVNKubernetes(Layer2|Refusals|ServerIsDown|WithoutAMapping|LocalnetWithADevice)|TestAddressRange|TestRuntimeCalls)$$
# Measurements that only "bench-e2e" runs. The same steps are tested by TestTimesByInterfaces, TestSoak and TestChainOfSixSeconds.
MEASURED  := ^(TestTimesOfChurn|TestTimesOfTightLoop|TestTimesOfLateChains)$$
# Lanes in virtual machines that "test-all" runs, the slowest first. Without KVM, each machine uses a processor for up to 20 minutes.
# Therefore, only "rdma-test" runs rdma-shared and rdma-pods, and only "sriov-test" runs sriov-crashes, sriov-multus and the second
# half of sriov-pods: sriov-chains kills chains on virtual functions at each step, and e2e-node kills the components of a node.
# Similarly, only "e2e-schedulers" tests the oldest supported Kubernetes, which takes minutes to compile.
MACHINES  := sriov-pods sriov-chains rdma-exclusive ovs-vm
empty     :=
LONG      := $(subst $(empty) ,,$(LONG))
# gRPC's trace pages use templates, which call methods by name. This makes the linker keep every method of every type, and the
# driver's binary grows from 44 MB to 75 MB.
TAGS      := grpcnotrace
# Results of the lanes, and the command that prints them and fails if a lane failed.
LANES     := $(BIN)/lanes
SUMMARY   := echo; cat $(LANES)/*; ! grep -q FAILED $(LANES)/*
# All builds without the race detector use the same flags, so that Go compiles their dependencies once.
export GOFLAGS := $(strip $(filter-out -trimpath -tags=%,$(shell $(GO) env GOFLAGS)) -trimpath -tags=$(TAGS))
export CGO_ENABLED := 0
# Omit the debug tables, which account for a fifth of the link time.
RACE      := CGO_ENABLED=1 $(GO) test -race -ldflags=-w

.PHONY: help build image demo test test-all lanes-test test-unit test-race test-race-rest test-kernel test-allocator karpenter-check dns-check kwok scale e2e e2e-lab e2e-node e2e-planes e2e-long e2e-fleet e2e-scale fleet-long e2e-older e2e-scheduler e2e-schedulers soak model browser-test pictures diagrams docs-site docs-site-test bench-e2e duel vm-doubles sriov-test sriov-chains sriov-pods kubevirt-reader sriov-multus sriov-crashes sriov-inside sriov-lab rdma-test rdma-exclusive rdma-shared rdma-pods rdma-lab verify generate lint bench cluster-up cluster-down clean release release-verify release-again release-try privileges ovs-test ovs-vm ovs-ovnkube ovs-lab

help: ## Show this help
	@bold=; plain=; \
	if [ -t 1 ] && [ -z "$$NO_COLOR" ] && [ "$$TERM" != dumb ]; then bold="$$(printf '\033[1m')"; plain="$$(printf '\033[0m')"; fi; \
	awk -F ':.*## ' -v bold="$$bold" -v plain="$$plain" \
		'/^[a-z0-9-]+:.*## / {printf "  %s%-14s%s %s\n", bold, $$1, plain, $$2}' $(MAKEFILE_LIST)

build: ## Build the driver, the controller and the CNI plugins (static) and the lab command into bin/
	@mkdir -p $(BIN)
	$(GO) build -ldflags "-s -w" -o $(BIN)/ ./cmd/... ./e2e/cmd/lab ./e2e/cmd/demo
	@ln -sf netdra $(BIN)/kubectl-netdra
	@mkdir -p $(BIN)/cni && ln -sf ../dra-network-cni $(BIN)/cni/netdev && ln -sf ../dra-network-cni $(BIN)/cni/device-only

image: build ## Pack driver and controller into OCI image archives in bin/images/
	$(LAB) pack --bin $(BIN) --out $(BIN)/images

demo: build ## Run the demo on a real local Kubernetes (root; KEEP=1 keeps the cluster; NAME=another runs a second one)
	@$(BIN)/demo --bin $(BIN) $(if $(KEEP),--keep) $(if $(NAME),--name "$(NAME)")

test: build ## Run the tests that every change must pass: unit tests, real plugins, a real local Kubernetes (root; 9 minutes)
	@rm -rf $(LANES)
	@if [ "$$(id -u)" = 0 ]; then $(LAB) build; else echo "not root: tests that need namespaces or the local Kubernetes are skipped"; fi
	@$(MAKE) lanes-test
	@$(SUMMARY)

lanes-test:
	@$(MAKE) lane-test-race
	@$(MAKE) lane-e2e-lab
	@$(MAKE) -j 2 --output-sync=target $(addprefix lane-,e2e-node e2e-planes test-kernel test-allocator)

# After "test", the slowest lanes start first, two at a time: with three, an emulated virtual machine is too slow for the timeouts of
# the kubelet and CNI plugins, and tests on a node take more than twice as long.
test-all: build ## Run the tests of CI: "test", slow tests, and virtual machines (root; an hour and more)
	@rm -rf $(LANES)
	@if [ "$$(id -u)" = 0 ]; then $(LAB) build; else echo "not root: tests that need namespaces or the local Kubernetes are skipped"; fi
	@$(MAKE) lanes-test
	@machines="$(MACHINES)"; \
	if [ "$$(id -u)" = 0 ]; then $(MAKE) lane-vm-doubles; \
	else machines=; echo "not root: tests in virtual machines are skipped"; fi; \
	$(MAKE) -j 2 --output-sync=target SRIOV_FLAGS=--optional RDMA_FLAGS=--optional OVS_FLAGS=--optional SHORT=1 \
		$$(printf 'lane-%s ' e2e-long $$machines e2e-scheduler e2e-fleet test-race-rest browser-test e2e-scale docs-site)
	@$(SUMMARY)

# A lane records the result of a target in a file, so that the other lanes run even if it fails.
lane-%:
	@mkdir -p $(LANES); start=$$(date +%s); result=passed; $(MAKE) $* || result=FAILED; \
	printf '%-16s %s in %d s\n' "$*" $$result $$(($$(date +%s) - start)) >$(LANES)/$*

test-unit: $(TOOLS)/helm ## Run the tests that need no cluster and no real plugins, without the race detector
	$(GO) test -short -ldflags=-w $$($(GO) list $(PACKAGES) | grep -v -x -F "$$($(GO) list ./cnichain/kerneltest)")

test-race: $(TOOLS)/helm ## Run the tests of test-unit, with the race detector for packages with goroutines
	$(RACE) -short $$($(GO) list $(PACKAGES) | grep -v -x -F -e "$$($(GO) list $(PURE) ./cnichain/kerneltest)")
	$(RACE) -short ./plugin -nri-runtime=cri-o
	$(GO) test -short -ldflags=-w $(PURE)

test-race-rest: ## Run the tests that test-race shortens, with the race detector
	$(RACE) ./cmd/dra-network-controller/internal/blocks

test-allocator: ## Test published slices with the real allocator and thousands of random sequences of claims
	$(GO) test -count=1 -v ./slices

# Karpenter's allocator, at the version in e2e/karpenter/go.mod. It takes a minute to compile, so "test-all" does not run it.
karpenter-check: ## Compare Karpenter's allocator with kube-scheduler's on published slices and random claims
	@mkdir -p $(BIN)
	cd e2e/karpenter && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$(BIN)/karpenter-allocator .
	$(GO) test -count=1 -v -run '^TestKarpenterAgrees$$' ./slices -karpenter=$(CURDIR)/$(BIN)/karpenter-allocator

# The real CoreDNS, at the version in e2e/coredns/go.mod. It takes two minutes to compile.
dns-check: build ## Resolve the names of Services on secondary networks with CoreDNS (root)
	cd e2e/coredns && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$(BIN)/coredns tool
	$(GO) test -count=1 -v -run '^TestDNSNamesEndpoints$$' ./e2e/controller -coredns=$(CURDIR)/$(BIN)/coredns

test-kernel: build ## Run chains of real CNI plugins in separate namespaces, with failures and kills (root)
	@if [ "$$(id -u)" = 0 ]; then export CNI_PLUGIN_DIR="$$($(LAB) build --dir)/cni"; \
	else echo "test-kernel: SKIPPED, because it needs root"; exit; fi; \
	$(RACE) -count=1 -timeout 30m -parallel 4 -v $(KERNEL_FLAGS) ./cnichain/kerneltest ./cmd/netdra ./cmd/internal/netdev ./cmd/dra-network-cni/...

e2e: e2e-lab ## Run the tests on a real local Kubernetes (root)
	$(MAKE) -j 2 --output-sync=target e2e-node e2e-planes

e2e-lab: build $(TOOLS)/helm
	@if [ "$$(id -u)" = 0 ]; then $(LAB) build; fi
	$(RACE) -count=1 -timeout 30m ./e2e/lab/... ./e2e/internal/... ./e2e/image/... ./e2e/cmd/lab ./e2e/cmd/ovn-k8s-cni-overlay
	$(GO) test -count=1 ./e2e/monitoring ./e2e/release ./e2e/cmd/release ./e2e/cmd/docsite ./e2e/cmd/demo ./e2e/duel

# Tests on a node wait most of the time. Tests on another cluster or without one run concurrently.
e2e-node: $(TOOLS)/helm
	$(GO) test -count=1 -timeout 45m -v -skip '$(LONG)' $(E2E_FLAGS) ./e2e/suite -samples=2

e2e-planes:
	$(GO) test -count=1 -timeout 30m -v $(E2E_FLAGS) ./e2e/controller/...
	$(GO) test -count=1 -timeout 30m -v $(E2E_FLAGS) ./e2e/tutorial/...

e2e-long: build $(TOOLS)/helm ## Run the slow tests and those that break the cluster, one with PODS (60) concurrent pods (root)
	$(GO) test -count=1 -timeout 60m -v -run '$(LONG)' -skip '$(MEASURED)' $(E2E_FLAGS) ./e2e/suite -cluster=suite-alone -soak=2m -samples=2 -pods=$(PODS)

e2e-fleet: build ## Run the tests on three nodes: reboots, lost nodes, partitions, mixed versions, gangs (root)
	$(GO) test -count=1 -timeout 45m -v $(E2E_FLAGS) ./e2e/fleet

fleet-long: build ## Partition a node from the API server for MINUTES (10) while pods are created and deleted (root)
	$(GO) test -count=1 -timeout $$(($(MINUTES) + 20))m -v -run '^TestPartition$$' ./e2e/fleet -partition=$(MINUTES)m

e2e-older: build
	@if [ "$$(id -u)" = 0 ]; then nice -n 19 $(LAB) build --kubernetes 1.36; fi

e2e-scheduler: build ## Test published slices with the scheduler of the newest Kubernetes (root)
	$(GO) test -count=1 -timeout 30m -v -parallel 16 $(E2E_FLAGS) ./e2e/scheduler/...

e2e-schedulers: e2e-older ## Test published slices with the schedulers of the newest and the oldest supported Kubernetes (root)
	$(GO) test -count=1 -timeout 40m -v -parallel 16 $(E2E_FLAGS) ./e2e/scheduler/... -older

browser-test: ## Test the pages of "netdra report" with Chromium, if installed; writes screenshots to bin/pictures
	@mkdir -p $(BIN)/pictures
	$(GO) test -count=1 -v ./e2e/browser -pictures=$(CURDIR)/$(BIN)/pictures

pictures: ## Update the screenshots of the documentation, with Chromium
	$(GO) test -count=1 -v -run '^TestPictures$$' ./e2e/browser -documentation=$(CURDIR)/docs

diagrams: ## Render the diagrams of the documentation from their sources in docs/diagrams
	$(GO) run ./e2e/cmd/docsite diagrams docs/diagrams

# Each version is a directory in $(BIN)/site. The list of versions contains the existing directories.
docs-site: $(TOOLS)/hugo ## Build the documentation site in bin/site, as VERSION (main), and check its links; needs no network
	HUGO_PARAMS_VERSION=$(or $(VERSION),main) $(TOOLS)/hugo build --quiet --panicOnWarning --noBuildLock --cleanDestinationDir \
		--source . --config docs/site/hugo.toml --destination $(BIN)/site/$(or $(VERSION),main)
	$(GO) run ./e2e/cmd/docsite versions $(BIN)/site
	$(GO) run ./e2e/cmd/docsite check $(BIN)/site

docs-site-test: docs-site ## Build the site and test it with Chromium; writes screenshots to bin/pictures
	@mkdir -p $(BIN)/pictures
	$(GO) test -count=1 -v -run '^TestSite$$' ./e2e/browser -site=$(CURDIR)/$(BIN)/site -pictures=$(CURDIR)/$(BIN)/pictures

# The test doubles of CNI plugins that the virtual machines run, and the code that boots the machines.
vm-doubles:
	$(RACE) -count=1 ./e2e/vm/... ./e2e/cmd/sriov/... ./e2e/cmd/bond/... ./e2e/cmd/ovn-k8s-cni-overlay/...
	$(LAB) build

sriov-test: build ## Run the tests on virtual functions in virtual machines, some of them Kubernetes nodes (root)
	$(MAKE) vm-doubles
	$(MAKE) -j 3 --output-sync=target sriov-chains sriov-pods sriov-crashes sriov-multus

sriov-chains:
	$(VM) vm test $(SRIOV_FLAGS) --skip '^TestCluster' ./e2e/sriov
	$(VM) vm test --vfs 1 --env KERNELTEST_VF=0000:41:10.0 --run 'VF|LeaveNoFiles' $(SRIOV_FLAGS) ./cnichain/kerneltest

sriov-pods: # SHORT=1 runs half of the parts, for "test-all". The reader is not a prerequisite: make would then start this lane, the slowest one, last
	$(MAKE) kubevirt-reader
	$(VM) --name sriov-pods vm test --cluster --pfs 3 --share $(BIN)/share --timeout 45m $(SRIOV_FLAGS) --run '^TestCluster(Pods|Imported)$$$(if $(SHORT),/^(slices|settings|imported|vfio|numvfs)$$)' ./e2e/sriov

# KubeVirt's own code, at the version in e2e/kubevirt/go.mod, for reading device metadata in the containers of virtual machines.
kubevirt-reader:
	@mkdir -p $(BIN)/share
	cd e2e/kubevirt && GOFLAGS= GOWORK=off $(GO) test .
	cd e2e/kubevirt && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$(BIN)/share/kubevirt-reader .

# The real Multus, at the version in e2e/multus/go.mod; a binary in EXTRA_CNI_DIR replaces it. Without KVM, it takes five minutes.
sriov-multus:
	@mkdir -p $(BIN)/share
	cd e2e/multus && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$(BIN)/share/multus tool
	$(VM) --name sriov-multus vm test --cluster --pfs 3 --share $(BIN)/share $(SRIOV_FLAGS) --run '^TestClusterMultus' ./e2e/sriov

sriov-crashes: # with containerd's default timeout
	$(VM) --name sriov-crashes vm test --cluster --nri-timeout 2s --pfs 3 --timeout 30m $(SRIOV_FLAGS) --run '^TestClusterCrashes' ./e2e/sriov

sriov-inside: build ## Run the test on a virtual machine that is a whole cluster with its control plane; 5 minutes (root)
	$(VM) --name sriov-inside vm test --cluster=inside --pfs 3 $(SRIOV_FLAGS) --run '^TestClusterInside' ./e2e/sriov

sriov-lab: build ## Open a shell in a virtual machine with SR-IOV NICs (CMD="..." runs a command instead; CLUSTER=outside or inside adds Kubernetes)
	@$(LAB) vm $(if $(CMD),run,shell) --vfs 4 $(if $(CLUSTER),--cluster=$(CLUSTER)) $(if $(CMD),-- bash -c "$$CMD")

rdma-test: build ## Run the tests on RDMA devices in virtual machines with Soft RoCE, one of them a Kubernetes node (root)
	$(LAB) build
	$(MAKE) -j 3 --output-sync=target rdma-exclusive rdma-shared rdma-pods

rdma-exclusive:
	$(VM) vm test --rdma=exclusive $(RDMA_FLAGS) --skip '^TestCluster' ./e2e/rdma

rdma-shared:
	$(VM) vm test --rdma=shared $(RDMA_FLAGS) --skip '^TestCluster' ./e2e/rdma
	$(VM) vm test --rdma=shared $(RDMA_FLAGS) --run '^TestKernelSoftRoCE$$' ./discovery

rdma-pods:
	$(VM) --name rdma-pods vm test --cluster --rdma=exclusive --timeout 45m $(RDMA_FLAGS) --run '^TestCluster' ./e2e/rdma
	$(VM) --name rdma-pods vm test --cluster --rdma=shared $(RDMA_FLAGS) --run '^TestCluster(PodsExchangeData|LinksExchangeData|SharedPort|PortWithoutInterface)$$' ./e2e/rdma

rdma-lab: build ## Open a shell in a virtual machine with RDMA (MODE=exclusive or shared; CMD and CLUSTER as for sriov-lab)
	@$(LAB) vm $(if $(CMD),run,shell) --rdma=$(or $(MODE),exclusive) --vfs 4 $(if $(CLUSTER),--cluster=$(CLUSTER)) $(if $(CMD),-- bash -c "$$CMD")

ovs-test: build ## Run the tests on Open vSwitch, with the real ovs-cni, in a virtual machine (root)
	$(LAB) build
	$(MAKE) ovs-vm

ovs-vm:
	$(VM) vm test --ovs $(OVS_FLAGS) ./e2e/ovs

# The real OVN-Kubernetes if EXTRA_CNI_DIR has ovnkube, ovn-k8s-cni-overlay and the directory crds; otherwise a test double.
ovs-ovnkube: build ## Run pods on networks of OVN-Kubernetes, on Open vSwitch in a virtual machine; 10 minutes (root)
	$(VM) --name ovs-ovnkube vm test --ovs --cluster --pfs 3 --processors 2 --memory 4096 --share deploy/samples/examples --timeout 40m $(OVS_FLAGS) --run '^TestClusterOVNKubernetes$$' ./e2e/ovs

ovs-lab: build ## Open a shell in a virtual machine with Open vSwitch and OVN (CMD and CLUSTER as for sriov-lab)
	@$(LAB) vm $(if $(CMD),run,shell) --ovs --vfs 4 $(if $(CLUSTER),--cluster=$(CLUSTER)) $(if $(CMD),-- bash -c "$$CMD")

# KWOK, at the version in e2e/kwok/go.mod, simulates nodes and pods without kubelets.
kwok:
	@mkdir -p $(BIN)
	cd e2e/kwok && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$(BIN)/kwok sigs.k8s.io/kwok/cmd/kwok

scale: build kwok ## Measure the control plane with NODES (1000), DEVICES (64) and SHAPE (functions, mixed-functions, links, mixed-links), and the controller with 500 topologies; writes scheduler profiles to PROFILES (root)
	$(GO) test -count=1 -timeout 60m -v -run '^TestScale$$' ./e2e/scale -nodes=$(NODES) -devices=$(DEVICES) -shape=$(SHAPE) \
		-pods=1000 -least=$(LEAST) -output=$(CURDIR)/$(BIN)/scale.jsonl $(if $(PROFILES),-profiles="$(abspath $(PROFILES))")
	$(GO) test -count=1 -timeout 15m -v -run '^TestAtScale$$' ./e2e/controller

# The assertions of "scale" with few nodes: each slice is written once, restarted drivers write none, and all pods are scheduled.
e2e-scale: build kwok ## Run the control plane with 40 nodes of 64 devices and restart 20 drivers together (root)
	$(GO) test -count=1 -timeout 15m -v -run '^TestScale$$' ./e2e/scale -nodes=40 -pods=100 -shape=mixed-functions -layouts=one-pool,driver

soak: build ## Create and delete pods while components are killed, for MINUTES (10); SEED repeats a run (root)
	$(GO) test -count=1 -timeout $$(($(MINUTES) + 20))m -v -run '^TestSoak$$' ./e2e/suite -soak=$(MINUTES)m -seed=$(SEED)

model: build ## Test the gate's guarantee with random faults for MINUTES (10); SEED repeats a run (root)
	$(GO) test -count=1 -timeout $$(($(MINUTES) * 3 + 20))m -v -run '^TestModel$$' ./e2e/suite -model=$(MINUTES)m -model-journal -seed=$(SEED)

bench-e2e: build $(TOOLS)/helm ## Measure the time until pods are Ready, with 0 to 8 interfaces and with late ones, SAMPLES (50) of each (root)
	$(GO) test -count=1 -timeout 60m -v -run '^TestTimes' ./e2e/suite -samples=$(SAMPLES)

privileges: build ## Remove CAPABILITIES (all documented) from the driver, one at a time, and compare the failures with docs/security.md (root)
	$(GO) test -count=1 -timeout 30m -v -run '^TestPrivileges$$' ./e2e/suite -cluster=suite-privileges -privileges=$(or $(CAPABILITIES),documented)

duel: build ## Compare pod start with the drivers in PEERS (dranet, multus, and before: another version of this one), SAMPLES (50) of each (root)
	$(GO) build -ldflags "-s -w" -o bin/ ./e2e/cmd/duel
	bin/duel run --samples $(SAMPLES) --rounds $(or $(ROUNDS),1) $(if $(PEERS),--peers "$(PEERS)")

verify: generate ## Generate, tidy, vet, lint, and check commit messages; fails if any file changes
	$(GO) mod tidy
	cd e2e && $(GO) mod tidy
	@for module in $(MODULES); do (cd "$$module" && GOFLAGS= GOWORK=off $(GO) mod tidy) || exit 1; done
	$(GO) vet ./... ./e2e/...
	$(MAKE) lint
	.ci/check-commits
	@git diff --exit-code || { echo "verify: the files above were out of date: commit them"; exit 1; }

$(TOOLS)/hugo: .ci/site/go.mod .ci/site/go.sum
	@mkdir -p $(TOOLS); echo "Compiling hugo once; this takes minutes with a cold Go cache."
	cd .ci/site && GOFLAGS= GOWORK=off $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/$@ github.com/gohugoio/hugo

# One of the tools in .ci/tools/go.mod: building all of them takes many minutes.
$(TOOLS)/%: .ci/tools/go.mod .ci/tools/go.sum
	@mkdir -p $(TOOLS); echo "Compiling $* once; this takes minutes with a cold Go cache."
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

# A release depends only on the commit; see docs/release.md. The release program is built with the same flags as all others.
RELEASE   := $(BIN)/release-$(VERSION)
release: ## Build release VERSION (v0.1.0) of this commit in bin/release-VERSION, for images in REGISTRY, signed with KEY
	@mkdir -p $(BIN)/release
	$(GO) build -o $(BIN)/release/ ./e2e/cmd/release
	$(BIN)/release/release make $(VERSION) --out $(RELEASE) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(KEY),--key $(KEY)) \
		$(if $(BUILDER),--builder $(BUILDER))

release-verify: ## Verify release VERSION with the public key PUBLIC, or UNSIGNED=1, without a network, and run its programs
	@mkdir -p $(BIN)/release
	$(GO) build -o $(BIN)/release/ ./e2e/cmd/release
	$(BIN)/release/release verify $(RELEASE) $(if $(UNSIGNED),--unsigned,--key $(PUBLIC)) --version $(VERSION) \
		--run --topology deploy/samples/topologies.yaml

release-again: ## Build release VERSION again in another directory, and compare
	rm -rf $(BIN)/again && git clone --quiet . $(BIN)/again/clone
	$(MAKE) -C $(BIN)/again/clone release VERSION=$(VERSION) REGISTRY=$(REGISTRY) KEY=$(abspath $(KEY)) BUILDER=$(BUILDER)
	diff --recursive --brief $(RELEASE) $(BIN)/again/clone/$(RELEASE)
	rm -rf $(BIN)/again

release-try: $(TOOLS)/helm ## Install release VERSION, built without REGISTRY, on a local Kubernetes (root)
	$(GO) test -count=1 -timeout 15m -v -run '^TestReleased$$' ./e2e/suite -release=$(CURDIR)/$(RELEASE)

bench: ## Measure speed and memory
	$(GO) test -run '^$$' -bench . -benchmem $(PACKAGES)

cluster-up: build ## Start a local Kubernetes with the driver (root); then: bin/lab kubectl get pods -A
	$(LAB) up
	$(LAB) deploy

cluster-down: ## Stop the local Kubernetes
	$(LAB) down

clean: ## Remove bin/; the cache of Kubernetes binaries stays
	rm -rf $(BIN)
