# Programs that measure. Included by the Makefile.

# Each kernel, then whole models of real shapes, beside the machine's limits; BENCH_OPTIONS go to bench/run.py.
# bench/compare_llama_cpp.sh sets whole models beside llama.cpp.
bench:
	@tools/setup.sh build
	@$(MAKE) --no-print-directory -s -j$(JOBS) all $(BUILD)/bench/kernels
	$(BUILD)/bench/kernels
	$(PYTHON) bench/run.py $(BENCH_OPTIONS)

.PHONY: bench

$(BUILD)/bench/%: bench/%.c $(STATIC)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(THREADS) $(LINK) -o $@ $< $(STATIC) $(LIBS)
