use super::super::book::Scope;
use super::super::record::Stamp;
use super::*;

/// A directory as a new volume has it, and its book.
fn new() -> (tempfile::TempDir, Book) {
    let dir = tempfile::tempdir().unwrap();
    for path in (0..PAGED.end).map(path_of_file).chain([LOG.into()]) {
        fs::write(dir.path().join(path), "").unwrap();
    }
    fs::create_dir(dir.path().join(NAMES)).unwrap();
    (dir, Book::default())
}

fn wrong(dir: &Path, book: &Book) -> usize {
    judge(book, dir, After::Death).unwrap().len()
}

#[test]
fn records_are_found_in_their_places() {
    let (dir, book) = new();
    let dir = dir.path();
    assert_eq!(wrong(dir, &book), 0);
    let stamp = book.begin(slot(2, 1));
    book.returned(&[stamp], false);
    assert_eq!(wrong(dir, &book), 0, "it is lost");
    let stamp = book.begin(slot(2, 1));
    book.returned(&[stamp], false);
    book.durable(&book.covers(Scope::File(2)));
    assert_eq!(wrong(dir, &book), 1, "it was durable");
    let (path, size) = (dir.join(path_of_file(2)), shape(2).1);
    let at = |bytes: &[u8], at: usize| fs::write(&path, [&vec![0; at], bytes].concat()).unwrap();
    at(&stamp.record(size), 0);
    assert_eq!(wrong(dir, &book), 2, "in another place");
    at(&stamp.record(size)[..size - 1], size);
    assert_eq!(wrong(dir, &book), 1, "torn");
    at(&stamp.record(size), size);
    assert_eq!(wrong(dir, &book), 0);
}

#[test]
fn strangers_are_found() {
    let (dir, book) = new();
    let dir = dir.path();
    let stamp = book.begin(log(3));
    fs::write(dir.join(LOG), stamp.record(SMALL)).unwrap();
    assert_eq!(wrong(dir, &book), 0);
    fs::write(dir.join(LOG), [stamp.record(SMALL), vec![0; SMALL]].concat()).unwrap();
    assert_eq!(wrong(dir, &book), 1, "zeros");
    let other = Stamp { item: 1, ..stamp };
    fs::write(dir.join(LOG), [stamp.record(SMALL), other.record(SMALL)].concat()).unwrap();
    assert_eq!(wrong(dir, &book), 1, "a record of another file");
    fs::write(dir.join(LOG), stamp.record(SMALL)).unwrap();
    let name = names().start;
    let entry = |kind: char| dir.join(NAMES).join(format!("{name}.1.{kind}"));
    book.begin_version(name, 2);
    fs::write(entry('a'), "").unwrap();
    fs::write(entry('b'), "").unwrap();
    assert_eq!(wrong(dir, &book), 1, "half of a rename");
    fs::remove_file(entry('a')).unwrap();
    book.begin_version(name, 2);
    assert_eq!(wrong(dir, &book), 0);
    fs::write(dir.join(NAMES).join("x"), "").unwrap();
    assert_eq!(wrong(dir, &book), 1, "a name that nobody made");
}
