# Programs that measure. Included by the Makefile.

$(BUILD)/bench/%: bench/%.c $(STATIC)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(THREADS) $(LINK) -o $@ $< $(STATIC) $(LIBS)
