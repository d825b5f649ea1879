//! A mount namespace with the program installed in it, as `make install` does.

use crate::support::{Ran, SIFTFS, Setup};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The top of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// Made before the script: `/sbin` is a directory of our own with links to what was in it.
const PREPARE: &str = r#"
set -eu
# Copies of other tests' mounts, which would hold their volumes.
umount -a -i -l -t fuse.siftfs,fuse 2> /dev/null || true
sbin=$(readlink -f /sbin)
mkdir -p "$T/orig" "$T/sbin"
mount --bind "$sbin" "$T/orig"
for f in "$T"/orig/*; do ln -s "$f" "$T/sbin/"; done
mount --bind "$T/sbin" "$sbin"
make -s -C "$REPOSITORY" install-files SIFTFS="$SIFTFS" PREFIX="$T/usr"
export PATH="$T/usr/bin:$PATH:/usr/sbin:/sbin"
# What SIFTFS_TEST_OPTIONS says comes before the options of every mount here, too.
if [ -n "${SIFTFS_TEST_OPTIONS:-}" ]; then
    mkdir "$T/first" "$T/real"
    for name in mount.siftfs mount.fuse.siftfs; do
        mv "$T/sbin/$name" "$T/real/"
        printf '#!/bin/sh\nexec "%s" -o "%s" "$@"\n' "$T/real/$name" "$SIFTFS_TEST_OPTIONS" > "$T/sbin/$name"
    done
    cat > "$T/first/siftfs" << END
#!/bin/sh
[ "\$1" = mount ] || exec "$T/usr/bin/siftfs" "\$@"
shift
exec "$T/usr/bin/siftfs" mount -o "$SIFTFS_TEST_OPTIONS" "\$@"
END
    chmod 755 "$T/first/siftfs" "$T"/sbin/mount*.siftfs
    export PATH="$T/first:$PATH"
fi
fail() { echo "$1" >&2; exit 99; }
# Runs a command that has to end with a status.
expect() {
    want=$1; shift
    got=0; "$@" || got=$?
    [ "$got" = "$want" ] || fail "status $got instead of $want: $*"
}
"#;

/// Runs a script in a namespace of its own, where the helpers are installed. `$V` is the volume,
/// `$D` the directory, `$T` the temporary directory. Its end takes its mounts away.
pub fn script(setup: &Setup, text: &str) -> Ran {
    let end = "\nif mountpoint -q \"$D\"; then fail 'still mounted'; fi\n";
    let out = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg(format!("{PREPARE}{text}{end}"))
        .env("T", setup.tmp.path())
        .env("V", setup.volume())
        .env("D", setup.dir())
        .env("SIFTFS", SIFTFS)
        .env("REPOSITORY", repository())
        .output()
        .unwrap();
    out.into()
}
