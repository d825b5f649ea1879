use super::*;
use crate::pair::KeyPair;
use proptest::prelude::*;
use std::cell::RefCell;
use std::fs;

fn key() -> PublicKey {
    KeyPair::generate("").unwrap().public()
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("siftfs/known_servers");
    (dir, file)
}

#[test]
fn a_server_is_learned_once() {
    let (_dir, file) = place();
    let (a, b) = (key(), key());
    assert_eq!(find(&file, "a:1").unwrap(), None);
    let first = learn(&file, "a:1", &a).unwrap();
    assert_eq!(first.line, 1);
    // A file that a person has edited, without an end of its last line.
    fs::write(&file, format!("# ours\n\n{}", fs::read_to_string(&file).unwrap().trim())).unwrap();
    let second = learn(&file, "[::1]:7070", &b).unwrap();
    assert_eq!((second.line, find(&file, "[::1]:7070").unwrap()), (4, Some(second)));
    assert_eq!(find(&file, "a:1").unwrap().unwrap().line, 3);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text, format!("# ours\n\na:1 {}\n[::1]:7070 {}\n", a.line(""), b.line("")));
    assert_eq!(learn(&file, "a:1", &a).unwrap().line, 3, "known already");
    let other = learn(&file, "a:1", &b).unwrap_err().to_string();
    assert!(other.contains("line 3 of") && other.contains("known_servers"), "{other}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn bad_lines_are_named() {
    let (_dir, file) = place();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let good = key().line("");
    for (text, what) in [
        (format!("a:1 {good}\na:1 {good}\n"), "line 2: its address is that of line 1"),
        (format!("\n{good}\n"), "line 2: "),
        ("a:1\n".to_string(), "line 1: `` is not siftfs-ed25519"),
        (format!("a:1 {}\n", good.replace('=', "")), "line 1: the key"),
        (format!("\u{e4}:1 {good}\n"), "is no address"),
        (format!("{} {good}\n", "x".repeat(301)), "is no address"),
    ] {
        fs::write(&file, &text).unwrap();
        let said = find(&file, "b:1").unwrap_err().to_string();
        assert!(said.contains("known_servers, line") && said.contains(what), "{text}: {said}");
        assert!(learn(&file, "b:1", &key()).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "it is left as it is");
    }
    let many: String = (0..=MOST_SERVERS).map(|n| format!("a:{n} {good}\n")).collect();
    fs::write(&file, &many).unwrap();
    let said = find(&file, "b:1").unwrap_err().to_string();
    assert!(said.contains("more than 4096 servers"), "{said}");
    for bad in ["", "a b", "#a", "a\n"] {
        assert!(find(&file, bad).is_err() && learn(&file, bad, &key()).is_err(), "{bad:?}");
    }
}

/// Nobody's line is lost when several learn at once.
#[test]
fn writers_take_turns() {
    let (_dir, file) = place();
    let keys: Vec<PublicKey> = (0..8).map(|_| key()).collect();
    std::thread::scope(|s| {
        for (n, key) in keys.iter().enumerate() {
            let file = &file;
            s.spawn(move || learn(file, &format!("a:{n}"), key).unwrap());
        }
    });
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(find(&file, &format!("a:{n}")).unwrap().unwrap().key, *key);
    }
}

/// What `expect` asked and was told.
struct Person<'a> {
    says: bool,
    asked: &'a RefCell<Vec<String>>,
}

impl Person<'_> {
    fn answer(&self, question: &str) -> bool {
        self.asked.borrow_mut().push(question.to_string());
        self.says
    }
}

#[test]
fn the_first_mount_asks() {
    let (_dir, file) = place();
    let server = key();
    let prove = || Ok(server);
    let asked = RefCell::default();
    let yes = |q: &str| Person { says: true, asked: &asked }.answer(q);
    let no = |q: &str| Person { says: false, asked: &asked }.answer(q);
    let expects = |print: Option<&Fingerprint>, confirm: Option<&dyn Fn(&str) -> bool>| {
        expect(&file, "a:1", print, &prove, confirm)
    };
    let unattended = expects(None, None).unwrap_err().to_string();
    assert!(unattended.contains("fingerprint=SHA256:"), "{unattended}");
    let denied = expects(None, Some(&no)).unwrap_err().to_string();
    assert!(denied.contains("was not confirmed"), "{denied}");
    assert!(!file.exists());
    let print = server.fingerprint();
    let told = Expect::Fingerprint { address: "a:1".into(), fingerprint: print };
    assert_eq!(expects(Some(&print), None), Ok(told), "the server is checked against it");
    assert!(!file.exists());
    let Ok(Expect::Known(known)) = expects(None, Some(&yes)) else { panic!("it was confirmed") };
    assert_eq!((known.key, known.line), (server, 1));
    let questions = asked.borrow().clone();
    assert_eq!(questions.len(), 2);
    assert!(questions.iter().all(|q| q.contains(&print.to_string()) && q.contains("a:1")));
    // From now on nobody is asked.
    assert_eq!(expects(None, Some(&no)), Ok(Expect::Known(known.clone())));
    assert_eq!(expects(None, None), Ok(Expect::Known(known.clone())));
    assert_eq!(expects(Some(&print), None), Ok(Expect::Known(known)));
    let other = key().fingerprint();
    let said = expects(Some(&other), Some(&yes)).unwrap_err().to_string();
    assert!(said.contains("line 1 of") && said.contains(&other.to_string()), "{said}");
    assert_eq!(asked.borrow().len(), 2);
}

/// A server that cannot be reached is not asked about.
#[test]
fn what_is_not_proved_is_not_asked() {
    let (_dir, file) = place();
    let prove = || Err(Error::Link("a:1: nobody is there".into()));
    let never = |_: &str| panic!("there is nothing to confirm");
    let said = expect(&file, "a:1", None, &prove, Some(&never)).unwrap_err();
    assert!(said.to_string().contains("nobody is there"), "{said}");
}

#[test]
fn a_lock_that_is_held_is_waited_for() {
    let (_dir, file) = place();
    files::folder(&file).unwrap();
    let held = lock(&file).unwrap();
    std::thread::scope(|s| {
        let learner = s.spawn(|| learn(&file, "a:1", &key()));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!file.exists(), "it waits");
        drop(held);
        assert!(learner.join().unwrap().is_ok());
    });
}

proptest! {
    #[test]
    fn any_text_is_taken_or_refused(text in "(?s).{0,300}") {
        let _ = parse(Path::new("f"), &text);
        let _ = parse(Path::new("f"), &format!("a:1 siftfs-ed25519 {text}"));
    }
}
