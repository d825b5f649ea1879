use super::*;

fn parsed(text: &str) -> BytePlace {
    text.parse().unwrap()
}

#[test]
fn places_are_read_and_shown() {
    let address = PciAddress { domain: 0, bus: 0xaf, device: 0x1f, function: 7 };
    assert_eq!(parsed("/mnt/pmem/lane"), BytePlace::Path("/mnt/pmem/lane".into()));
    assert_eq!(parsed("pmr:0000:af:1f.7"), BytePlace::Pmr(address));
    assert_eq!(parsed("volatile:/dev/shm/x"), BytePlace::Volatile("/dev/shm/x".into()));
    for text in ["lane", "./pmr:x", "volatile:volatile:x", "pmr:10000:01:00.0", "a b:c"] {
        assert_eq!(parsed(text).to_string(), text);
    }
    assert_eq!(parsed("pmr:0000:AF:1F.7").to_string(), "pmr:0000:af:1f.7");
    let odd = BytePlace::Path("volatile:x".into());
    assert_eq!(parsed(&odd.to_string()), BytePlace::Path("./volatile:x".into()));
}

#[test]
fn what_is_no_place_is_refused_with_the_forms() {
    let addresses = ["", "1:0.0", "0000:01:00", "0000:01:20.0", "0000:01:00.8", "0000:+1:00.0"];
    let odd = ["0000:01:00.0 ", "0000:01:00.0.0", "123456789:01:00.0", "0000:1:00.0", "é"];
    let named = addresses.iter().chain(&odd).map(|a| format!("pmr:{a}"));
    for text in named.chain([String::new(), "volatile:".into()]) {
        let said = text.parse::<BytePlace>().unwrap_err().to_string();
        assert!(said.contains("PATH, pmr:DDDD:BB:DD.F or volatile:PATH"), "{text}: {said}");
    }
}
