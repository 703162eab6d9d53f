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
STRIP       ?= strip

# One row a file: PLACE:MODE:FILE, as install.sh explains. What it says is all that install writes, besides its record.
rows := $(TOOLS:%=bindir:755:%)
rows += $(if $(filter 1,$(CUDA)),libdir/aprkit:755:$(CUDA_LIB))

places = DESTDIR='$(DESTDIR)' bindir='$(bindir)' libdir='$(libdir)' includedir='$(includedir)' datadir='$(datadir)' mandir='$(mandir)' \
         STRIP='$(STRIP)' QUIET='$(findstring s,$(firstword -$(MAKEFLAGS)))'
.PHONY: install install-strip uninstall dist
install install-strip: all
	@$(places) tools/packaging/install.sh $@ $(rows)
install: ## copy what was built to $(PREFIX); install-strip does so without symbols
uninstall: ## remove what install has copied, and the folders that it made
	@$(places) tools/packaging/install.sh $@ $(rows)

version = $(shell sed -n 's/^.define APR_VERSION "\(.*\)"/\1/p' tools/cli/cli.h)
dist: ## all files of this commit, as build/aprkit-VERSION.tar.gz
	@mkdir -p build
	git archive --format=tar.gz --prefix=aprkit-$(version)/ -o build/aprkit-$(version).tar.gz HEAD
