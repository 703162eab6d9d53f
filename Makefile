CC      ?= cc
PREFIX  ?= /usr/local
FLAVOR  ?= release#      release | debug | asan | tsan

ROOMS := formats kernels quant convert runtime
B     := build/$(FLAVOR)

WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
CPPFLAGS += -I. -MMD -MP -D_POSIX_C_SOURCE=200809L
CFLAGS   += -std=c11 $(WARN) -fopenmp $(flags_$(FLAVOR))
LDLIBS   += -lcjson -lzstd -ldeflate -lpcre2-8 -lutf8proc -lm
flags_release := -O3 -g -ffp-contract=off# no fast-math: bytes must be reproducible
flags_debug   := -O0 -g -ffp-contract=off
flags_asan    := -O1 -g -ffp-contract=off -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer
flags_tsan    := -O1 -g -ffp-contract=off -fsanitize=thread

LIB_C := $(sort $(wildcard $(ROOMS:=/*.c) $(ROOMS:=/ref/*.c) $(ROOMS:=/host/*.c)))
LIB   := $B/libaprkit.a
TESTS := $(patsubst tests/%.c,$B/%,$(wildcard tests/test_*.c))
TOOLS := $(patsubst tools/%.c,$B/%,$(wildcard tools/apr*.c))
TOOL_LIB := $B/libaprtools.a# what the tools share; each main takes from it what it calls
TOOL_C   := $(filter-out $(wildcard tools/apr*.c),$(wildcard tools/*.c))

.DEFAULT_GOAL := all
.PHONY: all test test-cli
.SECONDARY:
all: $(TOOLS)
test: $(TESTS)
	@for t in $(TESTS); do $$t || exit 1; done

test-cli: $(TOOLS) ## command lines in tests/cli and their expected answers
	tests/run_cli.sh $B

$B/%.c.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@
$(LIB): $(LIB_C:%=$B/%.o)
	@rm -f $@
	ar rcs $@ $^
$(TOOL_LIB): $(TOOL_C:%=$B/%.o)
	@rm -f $@
	ar rcs $@ $^
$(TOOLS): $B/%: $B/tools/%.c.o $(TOOL_LIB) $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@
$B/test_cli: $(TOOL_LIB)
$B/test_cli: LDLIBS := $(TOOL_LIB) $(LIB) $(LDLIBS)
$(TESTS): $B/%: $B/tests/%.c.o $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -lcmocka -o $@
-include $(shell find $B -name '*.d' 2>/dev/null)
