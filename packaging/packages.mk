# Packages: a wheel, a Debian package, a tarball that needs nothing but libc. packaging/build.py makes each of `make install`'s
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

# Installs each into a clean root, and lets it say a sentence.
test-packages: packages
	@tools/setup.sh test
	@YALM_PACKAGES=1 $(PYTHON) -m pytest -q -rs tests/packages
