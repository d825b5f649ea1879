# The two commands are `make run` and `make test`; both need root.
CARGO ?= cargo
PREFIX ?= /usr/local

# Options for siftfs-bench, siftfs-pressure, siftfs-apps, siftfs-kills, siftfs-users and siftfs-intruders, such as
# BENCH="--rounds 3", APPS="--only git", KILLS="--seed 7 --for 1h" or USERS="--for 1h"; cases for testing/guest/run.sh.
BENCH ?=
PRESSURE ?=
APPS ?=
KILLS ?= --for 10m
USERS ?= --for 10m
INTRUDERS ?= --for 10m
GUEST ?=
RBD ?=

# Where things go; DESTDIR comes in front of each. mount(8), umount(8) and fsck(8) look for helpers
# in /sbin.
BINDIR = $(PREFIX)/bin
SBINDIR ?= /sbin
MANDIR = $(PREFIX)/share/man/man8
MAN3DIR = $(PREFIX)/share/man/man3
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR = $(PREFIX)/include
DOCDIR = $(PREFIX)/share/doc/siftfs
UNITDIR = $(PREFIX)/lib/systemd/system
BASH_COMPLETION = $(PREFIX)/share/bash-completion/completions/siftfs
ZSH_COMPLETION = $(PREFIX)/share/zsh/site-functions/_siftfs
FISH_COMPLETION = $(PREFIX)/share/fish/vendor_completions.d/siftfs.fish
HELPERS = mount.siftfs mount.fuse.siftfs umount.siftfs umount.fuse.siftfs fsck.siftfs

# Where release builds are. Programs are started as they were built, together with siftfs: `cargo run` would build the
# crates below them again, with other features.
BUILT = $(shell $(CARGO) metadata --format-version 1 --no-deps \
  | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release
# The program to install.
SIFTFS ?= $(BUILT)/siftfs
# Where the C library to install is.
LIBRARIES ?= $(BUILT)
# Of the whole project, and of the library's binary interface (crates/frontend/capi/build.rs).
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
SONAME = libsiftfs.so.0

.PHONY: all run quick pages test test-long test-modes test-guest test-rbd test-apps integrations bench-integrations bench bench-rbd fuzz fuzz-keep pressure kills users intruders deny check-env lint build install install-files install-library uninstall clean

all: build

# Addresses of RDMA, where the header of libibverbs-dev is, and images of Ceph, where those of librbd-dev are. The
# libraries are loaded at run time.
VERBS = /usr/include/infiniband/verbs.h
LIBRBD = /usr/include/rbd/librbd.h
FEATURES = $(shell [ ! -e $(VERBS) ] || echo --features siftfs-cli/rdma) $(shell [ ! -e $(LIBRBD) ] || echo --features siftfs-cli/rbd)

build:
	@[ -e $(VERBS) ] && echo "with RDMA" || echo "without RDMA: there is no $(VERBS) (libibverbs-dev)"
	@[ -e $(LIBRBD) ] && echo "with images of Ceph" || echo "without images of Ceph: there is no $(LIBRBD) (librbd-dev)"
	SIFTFS_LIBDIR="$(LIBDIR)" $(CARGO) build --release --locked -p siftfs-cli -p siftfs-capi -p siftfs-preload $(FEATURES)

# A real job on a real volume, with a crash in the middle, checked in every respect.
run:
	scripts/install-deps.sh
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-sqlite -p siftfs-demo -p siftfs-preload
	"$(BUILT)/siftfs-demo"

# What needs neither root nor apt, for every change on the way: minutes after a first build.
QUICK = base log ext4 service runtime model protocol
quick: pages
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked $(FEATURES) -- -D warnings
	$(CARGO) test --locked --quiet $(QUICK:%=-p siftfs-%) -p siftfs

# All that reads pages, help texts and comments: what they name is there, and each command line is understood. For a
# change of words alone, which breaks these tests and no other.
pages:
	$(CARGO) test --workspace --locked --quiet $(FEATURES) --test pages --test numbers --test beside --test rules --bin siftfs
	$(CARGO) test --locked --quiet -p siftfs-house -p siftfs-status

# Every test. Fails, and says why, where it may not mount.
test: check-env lint
	scripts/install-deps.sh rbd
	$(CARGO) test --workspace --locked --no-fail-fast $(FEATURES)
	scripts/install-deps.sh guest
	testing/guest/run.sh "$(BUILT:release=debug)" area_on_a_pmr

# The same with many more generated sequences and power cuts; SIFTFS_KILLS=1h: so long of kills. Then each request
# loop and each cache mode, and the guests.
test-long: check-env
	SIFTFS_LONG=1 $(CARGO) test --release --workspace --locked $(FEATURES)
	CARGO="$(CARGO)" scripts/test-modes.sh --release
	$(MAKE) test-guest
	$(MAKE) test-rbd RBD="--seconds 120"

# All tests of the mount by each request loop (device, ring) and under each cache mode (writethrough, writeback); then
# with the library of `siftfs accel` loaded, on mounts that others may be beside, and on mounts of served volumes.
# MODES="ring,writeback" or "accel": that alone; SIFTFS_NO_RINGS=1: on a kernel without FUSE over io_uring.
test-modes: check-env
	CARGO="$(CARGO)" scripts/test-modes.sh

# Persistent memory, which few machines have, in virtual machines whose power is cut. GUEST="starts": these cases alone;
# GUEST="remote_beside_nfs" measures remote mounts beside the kernel's NFS, GUEST="kernel_rows" direct files beside its NVMe
# over TCP and RDMA, each only by its name.
test-guest:
	scripts/install-deps.sh
	scripts/install-deps.sh guest
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-ceto-bench $(FEATURES)
	$(CARGO) build --release --locked -p siftfs-device --example byte_medium
	$(CARGO) build --release --locked -p siftfs-preload --lib --example append_synced
	$(CARGO) build --release --locked -p siftfs-remote-bench
	testing/guest/run.sh "$(BUILT)" $(GUEST)

# Volumes on a Ceph cluster that runs on this machine's loopback, under deaths of its daemons and of SiftFS's processes.
# RBD="--seconds 600", RBD="stopped gone": these cases alone.
test-rbd: check-env
	scripts/install-deps.sh rbd
	$(CARGO) build --release --locked -p siftfs-cli --features siftfs-cli/rbd
	$(CARGO) build --release --locked -p siftfs-rbd-tests
	"$(BUILT)/siftfs-rbd" $(RBD)

# Host and device processes killed under load, for as long as one likes.
kills: check-env
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-preload -p siftfs-kills
	"$(BUILT)/siftfs-kills" $(KILLS)

# Users who try to stop or to rob each other on one mount, for as long as one likes.
users: check-env
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-users
	"$(BUILT)/siftfs-users" $(USERS)

# Hostile clients of a server beside honest ones, for as long as one likes.
intruders: check-env
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-intruders
	"$(BUILT)/siftfs-intruders" $(INTRUDERS)

# Real, unmodified software, with a crash in the middle of its work; then once more with the library of `siftfs accel`.
test-apps:
	scripts/install-deps.sh apps
	scripts/check-environment.sh
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-sqlite -p siftfs-preload -p siftfs-apps
	scripts/build-sqlite-tests.sh "$(BUILT)/sqlite-tests"
	"$(BUILT)/siftfs-apps" $(APPS)
	"$(BUILT)/siftfs-apps" --accel $(APPS)
	"$(BUILT)/siftfs-apps" --direct $(APPS)
	"$(BUILT)/siftfs-apps" --served $(APPS)

# LevelDB and RocksDB on volumes, without a mount: an Env and a FileSystem for them, built against the system's packages,
# under the libraries' own tests (fetched as source packages) and ours, with kills.
INTEGRATIONS = $(MAKE) -C integrations OUT="$(BUILT)/integrations" LIBRARIES="$(BUILT)" SIFTFS="$(BUILT)/siftfs"
integrations:
	scripts/install-deps.sh
	scripts/install-deps.sh integrations
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-capi
	$(INTEGRATIONS) test

# LevelDB's puts and gets by compounds and by single calls, on a served volume. BENCH="--rounds 3 --json", "--in-process".
bench-integrations:
	scripts/install-deps.sh integrations
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-capi
	$(INTEGRATIONS) bench BENCH="$(BENCH)"

# Beside ext4, XFS and btrfs on the same disk. Writes docs/RESULTS.md and its picture, and the numbers to target/bench.
bench:
	scripts/install-deps.sh bench
	scripts/check-environment.sh
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-sqlite -p siftfs-preload -p siftfs-bench -p siftfs-ceto-bench -p siftfs-coinpurse-bench -p siftfs-compound-bench -p siftfs-nicfs-bench -p siftfs-remote-bench
	"$(BUILT)/siftfs-bench" $(BENCH)

# Volumes on a Ceph cluster that runs on this machine's loopback, beside writes to its images by Ceph's own library.
# BENCH="fsync --rounds 15"; BENCH="log-apart --slow-iops 400".
bench-rbd: check-env
	scripts/install-deps.sh rbd
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-sqlite -p siftfs-rbd-bench --features siftfs-cli/rbd
	"$(BUILT)/siftfs" bench rbd $(BENCH)

# The interval map beside its model on histories that libFuzzer makes, the readers of ioctls' arguments, logs that
# programs leave, and messages of both protocols, each for so many seconds. What a corpus in the repository has is read
# first; fuzz-keep adds to that FUZZ_MOST short inputs at most, of those that were found and reach new code. What sancov instruments is what cargo-fuzz instruments; the code has no unsafe
# block for a sanitizer to watch. Needs a C++ compiler. FUZZ says which: a crate's directory and the program.
FUZZ ?= service/intervals:history shared/proto:ioctl shared/lease:log shared/calls:calls shared/wire:blocks
FUZZ_SECONDS ?= 300
FUZZ_DIR ?= target/fuzz
FUZZ_TARGET = $(shell rustc -vV | sed -n 's/^host: //p')
fuzz:
	set -e; for one in $(FUZZ); do program=$${one#*:}; \
	  ( cd crates/$${one%:*}/fuzz && CARGO_TARGET_DIR="$(abspath $(FUZZ_DIR))" RUSTFLAGS="--cfg fuzzing \
	    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks" \
	    $(CARGO) build --release --locked --target $(FUZZ_TARGET) ); \
	  mkdir -p "$(FUZZ_DIR)/corpus-$$program"; \
	  "$(FUZZ_DIR)/$(FUZZ_TARGET)/release/$$program" -max_total_time=$(FUZZ_SECONDS) -max_len=4096 \
	    -malloc_limit_mb=64 -print_final_stats=1 -artifact_prefix="$(FUZZ_DIR)/" "$(FUZZ_DIR)/corpus-$$program" \
	    $$(ls -d crates/$${one%:*}/fuzz/corpus 2>/dev/null); \
	done

FUZZ_KEEP ?= shared/calls:calls shared/wire:blocks
FUZZ_MOST ?= 100
fuzz-keep:
	set -e; for one in $(FUZZ_KEEP); do program=$${one#*:}; kept="crates/$${one%:*}/fuzz/corpus"; \
	  rm -rf "$(FUZZ_DIR)/merged"; cp -r "$$kept" "$(FUZZ_DIR)/merged"; \
	  "$(FUZZ_DIR)/$(FUZZ_TARGET)/release/$$program" -set_cover_merge=1 -use_counters=0 -use_cmp=0 -max_len=256 \
	    "$(FUZZ_DIR)/merged" "$(FUZZ_DIR)/corpus-$$program"; \
	  ls -S "$(FUZZ_DIR)/merged" | awk -v most=$(FUZZ_MOST) '!/^sample-/ { all[n++] = $$0 } \
	    END { for (i = 0; i < most && n; i++) print all[int(i * n / most)] }' | sort -u | \
	    while read -r name; do cp "$(FUZZ_DIR)/merged/$$name" "$$kept/"; done; \
	done

# SIFT's online pressure workload, host and device CPU apart. Numbers go to target/bench.
pressure: check-env
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-pressure
	"$(BUILT)/siftfs-pressure" $(PRESSURE)

check-env:
	scripts/install-deps.sh
	scripts/check-environment.sh

# Licences, bans and sources of the dependencies. Installs cargo-deny where it is missing, which takes minutes.
deny:
	$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install cargo-deny --version 0.20.2 --locked
	$(CARGO) deny check licenses bans sources

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked $(FEATURES) -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" \
	  $(CARGO) doc --workspace --no-deps --document-private-items --locked --quiet
	$(CARGO) test --quiet --locked -p siftfs-house

# The command, the names that mount(8), umount(8) and fsck(8) look for, man pages, completions, systemd's unit; the C
# library, and the one for unmodified programs.
install: build install-files install-library

# What `install` puts in place, from a program that is built already.
install-files:
	install -D -m 0755 "$(SIFTFS)" $(DESTDIR)$(BINDIR)/siftfs
	install -d $(DESTDIR)$(SBINDIR)
	for name in $(HELPERS); do ln -sf $(BINDIR)/siftfs $(DESTDIR)$(SBINDIR)/$$name || exit 1; done
	pages=$$(mktemp -d) && trap 'rm -r "$$pages"' EXIT && "$(SIFTFS)" generate "$$pages" && \
	install -d $(DESTDIR)$(MANDIR) && install -m 0644 "$$pages"/man/*.8 $(DESTDIR)$(MANDIR) && \
	ln -sf mount.siftfs.8 $(DESTDIR)$(MANDIR)/mount.fuse.siftfs.8 && \
	ln -sf umount.siftfs.8 $(DESTDIR)$(MANDIR)/umount.fuse.siftfs.8 && \
	install -D -m 0644 "$$pages"/completions/siftfs.bash $(DESTDIR)$(BASH_COMPLETION) && \
	install -D -m 0644 "$$pages"/completions/_siftfs $(DESTDIR)$(ZSH_COMPLETION) && \
	install -D -m 0644 "$$pages"/completions/siftfs.fish $(DESTDIR)$(FISH_COMPLETION)
	install -d $(DESTDIR)$(UNITDIR)
	sed 's|@PREFIX@|$(PREFIX)|' packaging/siftfs@.service.in > $(DESTDIR)$(UNITDIR)/siftfs@.service
	sed 's|@PREFIX@|$(PREFIX)|' packaging/siftfs-serve@.service.in > $(DESTDIR)$(UNITDIR)/siftfs-serve@.service
	install -D -m 0644 packaging/siftfs-fuse.conf $(DESTDIR)$(DOCDIR)/siftfs-fuse.conf
	@echo "Faster where the kernel has FUSE over io_uring: siftfs tune on, or $(DOCDIR)/siftfs-fuse.conf"

# The library for C, shared and not, with its header, its page and what pkg-config(1) knows of it.
install-library:
	install -D -m 0755 "$(LIBRARIES)/libsiftfs_capi.so" $(DESTDIR)$(LIBDIR)/libsiftfs.so.$(VERSION)
	ln -sf libsiftfs.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libsiftfs.so
	install -m 0755 "$(LIBRARIES)/libsiftfs_preload.so" $(DESTDIR)$(LIBDIR)/libsiftfs_preload.so
	install -m 0644 "$(LIBRARIES)/libsiftfs_capi.a" $(DESTDIR)$(LIBDIR)/libsiftfs.a
	install -D -m 0644 crates/frontend/capi/include/siftfs.h $(DESTDIR)$(INCLUDEDIR)/siftfs.h
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(MAN3DIR)
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' packaging/siftfs.pc.in \
	  > $(DESTDIR)$(LIBDIR)/pkgconfig/siftfs.pc
	sed 's|@VERSION@|$(VERSION)|' docs/man/siftfs.3 > $(DESTDIR)$(MAN3DIR)/siftfs.3
	@# Programs find it where the loader's cache knows of it; a package does that by itself.
	[ -n "$(DESTDIR)" ] || PATH="$$PATH:/sbin" ldconfig || true

uninstall:
	rm -f $(DESTDIR)$(BINDIR)/siftfs $(addprefix $(DESTDIR)$(SBINDIR)/,$(HELPERS))
	rm -f $(DESTDIR)$(MANDIR)/siftfs.8 $(DESTDIR)$(MANDIR)/siftfs-*.8
	rm -f $(addprefix $(DESTDIR)$(MANDIR)/,$(addsuffix .8,$(HELPERS)))
	rm -f $(DESTDIR)$(BASH_COMPLETION) $(DESTDIR)$(ZSH_COMPLETION) $(DESTDIR)$(FISH_COMPLETION)
	rm -f $(DESTDIR)$(UNITDIR)/siftfs@.service $(DESTDIR)$(UNITDIR)/siftfs-serve@.service $(DESTDIR)$(DOCDIR)/siftfs-fuse.conf
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/,libsiftfs.so libsiftfs.so.* libsiftfs_preload.so libsiftfs.a pkgconfig/siftfs.pc)
	rm -f $(DESTDIR)$(INCLUDEDIR)/siftfs.h $(DESTDIR)$(MAN3DIR)/siftfs.3

clean:
	$(CARGO) clean
