use super::*;
use crate::pair::KeyPair;
use proptest::prelude::*;

fn key(byte: u8) -> PublicKey {
    PublicKey::new([byte; LEN])
}

/// The fingerprint is what `printf AQEB...AQE= | base64 -d | sha256sum` says, in Base64.
#[test]
fn texts_are_those_of_the_page() {
    let one = key(1);
    assert_eq!(one.to_string(), "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=");
    let print = "SHA256:cs1uhCLEB/ttCYaQ8RMLfe1+wvf14dML2dUh8BU2N5M";
    assert_eq!(one.fingerprint().to_string(), print);
    assert_eq!(one.line("root@a"), format!("siftfs-ed25519 {one} root@a"));
    assert_eq!(one.line(""), format!("siftfs-ed25519 {one}"));
}

#[test]
fn one_way_to_write_each() {
    let good = key(7).to_string();
    assert_eq!(good.parse(), Ok(key(7)));
    let mut last = good.clone().into_bytes();
    last[42] += 1; // bits behind the last byte
    let last = String::from_utf8(last).unwrap();
    let short = "AQEB".to_string();
    for bad in [String::new(), format!("{good} "), good.replace('=', ""), last, short] {
        assert!(bad.parse::<PublicKey>().is_err(), "{bad}");
    }
    let print = key(7).fingerprint();
    assert_eq!(print.to_string().parse(), Ok(print));
    let text = print.to_string();
    let mut last = text.clone().into_bytes();
    *last.last_mut().unwrap() += 1;
    assert!(String::from_utf8(last).unwrap().parse::<Fingerprint>().is_err());
    for bad in [
        format!("{text}="),
        text.replace("SHA256:", ""),
        text.replace("SHA", "MD"),
        "SHA256:".into(),
    ] {
        assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
    }
}

#[test]
fn public_lines() {
    let line = |text: &str| text.parse::<PublicLine>();
    let text = key(3).line(" me  and you ");
    assert_eq!(line(&text).unwrap().comment, "me  and you");
    assert_eq!(line(&key(3).line("")).unwrap().key, key(3));
    for (bad, what) in [
        ("ssh-ed25519 AAAA", "`ssh-ed25519` is not"),
        ("siftfs-ed25519", "no key follows"),
        ("siftfs-ed25519 !", "not the Base64 of 32 bytes"),
        (&key(3).line(&"x".repeat(257)), "the comment has 257 bytes"),
        (&key(3).line("a\u{1b}[31mb"), "control character"),
    ] {
        assert!(line(bad).unwrap_err().contains(what), "{bad}");
    }
}

/// Text that another machine chose does not reach a terminal as it is.
#[test]
fn messages_escape_what_they_name() {
    let said = "\u{1b}]0;x\u{7}".parse::<PublicKey>().unwrap_err();
    assert!(!said.chars().any(char::is_control), "{said:?}");
    assert!("y".repeat(1000).parse::<PublicKey>().unwrap_err().len() < 200);
}

proptest! {
    #[test]
    fn any_key_comes_back(bytes: [u8; 32]) {
        let key = PublicKey::new(bytes);
        prop_assert_eq!(key.to_string().parse(), Ok(key));
        prop_assert_eq!(PublicKey::from_spki(&key.to_spki()), Some(key));
        prop_assert_eq!(key.fingerprint().to_string().parse(), Ok(key.fingerprint()));
    }

    #[test]
    fn any_text_is_taken_or_refused(text: String, der: Vec<u8>) {
        let _ = text.parse::<PublicLine>();
        let _ = text.parse::<Fingerprint>();
        prop_assert!(PublicKey::from_spki(&der).is_none());
    }
}

#[test]
fn another_kind_of_key_in_tls_is_none() {
    let spki = KeyPair::generate("").unwrap().public().to_spki();
    assert!(PublicKey::from_spki(&spki).is_some());
    assert!(PublicKey::from_spki(&spki[..43]).is_none());
    assert!(PublicKey::from_spki(&[spki.as_slice(), &[0]].concat()).is_none());
    let mut other = spki.clone();
    other[8] = 0x6e; // X25519
    assert!(PublicKey::from_spki(&other).is_none());
}
