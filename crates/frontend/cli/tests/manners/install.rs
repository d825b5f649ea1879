//! What `make install` puts in place, and systemd's view of it.

use crate::place::{repository, script};
use crate::support::{Ran, SIFTFS, Setup, libraries, run};
use std::fs;
use std::path::{Path, PathBuf};

fn make(target: &str, root: &Path) -> Ran {
    let (repository, root) = (repository(), root.to_str().unwrap());
    let arguments = [
        "-s",
        "-C",
        repository.to_str().unwrap(),
        target,
        &format!("SIFTFS={SIFTFS}"),
        &format!("LIBRARIES={}", libraries().display()),
        &format!("DESTDIR={root}"),
        "PREFIX=/opt/siftfs",
    ];
    run("make", &arguments).ok()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(files(&entry.path())),
            false => all.push(entry.path()),
        }
    }
    all
}

#[test]
fn install_and_uninstall() {
    let s = Setup::empty();
    let root = s.tmp.path().join("root");
    make("install-files", &root);
    let share = "opt/siftfs/share";
    for file in [
        "opt/siftfs/bin/siftfs".to_string(),
        "opt/siftfs/lib/systemd/system/siftfs@.service".into(),
        "opt/siftfs/lib/systemd/system/siftfs-serve@.service".into(),
        format!("{share}/bash-completion/completions/siftfs"),
        format!("{share}/zsh/site-functions/_siftfs"),
        format!("{share}/fish/vendor_completions.d/siftfs.fish"),
        format!("{share}/doc/siftfs/siftfs-fuse.conf"),
        format!("{share}/man/man8/siftfs.8"),
        format!("{share}/man/man8/siftfs-mkfs.8"),
        format!("{share}/man/man8/siftfs-key-new.8"),
        format!("{share}/man/man8/mount.siftfs.8"),
        format!("{share}/man/man8/umount.fuse.siftfs.8"),
        format!("{share}/man/man8/fsck.siftfs.8"),
    ] {
        assert!(fs::metadata(root.join(&file)).is_ok_and(|m| m.len() > 0), "{file}");
    }
    let helpers =
        ["mount.siftfs", "mount.fuse.siftfs", "umount.siftfs", "umount.fuse.siftfs", "fsck.siftfs"];
    for helper in helpers {
        let link = fs::read_link(root.join("sbin").join(helper)).unwrap();
        assert_eq!(link, Path::new("/opt/siftfs/bin/siftfs"), "{helper}");
    }
    make("uninstall", &root);
    assert_eq!(files(&root), Vec::<PathBuf>::new());
}

/// A program finds the installed library by pkg-config(1), shared and static, and works with both.
#[test]
fn the_library_for_c() {
    let s = Setup::new();
    let root = s.tmp.path().join("root");
    make("install-library", &root);
    let lib = root.join("opt/siftfs/lib");
    for (link, to) in [("libsiftfs.so", "libsiftfs.so.0"), ("libsiftfs.so.0", "libsiftfs.so.0.1.0")]
    {
        assert_eq!(fs::read_link(lib.join(link)).unwrap(), Path::new(to));
    }
    // Where `siftfs accel` of that installation looks.
    assert!(lib.join("libsiftfs_preload.so").is_file());
    let page = root.join("opt/siftfs/share/man/man3/siftfs.3");
    let page = run("man", &["--warnings", "-l", "-P", "cat", page.to_str().unwrap()]).ok();
    assert!(page.err.is_empty(), "{}", page.err);
    let header = fs::read_to_string(root.join("opt/siftfs/include/siftfs.h")).unwrap();
    let functions = header.split("siftfs_").skip(1).filter_map(|rest| {
        let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
        rest.strip_prefix(name)?.starts_with('(').then_some(format!("siftfs_{name}("))
    });
    let functions: std::collections::BTreeSet<_> =
        functions.filter(|f| f != "siftfs_callback(" && f != "siftfs_entry(").collect();
    assert!(functions.len() > 25, "{functions:?}");
    for function in functions {
        assert!(page.out.contains(&function), "the page lacks {function}");
    }
    let script = r#"
set -e
export PKG_CONFIG_SYSROOT_DIR="$1" PKG_CONFIG_PATH="$1/opt/siftfs/lib/pkgconfig"
cd "$2"
flags="-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -pthread"
pkg-config --exists --print-errors 'siftfs >= 0.1'
cc $flags tests/library.c -o "$3/shared" $(pkg-config --cflags --libs siftfs)
readelf -d "$3/shared" | grep -q 'NEEDED.*\[libsiftfs.so.0\]'
LD_LIBRARY_PATH="$1/opt/siftfs/lib" "$3/shared" volume "$4"
cc $flags -static tests/library.c -o "$3/static" $(pkg-config --static --cflags --libs siftfs)
"$3/static" volume "$5"
# The one that is not shared, in a program that shares all others.
cc $flags tests/library.c -o "$3/mixed" $(pkg-config --cflags siftfs) \
  "$(pkg-config --variable=libdir siftfs)/libsiftfs.a" -lm
! readelf -d "$3/mixed" | grep siftfs
# C++ takes the header as well.
echo '#include <siftfs.h>' > "$3/header.cpp"
! command -v c++ > /dev/null || c++ -Wall -Wextra -Werror -fsyntax-only "$3/header.cpp" $(pkg-config --cflags siftfs)
"#;
    let (source, other) = (repository().join("crates/frontend/capi"), Setup::new());
    let [root_text, source, work] = [&root, &source, s.tmp.path()].map(|p| p.to_str().unwrap());
    let words = [root_text, source, work, s.volume(), other.volume()];
    run("bash", &[&["-c", script, "bash"], &words[..]].concat()).ok();
    s.assert_plain_ext4();
    other.assert_plain_ext4();
    make("uninstall", &root);
    assert_eq!(files(&root), Vec::<PathBuf>::new());
}

/// man(1) takes every page without a complaint, and each says its name, options and exit status.
#[test]
fn man_pages() {
    let s = Setup::empty();
    let out = s.tmp.path().to_str().unwrap();
    crate::support::siftfs(&["generate", out]).ok();
    let pages = files(&s.tmp.path().join("man"));
    assert!(pages.len() >= 10, "{pages:?}");
    for page in pages {
        let path = page.to_str().unwrap();
        let text = run("man", &["--warnings", "-l", "-P", "cat", path]).ok();
        assert!(text.err.is_empty(), "{path}: {}", text.err);
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"] {
            assert!(text.out.contains(section), "no {section} in {path}: {}", text.out);
        }
    }
}

/// A shell, a script that completes `siftfs chec`, and what it must print.
fn completed(shell: &str, arguments: &[&str], script: &str) {
    let s = Setup::empty();
    crate::support::siftfs(&["generate", s.tmp.path().to_str().unwrap()]).ok();
    let completions = s.tmp.path().join("completions");
    let script = script.replace("COMPLETIONS", completions.to_str().unwrap());
    let ran = run(shell, &[arguments, &["-c", &script]].concat()).ok();
    assert!(ran.out.contains("checkpoint"), "{shell}: {ran:?}");
    assert!(!ran.out.contains("generate"), "{shell} offers what is hidden: {ran:?}");
}

#[test]
fn completions_are_taken_by_bash() {
    let ask = "source COMPLETIONS/siftfs.bash && COMP_WORDS=(siftfs chec) COMP_CWORD=1 && \
               _siftfs siftfs chec siftfs && echo ${COMPREPLY[@]}";
    completed("bash", &["--norc"], ask);
}

#[test]
fn completions_are_taken_by_fish() {
    let ask = "source COMPLETIONS/siftfs.fish; complete -C 'siftfs chec'";
    completed("fish", &["--no-config"], ask);
}

/// zsh completes on a terminal alone: it runs another one on a terminal of its own.
#[test]
fn completions_are_taken_by_zsh() {
    let ask = r#"
zmodload zsh/zpty
zpty z "PS1='>' zsh -f -i"
zpty -w z "fpath=(COMPLETIONS \$fpath); autoload -U compinit; compinit -u -D; print RE''ADY"
zpty -r -m z out '*READY*'
zpty -w -n z $'siftfs chec\t'
zpty -w z "; print DO''NE"
zpty -r -m z out '*DONE*'
print -r -- "$out"
zpty -d z
"#;
    completed("zsh", &["-f"], ask);
}

/// systemd accepts the service, and the mount unit that its generator makes of an fstab line.
#[test]
fn units() {
    let s = Setup::new();
    let ran = script(
        &s,
        r#"
unit="$T/usr/lib/systemd/system/siftfs@.service"
mkdir "$T/units"
cp "$unit" "$T/units/siftfs@data.service"
systemd-analyze verify --man=no "$T/units/siftfs@data.service" 2> "$T/said" || fail "$(cat "$T/said")"
[ -s "$T/said" ] && fail "$(cat "$T/said")"
echo "$V $D siftfs rw,nosuid,nofail,x-systemd.mount-timeout=30s 0 0" > "$T/fstab"
generator=/usr/lib/systemd/system-generators/systemd-fstab-generator
mkdir "$T/n" "$T/e" "$T/l"
SYSTEMD_FSTAB="$T/fstab" SYSTEMD_LOG_TARGET=console "$generator" "$T/n" "$T/e" "$T/l"
mount_unit=$(ls "$T/n"/*.mount)
grep -q '^Type=siftfs' "$mount_unit" || fail "$(cat "$mount_unit")"
systemd-analyze verify --man=no "$mount_unit" 2> "$T/said" || fail "$(cat "$T/said")"
grep -v 'local-fs.target' "$T/said" | grep -i "${mount_unit##*/}" && fail "$(cat "$T/said")"
# What systemd runs for such a unit, and at its end.
/bin/mount "$V" "$D" -t siftfs -o rw,nosuid,nofail,x-systemd.mount-timeout=30s
/bin/umount "$D" -c
"#,
    );
    ran.ok();
}

/// A service in the foreground says when the mount is usable, and ends when it is unmounted.
#[test]
fn a_service_in_the_foreground_reports() {
    use std::os::unix::net::UnixDatagram;
    let s = Setup::new();
    let path = s.tmp.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let mut child = std::process::Command::new(SIFTFS)
        .args(["mount", "--foreground", s.volume(), s.dir(), "-o", ""])
        .env("NOTIFY_SOCKET", &path)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut said = [0; 64];
    let n = manager.recv(&mut said).unwrap();
    assert_eq!(&said[..n], b"READY=1\n");
    fs::write(s.path("f"), b"usable").unwrap();
    s.umount();
    assert!(child.wait().unwrap().success());
}
