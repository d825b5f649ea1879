use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn a_pair_is_saved_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("etc/key");
    let pair = KeyPair::generate(" root@storage ").unwrap();
    pair.save(&path).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let read = KeyPair::load(&path).unwrap();
    assert_eq!((read.public(), read.comment()), (pair.public(), "root@storage"));
    assert_eq!(read.pkcs8(), pair.pkcs8());
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().next(), Some(&*pair.line()));
    let other = KeyPair::generate("").unwrap();
    assert_ne!(other.public(), pair.public());
    let kept = other.save(&path).unwrap_err().to_string();
    assert!(kept.contains("there already"), "{kept}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let open = KeyPair::load(&path).unwrap_err().to_string();
    assert!(open.contains("etc/key: others may use this private key (mode 0640)"), "{open}");
}

/// The secret half is in no message.
#[test]
fn it_is_never_printed() {
    let pair = KeyPair::generate("me").unwrap();
    assert_eq!(format!("{pair:?}"), format!("KeyPair({})", pair.line()));
}

fn openssl(arguments: &[&str]) -> Vec<u8> {
    let ran = Command::new("openssl").args(arguments).output().unwrap();
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    ran.stdout
}

/// openssl(1) reads what we write, and we read what it writes.
#[test]
fn the_file_is_that_of_other_programs() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let pair = KeyPair::generate("me").unwrap();
    pair.save(&ours).unwrap();
    let public = ["pkey", "-in", ours.to_str().unwrap(), "-pubout", "-outform", "DER"];
    assert_eq!(openssl(&public), pair.public().to_spki());
    let made = openssl(&["genpkey", "-algorithm", "ed25519"]);
    fs::write(&theirs, made).unwrap();
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o600)).unwrap();
    let read = KeyPair::load(&theirs).unwrap();
    let public = ["pkey", "-in", theirs.to_str().unwrap(), "-pubout", "-outform", "DER"];
    assert_eq!(openssl(&public), read.public().to_spki());
    for (kind, what) in [("x25519", "not an Ed25519 key"), ("rsa", "not an Ed25519 key")] {
        let made = openssl(&["genpkey", "-algorithm", kind]);
        let refused = KeyPair::parse(std::str::from_utf8(&made).unwrap()).unwrap_err();
        assert!(refused.contains(what), "{kind}: {refused}");
    }
    let locked = ["genpkey", "-algorithm", "ed25519", "-aes256", "-pass", "pass:x"];
    let locked = String::from_utf8(openssl(&locked)).unwrap();
    assert!(KeyPair::parse(&locked).unwrap_err().contains("passphrase"));
}

#[test]
fn what_is_no_key_of_ours() {
    let pair = KeyPair::generate("me").unwrap();
    let pem = pem_rfc7468::encode_string(LABEL, LineEnding::LF, pair.pkcs8()).unwrap();
    let other = KeyPair::generate("").unwrap().line();
    let ssh = pem.replace(LABEL, "OPENSSH PRIVATE KEY");
    for (text, what) in [
        (String::new(), "not a private key in PEM"),
        (pair.line(), "not a private key in PEM"),
        (format!("{other}\n{pem}"), "another key's"),
        (format!("# mine\n{pem}"), "before the key"),
        (format!("{}\n{}\n{pem}", pair.line(), pair.line()), "before the key"),
        (ssh, "`OPENSSH PRIVATE KEY`"),
        (pem.replace("MC4", "MC5"), "not an Ed25519 key"),
        (pem.replace("-----END", "---END"), "not a private key in PEM"),
        (format!("{pem}{pem}"), "not a private key in PEM"),
    ] {
        let refused = KeyPair::parse(&text).unwrap_err();
        assert!(refused.contains(what), "{refused}");
    }
    assert!(KeyPair::parse(&pem).is_ok());
    assert!(KeyPair::generate("a\nb").is_err());
}

proptest! {
    #[test]
    fn any_text_is_taken_or_refused(before in ".{0,40}", inside in ".{0,200}") {
        let _ = KeyPair::parse(&format!("{before}-----BEGIN {inside}"));
        let _ = KeyPair::parse(&format!(
            "{before}\n-----BEGIN PRIVATE KEY-----\n{inside}\n-----END PRIVATE KEY-----\n"
        ));
    }

    /// Each byte of a file changed: it is refused, or it is a pair all the same.
    #[test]
    fn a_changed_file_does_no_harm(at in 0usize..180, to in 0x20u8..0x7f) {
        let pair = KeyPair::generate("").unwrap();
        let pem = pem_rfc7468::encode_string(LABEL, LineEnding::LF, pair.pkcs8()).unwrap();
        let mut text = format!("{}\n{pem}", pair.line()).into_bytes();
        let place = at % text.len();
        text[place] = to;
        if let Ok(read) = KeyPair::parse(&String::from_utf8(text).unwrap()) {
            prop_assert_eq!(read.public(), pair.public());
        }
    }
}
