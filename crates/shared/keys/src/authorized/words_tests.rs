use super::*;
use proptest::prelude::*;

fn all(text: &str) -> Result<Vec<String>, String> {
    let (mut rest, mut words) = (text, Vec::new());
    while let Some(word) = next(&mut rest)? {
        words.push(word);
    }
    Ok(words)
}

#[test]
fn quotes_hold_spaces() {
    for (text, words) in [
        ("", &[][..]),
        (" \t", &[]),
        ("a  b\tc ", &["a", "b", "c"]),
        (r#"subtree="/a b" c"#, &["subtree=/a b", "c"]),
        (r#"a"b"c"#, &["abc"]),
        (r#""a\"b\\c""#, &[r#"a"b\c"#]),
        (r"a\b", &[r"a\b"]),
        (r#""""#, &[""]),
    ] {
        assert_eq!(all(text).unwrap(), words, "{text}");
    }
    for (text, what) in [(r#"a "b"#, "no end"), (r#""\n""#, "backslash"), (r#""\"#, "backslash")] {
        assert!(all(text).unwrap_err().contains(what), "{text}");
    }
}

proptest! {
    #[test]
    fn any_word_can_be_quoted(words in prop::collection::vec(".{0,12}", 0..6)) {
        let quoted: Vec<String> = words
            .iter()
            .map(|w| format!("\"{}\"", w.replace('\\', "\\\\").replace('"', "\\\"")))
            .collect();
        prop_assert_eq!(all(&quoted.join(" ")).unwrap(), words);
    }

    #[test]
    fn any_text_ends(text in r#"[a"\\ \t=]{0,40}"#) {
        let _ = all(&text);
    }
}
