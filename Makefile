# The two commands are `make run` and `make test`; both need root.
CARGO ?= cargo
PREFIX ?= /usr/local

# Options for siftfs-bench and siftfs-apps, such as BENCH="--rounds 3" or APPS="--only git".
BENCH ?=
APPS ?=

.PHONY: all run test test-long test-apps bench check-env lint build install clean

all: build

build:
	$(CARGO) build --release --locked -p siftfs-cli

# A real job on a real volume, with a crash in the middle, checked in every respect.
run:
	scripts/install-deps.sh
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-demo
	$(CARGO) run --release --locked --quiet -p siftfs-demo

# Every test. Fails, and says why, where it may not mount.
test: check-env lint
	$(CARGO) test --workspace --locked --no-fail-fast

# The same with many more generated sequences and power cuts.
test-long: check-env
	SIFTFS_LONG=1 $(CARGO) test --release --workspace --locked

# Real, unmodified software, with a crash in the middle of its work.
test-apps:
	scripts/install-deps.sh apps
	scripts/check-environment.sh
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-apps
	$(CARGO) run --release --locked --quiet -p siftfs-apps -- $(APPS)

# Beside ext4 on the same disk. Numbers and a picture go to target/bench.
bench: check-env
	$(CARGO) build --release --locked -p siftfs-cli -p siftfs-bench
	$(CARGO) run --release --locked --quiet -p siftfs-bench -- $(BENCH)

check-env:
	scripts/install-deps.sh
	scripts/check-environment.sh

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# The command, and the names that mount(8) and umount(8) look for.
install: build
	install -D -m 0755 "$$($(CARGO) metadata --format-version 1 --no-deps \
	  | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/siftfs" \
	  $(DESTDIR)$(PREFIX)/bin/siftfs
	for name in mount.siftfs mount.fuse.siftfs umount.siftfs umount.fuse.siftfs; do \
	  install -d $(DESTDIR)/sbin && ln -sf $(PREFIX)/bin/siftfs $(DESTDIR)/sbin/$$name; done

clean:
	$(CARGO) clean
