use super::super::book_store::BookFile;
use super::*;

const VOLUME: [u8; 16] = *b"0123456789abcdef";

fn part() -> Part {
    let mut found = Recovered { epoch: 4, ops_cut: Lsn(70), ..Recovered::default() };
    found.ops.extend([Lsn(75), Lsn(80)]);
    found.note(7, 3, Carried { number: 9, lsn: Lsn(75), ino: 12 });
    Part {
        clients: [7, 8].into(),
        durable: 5,
        marks: [(12, 6), (13, 9)].into(),
        epoch: VolumeEpoch { number: 4, nonce: 40 },
        epochs: vec![VolumeEpoch { number: 5, nonce: 50 }, VolumeEpoch { number: 6, nonce: 60 }],
        found: Some(found),
        ended: false,
        blind: true,
    }
}

fn store(dir: &tempfile::TempDir) -> Arc<dyn BookStore> {
    Arc::new(BookFile::new(dir.path().join("clients").join("book")))
}

#[test]
fn a_book_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    assert_eq!(Book::read(&*store, VOLUME), []);
    let mut book =
        Book::write(store.clone(), VOLUME, &[(1, part()), (2, Part::default())]).unwrap();
    book.client(5).unwrap();
    book.client(6).unwrap();
    book.gone(5).unwrap();
    book.durable(11).unwrap();
    book.mark(12, 14).unwrap();
    book.mark(12, 13).unwrap();
    let own =
        Part { clients: [6].into(), durable: 11, marks: [(12, 14)].into(), ..Part::default() };
    assert_eq!(Book::read(&*store, VOLUME), [(1, part()), (2, own.clone())]);
    let carried = Carried { number: 6, lsn: Lsn(70), ino: 14 };
    let mut replies = Recovered { epoch: own.epoch.number, ..Recovered::default() };
    replies.note(3, 5, carried);
    book.ended(&replies).unwrap();
    let ended = Part { ended: true, found: Some(replies), ..own };
    assert_eq!(Book::read(&*store, VOLUME), [(1, part()), (2, ended)]);
    assert_eq!(Book::read(&*store, [1; 16]), [], "another volume's");
    book.rewrite(&[(3, part())]).unwrap();
    book.client(9).unwrap();
    let clients = [7, 8, 9].into();
    assert_eq!(Book::read(&*store, VOLUME), [(3, Part { clients, ..part() })]);
    book.remove().unwrap();
    assert_eq!(Book::read(&*store, VOLUME), []);
}

/// The last record was torn by a crash, or bytes have changed: what is before counts, and nothing
/// behind it.
#[test]
fn a_damaged_record_is_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    drop(Book::write(store.clone(), VOLUME, &[(1, part()), (2, part())]).unwrap());
    let bytes = store.read(u64::MAX).unwrap().unwrap();
    let all = Book::read(&*store, VOLUME);
    for len in 0..bytes.len() {
        let some = parse(&bytes[..len], VOLUME);
        assert!(some.len() <= all.len());
        assert!(some.len() < 2 || some[0] == all[0], "the first part was whole");
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x40;
        let some = parse(&bytes, VOLUME);
        assert!(some.len() < 2 || some[0] == all[0], "a changed byte at {at} was believed");
        assert_ne!(some, all, "a changed byte at {at} was not seen");
    }
}

/// What is in the way of a book is named, and changes nothing of what is known.
#[test]
fn a_shelf_that_cannot_be_used_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let store = BookFile::new(dir.path());
    let error = store.read(10).unwrap_err().to_string();
    assert!(error.contains(&dir.path().display().to_string()), "{error}");
    store.append(b"more").unwrap_err();
    store.remove().unwrap_err();
    assert_eq!(Book::read(&store, VOLUME), []);
    let file = BookFile::new(dir.path().join("book"));
    file.append(b"more").unwrap_err();
    file.remove().unwrap();
    file.replace(b"all").unwrap();
    file.append(b" of it").unwrap();
    assert_eq!(file.read(5).unwrap().unwrap(), b"all o");
}
