use super::*;
use crate::pair::KeyPair;
use crate::public::PublicKey;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

fn key() -> PublicKey {
    KeyPair::generate("").unwrap().public()
}

fn line(key: &PublicKey) -> String {
    format!("role=client {}\n", key.line("x"))
}

fn said(text: &str) -> String {
    Authorized::parse(Path::new("/etc/f"), text).unwrap_err().to_string()
}

#[test]
fn keys_are_looked_up() {
    let (a, b) = (key(), key());
    let text = format!("# ours\n\n \t\n  # more\n{}{}", line(&a), line(&b));
    let list = Authorized::parse(Path::new("f"), &text).unwrap();
    assert_eq!(list.lookup(&a).unwrap().key, a);
    assert_eq!(list.lookup(&b).unwrap().key, b);
    assert!(list.lookup(&key()).is_none());
    assert!(Authorized::parse(Path::new("f"), "").unwrap().lookup(&a).is_none());
}

#[test]
fn messages_name_file_and_line() {
    let a = key();
    let twice = said(&format!("#\n{}role=host {}\n", line(&a), a.line("")));
    assert_eq!(twice, "/etc/f, line 3: its key is that of line 2, too");
    assert!(said("#\nnonsense\n").starts_with("/etc/f, line 2: unknown option `nonsense`"));
    // One bad line, and nobody is admitted.
    assert!(said(&format!("{}x\n", line(&a))).contains("line 2"));
}

#[test]
fn it_is_bounded() {
    let long = format!("#{}\n", "x".repeat(MOST_LINE));
    assert!(said(&long).contains("line 1: it has more than 8192 bytes"));
    let number = |n: usize| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        line(&PublicKey::new(bytes))
    };
    let mut text: String = (0..MOST_KEYS).map(number).collect();
    assert!(Authorized::parse(Path::new("f"), &text).is_ok());
    text += &number(MOST_KEYS);
    assert!(said(&text).contains("line 4097: there are more than 4096 keys"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("authorized");
    fs::write(&path, "#\n".repeat(1 << 19) + "#").unwrap();
    let large = Authorized::load(&path).unwrap_err().to_string();
    assert!(large.contains("more than 1048576 bytes"), "{large}");
}

#[test]
fn a_file_that_others_can_write_admits_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("authorized");
    fs::write(&path, line(&key())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    let said = Authorized::load(&path).unwrap_err().to_string();
    assert!(said.contains("others may write it"), "{said}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(Authorized::load(&path).is_ok());
    assert!(Authorized::load(&dir.path().join("missing")).is_err());
}

/// Waits until a file that was written now can be told from one that is changed later.
fn settle() {
    std::thread::sleep(Duration::from_millis(3_100));
}

/// A change of the same length, in place, in the same moment as the reading of before.
#[test]
fn each_change_is_seen_at_the_next_look() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("authorized");
    let file = AuthorizedFile::new(&path);
    assert!(file.current().is_err(), "it is not there yet");
    let keys: Vec<PublicKey> = (0..200).map(|_| key()).collect();
    for (before, after) in keys.iter().zip(keys.iter().skip(1)) {
        fs::write(&path, line(before)).unwrap();
        let list = file.current().unwrap();
        assert!(list.lookup(before).is_some() && list.lookup(after).is_none());
    }
}

#[test]
fn what_has_not_changed_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("authorized");
    let (a, b) = (key(), key());
    fs::write(&path, line(&a)).unwrap();
    settle();
    let file = AuthorizedFile::new(&path);
    let first = file.current().unwrap();
    assert!(Arc::ptr_eq(&first, &file.current().unwrap()), "it was kept");
    // Replaced by a file of the same size and time.
    let times = fs::FileTimes::new().set_modified(fs::metadata(&path).unwrap().modified().unwrap());
    let other = dir.path().join("other");
    fs::write(&other, line(&b)).unwrap();
    fs::File::options().write(true).open(&other).unwrap().set_times(times).unwrap();
    fs::rename(&other, &path).unwrap();
    assert!(file.current().unwrap().lookup(&a).is_none());
    settle();
    assert!(file.current().unwrap().lookup(&b).is_some());
    // An error counts at once, and what was read before does not.
    fs::write(&path, "x").unwrap();
    assert!(file.current().is_err());
    fs::remove_file(&path).unwrap();
    assert!(file.current().is_err());
    fs::write(&path, line(&a)).unwrap();
    assert!(file.current().unwrap().lookup(&a).is_some());
}
