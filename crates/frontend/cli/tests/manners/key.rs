//! `siftfs key`, as a person and a script use it.

use crate::support::{SIFTFS, Setup, run, siftfs};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn a_key_is_made_and_shown() {
    let s = Setup::empty();
    let file = s.tmp.path().join("etc/key");
    let file = file.to_str().unwrap();
    let made = siftfs(&["key", "new", "--file", file, "--comment", "root@storage"]).ok();
    let lines: Vec<&str> = made.out.lines().collect();
    let [line, print] = lines[..] else { panic!("{made:?}") };
    let words: Vec<&str> = line.split(' ').collect();
    let [kind, base64, comment] = words[..] else { panic!("{line}") };
    assert_eq!((kind, comment), ("siftfs-ed25519", "root@storage"));
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(siftfs(&["key", "show", file]).ok().out, made.out);
    // What the page says of both, by the system's own programs.
    let hash = "printf %s \"$1\" | base64 -d | openssl dgst -sha256 -binary | base64 | tr -d '=\n'";
    let hashed = run("bash", &["-c", hash, "bash", base64]).ok();
    assert_eq!(print, format!("SHA256:{}", hashed.out));
    let public = "openssl pkey -in \"$1\" -pubout -outform DER | tail -c 32 | base64";
    assert_eq!(run("bash", &["-c", public, "bash", file]).ok().out.trim(), base64);
    let shown = siftfs(&["key", "show", file, "--json"]).ok();
    let shown: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    for (name, value) in
        [("line", line), ("fingerprint", print), ("public_key", base64), ("file", file)]
    {
        assert_eq!(shown[name], value, "{name}");
    }
    // A key that is there is another machine's trust in this one.
    let before = fs::read(file).unwrap();
    siftfs(&["key", "new", "--file", file]).fails(1, &[file, "is there already"]);
    assert_eq!(fs::read(file).unwrap(), before);
    fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
    siftfs(&["key", "show", file]).fails(1, &[file, "mode 0644", "chmod 600"]);
}

#[test]
fn what_cannot_be() {
    let s = Setup::empty();
    let path = |name: &str| s.tmp.path().join(name).to_str().unwrap().to_string();
    siftfs(&["key", "show", &path("missing")]).fails(1, &["missing", "no such file"]);
    let (file, other) = (path("key"), path("text"));
    siftfs(&["key", "new", "--file", &file, "--comment", "a\nb"]).fails(1, &["control character"]);
    assert!(!fs::exists(&file).unwrap());
    fs::write(&other, "hello").unwrap();
    fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
    siftfs(&["key", "show", &other]).fails(1, &["text", "not a private key", "siftfs key new"]);
    assert_eq!(siftfs(&["key"]).code, 2);
    assert_eq!(siftfs(&["key", "news"]).code, 2);
}

/// A user who is not root has a key of his own, at a place of his own.
#[test]
fn a_users_own_key() {
    let s = Setup::empty();
    let home = s.tmp.path().join("home");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
    fs::set_permissions(s.tmp.path(), Permissions::from_mode(0o755)).unwrap();
    let program = s.tmp.path().join("siftfs");
    fs::copy(SIFTFS, &program).unwrap();
    let made = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["key", "new"])
        .env_remove("XDG_CONFIG_HOME")
        .env("HOME", &home)
        .env("USER", "someone")
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let line = String::from_utf8(made.stdout).unwrap();
    assert!(line.contains(" someone@"), "{line}");
    let text = fs::read_to_string(home.join(".config/siftfs/key")).unwrap();
    assert_eq!(text.lines().next(), line.lines().next());
}
