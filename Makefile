# aprkit. `make help` lists the targets.

CC      ?= cc
FLAVOR  ?= release#      release | debug | asan | tsan

# One line a file; V=1 prints whole commands. WERROR=1 makes warnings errors.
Q   := $(if $(filter 1,$(V)),,@)
say  = $(if $Q,@printf '  %-4s %s\n' '$(1)' '$(2)')
# All cores, unless -j says otherwise (command lines win over this, and -j1 means one). What a compiler says about one file
# stays together. Goals that run something build first (make $$(build)), speak at once, and follow one another.
ifeq ($(MAKELEVEL)$(filter -j% --jobserver%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
build     := --no-print-directory -Otarget $(if $Q,-s)
run_goals := demo test unit cli fuzz-replay asan signals-asan tsan toys fuzz check-memory check-kills check-arm bench quality check-archs \
             archs-lock check-attack check-shared check-gpu check-emulated hostile-flags check-all
before    :=
$(foreach goal,$(filter $(run_goals),$(MAKECMDGOALS)),$(eval $(goal): | $(before))$(eval before := $(goal)))

# A module includes only what is below it: tests/layers.sh has the table.
MODULES := formats kernels quant convert runtime
, := ,

clang_ := $(findstring clang,$(CC))
x86_64 := $(findstring x86_64,$(shell $(firstword $(filter-out ccache,$(CC))) -dumpmachine))
# SHARED=1: the tools have no code of the library in them, but load libaprkit.so.0 (below, at the library). In a folder of its own.
SHARED ?= 0
shared := $(filter 1,$(SHARED))
B      := build/$(FLAVOR)$(if $(clang_),-clang)$(if $(shared),-shared)
NVCC   ?= nvcc
CUDA   ?= $(if $(and $(filter build/release,$B),$(shell command -v $(NVCC) 2>/dev/null)),1,0)

# The order of flags: what this build prefers, then CPPFLAGS, CFLAGS and LDFLAGS as the user gives them, then what must hold whatever
# these say. `make CFLAGS="-O3 -march=native"` gives other machine code and the same bytes (tests/hostile_flags.sh).
c_flags   = $(WARN) $(harden_c) $(flags_$(FLAVOR)) $(reach) $(speed) $(CPPFLAGS) $(CFLAGS) $(must) $(march)
must      = -std=c11 -fopenmp -fPIC $(if $(shared),-fno-semantic-interposition,-fvisibility=hidden) -I. -MMD -MP -D_POSIX_C_SOURCE=200809L $(if $(filter 1,$(WERROR)),-Werror)
# No fast-math and no contraction: bytes must be reproducible. A sum that is held to a bound instead may contract (below). Nobody reads errno
# after a square root, and without it several are computed at a time; -fno-fast-math would bring it back, so it stands behind that.
contract := off
must     += -fno-fast-math -fno-unsafe-math-optimizations -fno-associative-math -fno-reciprocal-math -fno-finite-math-only \
            -fsigned-zeros -fno-math-errno -ffp-contract=$(contract) $(if $(clang_),,-fno-single-precision-constant $(fuse_all)) $(if $(x86_64),-mfpmath=sse)
WARN     := -Wall -Wextra -Wno-missing-field-initializers -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror=implicit-function-declaration
libs     := -lcjson -lzstd -ldeflate -lpcre2-8 -lutf8proc -ldl -lm
# Hardening, on by default: HARDEN=0 leaves it out. Sanitizers have checks of their own, and -O0 has no fortified calls.
HARDEN   ?= $(if $(filter release,$(FLAVOR)),1,0)
ifeq ($(HARDEN),1)
harden_c := -fstack-protector-strong -fstack-clash-protection $(if $(x86_64),-fcf-protection) $(if $(findstring FORTIFY_SOURCE,$(CPPFLAGS) $(CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
harden_l := -Wl,-z,relro,-z,now$(if $(x86_64),$(,)-z$(,)ibt$(,)-z$(,)shstk)#  Debian 12's crt1.o lacks the two marks of -fcf-protection
endif
# gcc's OpenMP as an archive, where there is one: only so can a program say how its threads wait (tools/cli/openmp_spin.c). Packages of a
# distribution use its shared library: STATIC_GOMP=0.
STATIC_GOMP ?= $(if $(shared),0,1)#  one OpenMP for the tool and its library
gomp_a   := $(if $(clang_)$(filter 0,$(STATIC_GOMP)),,$(wildcard $(shell $(CC) -print-file-name=libgomp.a)))
openmp   := $(if $(gomp_a),$(gomp_a) -pthread,-fopenmp)
flags_release := -O2 -g1 '-ffile-prefix-map=$(CURDIR)=.'#  no path of this folder in the programs
flags_debug   := -O0 -g
flags_asan    := -O1 -g1 -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer
flags_tsan    := -O2 -g1 -fsanitize=thread
# clang's objects also tell a fuzzer which code they reach, so that tests and fuzz targets share one build: what reads foreign bytes does.
# Arithmetic on weights does not, for it takes three times as long then.
reach := $(if $(and $(clang_),$(filter asan,$(FLAVOR))),-fsanitize=fuzzer-no-link)

SIMD_C := $(sort $(wildcard kernels/host/codecs/simd_*.c))#  compiled once for each level of CPU
PRODUCT_C := $(sort $(wildcard kernels/host/products/product_*.c))#  and these, for one level more
LIB_C  := $(sort $(filter-out $(SIMD_C) $(PRODUCT_C),$(shell find $(MODULES) -name '*.c')))
LIB    := $B/libaprkit.a
MAINS  := $(wildcard tools/apr*.c)
DOC_C  := $(sort $(wildcard tools/packaging/*.c))#  aprdoc, which writes manual pages and completions
TOOL_C := $(sort $(filter-out $(DOC_C) tools/examples/%,$(wildcard tools/*/*.c tools/*/*/*.c)))
TOOLS  := $(MAINS:tools/%.c=$B/%)
# All unit tests are one program. UNITS="codecs rows" leaves the others out of it.
TEST_C := $(wildcard tests/*/test_*.c)
UNITS  ?= $(sort $(patsubst test_%.c,%,$(notdir $(TEST_C))))
UNIT   := $B/unit
UNIT_O := $(foreach u,$(UNITS),$(patsubst %,$B/%.o,$(wildcard tests/*/test_$u.c))) $B/tests/unit.c.o
FUZZ   := $(patsubst tests/fuzz/fuzz_%.c,%,$(filter-out tests/fuzz/fuzz_replay.c tests/fuzz/fuzz_dispatch.c,$(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_O := $(FUZZ:%=$B/tests/fuzz/fuzz_%.c.o) $B/tests/fuzz/fuzz_dispatch.c.o
REPLAY := $B/fuzz_replay
SUPPORT_C := $(filter-out tests/support/test_%.c tests/support/make_%.c,$(wildcard tests/support/*.c))
MAKERS := $(patsubst tests/support/%.c,$B/%,$(wildcard tests/support/make_*.c))#  programs that make what command-line tests read
SOURCES = $(shell git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp')

.DEFAULT_GOAL := all
.SECONDARY:
.PHONY: all library $(run_goals) fuzz-build test-programs deps deps-dev doctor layers modules format lint clean help cuda emulated FORCE

all: $(if $(filter 1,$(CUDA)),$B/cuda/archs) $(TOOLS) ## build the four tools into build/release, and the CUDA library where nvcc is

demo: deps ## the whole story on the bundled model: convert, quantize, plan, run, verify
	@$(MAKE) $(build) CUDA=$(if $(shell kernels/cuda/archs.sh --card),$(CUDA),0) all
	@tests/demo.sh $B

test: deps ## all tests but those that need a GPU
	@$(MAKE) $(build) CUDA=0 all library test-programs
	@tests/objects.sh $B
	@tests/run_all.sh $B $(UNIT) $(REPLAY) "$(notdir $(basename $(GPU_SOURCES)))"
test-programs: docs $(TOOLS) $(MAKERS) $(UNIT) $(REPLAY)
unit:
	@$(MAKE) $(build) $(UNIT)
	@tests/run_units.sh $(UNIT)
cli:
	@$(MAKE) $(build) $(TOOLS) $(MAKERS)
	@tests/run_cli.sh $B
	@tests/habits.sh $B
	@tests/files.sh $B
	@tests/resume.sh $B
fuzz-replay:
	@$(MAKE) $(build) $(REPLAY)
	@tests/run_replays.sh $(REPLAY)

asan: deps-dev ## the same tests under clang's sanitizers of addresses and undefined behaviour, with its warnings; builds the fuzz targets
	@$(MAKE) $(build) $(asan) CUDA=0 test-programs build/asan-clang/fuzz
	@tests/run_all.sh --without-signals build/asan-clang build/asan-clang/unit build/asan-clang/fuzz_replay "$(notdir $(basename $(GPU_SOURCES)))"
signals-asan: deps-dev # what of the tests ends programs by signals, under the same sanitizers
	@$(MAKE) $(build) $(asan) CUDA=0 test-programs
	@tests/files.sh build/asan-clang
	@tests/resume.sh build/asan-clang
asan := CC='$(if $(clang_),$(CC),clang)' FLAVOR=asan
# clang 14 misreads what glibc keeps for variables of threads in shared libraries, and the leak check would crash on it now and then.
asan signals-asan fuzz: export LSAN_OPTIONS := suppressions=$(CURDIR)/tests/libomp.supp:print_suppressions=0:intercept_tls_get_addr=0
# What works with threads. OpenMP is LLVM's and tells the sanitizer of its barriers through libarcher: gcc's does not.
TSAN_UNITS := worker updates parity weights session session_sequences scheduler golden pipe_device pipe_extents pipe_queue work_sink convert out aprkit compare ops ops_threads ops_experts ops_recurrent ops_heads grad rows#  the longest first
tsan: deps-dev ## the tests of what works with threads, under the thread sanitizer
	@$(MAKE) $(build) CC='$(if $(clang_),$(CC),clang)' FLAVOR=tsan UNITS='$(TSAN_UNITS)' build/tsan-clang/unit
	@OMP_TOOL_LIBRARIES="$$(dirname "$$(readlink -f "$$(command -v clang)")")/../lib/libarcher.so" TSAN_OPTIONS=ignore_noninstrumented_modules=1 \
	  tests/run_units.sh build/tsan-clang/unit
fuzz-build: deps-dev ## all fuzz targets and the libraries they need: build/asan-clang/{fuzz,lib} can be copied to another machine
	@$(MAKE) $(build) $(asan) build/asan-clang/fuzz
	@rm -rf build/asan-clang/lib && mkdir -p build/asan-clang/lib && ldd build/asan-clang/fuzz | \
	  awk '/lib(cjson|zstd|deflate|pcre2-8|utf8proc|omp|stdc\+\+|gcc_s)\.so/ && $$3 ~ "^/" {print $$3}' | xargs -r cp -uL -t build/asan-clang/lib
fuzz: fuzz-build ## fuzz everything that reads foreign bytes, FUZZ_SECONDS (60) each; finds are kept in build/fuzz
	@tests/fuzz_all.sh build/asan-clang/fuzz build/fuzz -s $(or $(FUZZ_SECONDS),60)

hostile-flags: ## codecs give the same bytes whatever CFLAGS say
	@$(MAKE) $(build) CUDA=0 $B/make_blocks
	@tests/hostile_flags.sh $B
check-all: ## all that CI runs, all that it leaves out, and kernels for every architecture: hours; before an issue is called done
	@.ci/run all
toys: ## add a toy dtype, file format, ... to copies of the checkout, and compare CONTRIBUTING with what that took
	@$(MAKE) $(build) CUDA=0 all
	@tests/toys.sh
check-memory: ## a 1.3 GB checkpoint in under 128 MiB, and killed on the way (needs 2.7 GB of disk; SIZE=2b: 4 GB and 8 GB)
	@$(MAKE) $(build) CUDA=0 all $B/bench_synth
	@tests/memory.sh $B
check-kills: ## KILLS (1000) kills and SIGNALS (200) other signals during every kind of write
	@$(MAKE) $(build) CUDA=0 all
	@tests/kills.sh $B $(or $(KILLS),1000) $(or $(SIGNALS),200)
	@tests/batch_kills.sh $B $(or $(BATCH_KILLS),50)
check-attack: ## hostile files, failing system calls and allocations through every tool: RUNS (3000), FAULTS (500), ALLOCATIONS (200), SEED (the commit's)
	@$(MAKE) $(build) CUDA=0 all $B/make_family
	@python3 tests/attack.py $B --seed $(or $(SEED),$$(printf '%d' 0x$$(git rev-parse HEAD | cut -c 1-6))) --runs $(or $(RUNS),3000) \
	  --faults $(or $(FAULTS),500) --allocations $(or $(ALLOCATIONS),200)
check-shared: ## tools that are linked with libaprkit.so.0 (SHARED=1)
	@$(MAKE) $(build) CUDA=0 SHARED=1 all library build/release-shared/make_family
	@tests/shared.sh build/release-shared
check-arm: ## the tests of codecs and products as 64-bit Arm has them, under qemu-user
	@tests/arm.sh build/arm
bench: ## figures: conversion, quantization (and LLAMA_QUANTIZE=PATH), host speed (and LLAMA_BENCH=PATH), each with its bound
	@$(MAKE) $(build) CUDA=0 all $B/bench_synth $B/bench_host $B/bench_codecs $B/bench_products
	@tests/bench.sh $B
quality: ## how much of a model each way of quantizing keeps, as tables; LLAMA_CPP=DIR to compare with, MODELS=DIR for others than the bundled one
	@$(MAKE) $(build) all
	@python3 tests/quality/judge.py $B

PACKAGES     := build-essential libcjson-dev libcmocka-dev libzstd-dev libpcre2-dev libutf8proc-dev libdeflate-dev
PACKAGES_DEV := clang clang-format libomp-dev libclang-rt-dev python3 tmux abigail-tools
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
	  "missing (dev)" "$(or $(strip $(call missing,$(PACKAGES_DEV))),nothing)" \
	  "CUDA library" "$(if $(filter 1,$(CUDA)),$(shell kernels/cuda/archs.sh '$(NVCC)' '$(ARCHS)'),none, as $(if $(shell command -v $(NVCC)),CUDA=0 says,nvcc is not here))"

$B/%.c.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$Q$(CC) $(c_flags) -c $< -o $@
# What loops over weights
$B/kernels/%.c.o $B/quant/%.c.o: speed := $(if $(filter release,$(FLAVOR)),-O3,$(if $(filter asan,$(FLAVOR)),-O2))
$B/kernels/%.o $B/quant/%.o: reach :=
# Sums of products that are held to bounds, not to bits. From version 13 on, gcc fuses some sums of a function and leaves others alone
# (its tuning avoids chains of fused multiply-adds), and one token would have other bits than several: all are fused.
$B/kernels/host/grad/grad_float32.c.o $B/kernels/host/grad/grad_float64.c.o $B/kernels/host/matmul_floats.c.o $B/kernels/host/float64.c.o $B/kernels/host/attention.c.o $B/quant/feedback/lane_products.c.o: contract := fast
fuse_all = $(if $(filter fast,$(contract)),--param=avoid-fma-max-bits=0)
# What prints, reads words or renders templates, and what runs once, takes longer to compile than it would ever win back.
light := $(MAINS) $(TOOL_C) $(DOC_C) $(TEST_C) $(wildcard tests/fuzz/*.c runtime/template/*.c runtime/program/*.c runtime/program/*/*.c \
         runtime/plan/*.c formats/*.c formats/tensor/*.c formats/shape/*.c formats/shape/families/*.c formats/vocab/*.c formats/gguf/*.c \
         formats/torch/*.c formats/hf/*.c formats/packed/*.c formats/apr/*.c)
$(light:%=$B/%.o): speed := $(if $(filter release,$(FLAVOR)),-O1)
# One source, once for each set of instructions; kernels/host/codecs/levels.c and products/products.c choose when a tool starts.
levels := plain $(if $(x86_64),avx2 avx512)
march_avx2   := -march=x86-64-v3
march_avx512 := -march=x86-64-v4 $(if $(clang_),,-mprefer-vector-width=512)
march_vnni   := $(march_avx512) -mavx512vnni
product_levels := $(levels) $(if $(filter avx512,$(levels)),vnni)
# all of a search is inlined into one function: following its variables for a debugger takes longer than compiling it
simd_flags   := $(if $(clang_),,-fno-var-tracking-assignments)
# with clang's sanitizers, plain code takes minutes to compile, and nearly no machine runs it
unoptimised_plain := $(if $(and $(clang_),$(filter asan,$(FLAVOR))),-O0)
define level_rule
$B/%.$(1).o: speed := $$(if $$(filter release,$$(FLAVOR)),-O3) $$(simd_flags) $$(unoptimised_$(1))
$B/%.$(1).o: march := $$(march_$(1))
$B/%.$(1).o: %.c
	$$(call say,CC,$$< ($(1)))
	@mkdir -p $$(@D)
	$$Q$$(CC) $$(c_flags) -DAPR_LEVEL=$(1) -c $$< -o $$@
endef
$(foreach l,$(product_levels),$(eval $(call level_rule,$l)))
WIDE_O := $(foreach l,$(levels),$(SIMD_C:%.c=$B/%.$l.o)) $(foreach l,$(product_levels),$(PRODUCT_C:%.c=$B/%.$l.o))
$(LIB): $(LIB_C:%=$B/%.o) $(WIDE_O)
	$(call say,AR,$(@F))
	@rm -f $@
	$Qar rcs $@ $^
define link
	$(call say,LD,$(@F))
	$Q$(CC) $(harden_l) $(flags_$(FLAVOR)) $(filter-out -fopenmp $(fast),$(CFLAGS)) $(LDFLAGS) $^ $(libs) $(LDLIBS) $(1) $(openmp) -o $@
endef
# At a link these would make denormal numbers zeros in the whole program.
fast := -Ofast -ffast-math -funsafe-math-optimizations
$(MAKERS): $B/%: $B/tests/support/%.c.o $(SUPPORT_C:%=$B/%.o) $(TOOL_C:%=$B/%.o) $(LIB)
	$(call link,$(LIB) -lcmocka)
$(UNIT): $(UNIT_O) $(SUPPORT_C:%=$B/%.o) $(TOOL_C:%=$B/%.o) $(LIB)
	$(call link,$(LIB) -lcmocka $(foreach f,malloc calloc realloc free fclose fsync unlinkat,-Wl$(,)--wrap=$f))
# The library for other programs (tools/engine/aprkit.h): the modules and tools/engine, of which only aprkit_* can be seen from outside.
PUBLIC    := tools/engine/aprkit.h
PUBLIC_C  := $(sort $(wildcard tools/engine/*.c tools/engine/*/*.c tools/report/verify/*.c) \
             $(patsubst %,tools/report/%.c,answer chart chart_layers html page plot sha256 table text))#  pages, but nothing that prints
# what tests/abi.sh reads: the types of the public functions
$(patsubst %,$B/%.o,$(wildcard tools/engine/library/*.c)): must += -g
lib_version := $(shell awk '$$2 == "APRKIT_VERSION" {gsub(/"/, ""); print $$3}' $(PUBLIC))
lib_abi   := $(shell awk '$$2 == "APRKIT_ABI" {print $$3}' $(PUBLIC))
SHARED_LIB := $B/lib/libaprkit.so.$(lib_version)
SHARED_LINKS := $B/lib/libaprkit.so.$(lib_abi) $B/lib/libaprkit.so
STATIC_LIB := $B/lib/libaprkit.a
PKG_CONFIG_FILE := $B/lib/pkgconfig/aprkit.pc
ifneq ($(shared),)
# Tools use more of the library than aprkit.h has (show, diff, batches, benchmarks). In the shared library those names are aprkit_private_... (of
# the library's own names only aprkit_... can be seen, and Apache's portable runtime has apr_...), in a version node of their own, which has the
# library's exact version in its name, as glibc's GLIBC_PRIVATE: a tool does not start with another library, and there is one copy of all state.
# RPATH: where a tool that was built or installed finds the library; packages for the system's folders leave it empty.
OWN_O     := $(patsubst %,$B/%.o,$(filter-out $(PUBLIC_C),$(TOOL_C)))
MAP       := $B/aprkit.map
RPATH     ?= $$ORIGIN/lib:$$ORIGIN/../lib
$B/private_names: $(MAINS:%=$B/%.o) $(OWN_O) $(PUBLIC_C:%=$B/%.o) $(LIB)
	$(call say,NM,$(@F))
	@{ nm -u $(MAINS:%=$B/%.o) $(OWN_O) | awk '$$1 == "U" {print $$2}' | sort -u; nm -g --defined-only $(PUBLIC_C:%=$B/%.o) $(LIB) | awk 'NF == 3 {print $$3}' | sort -u; } | \
	  sort | uniq -d | sed -n '/^aprkit_/!s/.*/& aprkit_private_&/p' >$@
$(MAP): tools/engine/aprkit.map $B/private_names
	@{ cat $< && echo 'APRKIT_PRIVATE_$(lib_version) {' && echo '    global:' && sed 's/.* \(.*\)/        \1;/' $B/private_names && echo '};'; } >$@
# FILES: as one object, with the names that library and tools share renamed
rename_private = @mkdir -p $(@D) && ld -r $(1) -o $@.all && objcopy --redefine-syms=$B/private_names $@.all $@ && rm $@.all
library_o := $B/shared/library.o
$(library_o): $(PUBLIC_C:%=$B/%.o) $(LIB) $B/private_names
	$(call rename_private,$(PUBLIC_C:%=$B/%.o) --whole-archive $(LIB))
$B/shared/%.o: $B/tools/%.c.o $(OWN_O) $B/private_names
	$(call rename_private,$< $(OWN_O))
$(TOOLS): $B/%: $B/shared/%.o $(SHARED_LIB) | $(SHARED_LINKS)
	$(call link,$(if $(RPATH),-Wl$(,)-rpath$(,)'$(RPATH)'))
else
MAP       := tools/engine/aprkit.map
library_o := $(PUBLIC_C:%=$B/%.o) $(LIB)
$(TOOLS): $B/%: $B/tools/%.c.o $(TOOL_C:%=$B/%.o) $(LIB)
	$(call link)
endif
library: $(SHARED_LIB) $(SHARED_LINKS) $(STATIC_LIB) $(PKG_CONFIG_FILE) ## build libaprkit for other programs: build/release/lib
$(SHARED_LIB): $(library_o) $(MAP)
	$(call say,LD,$(@F))
	@mkdir -p $(@D)
	$Q$(CC) -shared $(harden_l) $(flags_$(FLAVOR)) $(filter-out -fopenmp $(fast),$(CFLAGS)) $(LDFLAGS) -Wl,-soname,libaprkit.so.$(lib_abi) \
	  -Wl,--version-script=$(MAP) -Wl,-z,defs $(filter-out $(MAP),$^) $(libs) $(LDLIBS) -fopenmp -o $@
$(SHARED_LINKS): $(SHARED_LIB)
	@ln -sf $(<F) $@
# one object, whose other names are local: a program may have functions of the same names
$(STATIC_LIB): $(PUBLIC_C:%=$B/%.o) $(LIB)
	$(call say,AR,$(@F))
	@mkdir -p $(@D)
	$Qld -r -d $^ -o $B/lib/aprkit.o && objcopy --wildcard --keep-global-symbol='aprkit_*' $B/lib/aprkit.o && rm -f $@ && ar rcs $@ $B/lib/aprkit.o && \
	  rm $B/lib/aprkit.o
$(PKG_CONFIG_FILE): tools/engine/aprkit.pc.in $(PUBLIC) FORCE
	@mkdir -p $(@D)
	@sed -e 's|@PREFIX@|$(prefix)|' -e 's|@LIBDIR@|$(patsubst $(prefix)/%,$${prefix}/%,$(libdir))|' \
	  -e 's|@INCLUDEDIR@|$(patsubst $(prefix)/%,$${prefix}/%,$(includedir))|' -e 's|@VERSION@|$(lib_version)|' -e 's|@LIBS@|$(libs)|' $< >$@
# What --version says of this build.
$B/commit: FORCE
	@mkdir -p $(@D); now="$$(tools/packaging/commit.sh)"; [ "$$(cat $@ 2>/dev/null)" = "$$now" ] || echo "$$now" >$@
$B/tools/report/page.c.o: $B/commit
$B/tools/report/page.c.o: must += -DAPR_COMMIT='"$(shell tools/packaging/commit.sh)"'
# Each test file's main has the name unit_NAME there.
$(TEST_C:%=$B/%.o): must += -Dmain=unit_$(patsubst test_%.c,%,$(notdir $<)) -Wno-missing-prototypes
$B/units: FORCE
	@mkdir -p $(@D); [ "$$(cat $@ 2>/dev/null)" = "$(UNITS)" ] || echo "$(UNITS)" >$@
$B/tests/unit.c.o: must += '-DUNIT_LIST=$(patsubst %,X(%),$(UNITS))'
$B/tests/unit.c.o: $B/units
$B/bench_%: $B/tests/bench/bench_%.c.o $(TOOL_C:%=$B/%.o) $(LIB)
	$(call link)
# The number on which tools and CUDA library agree: only these two files are compiled with it.
interface := -include $B/cuda_interface.h
$B/cuda_interface.h: FORCE
	+@mkdir -p $(@D); kernels/cuda/interface.sh >$@.new && { cmp -s $@.new $@ && rm $@.new || mv $@.new $@; }
$B/kernels/cuda_loader.c.o $B/cuda/device/device.cu.o $B/emulated/kernels/cuda/device/device.cu.o: $B/cuda_interface.h
$B/kernels/cuda_loader.c.o: must += $(interface) -DAPR_MULTIARCH='"$(shell $(CC) -print-multiarch 2>/dev/null)"'
$(FUZZ:%=$B/tests/fuzz/fuzz_%.c.o): must += -DLLVMFuzzerTestOneInput=$(basename $(basename $(@F)))
$B/tests/fuzz/fuzz_dispatch.c.o: must += '-DFUZZ_LIST=$(patsubst %,X(%),$(FUZZ))'
$(FUZZ_O): Makefile # a target more or less changes what they are compiled with
$(REPLAY): $B/tests/fuzz/fuzz_replay.c.o $(FUZZ_O) $B/tests/support/scratch.c.o $(TOOL_C:%=$B/%.o) $(LIB)
	$(call link)
$B/fuzz: $(FUZZ_O) $B/tests/support/scratch.c.o $(TOOL_C:%=$B/%.o) $(LIB)
	$(call link,-fsanitize=fuzzer '-Wl$(,)-rpath$(,)$$ORIGIN/lib')

# CUDA: every kernels/cuda/*/*.cu goes into libaprkit-cuda.so, which the tools load at run time when it is next to them.
# Built when nvcc is here (once, into build/release); CUDA=0 leaves it out. It is built for the GPUs that are here, or for ARCHS="80 90", or
# for ARCHS=all, what a package has (kernels/cuda/archs.sh). The file `archs` says for which, and is read when something is compiled.
archs      = $(shell cat $B/cuda/archs)
CUDA_LIB  := $B/libaprkit-cuda.so
CUDA_DRILLS := $B/libaprkit-cuda-drills.so
CUDA_CU   := $(sort $(wildcard kernels/cuda/*/*.cu))
# what of the floor below the kernels stand on, compiled once more for a shared object
CUDA_C    := formats/base/status.c formats/number/dtype.c kernels/op_name.c kernels/ref/iq_book.c kernels/ref/iq_codebooks.c
CUDA_HOME := $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC) 2>/dev/null))))
newest     = $(lastword $(archs))
gencode    = $(foreach a,$(patsubst 90,$(hopper),$(archs)),-gencode arch=compute_$a,code=sm_$a) \
             -gencode arch=compute_$(newest),code=compute_$(newest)
hopper    := 90
# No fast-math. Spills cost local memory for every thread that can be resident: check-archs fails when there are any.
NVFLAGS    = -O3 -std=c++17 -I. -MMD -MP --threads 2 $(gencode) -DAPR_CUDA_ARCHITECTURES='"$(archs)"' \
             -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -Xptxas -v --expt-relaxed-constexpr
GPU_SOURCES := $(wildcard tests/gpu/gpu_*.c tests/gpu/gpu_*.cu)
GPU_TESTS := $(patsubst tests/gpu/%.c,$B/%,$(wildcard tests/gpu/gpu_*.c))
GPU_CU_TESTS := $(patsubst tests/gpu/%.cu,$B/%,$(wildcard tests/gpu/gpu_*.cu))
CUDA_O    := $(CUDA_CU:kernels/cuda/%.cu=$B/cuda/%.cu.o)

ifeq ($(CUDA),1)
all: $(CUDA_LIB)
endif
cuda: $(CUDA_LIB) ## build libaprkit-cuda.so for the GPUs here (ARCHS="80 90" for these, ARCHS=all for a package)
$B/cuda/archs: FORCE
	+@mkdir -p $(@D); kernels/cuda/archs.sh '$(NVCC)' '$(ARCHS)' $@ $(CUDA_LIB) | sed 's/^/  CUDA /'
FORCE:
# Products of warpgroups are in no code for 9.0, only in that for 9.0a, which the same devices run.
$B/cuda/small_gemm/small_gemm_wgmma.cu.o $B/cuda/small_gemm/small_gemm_wgmma.cu.key: hopper := 90a
$B/cuda/device/device.cu.o: NVFLAGS += $(interface)
# bytes must reproduce there: no contraction of multiply-add
$B/cuda/codecs/%.cu.o $B/cuda/codecs/%.cu.key: NVFLAGS += -fmad=false
# codes are the host's for the same wanted values
$B/cuda/feedback/points.cu.o $B/cuda/feedback/points.cu.key: NVFLAGS += -fmad=false
$B/cuda/%.cu.o: kernels/cuda/%.cu $B/cuda/archs
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$Q$(NVCC) $(NVFLAGS) -c $< -o $@ 2>$@.ptxas || { grep -v 'ptxas info' $@.ptxas; exit 1; }
	@grep -E 'warning' $@.ptxas || true
$B/cuda/%.c.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$Q$(CC) $(c_flags) -c $< -o $@
# the same with faults on purpose, for tests
$(CUDA_DRILLS): $B/cuda/tests/drills.cu.o
$(CUDA_LIB) $(CUDA_DRILLS): $(CUDA_O) $(CUDA_C:%=$B/cuda/%.o)
	$(call say,LD,$(@F))
	$Q$(NVCC) -shared -nodlink -cudart static -Xlinker -rpath=$(CUDA_HOME)/lib64,--no-undefined $^ -lcublas -lcublasLt -ldl -lpthread -o $@
$(GPU_TESTS): $B/%: $B/tests/gpu/%.c.o $(SUPPORT_C:%=$B/%.o) $(TOOL_C:%=$B/%.o) $(LIB)
	$(call link,$(LIB) -lcmocka)

# launchers are not exported: these tests link what the library is made of; their own code is for the GPU that is here, or for one
$B/cuda/tests/%.cu.o: gencode = $(if $(wildcard /dev/nvidiactl),-arch=native,-gencode arch=compute_$(newest),code=sm_$(newest))
$B/cuda/tests/%.cu.o: tests/gpu/%.cu $B/cuda/archs
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$Q$(NVCC) $(NVFLAGS) -c $< -o $@ 2>$@.ptxas || { grep -v 'ptxas info' $@.ptxas; exit 1; }
$(GPU_CU_TESTS): $B/%: $B/cuda/tests/%.cu.o $(CUDA_O) $(LIB)
	$(call say,LD,$(@F))
	$Q$(NVCC) -nodlink -cudart static -Xlinker -rpath=$(CUDA_HOME)/lib64 $^ -Xcompiler -fopenmp $(libs) $(LDLIBS) -lcublas -lcublasLt -lpthread -o $@

# What archs.lock remembers a kernel by: its flags, the compiler, its code and what that includes.
$B/cuda/%.cu.key: kernels/cuda/%.cu $B/cuda/archs FORCE
	@mkdir -p $(@D)
	@echo "$*.cu $$({ echo '$(subst ',,$(NVFLAGS))'; $(NVCC) --version | tail -n 1; kernels/closure.sh $<; } | sha256sum | cut -c 1-32)" >$@
$B/cuda/keys: $(CUDA_CU:kernels/cuda/%.cu=$B/cuda/%.cu.key)
	@{ echo 'architectures: $(archs)'; $(NVCC) --version | sed -n 's/.*release.*, V/compiler: nvcc /p'; cat $^; } >$@
check-archs: ## kernels that changed since archs.lock, and four others: code for every architecture, and nothing that spills
	@tests/check_archs.sh check $B
archs-lock: ## compile all kernels for every architecture (18 minutes on two cores), and write kernels/cuda/archs.lock
	@tests/check_archs.sh lock $B
check-gpu: deps ## the tests that need a GPU; says so where there is none
	@$(MAKE) $(build) all $(GPU_TESTS) $(if $(filter 1,$(CUDA)),$(GPU_CU_TESTS) $(CUDA_DRILLS))
	@CUDA=$(CUDA) tests/run_gpu.sh $B $(GPU_TESTS:$B/gpu_archs=) $(if $(filter 1,$(CUDA)),$(GPU_CU_TESTS))

# An emulated device: the same CUDA sources, compiled by the host's compiler against replacements of CUDA's headers (tests/emulated/), so that
# kernels run without a GPU and without a toolkit. The tools and the GPU's tests are next to that library in $E, and find it there.
E             := $B/emulated
CXX           := $(patsubst gcc%,g++%,$(patsubst clang%,clang++%,$(patsubst cc,c++,$(CC))))
EMULATED_ARCH ?= 90
EMULATED_CU   := $(CUDA_CU) $(wildcard tests/gpu/gpu_*.cu)
EMULATED_CUH  := $(wildcard kernels/cuda/*/*.cuh tests/gpu/*.cuh)
EMULATED_O    := $(patsubst %.cpp,$E/%.cpp.o,$(sort $(wildcard tests/emulated/*.cpp)))
EMULATED_LIB  := $E/libaprkit-cuda.so
EMULATED_DRILLS := $E/libaprkit-cuda-drills.so
EMULATED_CUDA := $(CUDA_CU:%=$E/%.o) $(EMULATED_O)
EMULATED_TOOLS := $(MAINS:tools/%.c=$E/%)
EMULATED_C_TESTS  := $(patsubst tests/gpu/%.c,$E/%,$(filter-out %/gpu_archs.c,$(wildcard tests/gpu/gpu_*.c)))
EMULATED_CU_TESTS := $(patsubst tests/gpu/%.cu,$E/%,$(filter-out tests/gpu/gpu_bench_%,$(wildcard tests/gpu/gpu_*.cu)))
EMULATED_FLAGS = -std=c++17 -O1 -g1 -fPIC -fvisibility=hidden -fno-strict-aliasing -ffp-contract=off -fopenmp -Wall -Wextra -Wno-unknown-pragmas \
                 -Wno-unused-parameter -Wno-missing-field-initializers $(if $(filter 1,$(WERROR)),-Werror) $(filter -fsanitize% -fno-sanitize% -fno-omit%,$(flags_$(FLAVOR))) \
                 -Itests/emulated/include -I$E/src -I. -MMD -MP -include cuda_runtime.h -D__CUDACC__ -D__CUDA_ARCH__=$(EMULATED_ARCH)0 \
                 -DAPR_CUDA_ARCHITECTURES='"$(EMULATED_ARCH)"'
$E/arch: FORCE
	@mkdir -p $(@D); [ "$$(cat $@ 2>/dev/null)" = "$(EMULATED_ARCH)" ] || echo "$(EMULATED_ARCH)" >$@
$E/src/%: % tests/emulated/rewrite.sed
	@mkdir -p $(@D)
	@sed -E -f tests/emulated/rewrite.sed -e '1i#line 1 "$<"' $< >$@
$E/src/kernels/cuda/device/ptx.cuh: Makefile
	@mkdir -p $(@D)
	@echo '#include "tests/emulated/instructions.h"' >$@
$E/%.cu.o: $E/src/%.cu $E/arch | $(EMULATED_CUH:%=$E/src/%)
	$(call say,EMU,$*.cu)
	@mkdir -p $(@D)
	$Q$(CXX) $(EMULATED_FLAGS) -x c++ -c $< -o $@
$E/kernels/cuda/device/device.cu.o: EMULATED_FLAGS += $(interface)
# what plays the threads runs all the time
$(EMULATED_O): EMULATED_FLAGS += -O2
$E/%.cpp.o: %.cpp $E/arch
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$Q$(CXX) $(EMULATED_FLAGS) -c $< -o $@
link_emulated = $(CXX) $(filter -fsanitize%,$(flags_$(FLAVOR)))
$(EMULATED_DRILLS): $E/tests/gpu/drills.cu.o
$(EMULATED_LIB) $(EMULATED_DRILLS): $(EMULATED_CUDA) $(CUDA_C:%=$B/cuda/%.o)
	$(call say,LD,$@)
	$Q$(link_emulated) -shared $^ -ldl -lpthread -o $@
# what the tools look for before they load the library: that there is a driver
$E/libcuda.so.1:
	@mkdir -p $(@D)
	$Q$(CC) -shared -x c /dev/null -o $@
$(EMULATED_TOOLS): $E/%: $B/tools/%.c.o $(TOOL_C:%=$B/%.o) $(LIB)
	@mkdir -p $(@D)
	$(call link,-Wl$(,)-rpath$(,)'$$ORIGIN')
$(EMULATED_C_TESTS): $E/%: $B/tests/gpu/%.c.o $(SUPPORT_C:%=$B/%.o) $(TOOL_C:%=$B/%.o) $(LIB)
	@mkdir -p $(@D)
	$(call link,$(LIB) -lcmocka -Wl$(,)-rpath$(,)'$$ORIGIN')
$(EMULATED_CU_TESTS): $E/%: $E/tests/gpu/%.cu.o $(EMULATED_CUDA) $(LIB)
	$(call say,LD,$@)
	$Q$(link_emulated) -fopenmp $^ $(libs) $(LDLIBS) -lpthread -o $@
emulated: $(EMULATED_LIB) $(EMULATED_DRILLS) $E/libcuda.so.1 $(EMULATED_TOOLS) $(EMULATED_C_TESTS) $(EMULATED_CU_TESTS)

# Of these five minutes; others, by name, take from minutes to hours. gpu_plan cannot pass there: it compares a plan with what a driver counts.
EMULATED_CHECKS ?= gpu_small_gemm gpu_ops gpu_decode_gemv gpu_qkv_epilogue gpu_prompt gpu_reuse gpu_drills gpu_filled gpu_recurrent gpu_feedback gpu_encode_by gpu_codecs gpu_grad gpu_train gpu_table#  the longest first
check-emulated: deps ## some of the GPU's tests without a GPU: kernels played on the host, APR_EMULATED_ORDER=forward|backward|SEED
	@$(MAKE) $(build) CUDA=0 $(EMULATED_LIB) $(EMULATED_DRILLS) $E/libcuda.so.1 $E/aprrun $E/aprquant $(EMULATED_CHECKS:%=$E/%)
	@tests/run_emulated.sh $E $(EMULATED_CHECKS:%=$E/%)

-include $(shell find $B -name '*.d' 2>/dev/null)

# For scripts: what the build knows.
print-tsan-units: ; @echo $(TSAN_UNITS)
print-emulated-checks: ; @echo $(EMULATED_CHECKS)
codecs_c := $(wildcard kernels/ref/*.c) kernels/codecs.c kernels/host/codecs/levels.c tests/support/make_blocks.c
print-codec-objects: ; @echo $(codecs_c:%=$B/%.o) $(foreach l,$(levels),$(SIMD_C:%.c=$B/%.$l.o))

layers: ## fail if a module includes what it may not, or files include each other in a circle
	@tests/layers.sh

modules: all ## figures of the modules: files, lines, longest file and function, includes; circles of objects and names for one sibling
	@tests/layers.sh --modules
	@tests/objects.sh $B || :

format: ## rewrite the sources in the project's style
	clang-format -i $(SOURCES)
lint: layers ## layers, format, length of functions, files in folders, banned calls, retired words
	@tests/lint.sh
include tools/packaging/packaging.mk
clean: ## remove build/
	rm -rf build
help: ## this text
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "  %-12s %s\n", $$1, $$2}'
	@echo; echo '  Variables: CC, FLAVOR=release|debug|asan|tsan, SHARED=0|1, PREFIX, DESTDIR (and bindir, libdir, includedir, mandir, datadir), FUZZ_SECONDS, KILLS, SIGNALS, CUDA=0|1, ARCHS, V=1, WERROR=1'
