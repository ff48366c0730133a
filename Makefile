# yalm. `make` builds ./yalm; `make demo` and `make test` set up what they need first. `make help` lists the rest.

CC      ?= cc
CLANG   ?= clang
PREFIX  ?= /usr/local
DESTDIR ?=
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
# VARIANT is one of
#   release
#   openmp: the team's threads are the OpenMP runtime's
#   asan, tsan: with sanitizers of addresses and undefined behaviour, of threads
#   fuzz: libFuzzer, with asan's
#   emulated, emulated-asan, emulated-msan: the CUDA half, run by the CPU; with asan's sanitizers; with that of memory
#   arm64: built for that processor on another one, where QEMU runs the programs
VARIANT ?= release
# Each fuzzer runs for so long in `make test`.
FUZZ_SECONDS ?= 3

VERSION  := 0.2.0
# What the shared library's name has: before 1.0 each minor version may change yalm.h, so its number is part of the name.
ABI      := $(basename $(VERSION))
COMMIT   := $(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
BUILD    := build/$(VARIANT)
PACKAGES := libcjson libpcre2-8 libutf8proc libxxhash
PYTHON   := .venv/bin/python
PKG_CONFIG ?= pkg-config
# Libraries for another processor, and what runs that one's programs (tools/arm64.sh).
TARGET   :=
QEMU     :=
ifeq ($(VARIANT),arm64)
  TARGET     := $(CURDIR)/build/arm64/root
  QEMU       := qemu-aarch64 -cpu max -L $(TARGET)
  CC         := aarch64-linux-gnu-gcc --sysroot=$(TARGET)
  AR         := aarch64-linux-gnu-ar
  PKG_CONFIG := PKG_CONFIG_LIBDIR=$(TARGET)/usr/lib/aarch64-linux-gnu/pkgconfig PKG_CONFIG_SYSROOT_DIR=$(TARGET) pkg-config
endif
# The processor that the compiler compiles for: x86_64, aarch64.
ARCH     := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
# The program's alone, for its mode serve; without it that mode says what is missing.
HTTP     := $(shell $(PKG_CONFIG) --exists libmicrohttpd 2>/dev/null && echo libmicrohttpd)

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
# -g1 keeps lines and functions, for crashes and profiles. With variables too (-g) kernels take half as long again to compile.
CFLAGS   ?= -O3 -g1
# A char has a sign on every processor.
BASE     := -std=c11 -D_GNU_SOURCE -Isrc -fPIC -fsigned-char -fvisibility=hidden -fno-math-errno -fno-trapping-math \
            $(WARNINGS) $(shell $(PKG_CONFIG) --cflags $(PACKAGES) 2>/dev/null) -MMD -MP
LIBS     := $(shell $(PKG_CONFIG) --libs $(PACKAGES) 2>/dev/null || echo -lcjson -lpcre2-8 -lutf8proc -lxxhash) -lm -ldl
# Editing and history for -m chat, where libedit is.
EDIT     := $(shell $(PKG_CONFIG) --libs libedit 2>/dev/null)
THREADS  := -pthread
LINK     :=
ifeq ($(VARIANT),openmp)
  THREADS := -fopenmp -DYALM_OPENMP
else ifeq ($(VARIANT),asan)
  CFLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
  LINK   := -fsanitize=address,undefined
else ifeq ($(VARIANT),tsan)
  CFLAGS := -O1 -g1 -fsanitize=thread
  LINK   := -fsanitize=thread
else ifeq ($(VARIANT),emulated)
  CFLAGS := -O2 -g1
else ifeq ($(VARIANT),emulated-msan)
  CC     := $(CLANG)
  CXX    := $(CLANG)++
  CFLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=memory -fsanitize-memory-track-origins
  LINK   := -fsanitize=memory
else ifeq ($(VARIANT),emulated-asan)
  CFLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
  LINK   := -fsanitize=address,undefined
else ifeq ($(VARIANT),fuzz)
  CC     := $(CLANG)
  CFLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
  LINK   := -fsanitize=fuzzer,address,undefined
endif

# src/cpu/kernels/vec/*.c are compiled once for each of VECTOR_ISAS, src/cpu/kernels/ISA/*.c for that instruction set alone.
# Nothing else may use vector instructions. Some sets change quantised products alone: these are compiled again for each of
# QUANT_ISAS, those of bytes for each of QUANT8_ISAS.
VECTOR_ISAS_x86_64 := avx2 avx512
QUANT_ISAS_x86_64  := avxvnni
FOLDERS_x86_64     := vnni vbmi amx
VECTOR_ISAS_aarch64 := neon
QUANT_ISAS_aarch64 := neondot
QUANT8_ISAS_aarch64 := neoni8mm
PROCESSORS         := x86_64 aarch64
VECTOR_ISAS := $(VECTOR_ISAS_$(ARCH))
QUANT_ISAS  := $(QUANT_ISAS_$(ARCH))
QUANT8_ISAS := $(QUANT8_ISAS_$(ARCH))
ISA_avx2   := -mavx2 -mfma -mf16c
ISA_avxvnni := $(ISA_avx2) -mavxvnni
ISA_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512
ISA_vnni   := $(ISA_avx512) -mavx512vnni
ISA_vbmi   := $(ISA_vnni) -mavx512vbmi
ISA_neon   := -march=armv8-a
ISA_neondot := -march=armv8.2-a+dotprod
ISA_neoni8mm := -march=armv8.2-a+dotprod+i8mm
# What not every compiler has: such a folder has no kernels then.
compiler_has = $(shell echo | $(CC) $(1) -E -x c - >/dev/null 2>&1 && echo $(1))
ISA_amx    := $(ISA_vnni) $(call compiler_has,-mamx-tile -mamx-bf16 -mamx-int8 -mavx512bf16)
isa_flags   = $(ISA_$(notdir $(patsubst %/,%,$(dir $(1)))))
# What a build takes from the release: what would be the same, and what it does not look at. Kernels start no threads, and take
# minutes to compile; ThreadSanitizer sees what the scalar ones read and write. AddressSanitizer watches the one source of the
# vector instruction sets as AVX2's, and what is VNNI's and AMX's alone. Fuzzers feed what reads input.
TAKEN_openmp   := src/%
TAKEN_emulated := src/%
TAKEN_fuzz     := src/cpu/% src/main.o src/cli/% src/serve/%
TAKEN_tsan     := src/cpu/kernels/%
TAKEN_asan     := $(if $(THOROUGH),,src/cpu/kernels/avxvnni/% src/cpu/kernels/avx512/%)
TAKEN_emulated-asan := src/cpu/kernels/%
TAKEN_emulated-msan := src/cpu/kernels/%
OWN_openmp     := src/cpu/machine/team.o
OWN_emulated   := src/engine/cuda_open.o
OWN_tsan       := src/cpu/kernels/ref/%
# What of the program the fuzzers' calls can reach.
FUZZED_CLI     := escapes hints input modes option_table options speculation terminal
FUZZED_SERVE   := body call_grammar calls request
OWN_fuzz       := $(FUZZED_CLI:%=src/cli/%.o) $(FUZZED_SERVE:%=src/serve/%.o)
built_in = $(if $(filter-out $(OWN_$(VARIANT)),$(filter $(TAKEN_$(VARIANT)),$(1))),build/release,$(BUILD))/$(1)

QUANT_SOURCES  := quant quant8
VECTOR_SOURCES := $(wildcard src/cpu/kernels/vec/*.c)
VECTOR_OBJECTS := $(foreach isa,$(VECTOR_ISAS),$(VECTOR_SOURCES:src/cpu/kernels/vec/%.c=src/cpu/kernels/$(isa)/%.o)) \
                  $(foreach isa,$(QUANT_ISAS),$(QUANT_SOURCES:%=src/cpu/kernels/$(isa)/%.o)) \
                  $(QUANT8_ISAS:%=src/cpu/kernels/%/quant8.o)
# What is another processor's.
FOREIGN := $(foreach arch,$(filter-out $(ARCH),$(PROCESSORS)), \
               src/cpu/machine/isa_$(arch).c $(FOLDERS_$(arch):%=src/cpu/kernels/%/%.c))
LIB_ROOMS   := util model text chat recipe engine grammar speculate speech generate \
               cpu cpu/machine cpu/long cpu/kernels cpu/kernels/*
LIB_SOURCES := $(filter-out $(VECTOR_SOURCES) $(FOREIGN),$(wildcard $(LIB_ROOMS:%=src/%/*.c)))
CLI_SOURCES := src/main.c $(wildcard src/cli/*.c $(if $(HTTP),src/serve/*.c))
CLI_LIBS    := $(if $(HTTP),$(shell $(PKG_CONFIG) --libs $(HTTP)))
LIB_OBJECTS := $(foreach file,$(VECTOR_OBJECTS) $(LIB_SOURCES:.c=.o),$(call built_in,$(file)))
CLI_OBJECTS := $(foreach file,$(CLI_SOURCES:.c=.o),$(call built_in,$(file)))
# tests/ROOM/test_*.c are cmocka programs, tests/fuzz/fuzz_*.c fuzzers. The Python tests run other tests/ROOM/*.c.
TEST_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(filter-out $(if $(HTTP),,tests/serve/%),$(wildcard tests/*/test_*.c)))
FUZZERS       := $(patsubst %.c,$(BUILD)/%,$(filter-out $(if $(HTTP),,tests/fuzz/fuzz_body.c),$(wildcard tests/fuzz/fuzz_*.c)))
TEST_HELPERS  := $(filter-out $(TEST_PROGRAMS) $(BUILD)/tests/fuzz/%,$(patsubst %.c,$(BUILD)/%,$(wildcard tests/*/*.c)))

ifeq ($(VARIANT),release)
  PROGRAM := yalm
  STATIC  := libyalm.a
  SHARED  := libyalm.so.$(VERSION) libyalm.so.$(ABI) libyalm.so
else
  PROGRAM := $(BUILD)/yalm
  STATIC  := $(BUILD)/libyalm.a
  SHARED  :=
endif

# ---------------------------------------------------------------------------------------- build

# Where there are nvcc and a GPU `all` is also the CUDA half (src/cuda/cuda.mk).
all: cpu
cpu: $(PROGRAM) $(STATIC) $(SHARED)

# A program for another processor has .elf besides in its name; by its own name a script lets the emulator run it.
emulated_program = $(if $(QEMU),@mv $@ $@.elf && printf '#!/bin/sh\nexec $(QEMU) "$(CURDIR)/$@.elf" "$$@"\n' >$@ && chmod +x $@)

# AddressSanitizer watches kernels where their own tests call them. The program, which runs for minutes, has the release's.
FAST_KERNELS := $(if $(filter asan,$(VARIANT)),\
                    $(patsubst $(BUILD)/%,build/release/%,$(filter $(BUILD)/src/cpu/kernels/%,$(LIB_OBJECTS))))
$(PROGRAM): $(CLI_OBJECTS) $(STATIC) $(FAST_KERNELS)
	$(CC) $(LINK) $(LDFLAGS) -o $@ $(CLI_OBJECTS) $(FAST_KERNELS) $(STATIC) $(THREADS) $(CLI_LIBS) $(LIBS) $(EDIT)
	$(emulated_program)

$(STATIC): $(LIB_OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $(LIB_OBJECTS)

libyalm.so.$(VERSION) $(BUILD)/libyalm.so.$(VERSION): $(LIB_OBJECTS)
	$(CC) -shared -Wl,-soname,libyalm.so.$(ABI) $(LDFLAGS) -o $@ $(LIB_OBJECTS) $(THREADS) $(LIBS)

libyalm.so.$(ABI) libyalm.so: libyalm.so.$(VERSION)
	ln -sf $< $@

$(BUILD)/src/%.o: src/%.c $(BUILD)/settings | $(BUILD)/requirements
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(THREADS) $(call isa_flags,$<) -c -o $@ $<

# What it rounds is numpy's bits: a product is rounded before it is added.
$(BUILD)/src/engine/conversion.o: private override CFLAGS += -ffp-contract=off

define VECTOR_RULE
$(BUILD)/src/cpu/kernels/$(1)/%.o: src/cpu/kernels/vec/%.c $(BUILD)/settings | $(BUILD)/requirements
	@mkdir -p $$(@D)
	$$(CC) $$(BASE) $$(CFLAGS) $$(THREADS) $(ISA_$(1)) -c -o $$@ $$<
endef
$(foreach isa,$(VECTOR_ISAS) $(QUANT_ISAS) $(QUANT8_ISAS),$(eval $(call VECTOR_RULE,$(isa))))

ifneq ($(BUILD),build/release)
TAKEN := $(sort $(filter build/release/%,$(LIB_OBJECTS) $(CLI_OBJECTS) $(FAST_KERNELS)))
$(TAKEN): take-release ;
take-release:
	@$(MAKE) --no-print-directory -s VARIANT=release $(TAKEN)
endif

# To see uses after return, gcc 12 puts frames beside the stack, laid out for vectors of 32 bytes at most (its bug 110027).
ifeq ($(VARIANT),asan)
$(BUILD)/src/cpu/kernels/%.o: private CFLAGS += $(call compiler_has,--param asan-use-after-return=0)
endif

$(BUILD)/src/cli/edit.o: BASE += $(if $(EDIT),-DYALM_LIBEDIT)

# The version string changes with every commit; only this file is built again for it.
$(BUILD)/src/util/version.o: BASE += -DYALM_VERSION='"$(VERSION)"' -DYALM_COMMIT='"$(COMMIT)"'
$(BUILD)/src/util/version.o: $(BUILD)/commit

$(BUILD)/src/serve/page.o: src/serve/page.html src/serve/openapi.json

# Whether there is a server to call.
$(BUILD)/src/cli/serve.o: BASE += $(if $(HTTP),-DYALM_SERVE)
$(BUILD)/src/cli/serve.o: $(BUILD)/http

# Files that hold a setting, written when it has changed: what depends on them is then built again.
FORCE:
remember = @mkdir -p $(@D); echo '$(1)' | cmp -s - $@ || echo '$(1)' > $@
$(BUILD)/commit: FORCE
	$(call remember,$(COMMIT))
$(BUILD)/http: FORCE
	$(call remember,$(HTTP))
$(BUILD)/settings: FORCE
	$(call remember,$(CC) $(CFLAGS) $(THREADS) $(EDIT))

define PROBE
#include <stdint.h>
#include <stddef.h>
#include <cjson/cJSON.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>
#include <xxhash.h>
endef
export PROBE
$(BUILD)/requirements:
	@mkdir -p $(@D)
	@echo "$$PROBE" | $(CC) $(BASE) $(THREADS) -MF /dev/null -fsyntax-only -x c - 2>$@.log && touch $@ || \
	    { echo "make: a C compiler, libcjson, libpcre2-8, libutf8proc and libxxhash are needed (see $@.log);" \
	    "tools/setup.sh or \`make demo\` installs them" >&2; exit 1; }

clean:
	rm -rf build yalm libyalm.a libyalm.so* libyalm-cuda.so libyalm-mpi.so

include src/cuda/cuda.mk
include src/mpi/mpi.mk

# ---------------------------------------------------------------------------------------- demo

build/%.bin: models/% tools/convert.py $(wildcard tools/yalm_convert/*.py)
	@mkdir -p $(@D)
	$(PYTHON) tools/convert.py $< $@

demo:
	@tools/demo.sh $(JOBS)

# ---------------------------------------------------------------------------------------- tests

# With -O1 test programs take a seventh of the time to compile, and as long to run. (With more, gcc 12 for aarch64 crashes at
# their loops.)
TEST_FLAGS := -O1
# Where there is gold, programs that are linked by the dozen take it half of bfd's ld's time.
TEST_LD    := $(if $(filter asan release,$(VARIANT)),$(if $(shell command -v ld.gold 2>/dev/null),-fuse-ld=gold))
TEST_LINK   = $(CC) $(BASE) -Itests $(CFLAGS) $(TEST_FLAGS) $(THREADS) $(LINK) $(TEST_LD) -o $@ $<
# For tests of what is the program's and no part of the library.
TEST_WITH   = $(filter-out %/main.o,$(CLI_OBJECTS)) $(STATIC) $(CLI_LIBS) $(LIBS) $(EDIT)

$(BUILD)/tests/fuzz/%: tests/fuzz/%.c $(STATIC) $(CLI_OBJECTS)
	@mkdir -p $(@D)
	$(TEST_LINK) $(TEST_WITH)

define PROGRAM_TEST
$(BUILD)/tests/$(1)/%: tests/$(1)/%.c $$(STATIC) $$(CLI_OBJECTS)
	@mkdir -p $$(@D)
	$$(TEST_LINK) $$(TEST_WITH) -lcmocka
	$$(emulated_program)
endef
$(foreach room,serve cli,$(eval $(call PROGRAM_TEST,$(room))))

# What goes through long texts to see what sessions do takes the release's kernels under AddressSanitizer, as the program does.
LONG_TESTS := $(if $(FAST_KERNELS),$(patsubst %,$(BUILD)/tests/engine/%, test_exact test_ahead test_code_runs test_group \
                  test_methods test_mtp test_sparq_session) $(BUILD)/tests/parity/driver)
$(LONG_TESTS): $(FAST_KERNELS)
$(LONG_TESTS): private TEST_KERNELS := $(FAST_KERNELS)

$(BUILD)/tests/%: tests/%.c $(STATIC)
	@mkdir -p $(@D)
	$(TEST_LINK) $(TEST_KERNELS) $(STATIC) $(LIBS) -lcmocka
	$(emulated_program)

# What the short suite does not run under AddressSanitizer: NUMBERS of tests/selection.py, and the CUDA half's.
UNRUN := $(if $(THOROUGH),,$(if $(filter asan,$(VARIANT)),\
             engine/test_forward engine/test_methods engine/test_together cpu/test_sparq cpu/test_limits cuda/%))
test-programs: $(filter-out $(UNRUN:%=$(BUILD)/tests/%),$(TEST_PROGRAMS) $(TEST_HELPERS))
fuzzers: $(FUZZERS)

# What tests/run.py runs, in each of its builds: the release's program first, whose kernels others take, then several at a time.
TEST_BUILDS := release asan tsan openmp emulated fuzz
MORE_BUILDS := cuda emulated-msan emulated-asan arm64
test-builds: $(TEST_BUILDS:%=test-build-%)
# And what each took of the processor: user and system.
took = && mkdir -p build && times >build/$@.times && sed -n '2s/^/$@: /p' build/$@.times
test-build-first:
	@$(MAKE) --no-print-directory -s VARIANT=release cpu $(took)
test-build-release: test-build-first
	@$(MAKE) --no-print-directory -s VARIANT=release test-programs $(if $(shell command -v $(MPICC) 2>/dev/null),mpi) $(took)
test-build-asan: test-build-first
	@$(MAKE) --no-print-directory -s VARIANT=asan all test-programs $(took)
# Of these the short suite runs few programs: THREADED_PROGRAMS of tests/selection.py, and of ThreadSanitizer's the server.
SHORT_PROGRAMS := cpu/test_team engine/test_session
test-build-tsan test-build-openmp: test-build-%: test-build-first
	@$(MAKE) --no-print-directory -s VARIANT=$* $(if $(THOROUGH),all test-programs,$(SHORT_PROGRAMS:%=build/$*/tests/%) \
	    $(if $(filter tsan,$*),all build/tsan/tests/parity/driver)) $(took)
test-build-emulated test-build-emulated-asan: test-build-%: test-build-first
	@$(MAKE) --no-print-directory -s VARIANT=$* all cuda-test-programs $(took)
test-build-emulated-msan: test-build-first
	@$(MAKE) --no-print-directory -s VARIANT=emulated-msan cuda-test-programs $(took)
test-build-fuzz: test-build-first
	@$(MAKE) --no-print-directory -s VARIANT=fuzz fuzzers $(took)
test-build-arm64:
	@$(MAKE) --no-print-directory -s VARIANT=arm64 cpu test-programs $(took)
test-build-cuda: test-build-first
	$(if $(NVCC),@$(MAKE) --no-print-directory -s VARIANT=release cuda CUDA_ARCHS=all)

# .venv comes while the compilers work: it waits for the network, and they do not need it.
test:
	@tools/setup.sh test system
	@$(MAKE) --no-print-directory -j$(JOBS) test-python test-builds
	@$(PYTHON) tests/run.py --fuzz-seconds $(FUZZ_SECONDS) all

test-python:
	@tools/setup.sh test python

# Real models beside transformers: SmolLM2-135M-Instruct, which is fetched, and those of the folder that REAL_MODELS names.
# Part of `make test`.
test-real:
	@tools/setup.sh test
	@$(MAKE) --no-print-directory -s -j$(JOBS) cpu $(BUILD)/tests/parity/driver
	@$(PYTHON) -m pytest -q -rs tests/real

test-all:
	@tools/setup.sh test
	@tools/setup.sh arm64
	@$(MAKE) --no-print-directory -j$(JOBS) THOROUGH=1 test-builds $(MORE_BUILDS:%=test-build-%)
	@$(MAKE) --no-print-directory -s test-clients
	@$(PYTHON) tests/run.py --thorough --fuzz-seconds $(if $(filter 3,$(FUZZ_SECONDS)),60,$(FUZZ_SECONDS)) all

# One room of src/, as ROOM=cpu/long, or all: in the release build and under AddressSanitizer; the CUDA half in the emulator.
check:
	@tools/setup.sh test
	@$(MAKE) --no-print-directory -s -j$(JOBS) \
	    $(if $(filter cuda,$(ROOM)),test-build-emulated,$(if $(ROOM),test-build-asan) test-build-release)
	@$(PYTHON) tests/run.py $(if $(ROOM),--room $(ROOM)) $(if $(filter cuda,$(ROOM)),cuda,release $(if $(ROOM),asan))

# One part of the tests, whole: on OpenMP's threads, under a sanitizer, or the fuzzers.
openmp asan tsan fuzz:
	@tools/setup.sh test
	@$(MAKE) --no-print-directory -s -j$(JOBS) THOROUGH=1 $(if $(filter fuzz,$@),VARIANT=fuzz fuzzers,VARIANT=$@ cpu test-programs)
	@$(PYTHON) tests/run.py --thorough --fuzz-seconds $(FUZZ_SECONDS) $@

# Packages from PyPI that are clients of -m serve, in an environment of their own.
test-clients: cpu
	@tools/setup.sh test
	test -x build/clients/bin/python || python3 -m venv build/clients
	build/clients/bin/python -m pip install -q -r tests/serve/clients/requirements.txt
	test -x build/mcp/bin/python || python3 -m venv build/mcp
	build/mcp/bin/python -m pip install -q -r tests/serve/clients/requirements-mcp.txt
	@$(PYTHON) -m pytest -q tests/serve/test_clients.py

# The CUDA half: its kernels and the whole backend run by the CPU, and what the compiler says of them where there is one.
cuda-test-builds: test-build-cuda test-build-emulated test-build-emulated-asan test-build-emulated-msan

test-cuda:
	@tools/setup.sh test
	@$(MAKE) --no-print-directory -j$(JOBS) THOROUGH=1 cuda-test-builds
	@$(PYTHON) tests/run.py --thorough cuda

# The CPU half, cross-built for aarch64: its tests, on every instruction set, in QEMU. Part of `make test-all`.
test-arm64:
	@tools/setup.sh test
	@tools/setup.sh arm64
	@$(MAKE) --no-print-directory -j$(JOBS) test-build-arm64
	@$(PYTHON) tests/run.py arm64

# Several ranks, in network namespaces where these are allowed; part of it in `make test`, where MPI is installed.
test-mpi: mpi
	@tools/setup.sh test
	@$(PYTHON) -m pytest -q -rs tests/mpi

# `make test` checks the style too, in seconds. The analyser takes minutes.
style:
	@tools/setup.sh test
	@$(PYTHON) -m pytest -q tests/docs/test_style.py

lint: style
	@tools/setup.sh lint
	@printf '%s\n' $(foreach file,$(LIB_SOURCES) $(CLI_SOURCES),'$(strip $(file) $(call isa_flags,$(file)))') \
	    $(foreach isa,$(VECTOR_ISAS),$(foreach file,$(VECTOR_SOURCES),'$(file) $(ISA_$(isa))')) | xargs -P$(JOBS) -L1 sh -c \
	    'f=$$0; \
	    clang-tidy --quiet $$f -- -std=c11 -D_GNU_SOURCE -Isrc -DYALM_VERSION=\"0\" -DYALM_COMMIT=\"0\" "$$@" 2>/dev/null || \
	    { echo "clang-tidy: $$f"; exit 1; }'
	@echo "lint: clean"

-include bench/bench.mk
include packaging/packages.mk

# ---------------------------------------------------------------------------------------- install

LIB_DIR   = $(DESTDIR)$(PREFIX)/lib
SHARE_DIR = $(DESTDIR)$(PREFIX)/share/yalm
MAN_DIR   = $(DESTDIR)$(PREFIX)/share/man/man1
UNIT_DIR  = $(DESTDIR)$(PREFIX)/lib/systemd/system
# Where each shell looks for completions.
BASH_DIR  = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH_DIR   = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH_DIR  = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
install: cpu
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include $(LIB_DIR)/pkgconfig $(SHARE_DIR)/yalm_convert
	install -m 755 yalm $(DESTDIR)$(PREFIX)/bin/
	install -d $(MAN_DIR) $(UNIT_DIR) $(BASH_DIR) $(ZSH_DIR) $(FISH_DIR)
	./yalm --man > $(MAN_DIR)/yalm.1
	install -m 644 packaging/completions/yalm.bash $(BASH_DIR)/yalm
	install -m 644 packaging/completions/_yalm $(ZSH_DIR)/
	install -m 644 packaging/completions/yalm.fish $(FISH_DIR)/
	sed 's|@PREFIX@|$(PREFIX)|' packaging/yalm@.service > $(UNIT_DIR)/yalm@.service
	install -m 644 src/yalm.h src/yalm_measure.h src/yalm_group.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 libyalm.a $(LIB_DIR)/
	install -m 755 libyalm.so.$(VERSION) $(LIB_DIR)/
	for half in cuda mpi; do test ! -f libyalm-$$half.so || install -m 755 libyalm-$$half.so $(LIB_DIR)/; done
	ln -sf libyalm.so.$(VERSION) $(LIB_DIR)/libyalm.so.$(ABI)
	ln -sf libyalm.so.$(ABI) $(LIB_DIR)/libyalm.so
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' yalm.pc.in > $(LIB_DIR)/pkgconfig/yalm.pc
	install -m 644 LICENSE tools/requirements.txt $(SHARE_DIR)/
	install -m 755 tools/convert.py $(SHARE_DIR)/
	install -m 644 tools/yalm_convert/*.py tools/yalm_convert/calibration.txt $(SHARE_DIR)/yalm_convert/

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/yalm $(LIB_DIR)/pkgconfig/yalm.pc
	rm -f $(foreach header,yalm yalm_measure yalm_group,$(DESTDIR)$(PREFIX)/include/$(header).h)
	rm -f $(UNIT_DIR)/yalm@.service $(BASH_DIR)/yalm $(ZSH_DIR)/_yalm $(FISH_DIR)/yalm.fish
	rm -f $(MAN_DIR)/yalm.1 $(LIB_DIR)/libyalm.a $(LIB_DIR)/libyalm-cuda.so $(LIB_DIR)/libyalm-mpi.so
	rm -f $(LIB_DIR)/libyalm.so $(LIB_DIR)/libyalm.so.$(ABI) $(LIB_DIR)/libyalm.so.$(VERSION)
	rm -rf $(SHARE_DIR)

help:
	@echo "make            build ./yalm, libyalm.a and libyalm.so; with nvcc and a GPU also libyalm-cuda.so, for that GPU"
	@echo "make cpu        the same without the CUDA half"
	@echo "make demo       install what is missing, build, fetch a small real model, convert it, and let it answer a question"
	@echo "make test       install what is missing, and run the tests; FUZZ_SECONDS=3 for each fuzzer"
	@echo "make test-all   every test, under each sanitizer: more than an hour on two cores; before a release"
	@echo "make cuda       build libyalm-cuda.so with nvcc, for the GPUs found or for all that nvcc knows (CUDA_ARCHS=90 or all)"
	@echo "make mpi        build libyalm-mpi.so, for mpirun -n N ./yalm …: one model on several machines (Open MPI or MPICH)"
	@echo "make test-real  real models beside transformers: one is fetched, REAL_MODELS=FOLDER has others"
	@echo "make test-cuda  the tests of the CUDA half, which need no GPU: the CPU runs its kernels"
	@echo "make test-clients  clients from PyPI against -m serve, in an environment of their own"
	@echo "make test-arm64  the CPU half built for ARM (aarch64), and its tests, by QEMU"
	@echo "make test-mpi   several ranks, on hosts of their own where network namespaces are allowed"
	@echo "make gpu-check  on a machine with a GPU: build for it, run all tests on it, measure; at most ten minutes, no network"
	@echo "make gpu-deps   the C libraries that such a machine may lack, into build/gpu-deps, to be carried there"
	@echo "make check      the tests of the release build alone; ROOM=cpu/long: of one room, under AddressSanitizer too"
	@echo "make openmp     all tests of another build; likewise make asan, tsan, fuzz"
	@echo "make style      layout of all files, in seconds; part of make test"
	@echo "make lint       the same, and clang-tidy, which takes minutes"
	@echo "make bench      speed of each kernel and of whole models, against the machine's measured limits; BENCH_OPTIONS=--full"
	@echo "make install    into PREFIX=$(PREFIX), under DESTDIR; make uninstall takes it away again"
	@echo "make packages   a wheel, a Debian package and a tarball, into build/packages; make test-packages tries each"
	@echo "make clean      remove everything that was built"
	@echo
	@echo "VARIANT=openmp|asan|tsan|fuzz|arm64|emulated|emulated-asan|emulated-msan builds into build/VARIANT."
	@echo "CC, CFLAGS and LDFLAGS are honoured."

.PHONY: all cpu cpu-only cuda mpi take-release clean demo install uninstall help style lint FORCE \
    test test-all test-real test-cuda test-arm64 test-mpi test-clients check openmp asan tsan fuzz \
    packages packages-arm64 test-packages test-programs fuzzers test-python test-builds test-build-first \
    $(TEST_BUILDS:%=test-build-%) $(MORE_BUILDS:%=test-build-%) \
    cuda-check-programs cuda-test-programs cuda-test-builds
.DELETE_ON_ERROR:
-include $(LIB_OBJECTS:.o=.d) $(CLI_OBJECTS:.o=.d) $(TEST_PROGRAMS:=.d) $(TEST_HELPERS:=.d) $(FUZZERS:=.d)
