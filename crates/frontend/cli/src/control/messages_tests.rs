use super::*;

#[test]
fn messages_survive_the_wire() {
    let mut wire = Vec::new();
    send(&mut wire, &Ask { version: VERSION, mount: None, op: Op::WaitClosed }).unwrap();
    let ask: Ask = receive(&mut wire.as_slice()).unwrap();
    assert_eq!((ask.version, ask.op), (VERSION, Op::WaitClosed));
    for cut in 0..wire.len() {
        assert!(receive::<Ask>(&mut &wire[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn hostile_messages_are_errors() {
    for body in ["", "{}", "[]", "{\"version\":2,\"op\":\"rm\"}", "\u{0}"] {
        let mut wire = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
        wire.extend_from_slice(body.as_bytes());
        assert!(receive::<Ask>(&mut wire.as_slice()).is_err(), "{body}");
    }
    let long = [0xff; 8];
    assert!(receive::<Ask>(&mut long.as_slice()).is_err());
}
