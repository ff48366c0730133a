# The CUDA half: libyalm-cuda.so, which the engine opens on demand. nvcc compiles it. In the variants emulated, emulated-asan
# and emulated-msan the C++ compiler does, against the emulator in tests/cuda/emulator, to run on machines without a GPU.
#
# `make cuda` builds it for the GPUs that nvidia-smi finds; where it finds none, for every kind that nvcc knows, which takes
# minutes. CUDA_ARCHS="86 90" names some, CUDA_ARCHS=all every kind. Plain `make` builds it too where there is a GPU, or where
# CUDA_ARCHS is given.

CXX         ?= g++
ifeq ($(origin NVCC),undefined)
NVCC := $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
endif
CUDA_HEADERS := $(wildcard src/cuda/*.h src/cuda/*/*.h src/cuda/*/*.cuh)
CUDA_SOURCES := $(wildcard src/cuda/*.cu src/cuda/*/*.cu)
# What it has copies of: it is linked to neither the program nor the library that opens it.
CUDA_SHARES := util/cgroup util/error util/file util/memory util/new_file util/version model/bf12 model/quant \
    model/quant_grids model/codebook model/key_offset model/rope recipe/cost recipe/recipe recipe/states \
    recipe/writer engine/group engine/hybrid engine/kv_cache engine/settings
CUDA_SHARES_LIBS = $(shell pkg-config --libs libxxhash 2>/dev/null || echo -lxxhash)
CUDA_SHARED_OBJECTS = $(foreach file,$(CUDA_SHARES),$(call built_in,src/$(file).o))

# The engine's, which run on any device.
SESSION_TESTS := tests/engine/test_ahead tests/engine/test_mtp tests/engine/test_pages tests/engine/test_recurrent \
    tests/engine/test_together

ifneq ($(filter emulated%,$(VARIANT)),)
# ---------------------------------------------------------------------------------------- emulated

EMULATOR     := tests/cuda/emulator
BASE         += -DYALM_EMULATED_GPU # which has no driver to look for
CUDA_LIBRARY := $(BUILD)/libyalm-cuda.so
# It converts fp16, which kernels do all the time, and runs the loops of warp operations.
HAS_AVX2     := $(shell grep -m1 '^flags.* fma .* f16c .* avx2' /proc/cpuinfo 2>/dev/null)
# A stand-in for NCCL.
NCCL_LIBRARY := $(BUILD)/libnccl.so.2
CXX_BASE     := -std=c++17 -D_GNU_SOURCE -Isrc -I$(EMULATOR) -Itests -fPIC -fvisibility=hidden -fno-math-errno -Wall -Wextra \
                -Wno-unknown-pragmas -Wno-pass-failed -fno-strict-aliasing \
                $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null) -MMD -MP \
                -ffp-contract=off $(if $(HAS_AVX2),-mavx2 -mfma -mf16c)
CUDA_OBJECTS := $(CUDA_SOURCES:%.cu=$(BUILD)/%.cu.o) $(patsubst %.cc,$(BUILD)/%.o,$(wildcard $(EMULATOR)/*.cc))
CUDA_STATIC  := $(BUILD)/libyalm-cuda.a
CUDA_TESTS   := $(patsubst %.cc,$(BUILD)/%,$(wildcard tests/cuda/test_*.cc))
CUDA_BENCHES := $(patsubst %.cu,$(BUILD)/%,$(wildcard bench/cuda_*.cu))
SELECTIONS   := $(BUILD)/tests/cuda/compare_selections

cuda-test-programs: $(CUDA_TESTS) \
                    $(if $(filter emulated-msan,$(VARIANT)),, \
                        $(patsubst %.c,$(BUILD)/%,$(wildcard tests/cuda/*.c)) $(SELECTIONS)) \
                    $(if $(filter emulated,$(VARIANT)),$(SESSION_TESTS:%=$(BUILD)/%)) \
                    $(if $(THOROUGH),$(if $(filter emulated,$(VARIANT)),$(CUDA_BENCHES) $(BUILD)/bench/random_model))

all: $(CUDA_LIBRARY) $(NCCL_LIBRARY)

$(BUILD)/src/cuda/%.cu.o: src/cuda/%.cu $(BUILD)/settings
	@mkdir -p $(@D)
	$(CXX) -x c++ $(CXX_BASE) $(CFLAGS) $(THREADS) -c -o $@ $<

# Templates of all phases take a third less of the compiler's time, and the emulator most of their tests'.
$(BUILD)/src/cuda/step/%.cu.o: private CFLAGS := $(patsubst -O2,-O1,$(CFLAGS))

$(BUILD)/$(EMULATOR)/%.o: $(EMULATOR)/%.cc $(BUILD)/settings
	@mkdir -p $(@D)
	$(CXX) $(CXX_BASE) $(CFLAGS) $(THREADS) -c -o $@ $<

# On this file too, whose list of shared objects may have changed.
$(CUDA_LIBRARY): $(CUDA_OBJECTS) $(CUDA_SHARED_OBJECTS) src/cuda/cuda.mk
	$(CXX) -shared $(LINK) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) $(THREADS) $(CUDA_SHARES_LIBS) -lm -ldl

# It queues its work on the streams of the emulator that is in the library.
$(NCCL_LIBRARY): $(BUILD)/$(EMULATOR)/nccl/nccl.o $(CUDA_LIBRARY)
	$(CXX) -shared $(LINK) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN' -o $@ $< $(THREADS) -L$(BUILD) -l:libyalm-cuda.so -lrt

# For the tests, which call kernels directly.
$(CUDA_STATIC): $(CUDA_OBJECTS)
	@rm -f $@
	ar rcs $@ $^

$(BUILD)/tests/cuda/%: tests/cuda/%.cc $(CUDA_STATIC) $(STATIC)
	@mkdir -p $(@D)
	$(CXX) $(CXX_BASE) $(CFLAGS) $(TEST_FLAGS) $(THREADS) $(LINK) -o $@ $< $(CUDA_STATIC) $(STATIC) $(LIBS) -lcmocka

# Two languages, since the backends' headers share names.
$(BUILD)/tests/cuda/selections/cpu.o: tests/cuda/selections/cpu.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(THREADS) -c -o $@ $<
$(SELECTIONS): tests/cuda/selections/compare.cc $(BUILD)/tests/cuda/selections/cpu.o $(CUDA_STATIC) $(STATIC)
	$(CXX) $(CXX_BASE) $(CFLAGS) $(THREADS) $(LINK) -o $@ $(filter %.cc %.o,$^) $(CUDA_STATIC) $(STATIC) $(LIBS)

$(BUILD)/bench/cuda_%: bench/cuda_%.cu $(CUDA_STATIC) $(STATIC)
	@mkdir -p $(@D)
	$(CXX) -x c++ $(CXX_BASE) -MT $@ -MF $@.d $(CFLAGS) $(THREADS) -c -o $@.o $<
	$(CXX) $(THREADS) $(LINK) -o $@ $@.o $(CUDA_STATIC) $(STATIC) $(LIBS)

-include $(CUDA_OBJECTS:.o=.d) $(CUDA_TESTS:=.d) $(CUDA_BENCHES:=.d) $(SELECTIONS:=.d) $(BUILD)/tests/cuda/selections/cpu.d \
    $(BUILD)/$(EMULATOR)/nccl/nccl.d
else ifeq ($(VARIANT),release)
# ---------------------------------------------------------------------------------------- for GPUs

CUDA_LIBRARY := libyalm-cuda.so
CUDA_BUILD   := build/cuda
CUDA_OBJECTS := $(CUDA_SOURCES:src/cuda/%.cu=$(CUDA_BUILD)/%.o)
ifneq ($(NVCC),)
CUDA_KNOWN := $(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch))
# Of Ampere, Ada, Hopper and Blackwell those that the toolkit knows.
CUDA_EVERY := $(filter $(CUDA_KNOWN),80 86 89 90 100 120)
# The GPUs' in this machine, without those that are too old, the newest last.
CUDA_FOUND := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
    awk -F. '/^ *[0-9]+\.[0-9]+ *$$/ && $$1 >= 8 { print 10 * $$1 + $$2 }' | sort -nu)
CUDA_WANTED := $(CUDA_FOUND)$(CUDA_ARCHS)
ifeq ($(CUDA_ARCHS),)
# A GPU that is newer than the toolkit runs what is compiled for the newest one that it knows.
override CUDA_ARCHS := $(if $(filter-out $(CUDA_KNOWN),$(CUDA_FOUND)),$(CUDA_EVERY),$(or $(CUDA_FOUND),$(CUDA_EVERY)))
else ifeq ($(CUDA_ARCHS),all)
override CUDA_ARCHS := $(CUDA_EVERY)
endif
endif
CUDA_CODE      = $(foreach arch,$(CUDA_ARCHS),-gencode arch=compute_$(arch),code=sm_$(arch)) \
                 -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
NVCC_FLAGS    := -std=c++17 -O3 -lineinfo -Isrc -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -Xptxas -v \
                 $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
CUDA_HOME      = $(patsubst %/bin/,%,$(dir $(realpath $(NVCC))))

all: $(if $(CUDA_WANTED),cuda,cpu-only)

ifeq ($(NVCC),)
cpu-only:
	@echo "make: nvcc was not found: this build runs on the CPU only (NVCC=path names it)"
cuda:
	@echo "make: nvcc was not found, so there is no CUDA half to build (NVCC=path names it); yalm runs on the CPU" >&2; exit 1
else
cpu-only:
	@echo "make: no GPU was found: this build runs on the CPU only (make cuda builds the CUDA half, for every kind of GPU)"
cuda: $(CUDA_LIBRARY) $(CUDA_BUILD)/ptxas.txt

$(CUDA_BUILD)/settings: FORCE
	$(call remember,$(NVCC) $(NVCC_FLAGS) $(CUDA_CODE))

# ptxas says on standard error what each kernel takes: it is kept beside the object, and shown where the compilation fails.
$(CUDA_BUILD)/%.o: src/cuda/%.cu $(CUDA_BUILD)/settings | $(BUILD)/requirements
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) $(CUDA_CODE) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< 2>$(@:.o=.ptxas) || { cat $(@:.o=.ptxas) >&2; exit 1; }
	@grep -v -e '^ptxas info' -e '^ *[0-9]* bytes stack frame' $(@:.o=.ptxas) >&2 || true

$(CUDA_BUILD)/ptxas.txt: $(CUDA_OBJECTS)
	@cat $(CUDA_OBJECTS:.o=.ptxas) > $@

CUDA_LINK = -cudart static $(foreach arch,$(CUDA_ARCHS),-gencode arch=compute_$(arch),code=sm_$(arch))
CUDA_LIBS = -L$(CUDA_HOME)/lib64 -lcublasLt -Xlinker -rpath,$(CUDA_HOME)/lib64,-rpath,'$$ORIGIN' $(CUDA_SHARES_LIBS) -lm
$(CUDA_LIBRARY): $(CUDA_OBJECTS) $(CUDA_SHARED_OBJECTS) src/cuda/cuda.mk
	$(NVCC) -shared $(CUDA_LINK) -o $@ $(filter %.o,$^) $(CUDA_LIBS)

# For tools/gpu_check.py, on a machine with a GPU: the kernels' tests as they run in the emulator, and their bench.
CUDA_BENCHES := $(patsubst bench/%.cu,$(CUDA_BUILD)/bench/%,$(wildcard bench/cuda_*.cu))
CUDA_CHECKS  := $(patsubst tests/cuda/%.cc,$(CUDA_BUILD)/tests/%, \
                    $(filter-out %/test_emulator.cc %/test_emulator_faults.cc,$(wildcard tests/cuda/test_*.cc)))
CUDA_CHECK_FLAGS = $(filter-out -Xptxas -v,$(NVCC_FLAGS)) $(CUDA_CODE) -Itests
SELECTIONS   := $(CUDA_BUILD)/tests/compare_selections
cuda-check-programs: cuda $(CUDA_CHECKS) $(CUDA_BENCHES) $(BUILD)/bench/random_model $(BUILD)/tests/cuda/compare_devices \
                     $(SELECTIONS) $(SESSION_TESTS:%=$(BUILD)/%)

$(CUDA_BUILD)/tests/%: tests/cuda/%.cc $(CUDA_OBJECTS) $(STATIC)
	@mkdir -p $(@D)
	$(NVCC) -x cu $(CUDA_CHECK_FLAGS) -MMD -MP -MT $@ -MF $@.d -c -o $@.o $<
	$(NVCC) $(CUDA_LINK) -o $@ $@.o $(CUDA_OBJECTS) $(STATIC) -lcmocka $(CUDA_LIBS) $(filter-out -pthread,$(LIBS))

$(CUDA_BUILD)/tests/selections/cpu.o: tests/cuda/selections/cpu.c $(BUILD)/settings
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(THREADS) -c -o $@ $<
$(SELECTIONS): tests/cuda/selections/compare.cc $(CUDA_BUILD)/tests/selections/cpu.o $(CUDA_OBJECTS) $(STATIC)
	$(NVCC) -x cu $(CUDA_CHECK_FLAGS) -MMD -MP -MT $@ -MF $@.d -c -o $@.o $<
	$(NVCC) $(CUDA_LINK) -o $@ $@.o $(CUDA_BUILD)/tests/selections/cpu.o $(CUDA_OBJECTS) $(STATIC) $(CUDA_LIBS) \
	    $(filter-out -pthread,$(LIBS))

$(CUDA_BUILD)/bench/cuda_%: bench/cuda_%.cu $(CUDA_OBJECTS) $(STATIC)
	@mkdir -p $(@D)
	$(NVCC) $(CUDA_CHECK_FLAGS) -MMD -MP -MT $@ -MF $@.d -c -o $@.o $<
	$(NVCC) $(CUDA_LINK) -o $@ $@.o $(CUDA_OBJECTS) $(STATIC) $(CUDA_LIBS) $(filter-out -pthread,$(LIBS))

-include $(CUDA_OBJECTS:.o=.d) $(CUDA_CHECKS:=.d) $(CUDA_BENCHES:=.d) $(SELECTIONS:=.d) $(CUDA_BUILD)/tests/selections/cpu.d
endif
endif
