# yalm. `make` builds ./yalm; `make demo` and `make test` set up what they need first. `make help` lists the rest.

CC      ?= cc
PREFIX  ?= /usr/local
DESTDIR ?=
# VARIANT: release, or one of the sanitizers asan (address, undefined) and tsan (thread).
VARIANT ?= release

VERSION := 0.1.0
COMMIT  := $(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
BUILD   := build/$(VARIANT)
PACKAGES := libcjson libpcre2-8 libxxhash

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
CFLAGS   ?= -O3 -g
BASE     := -std=c11 -D_GNU_SOURCE -Isrc -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math $(WARNINGS) \
            $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null) -MMD -MP
LIBS     := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null || echo -lcjson -lpcre2-8 -lxxhash) -lm
OPENMP   := -fopenmp
LINK     :=
ifeq ($(VARIANT),asan)
  CFLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
  LINK   := -fsanitize=address,undefined
else ifeq ($(VARIANT),tsan)
  # libgomp's own barriers are invisible to ThreadSanitizer: this variant forks the team with pthreads (src/cpu/team.c).
  CFLAGS := -O1 -g -fsanitize=thread
  LINK   := -fsanitize=thread
  OPENMP := -pthread
endif

# Each instruction set is one set of files; nothing outside them may use it.
ISA_avx2   := -mavx2 -mfma -mf16c
ISA_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512
isa_flags   = $(if $(findstring _avx2,$(1)),$(ISA_avx2),$(if $(findstring _avx512,$(1)),$(ISA_avx512)))

LIB_SOURCES := $(wildcard src/util/*.c src/model/*.c src/text/*.c src/engine/*.c src/cpu/*.c)
CLI_SOURCES := src/main.c $(wildcard src/cli/*.c)
LIB_OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/%.o)
CLI_OBJECTS := $(CLI_SOURCES:%.c=$(BUILD)/%.o)
TEST_SOURCES  := $(wildcard tests/*/test_*.c)
TEST_PROGRAMS := $(TEST_SOURCES:%.c=$(BUILD)/%)

ifeq ($(VARIANT),release)
  PROGRAM := yalm
  STATIC  := libyalm.a
  SHARED  := libyalm.so.$(VERSION)
else
  PROGRAM := $(BUILD)/yalm
  STATIC  := $(BUILD)/libyalm.a
  SHARED  :=
endif

all: $(PROGRAM) $(STATIC) $(SHARED)

$(PROGRAM): $(CLI_OBJECTS) $(STATIC)
	$(CC) $(LINK) -o $@ $(CLI_OBJECTS) $(STATIC) $(OPENMP) $(LIBS) -ldl

$(STATIC): $(LIB_OBJECTS)
	@rm -f $@
	ar rcs $@ $(LIB_OBJECTS)

libyalm.so.$(VERSION): $(LIB_OBJECTS)
	$(CC) -shared -Wl,-soname,libyalm.so.0 -o $@ $(LIB_OBJECTS) $(OPENMP) $(LIBS)

$(BUILD)/src/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(OPENMP) $(call isa_flags,$<) -c -o $@ $<

# The version string changes with every commit; only this file is built again for it.
$(BUILD)/src/util/version.o: BASE += -DYALM_VERSION='"$(VERSION)"' -DYALM_COMMIT='"$(COMMIT)"'

$(BUILD)/tests/%: tests/%.c $(STATIC)
	@mkdir -p $(@D)
	$(CC) $(BASE) -Itests $(CFLAGS) $(OPENMP) $(LINK) -o $@ $< $(STATIC) $(LIBS) -lcmocka

test-programs: $(TEST_PROGRAMS)

clean:
	rm -rf build yalm libyalm.a libyalm.so*

.PHONY: all test-programs clean
-include $(LIB_OBJECTS:.o=.d) $(CLI_OBJECTS:.o=.d) $(TEST_PROGRAMS:=.d)
