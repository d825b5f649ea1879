//! Appends by kernels that know an older end.

use super::*;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const FILE: InodeNr = 12;

#[test]
fn an_append_at_an_older_end_goes_to_the_end() {
    let mut ends = Ends::default();
    assert_eq!(ends.place(A, FILE, 100, 100), 100);
    // Another session appended 100 bytes, and then 50.
    ends.changed(A, FILE, 100);
    ends.changed(A, FILE, 200);
    assert_eq!(ends.place(A, FILE, 100, 250), 250);
    assert_eq!(ends.place(A, FILE, 200, 250), 250);
    assert_eq!(ends.place(B, FILE, 100, 250), 100, "this one was not told of a smaller size");
}

#[test]
fn a_large_append_in_pieces_stays_together() {
    let mut ends = Ends::default();
    ends.changed(A, FILE, 100);
    let (mut offset, mut size) = (100, 250);
    for _ in 0..3 {
        assert_eq!(ends.place(A, FILE, offset, size), size);
        ends.moved(A, FILE, (offset, 1000), size);
        (offset, size) = (offset + 1000, size + 1000);
    }
}

#[test]
fn an_end_that_the_kernel_is_told_while_its_append_is_on_its_way_is_one_it_believes_in() {
    let mut ends = Ends::default();
    ends.changed(A, FILE, 0);
    ends.changed(A, FILE, 64);
    // The write took 0. The kernel is told of 128 before the write is carried out, at 128.
    assert_eq!(ends.place(A, FILE, 0, 128), 128);
    ends.moved(A, FILE, (0, 64), 128);
    assert_eq!(ends.place(A, FILE, 128, 192), 192);
}

#[test]
fn a_kernel_that_appended_at_the_true_end_knows_it() {
    let mut ends = Ends::default();
    ends.changed(A, FILE, 100);
    assert_eq!(ends.place(A, FILE, 250, 250), 250);
    // So this is no append, whatever the descriptor says (RWF_NOAPPEND).
    assert_eq!(ends.place(A, FILE, 100, 300), 100);
}

#[test]
fn an_append_at_the_end_of_a_file_that_became_shorter_leaves_no_hole() {
    let mut ends = Ends::default();
    ends.changed(A, FILE, 4096);
    assert_eq!(ends.place(A, FILE, 4096, 10), 10);
    assert_eq!(ends.place(A, FILE, 5000, 10), 5000, "no end that it can know");
}

#[test]
fn a_kernel_that_comes_back_believes_in_any_end() {
    let mut ends = Ends::default();
    ends.unknown(A, FILE);
    assert_eq!(ends.place(A, FILE, 100, 300), 300);
    ends.moved(A, FILE, (100, 50), 300);
    assert_eq!(ends.place(A, FILE, 400, 350), 350);
    assert_eq!(ends.place(A, FILE, 400, 400), 400);
    assert_eq!(ends.place(A, FILE, 100, 500), 100, "it has appended at the true end since");
}

#[test]
fn what_is_known_of_a_session_or_a_file_ends_with_it() {
    let mut ends = Ends::default();
    for (session, ino) in [(A, FILE), (A, 13), (B, FILE)] {
        ends.changed(session, ino, 100);
    }
    ends.forget(A, FILE);
    assert_eq!(ends.place(A, FILE, 100, 200), 100);
    assert_eq!(ends.place(B, FILE, 100, 200), 200);
    ends.end(B);
    assert_eq!(ends.place(B, FILE, 100, 200), 100);
    assert_eq!(ends.place(A, 13, 100, 200), 200);
}
