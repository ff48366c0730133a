# Programs that measure. Included by the Makefile.

# Each kernel, then whole models of real shapes, beside the machine's limits. BENCH_OPTIONS go to bench/run.py, which says what
# it will do and how long that takes. bench/compare_llama_cpp.sh sets whole models beside llama.cpp and ik_llama.cpp.
bench:
	@tools/setup.sh build
	@$(MAKE) --no-print-directory -s -j$(JOBS) cpu $(BUILD)/bench/kernels
	$(PYTHON) bench/run.py --kernels $(BUILD)/bench/kernels $(BENCH_OPTIONS)

# On a machine with a GPU: build for it, test on it, measure (tools/gpu_check.py; GPU_CHECK_OPTIONS go there). `make gpu-deps`
# puts what such a machine may lack and cannot fetch into build/gpu-deps on this one, to be carried.
CHECK_PYTHON = $(if $(wildcard $(PYTHON)),$(PYTHON),python3)
gpu-check:
	@$(CHECK_PYTHON) tools/gpu_check.py $(GPU_CHECK_OPTIONS)
gpu-deps:
	@$(CHECK_PYTHON) tools/gpu_deps.py

.PHONY: bench gpu-check gpu-deps

$(BUILD)/bench/%: bench/%.c $(wildcard bench/*.h) $(STATIC)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(THREADS) $(LINK) -o $@ $< $(STATIC) $(LIBS)
