# What is installed, and what is made to be given away. Included by the Makefile, whose variables it uses.

# GNU's names of the places. PREFIX is the same as prefix.
PREFIX      ?= /usr/local
prefix       = $(patsubst ~/%,$(HOME)/%,$(PREFIX))
exec_prefix  = $(prefix)
bindir       = $(exec_prefix)/bin
libdir       = $(exec_prefix)/lib
includedir   = $(prefix)/include
datadir      = $(prefix)/share
mandir       = $(datadir)/man
docdir       = $(datadir)/doc/aprkit
STRIP       ?= strip

# Manual pages and completions, from the tables that the tools parse their arguments with. Where the programs are built for another
# machine, APRDOC is an aprdoc that runs here.
APRDOC      ?= $B/aprdoc
SHARE       := $B/share
release_date = $(shell sed -n 's/^## .*(\([-0-9]*\))$$/\1/p' CHANGELOG.md | head -n 1)
$B/aprdoc: $(DOC_C:%=$B/%.o) $(TOOL_C:%=$B/%.o) $(LIB)
	$(call link)
.PHONY: docs
docs: $(SHARE)/made ## manual pages and completions of bash, zsh and fish, in build/release/share
$(SHARE)/made: $(APRDOC) $(wildcard tools/packaging/completion.*) CHANGELOG.md
	$(call say,DOC,$(SHARE))
	@rm -rf $(SHARE) && mkdir -p $(SHARE)/man1 $(SHARE)/man7 $(SHARE)/completion
	@$(APRDOC) check && $(APRDOC) man $(SHARE) $(release_date)
	@for shell in bash zsh; do { cat tools/packaging/completion.$$shell && $(APRDOC) completion $$shell; } >$(SHARE)/completion/aprkit.$$shell || exit; done
	@for tool in $(notdir $(TOOLS)); do \
	  { cat tools/packaging/completion.fish && $(APRDOC) completion fish $$tool; } >$(SHARE)/completion/$$tool.fish || exit; done
	@touch $@

# One row a file: PLACE:MODE:FILE, as install.sh explains. What it says is all that install writes, besides its record.
rows = $(TOOLS:%=bindir:755:%)
rows += $(if $(filter 1,$(CUDA)),libdir/aprkit:755:$(CUDA_LIB))
library_rows = libdir:644:$(SHARED_LIB) $(foreach l,$(SHARED_LINKS),libdir=$(notdir $l):link:$(notdir $(SHARED_LIB))) libdir:644:$(STATIC_LIB) \
               libdir/pkgconfig:644:$(PKG_CONFIG_FILE) includedir:644:$(PUBLIC)
rows += $(library_rows) $(patsubst %,docdir/examples:644:%,$(wildcard tools/examples/*))

# Which pages there are is known when they are made.
rows += $(patsubst %,mandir/man1:644:%,$(shell ls $(SHARE)/man1/*.1 2>/dev/null)) $(patsubst %,mandir/man7:644:%,$(shell ls $(SHARE)/man7/*.7 2>/dev/null))
bash_rows = $(foreach t,$(notdir $(TOOLS)),datadir/bash-completion/completions=$t:$(if $(filter $(firstword $(notdir $(TOOLS))),$t),644:$(SHARE)/completion/aprkit.bash,link:$(firstword $(notdir $(TOOLS)))))
rows += $(bash_rows) datadir/zsh/site-functions=_aprkit:644:$(SHARE)/completion/aprkit.zsh
rows += $(foreach t,$(notdir $(TOOLS)),datadir/fish/vendor_completions.d:644:$(SHARE)/completion/$t.fish)
rows += docdir:644:LICENSE docdir:644:README.md docdir:644:CHANGELOG.md

places = DESTDIR='$(DESTDIR)' bindir='$(bindir)' libdir='$(libdir)' includedir='$(includedir)' datadir='$(datadir)' mandir='$(mandir)' docdir='$(docdir)' \
         STRIP='$(STRIP)' QUIET='$(findstring s,$(firstword -$(MAKEFLAGS)))'
.PHONY: install install-strip install-library uninstall dist deb sbom check-packages
install install-strip: all library docs
	@$(places) tools/packaging/install.sh $@ $(rows)
install-library: library
	@$(places) tools/packaging/install.sh add $(library_rows)
install: ## copy what was built to $(PREFIX); install-strip: without symbols; install-library: only the library
uninstall: ## remove what install has copied, and the folders that it made
	@$(places) tools/packaging/install.sh $@ $(rows)

version = $(shell sed -n 's/^.define APR_VERSION "\(.*\)"/\1/p' tools/report/page.h)
dist: ## all files of this commit, as build/aprkit-VERSION.tar.gz; prints its SHA-256
	@tools/packaging/dist.sh $(version) build/aprkit-$(version).tar.gz # git archive, sorted, as .tar.gz
deb: ## Debian packages of this commit, in build/deb; needs debhelper and dpkg-dev, and no network
	@tools/packaging/deb.sh $(version) build/deb
sbom: all ## what the programs are linked with, as SPDX 2.3: build/aprkit-VERSION.spdx.json
	@tools/packaging/sbom.sh $(version) "$$(tools/packaging/commit.sh)" $(TOOLS) >build/aprkit-$(version).spdx.json
	@echo build/aprkit-$(version).spdx.json
PACKAGES_DEB := debhelper dpkg-dev lintian devscripts debootstrap autopkgtest
check-packages: deps-dev ## Debian packages built twice are the same, lintian and hardening-check pass, and they work in a fresh system
	$(call install_missing,$(PACKAGES_DEB))
	@$(MAKE) $(build) CUDA=0 all
	@tests/packages.sh $B deb
