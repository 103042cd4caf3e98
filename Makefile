# Used by people and by .ci/run. "make" alone lists what there is.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
FUZZTIME    ?= 20s
BASE        ?= HEAD
VERSION     ?=
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.DEFAULT_GOAL := help
.PHONY: help build test test-short fuzz cover check fmt lint staticcheck docs clients tour bench bench-short bench-against clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/slotgate (VERSION=1.2.3 to name it)
	go build -trimpath $(if $(VERSION),-ldflags '-X main.version=$(VERSION)') -o bin/slotgate ./cmd/slotgate

test: needs check ## everything with the race detector, on real clusters; installs what is missing
	go test -race ./...

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

docs: ## bring the README's table of settings up to date
	go test ./cmd/slotgate -run Readme -update -count=1

clients: ## generate the Go and the Python client from the document and run the tour with them
	deploy/clients/run

tour: ## run the README's curl lines against a gateway of their own
	deploy/tour

bench: ## the gateway beside webdis, nginx+Lua and Gin hello (four minutes); BENCHFLAGS='-h' for its switches
	deploy/bench/run $(BENCHFLAGS)

bench-short: ## the same, coarser (under a minute)
	deploy/bench/run -rounds 3 -round 500ms -warm 200ms $(BENCHFLAGS)

bench-against: ## this tree beside the commit BASE (HEAD), as bench-short
	rm -rf bin/base && git worktree prune && git worktree add --detach bin/base $(BASE)
	cd bin/base && go build -o ../slotgate-base ./cmd/slotgate
	git worktree remove --force bin/base
	go build -o bin/slotgate ./cmd/slotgate
	deploy/bench/run -gateway-bin bin/slotgate-base -gateway-bin bin/slotgate -only slotgate -rounds 5 -round 500ms -warm 200ms $(BENCHFLAGS)

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
