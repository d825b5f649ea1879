use super::*;
use std::os::unix::net::UnixListener;
use std::thread::{self, JoinHandle};

/// Answers one question with these bytes, and returns the question.
fn answers(dir: &Path, name: &str, answer: &[u8]) -> JoinHandle<Vec<u8>> {
    let listener = UnixListener::bind(dir.join(name)).unwrap();
    let answer = answer.to_owned();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = vec![0; ASK.len()];
        stream.read_exact(&mut asked).unwrap();
        stream.write_all(&answer).unwrap();
        asked
    })
}

fn told(counts: &str) -> Vec<u8> {
    let text = format!("{{\"osd\":{{{counts}}}}}");
    [&[0, 0, 0, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

#[test]
fn the_writes_of_all_osds() {
    let dir = tempfile::tempdir().unwrap();
    let one = answers(dir.path(), "osd.0.asok", &told("\"op_w\":7,\"op_rw\":2,\"subop_w\":90"));
    let two = answers(dir.path(), "osd.12.asok", &told("\"op_w\":1,\"op_rw\":0"));
    // Nobody asks a monitor, or takes a file of another name for a socket.
    fs::write(dir.path().join("mon.a.asok"), b"").unwrap();
    fs::write(dir.path().join("osd.0.pid"), b"1").unwrap();
    assert_eq!(writes(dir.path()).unwrap(), 10);
    assert_eq!((one.join().unwrap(), two.join().unwrap()), (ASK.to_vec(), ASK.to_vec()));
}

#[test]
fn an_answer_without_counts() {
    for answer in [&b""[..], b"\0\0\0\x02{}", b"\0\0", &told("\"op_w\":7")] {
        let dir = tempfile::tempdir().unwrap();
        let osd = answers(dir.path(), "osd.0.asok", answer);
        let Failed(said) = writes(dir.path()).unwrap_err();
        assert!(said.contains("without counts"), "{said}");
        osd.join().unwrap();
    }
}

#[test]
fn no_osd_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let Failed(said) = writes(dir.path()).unwrap_err();
    assert!(said.contains("no socket"), "{said}");
}
