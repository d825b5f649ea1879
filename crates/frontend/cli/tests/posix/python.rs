//! The Python package, installed as its users install it, on a mount.

use crate::support::served::Served;
use crate::support::{Setup, libraries, run};
use rustix::process::Signal;

#[test]
fn its_own_tests_pass_on_a_mount_and_beside_a_server() {
    let s = Setup::of_size("256M");
    s.mount("");
    let volume = Setup::of_size("64M");
    let server = Served::start(&volume);
    let library = libraries().join("libsiftfs_capi.so").display().to_string();
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../python");
    let script = r#"
set -e
python3 -m venv "$1/venv"
cp -r "$2" "$1/package"
"$1/venv/bin/pip" install --quiet --disable-pip-version-check "$1/package"
cd "$1"
export SIFTFS_TEST_MOUNT="$3" SIFTFS_TEST_ADDRESS="$4" SIFTFS_LIBRARY="$5"
"$1/venv/bin/python" -W error -m unittest discover -s "$1/package/tests"
"#;
    let work = tempfile::tempdir().expect("a directory");
    let work = work.path().to_str().expect("text");
    run("bash", &["-c", script, "bash", work, package, s.dir(), &server.address, &library]).ok();
    assert!(server.end(Signal::TERM).success());
    volume.assert_plain_ext4();
    s.umount().ok();
    s.assert_plain_ext4();
}
