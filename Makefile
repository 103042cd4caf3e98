# Used by people and by .ci/run. "make" alone lists what there is.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
FUZZTIME    ?= 20s
BASE        ?= HEAD
RESULTS     ?= results.json
VERSION     ?=
FORM        ?= ci
ONLY        ?= F-|O-|H-|P-
PGO         ?= deploy/slotgate.pgo
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
OASDIFF     := github.com/oasdiff/oasdiff@v1.37.0

.DEFAULT_GOAL := help
.PHONY: help build test test-short fuzz cover check fmt lint staticcheck docs queries clients faults mutants servers operate kubernetes tour clean
.PHONY: contract contract-long lint-openapi breaking released
.PHONY: bench bench-short bench-against bench-conns bench-ladder bench-keys bench-apps bench-values bench-scale bench-idle bench-origin bench-plot pgo overload overload-short

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The profile is not cmd/slotgate/default.pgo: with it every first "go run" would compile all dependencies anew, a minute and a half.
build: ## build bin/slotgate (VERSION=1.2.3 to name it)
	go build -trimpath -pgo=$(PGO) $(if $(VERSION),-ldflags '-X main.version=$(VERSION)') -o bin/slotgate ./cmd/slotgate

test: needs check ## everything with the race detector, on real clusters; installs what is missing
	go test -race ./...
	go test -race ./store -args -coalesce-off

mutants: ## seed bugs one by one, and see that a test notices each (ten minutes; deploy/mutants)
	go run ./deploy/mutants

servers: ## the tests on Redis 8.2 and Valkey 9 as well as on the installed Redis (half an hour; deploy/servers)
	deploy/servers

test-short: ## a quick look: no race detector, no long tests
	go test -short ./...

fuzz: ## every fuzz target for FUZZTIME (20s)
	.ci/fuzz $(FUZZTIME)

cover: ## test coverage of all packages, as cover.html
	go test -coverpkg=./... -coverprofile=cover.out ./...
	go tool cover -func=cover.out | tail -1
	go tool cover -html=cover.out -o cover.html

check: ## gofmt and go vet
	@bad=$$(gofmt -l $$(go list -f '{{.Dir}}' ./...)); if [[ -n $$bad ]]; then echo "not formatted, run make fmt:"; echo "$$bad"; exit 1; fi
	go vet ./...

fmt: ## format the code
	gofmt -w $$(go list -f '{{.Dir}}' ./...)

lint: ## golangci-lint with .golangci.yml (the first run builds it: one to three minutes)
	go run $(GOLANGCI) run ./...

# Without SA1019 (CLUSTER SLOTS is what all supported versions answer), SA4000 and SA5000 (tests do both on purpose); lint has them for the rest.
staticcheck: ## the part of lint that CI runs
	go run $(STATICCHECK) -checks inherit,-SA1019,-SA4000,-SA5000 ./...

docs: ## bring the README's table of settings and the table of metrics up to date
	go test ./cmd/slotgate -run Readme -update -count=1
	go test ./store/metric -run Table -update -count=1

queries: ## compare what rules and dashboards ask for with deploy/metrics.md
	go -C deploy/prometheus/promql test -count=1 ./...

clients: ## generate Go, Python, TypeScript and Java clients from the document and run the tour with them
	deploy/clients/run

# ONLY=F-05 runs the tests whose names begin with TestF05.
faults: ## break a cluster under the gateway and count (ten minutes); FORM=long, ONLY=F-05, README=1 writes the table
	go test ./deploy/faults -count=1 -timeout 4h -v -run '^Test($(subst -,,$(ONLY)))' -args -faults=$(FORM) $(if $(README),-readme)

contract: ## schemathesis: the gateway against its document, under a minute (EXAMPLES, SEED)
	deploy/contract/run

contract-long: ## the same with more than 10,000 requests, others each time (five minutes)
	EXAMPLES=$${EXAMPLES:-400} SEED=$${SEED:-$$RANDOM} deploy/contract/run

lint-openapi: ## Redocly: the document against openapi/redocly.yaml
	deploy/contract/lint

# An enum of answers may get new values: ErrorCode says so, and clients branch on the codes they know.
breaking: ## oasdiff: no change of the document breaks a client of the released one
	go run $(OASDIFF) breaking --fail-on WARN --severity-levels openapi/oasdiff-levels.txt openapi/openapi.released.yaml openapi/openapi.yaml

released: ## at a release: the document is what "breaking" compares with from now on
	cp openapi/openapi.yaml openapi/openapi.released.yaml

operate: ## do what deploy/operate.md says, in a temporary folder
	deploy/operate-check

kubernetes: ## validate deploy/kubernetes against Kubernetes' schemas
	deploy/kubernetes/validate

tour: ## run the curl lines of the README and of deploy/pools.md against a gateway of their own
	deploy/tour

bench: ## the README's table: the gateway beside webdis, nginx+Lua and Gin hello (five minutes); BENCHFLAGS='-h' for its switches
	deploy/bench/run -batch 50,500 $(BENCHFLAGS)

bench-short: ## the same, coarser (under a minute)
	deploy/bench/run -rounds 3 -round 500ms -warm 200ms $(BENCHFLAGS)

bench-against: ## this tree beside the commit BASE (HEAD), as bench-short
	rm -rf bin/base && git worktree prune && git worktree add --detach bin/base $(BASE)
	cd bin/base && go build $$([ -f deploy/slotgate.pgo ] && echo -pgo=deploy/slotgate.pgo) -o ../slotgate-base ./cmd/slotgate
	git worktree remove --force bin/base
	go build -pgo=deploy/slotgate.pgo -o bin/slotgate ./cmd/slotgate
	deploy/bench/run -gateway-bin bin/slotgate-base -gateway-bin bin/slotgate -only slotgate -rounds 5 -round 500ms -warm 200ms $(BENCHFLAGS)

bench-conns: ## GET and PUT at 1 to 1,024 connections, and how much two equal gateways differ (twenty minutes)
	deploy/bench/run -ops get,put -conns 1,4,16,64,256,1024 -aa $(BENCHFLAGS)

bench-ladder: ## mget and mset of 50: goroutine per key, merged by node, capped, final (two minutes)
	deploy/bench/run -ladder -ops mget,mset -only slotgate,ladder $(BENCHFLAGS)

bench-keys: ## CPU per key in batches of 1 to 5,000 (six minutes)
	deploy/bench/run -ops mget,mset -batch 1,10,50,100,500,1000,5000 -keys 10000 -batch-conns 8 -only slotgate $(BENCHFLAGS)

bench-apps: ## one app beside 10,000, with A/A (six minutes)
	deploy/bench/run -apps 1,10000 -aa -only slotgate $(BENCHFLAGS)

bench-values: ## values of 100 B to 1 MB, random and compressible (fifteen minutes)
	deploy/bench/run -ops get,put -value 100,1000,10000,100000,1000000 -data random,text -rounds 10 -round 500ms -conns 16 $(BENCHFLAGS)

bench-scale: ## GOMAXPROCS 1, 2, 4, and one gateway beside two (three minutes)
	deploy/bench/run -only JSON -ops get,mget -conns 256 -variant 1:GOMAXPROCS=1 \
	  -variant 2:GOMAXPROCS=2 -variant 4:GOMAXPROCS=4 -variant twice:GOMAXPROCS=1,gateways=2 $(BENCHFLAGS)

bench-idle: ## memory of 5,000 idle connections
	deploy/bench/run -idle 5000 $(BENCHFLAGS)

bench-origin: ## the origin's test: open loop, 9 GET to 1 PUT, four primaries with replicas, half of the cores (a minute)
	deploy/bench/run -origin $(BENCHFLAGS)

pgo: ## measure anew what make build optimises for (two minutes)
	deploy/bench/pgo

overload: ## ten times what the shards can do, a flood, a slow shard, large batches (four minutes); README=1 writes table and plot; BENCHFLAGS='-only loads'
	deploy/bench/overload $(if $(README),-readme deploy/bench/README.md) $(BENCHFLAGS)

overload-short: ## the same as CI runs it: counts alone decide (a minute)
	deploy/bench/overload -short $(BENCHFLAGS)

bench-plot: ## results.json (RESULTS) as charts, and CPU profiles as flame graphs, in bin/plots
	go -C deploy/bench/plot build -o ../../../bin/benchplot . && bin/benchplot -o bin/plots $(RESULTS)

clean: ## remove what the other targets made
	rm -rf bin cover.out cover.html

# What the tests need beside Go: a C compiler for the race detector, redis-server for the clusters.
.PHONY: needs
needs:
	@missing=(); \
	command -v gcc >/dev/null || missing+=(gcc libc6-dev); \
	command -v redis-server >/dev/null || missing+=(redis-server); \
	command -v redis-cli >/dev/null || missing+=(redis-tools); \
	if ((!$${#missing[@]})); then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "please install: $${missing[*]}" >&2; exit 1; fi; \
	root=(); \
	if ((EUID)); then \
	  command -v sudo >/dev/null || { echo "please install, as root: apt-get install $${missing[*]}" >&2; exit 1; }; \
	  root=(sudo); \
	fi; \
	"$${root[@]}" apt-get update -q; \
	"$${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "$${missing[@]}"
