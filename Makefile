# Words for people; CMake does the work (CMakePresets.json). `make help` lists them.
.DEFAULT_GOAL := all
.PHONY: all help setup demo check stress fuzz format install coverage memcheck clean

PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
MAKEFLAGS += --no-print-directory

all: ## build the release into build/release
	@tools/setup --check || { echo "make: run tools/setup first"; exit 1; }
	@.ci/run build

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

setup: ## install the packages that building, tests and the demo need
	@tools/setup

demo: setup ## a conversation with a real engine that survives the engine's death
	@test -x tools/demo || { echo "make demo: tools/demo is not there yet"; exit 1; }
	@.ci/run build
	@tools/demo

check: ## install packages, build the release, run every check and every test
	@.ci/run setup checks release

stress: setup ## what is too long for CI; a million checkpoints need 6 GB of disk, 1 GB of RAM
	@.ci/run build stress mutants

fuzz: setup ## fuzz each decoder; SECONDS_EACH=600 for ten minutes each
	@KVARVE_FUZZ_SECONDS=$(or $(SECONDS_EACH),30) .ci/run fuzz

format: ## lay out all C files as .clang-format says
	@git ls-files --cached --others --exclude-standard '*.c' '*.h' | xargs -r clang-format-19 -i

install: all ## install headers, libraries and the program; PREFIX=/usr/local
	cmake --install build/release --prefix $(PREFIX)

coverage: setup ## run the tests with gcc --coverage and name the files reached least
	@.ci/run coverage

memcheck: ## run unit and contract tests under valgrind
	@tools/setup --nightly
	@.ci/run memcheck

clean: ## remove everything that was built
	rm -rf build
