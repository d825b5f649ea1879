//! What `make install` puts in place, and systemd's view of it.

use crate::place::{repository, script};
use crate::support::{Ran, SIFTFS, Setup, run};
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
        format!("{share}/bash-completion/completions/siftfs"),
        format!("{share}/zsh/site-functions/_siftfs"),
        format!("{share}/fish/vendor_completions.d/siftfs.fish"),
        format!("{share}/doc/siftfs/siftfs-fuse.conf"),
        format!("{share}/man/man8/siftfs.8"),
        format!("{share}/man/man8/siftfs-mkfs.8"),
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
