# Packages: a wheel, a Debian package, a tarball that needs nothing but glibc. packaging/build.py makes each of `make install`'s
# tree.

PACKED := build/packages

packages:
	@tools/setup.sh packages
	@$(MAKE) --no-print-directory -s -j$(JOBS) cpu
	@rm -rf $(PACKED)
	@$(MAKE) --no-print-directory -s install DESTDIR=$(CURDIR)/$(PACKED)/tree PREFIX=/usr
	@$(PYTHON) packaging/build.py $(VERSION) $(PACKED)
	@cp packaging/Containerfile $(PACKED)/
	@ls -l $(PACKED)/*.whl $(PACKED)/*.deb $(PACKED)/*.tar.gz

# The wheel for ARM, cross-built: after `make packages`, of the same tree with that processor's program and library.
packages-arm64:
	@tools/setup.sh packages
	@tools/setup.sh arm64
	@$(MAKE) --no-print-directory -s -j$(JOBS) VARIANT=arm64 cpu build/arm64/libyalm.so.$(VERSION)
	@rm -rf $(PACKED)/arm64 && mkdir $(PACKED)/arm64
	@cp -a $(PACKED)/tree $(PACKED)/licences $(PACKED)/arm64/
	@cp build/arm64/yalm.elf $(PACKED)/arm64/tree/usr/bin/yalm
	@cp build/arm64/libyalm.so.$(VERSION) $(PACKED)/arm64/tree/usr/lib/
	@$(PYTHON) packaging/build.py $(VERSION) $(PACKED)/arm64 arm64
	@ls -l $(PACKED)/arm64/*.whl

# Installs each into a clean root, and lets it say a sentence.
test-packages: packages
	@tools/setup.sh test
	@YALM_PACKAGES=1 $(PYTHON) -m pytest -q -rs tests/packages
