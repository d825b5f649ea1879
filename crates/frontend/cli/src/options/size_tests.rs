use super::*;

#[test]
fn sizes() {
    for (text, bytes) in [
        ("0", 0),
        ("4096", 4096),
        ("1k", 1024),
        ("2G", 2 << 30),
        ("3MiB", 3 << 20),
        ("1TB", 1 << 40),
    ] {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for text in ["", "G", "-1", "1.5G", "1X", "1iB", "99999999999T", "1 G"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
    assert_eq!(show_size(1536), "1.5 KiB");
    assert_eq!(show_size(2 << 30), "2.0 GiB");
    assert_eq!(show_size(12), "12 bytes");
}
