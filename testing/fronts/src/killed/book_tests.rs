use super::*;

const AT: usize = 5;

fn whole(stamp: Stamp) -> Found {
    Found::Whole(stamp)
}

/// A book whose writer 1 has written three versions of a slot, of which two are durable.
fn three() -> (Book, [Stamp; 3]) {
    let book = Book::default();
    book.give(AT, 1);
    let stamps = [0; 3].map(|_| book.begin(AT));
    book.returned(&stamps[..1], false);
    book.returned(&stamps[1..2], false);
    let covered = book.covers(Scope::File(0));
    book.returned(&stamps[2..], false);
    book.durable(&covered);
    (book, stamps)
}

#[test]
fn what_was_durable_is_there() {
    for after in [After::Death, After::End] {
        for version in 0..=4 {
            let (book, stamps) = three();
            let found = match version {
                0 => Found::Nothing,
                4 => whole(Stamp { version: 4, ..stamps[0] }),
                _ => whole(stamps[version - 1]),
            };
            let good = if after == After::Death { 2..=3 } else { 3..=3 };
            let judged = book.found(AT, found, after);
            assert_eq!(judged.is_ok(), good.contains(&version), "{version} {after:?}: {judged:?}");
            let lost = if after == After::Death && version == 2 { 1 } else { 0 };
            assert_eq!(book.take_lost(), lost);
        }
    }
}

#[test]
fn what_is_there_was_written_there() {
    let (book, [.., last]) = three();
    let others = [Stamp { writer: 2, ..last }, Stamp { item: 6, ..last }];
    for found in others.map(whole).into_iter().chain([Found::Broken]) {
        assert!(book.found(AT, found, After::Death).is_err());
    }
    book.found(AT, whole(last), After::Death).unwrap();
    // In the next round it is another's, and what the first one wrote stays good.
    book.give(AT, 7);
    let next = book.begin(AT);
    assert_eq!(next, Stamp { writer: 7, item: AT as u64, version: 4 });
    assert!(book.found(AT, whole(Stamp { writer: 1, ..next }), After::Death).is_err());
    book.found(AT, whole(last), After::Death).unwrap();
    // A version that was lost is written again, by the writer of now.
    let again = book.begin(AT);
    book.returned(&[again], true);
    assert!(book.found(AT, whole(last), After::Death).is_err());
    book.found(AT, whole(again), After::Death).unwrap();
}

#[test]
fn a_sync_covers_what_had_returned() {
    let book = Book::default();
    let stamp = book.begin(AT);
    let covered = book.covers(Scope::File(0));
    book.returned(&[stamp], false);
    book.durable(&covered);
    book.found(AT, Found::Nothing, After::Death).unwrap();
    for scope in [Scope::File(0), Scope::All] {
        let stamp = book.begin(AT);
        book.returned(&[stamp], false);
        book.durable(&book.covers(Scope::File(1)));
        book.durable(&book.covers(Scope::Log));
        book.durable(&book.covers(scope));
        assert!(book.found(AT, Found::Nothing, After::Death).is_err());
        book.found(AT, whole(stamp), After::Death).unwrap();
    }
}

#[test]
fn what_is_kept_is_given_by_a_sync_of_its_file() {
    for (scope, durable) in [(Scope::All, false), (Scope::File(0), true)] {
        let book = Book::default();
        let stamp = book.begin(AT);
        book.kept(&[stamp]);
        book.durable(&book.covers(scope));
        assert_eq!(book.found(AT, Found::Nothing, After::Death).is_err(), durable);
    }
    let book = Book::default();
    let stamp = book.begin(AT);
    book.kept(&[stamp]);
    book.given(&book.covers(Scope::File(0)));
    book.durable(&book.covers(Scope::All));
    assert!(book.found(AT, Found::Nothing, After::Death).is_err());
    book.found(AT, whole(stamp), After::Death).unwrap();
}

#[test]
fn the_log_is_in_order() {
    let book = Book::default();
    book.give(log(2), 3);
    let stamps = [0; 3].map(|_| book.begin(log(2)));
    book.returned(&stamps[..1], true);
    let [one, two, three] = stamps;
    assert!(book.found_log(2, &[], After::Death).is_err());
    assert!(book.found_log(2, &[two, three], After::Death).is_err());
    assert!(book.found_log(2, &[one, three], After::Death).is_err());
    assert!(book.found_log(2, &[one, one], After::Death).is_err());
    book.found_log(2, &[one, two], After::Death).unwrap();
}

#[test]
fn names_go_round() {
    let name = names().start;
    assert_eq!(path_of(name, 0), None);
    assert_eq!(path_of(name, 1), Some(format!("names/{name}.1.a")));
    assert_eq!(path_of(name, 5), Some(format!("names/{name}.2.b")));
    for version in 0..9 {
        if let Some(path) = path_of(name, version) {
            assert_eq!(name_of(path.trim_start_matches("names/")), Some((name, version)));
        }
    }
    for other in ["", "x", "3.1.a", "999.1.a"] {
        assert_eq!(name_of(other), None);
    }
    assert_eq!(name_of(&format!("{name}.0.a")), None);
}

#[test]
fn a_durable_name_is_there_with_its_file() {
    let name = names().start;
    let made = || {
        let book = Book::default();
        let made = book.begin_version(name, 1);
        book.returned(&[made], false);
        let bytes = book.begin_version(content(name), 1);
        book.returned(&[bytes], false);
        (book, whole(bytes))
    };
    let death = After::Death;
    let (book, bytes) = made();
    book.found_name(name, None, death).unwrap();
    assert_eq!(book.version(name), 3, "the next one has another generation");
    for found in [Found::Nothing, bytes] {
        let (book, _) = made();
        book.durable(&book.covers(Scope::Names));
        assert!(book.found_name(name, None, death).is_err());
        book.found_name(name, Some((1, found)), death).unwrap();
    }
    let (book, bytes) = made();
    book.durable(&book.covers(Scope::Name(name)));
    assert!(book.found_name(name, Some((1, Found::Nothing)), death).is_err());
    assert!(book.found_name(name, Some((1, Found::Broken)), death).is_err());
    assert!(book.found_name(name, Some((4, bytes)), death).is_err());
    let renamed = book.begin_version(name, 2);
    book.returned(&[renamed], true);
    assert!(book.found_name(name, Some((1, bytes)), death).is_err());
    book.found_name(name, Some((2, bytes)), death).unwrap();
}
