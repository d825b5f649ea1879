use super::*;

const NOW: Duration = Duration::ZERO;

fn reads(file: u64) -> Touches {
    Touches::Reads(File::Open(file))
}

fn changes(files: &[u64]) -> Touches {
    Touches::Changes(files.iter().map(|file| File::Open(*file)).collect())
}

fn line(all: impl IntoIterator<Item = Touches>) -> Line {
    let mut line = Line::default();
    for (number, touches) in (0..).zip(all) {
        line.arrive(Ticket(number), touches, false);
    }
    line
}

/// Starts all that may.
fn start(line: &mut Line) -> Vec<u64> {
    std::iter::from_fn(|| line.start(false, NOW)).map(|ticket| ticket.0).collect()
}

fn end(line: &mut Line, number: u64) -> Vec<u64> {
    assert!(line.end(Ticket(number)).is_some());
    start(line)
}

/// A write, a read and an fsync that were sent one after the other: the later ones see the first.
#[test]
fn calls_of_one_file_keep_their_order() {
    let mut line = line([changes(&[1]), reads(1), reads(1), changes(&[1]), reads(1)]);
    assert_eq!(start(&mut line), [0]);
    assert_eq!(end(&mut line, 0), [1, 2], "reads go together");
    assert!(end(&mut line, 2).is_empty(), "the next write waits for both");
    assert_eq!(end(&mut line, 1), [3]);
    assert_eq!(end(&mut line, 3), [4]);
}

#[test]
fn calls_of_other_files_go_past() {
    let mut line = line([changes(&[1]), changes(&[1]), changes(&[2]), Touches::Nothing]);
    assert_eq!(start(&mut line), [0, 2, 3]);
    assert!(end(&mut line, 2).is_empty());
    assert_eq!(end(&mut line, 0), [1]);
}

/// The later one waits for the earlier one of each of its files, also for one that has not started.
#[test]
fn a_compound_of_two_files_is_in_both_lines() {
    let mut line = line([changes(&[1]), changes(&[1, 2]), reads(2), reads(3)]);
    assert_eq!(start(&mut line), [0, 3]);
    assert_eq!(end(&mut line, 0), [1]);
    assert_eq!(end(&mut line, 1), [2]);
}

#[test]
fn what_may_change_any_file_waits_for_all() {
    let mut line = line([reads(1), Touches::Nothing, Touches::All, reads(2)]);
    assert_eq!(start(&mut line), [0, 1]);
    assert_eq!(end(&mut line, 0), [2]);
    assert_eq!(end(&mut line, 2), [3]);
}

/// What a command waits for may stand behind it.
#[test]
fn a_command_that_lends_keeps_nothing_back() {
    let mut line = line([changes(&[1]), changes(&[1])]);
    assert_eq!(start(&mut line), [0]);
    assert!(line.lend(Ticket(0), true) && !line.lend(Ticket(0), true));
    assert_eq!(start(&mut line), [1]);
    assert!(!line.lend(Ticket(2), true), "there is no such command");
}

#[test]
fn what_is_cancelled_keeps_nothing_back() {
    let mut line = line([changes(&[1]), changes(&[1]), changes(&[2]), changes(&[2])]);
    line.cancel(Ticket(0));
    assert_eq!(start(&mut line), [1, 2]);
    assert_eq!(line.cancel_all(), [Ticket(3)]);
    assert!(!line.waits() && line.end(Ticket(3)).is_none());
}

/// A brief one goes past those that are not, if they are about other files.
#[test]
fn brief_ones_are_found_behind_others() {
    let mut line = Line::default();
    line.arrive(Ticket(0), changes(&[1]), false);
    line.arrive(Ticket(1), reads(1), true);
    assert_eq!(line.ready(true), None, "it is to see the change before it");
    line.arrive(Ticket(2), reads(2), true);
    assert_eq!((line.ready(false), line.ready(true)), (Some(Ticket(0)), Some(Ticket(2))));
    assert_eq!(line.start(true, NOW), Some(Ticket(2)));
    assert_eq!(line.start(true, NOW), None);
    assert_eq!(end(&mut line, 2), [0]);
    assert_eq!(end(&mut line, 0), [1]);
}
