# aprkit. `make help` lists the targets.

CC      ?= cc
PREFIX  ?= /usr/local
FLAVOR  ?= release#      release | debug | asan | tsan | fuzz

# A room includes only what it stands on; `make layers` checks it.
may_formats := formats
may_kernels := formats kernels
may_quant   := formats kernels quant
may_convert := formats kernels quant convert
may_runtime := formats kernels runtime
ROOMS := formats kernels quant convert runtime
empty :=
space := $(empty) $(empty)

clang_ := $(findstring clang,$(CC))
B      := build/$(FLAVOR)$(if $(clang_),-clang)

WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
CPPFLAGS += -I. -MMD -MP -D_POSIX_C_SOURCE=200809L
CFLAGS   += -std=c11 $(WARN) -fopenmp $(flags_$(FLAVOR))
LDLIBS   += -lcjson -lzstd -ldeflate -lpcre2-8 -lutf8proc -ldl -lm
# No fast-math and no contraction: bytes must be reproducible.
flags_release := -O3 -g -ffp-contract=off
flags_debug   := -O0 -g -ffp-contract=off
flags_asan    := -O1 -g -ffp-contract=off -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer
flags_fuzz    := $(flags_asan) -fsanitize=fuzzer-no-link
flags_tsan    := -O1 -g -ffp-contract=off -fsanitize=thread

LIB_C  := $(sort $(wildcard $(ROOMS:=/*.c) $(ROOMS:=/ref/*.c) $(ROOMS:=/host/*.c)))
LIB    := $B/libaprkit.a
MAINS  := $(wildcard tools/apr*.c)
TOOL_C := $(filter-out $(MAINS),$(wildcard tools/*.c))
TOOLS  := $(MAINS:tools/%.c=$B/%)
TESTS  := $(patsubst tests/%.c,$B/%,$(wildcard tests/test_*.c))
FUZZ   := $(patsubst tests/%.c,%,$(filter-out tests/fuzz_replay.c,$(wildcard tests/fuzz_*.c)))
SUPPORT_C := $(filter-out tests/test_%.c tests/gpu_%.c tests/fuzz_%.c tests/bench_%.c tests/make_%.c,$(wildcard tests/*.c))
SOURCES = $(shell git ls-files '*.c' '*.h')

.DEFAULT_GOAL := all
.SECONDARY:
.PHONY: all demo test unit cli fuzz-replay asan fuzz check-memory bench deps deps-dev doctor layers format lint install clean help cuda check-archs check-gpu FORCE

all: $(TOOLS) ## build the four tools into build/release

demo: deps ## the whole story on the bundled model: convert, quantize, plan, run, verify
	@$(MAKE) --no-print-directory CUDA=0 all
	@tests/demo.sh $B

test: deps ## all tests; no GPU needed
	@$(MAKE) --no-print-directory unit cli fuzz-replay
unit: $(TESTS)
	@tests/run_units.sh $(TESTS)
cli: $(TOOLS) $B/make_family
	@tests/run_cli.sh $B
fuzz-replay: $(FUZZ:%=$B/replay_%)
	@for f in $(FUZZ); do $B/replay_$$f tests/corpus/$${f#fuzz_}/* || exit 1; done

asan: ## the same tests under the address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory FLAVOR=asan unit cli fuzz-replay
fuzz: deps-dev ## fuzz every parser for FUZZ_SECONDS (60) each; finds are kept in build/fuzz
	@$(MAKE) --no-print-directory CC=clang FLAVOR=fuzz $(FUZZ:%=build/fuzz-clang/%)
	@for f in $(FUZZ); do mkdir -p build/fuzz/$$f && echo "== $$f" && \
	  build/fuzz-clang/$$f -max_total_time=$(or $(FUZZ_SECONDS),60) -rss_limit_mb=4096 -timeout=10 -print_final_stats=1 \
	  -artifact_prefix=build/fuzz/$$f- build/fuzz/$$f tests/corpus/$${f#fuzz_} 2>&1 | tail -n 12 || exit 1; done

check-memory: all $B/bench_synth ## a 4 GB checkpoint in under 128 MiB, and killed on the way (needs 9 GB of disk)
	@tests/memory.sh $B
bench: all $B/bench_synth $B/bench_host ## figures: conversion against cp, host decoding and prompt speed
	@tests/bench.sh $B

PACKAGES     := build-essential libcjson-dev libcmocka-dev libzstd-dev libpcre2-dev libutf8proc-dev libdeflate-dev
PACKAGES_DEV := clang clang-format libomp-dev libclang-rt-dev python3
missing = $(shell for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'install ok installed' || echo $$p; done)
define install_missing
	@missing="$(strip $(call missing,$(1)))"; [ -z "$$missing" ] && exit 0; \
	command -v apt-get >/dev/null || { echo "no apt-get here: please install the likes of $$missing"; exit 0; }; \
	as_root=; [ "$$(id -u)" = 0 ] || as_root=sudo; \
	echo "installing $$missing"; \
	{ $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null 2>&1 || \
	  { $$as_root apt-get update -qq && $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null; }; }
endef
deps: ## install the Debian packages that are missing
	$(call install_missing,$(PACKAGES))
deps-dev: deps ## and those for fuzzing, linting and clang
	$(call install_missing,$(PACKAGES_DEV))

doctor: ## what was found here
	@printf '%-14s %s\n' compiler "$$($(CC) --version | head -n 1)" make "$(MAKE_VERSION)" cores "$$(nproc)" \
	  nvcc "$$(nvcc --version 2>/dev/null | sed -n 's/.*release //p' | grep . || echo none)" \
	  missing "$(or $(strip $(call missing,$(PACKAGES))),nothing)" \
	  "missing (dev)" "$(or $(strip $(call missing,$(PACKAGES_DEV))),nothing)"

$B/%.c.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@
# Sums of products that are held to bounds, not to bits
$B/kernels/host/matmul.c.o $B/kernels/host/attention.c.o $B/kernels/host/packed.c.o: CFLAGS += -ffp-contract=fast
$(LIB): $(LIB_C:%=$B/%.o)
	@rm -f $@
	@ar rcs $@ $^
$(TOOLS): $B/%: $B/tools/%.c.o $(TOOL_C:%=$B/%.o) $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(TESTS): $B/%: $B/tests/%.c.o $(SUPPORT_C:%=$B/%.o) $(TOOL_C:%=$B/%.o) $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -lcmocka -o $@
$B/bench_%: $B/tests/bench_%.c.o $(TOOL_C:%=$B/%.o) $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@
$B/make_%: $B/tests/make_%.c.o $B/tests/%_model.c.o $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@
$B/replay_fuzz_%: $B/tests/fuzz_%.c.o $B/tests/fuzz_replay.c.o $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@
build/fuzz-clang/fuzz_%: tests/fuzz_%.c build/fuzz-clang/libaprkit.a
	$(CC) $(CPPFLAGS) $(CFLAGS) -fsanitize=fuzzer $(LDFLAGS) $^ $(LDLIBS) -o $@

# CUDA: every kernels/cuda/*.cu goes into libaprkit-cuda.so, which the tools load at run time when it lies beside them.
# Built when nvcc is here (once, into build/release); CUDA=0 leaves it out; ARCHS=90 builds for one architecture, quickly.
NVCC  ?= nvcc
CUDA  ?= $(if $(and $(filter build/release,$B),$(shell command -v $(NVCC) 2>/dev/null)),1,0)
ARCHS ?= 75 80 86 89 90 100 103 120 121
CUDA_LIB  := $B/libaprkit-cuda.so
CUDA_CU   := $(sort $(wildcard kernels/cuda/*.cu))
# what of the floor below the kernels stand on, compiled once more for a shared object
CUDA_C    := formats/status.c formats/dtype.c kernels/ref/iq_codebooks.c
CUDA_HOME := $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC) 2>/dev/null))))
newest    := $(lastword $(ARCHS))
gencode   := $(foreach a,$(ARCHS),-gencode arch=compute_$a,code=sm_$a) -gencode arch=compute_$(newest),code=compute_$(newest)
# No fast-math. Spills cost local memory for every thread that can be resident: check-archs fails when there are any.
NVFLAGS   := -O3 -std=c++17 -I. -MMD -MP --threads 2 $(gencode) -DAPR_CUDA_ARCHITECTURES='"$(ARCHS)"' \
             -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -Xptxas -v --expt-relaxed-constexpr
GPU_TESTS := $(patsubst tests/%.c,$B/%,$(wildcard tests/gpu_*.c))
GPU_CU_TESTS := $(patsubst tests/%.cu,$B/%,$(wildcard tests/gpu_*.cu))
CUDA_O    := $(CUDA_CU:kernels/cuda/%.cu=$B/cuda/%.cu.o)

ifeq ($(CUDA),1)
all: $(CUDA_LIB)
endif
cuda: $(CUDA_LIB) ## build libaprkit-cuda.so (ARCHS=90 for one architecture)
$B/cuda/archs: FORCE
	@mkdir -p $(@D); [ "$$(cat $@ 2>/dev/null)" = "$(ARCHS)" ] || echo "$(ARCHS)" >$@
FORCE:
# bytes must reproduce there: no contraction of multiply-add
$B/cuda/codec%.cu.o $B/cuda/decode_%.cu.o $B/cuda/encode_%.cu.o: NVFLAGS += -fmad=false
$B/cuda/%.cu.o: kernels/cuda/%.cu $B/cuda/archs
	@mkdir -p $(@D)
	$(NVCC) $(NVFLAGS) -c $< -o $@ 2>$@.ptxas || { grep -v 'ptxas info' $@.ptxas; exit 1; }
	@grep -E 'warning' $@.ptxas || true
$B/cuda/%.c.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -c $< -o $@
$(CUDA_LIB): $(CUDA_O) $(CUDA_C:%=$B/cuda/%.o)
	$(NVCC) -shared $(gencode) -cudart static -Xlinker -rpath=$(CUDA_HOME)/lib64,--no-undefined $^ -lcublas -lcublasLt -ldl -lpthread -o $@
$(GPU_TESTS): $B/%: $B/tests/%.c.o $(SUPPORT_C:%=$B/%.o) $(TOOL_C:%=$B/%.o) $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -lcmocka -o $@

# launchers are not exported: these tests link what the library is made of
$B/cuda/tests/%.cu.o: tests/%.cu $B/cuda/archs
	@mkdir -p $(@D)
	$(NVCC) $(NVFLAGS) -c $< -o $@ 2>$@.ptxas || { grep -v 'ptxas info' $@.ptxas; exit 1; }
$(GPU_CU_TESTS): $B/%: $B/cuda/tests/%.cu.o $(CUDA_O) $(LIB)
	$(NVCC) $(gencode) -cudart static -Xlinker -rpath=$(CUDA_HOME)/lib64 $^ -Xcompiler -fopenmp $(LDLIBS) -lcublas -lcublasLt -lpthread -o $@

check-archs: $(CUDA_LIB) $B/gpu_archs ## fail unless the CUDA library has code for every architecture, and nothing spills
	@$B/gpu_archs $(ARCHS)
	@! grep -HE '[1-9][0-9]* bytes spill' $B/cuda/*.ptxas || { echo "kernels spill"; exit 1; }
check-gpu: deps ## the tests that need a GPU; says so where there is none
	@$(MAKE) --no-print-directory all $(GPU_TESTS) $(if $(filter 1,$(CUDA)),$(GPU_CU_TESTS))
	@tests/run_gpu.sh $B $(GPU_TESTS:$B/gpu_archs=) $(if $(filter 1,$(CUDA)),$(GPU_CU_TESTS))

-include $(shell find $B -name '*.d' 2>/dev/null)

layers: $(ROOMS:%=layers-%) ## fail if a room includes a room it may not
layers-%:
	@! grep -rnE '# *include "($(subst $(space),|,$(filter-out $(may_$*),$(ROOMS) tools tests)))/' $*

format: ## rewrite the sources in the project's style
	clang-format -i $(SOURCES)
lint: layers ## layers, format, function and file length, banned calls
	@tests/lint.sh
install: all ## copy the tools to $(PREFIX)/bin
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(TOOLS) $(if $(filter 1,$(CUDA)),$(CUDA_LIB)) $(DESTDIR)$(PREFIX)/bin
clean: ## remove build/
	rm -rf build
help: ## this text
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "  %-12s %s\n", $$1, $$2}'
	@echo; echo '  Variables: CC, FLAVOR=release|debug|asan|tsan, PREFIX, DESTDIR, FUZZ_SECONDS, CUDA=0|1, ARCHS'
