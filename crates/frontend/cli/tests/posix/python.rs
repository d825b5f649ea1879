//! The Python package, installed as its users install it, on a mount.

use crate::support::{Setup, run};

#[test]
fn its_own_tests_pass_on_a_mount() {
    let s = Setup::of_size("256M");
    s.mount("");
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../python");
    let script = r#"
set -e
python3 -m venv "$1/venv"
cp -r "$2" "$1/package"
"$1/venv/bin/pip" install --quiet --disable-pip-version-check "$1/package"
cd "$1"
SIFTFS_TEST_MOUNT="$3" "$1/venv/bin/python" -W error -m unittest discover -s "$1/package/tests"
"#;
    let work = tempfile::tempdir().expect("a directory");
    let work = work.path().to_str().expect("text");
    run("bash", &["-c", script, "bash", work, package, s.dir()]).ok();
    s.umount().ok();
    s.assert_plain_ext4();
}
