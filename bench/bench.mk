# Programs that measure. Included by the Makefile.

# Each kernel, then whole runs of MODEL, beside the machine's limits.
MODEL ?= build/fable-4m.bin
bench:
	@tools/setup.sh build
	@$(MAKE) --no-print-directory -s -j$(JOBS) all $(BUILD)/bench/kernels $(MODEL)
	$(BUILD)/bench/kernels
	./yalm $(MODEL) -m throughput -p 512 -n 128

.PHONY: bench

$(BUILD)/bench/%: bench/%.c $(STATIC)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(THREADS) $(LINK) -o $@ $< $(STATIC) $(LIBS)
