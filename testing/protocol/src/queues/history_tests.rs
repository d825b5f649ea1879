use super::explains;
use crate::queues::config::{Config, Policy, read, write};
use crate::queues::state::{Id, Stage, Traffic};

/// A history of calls that were answered: what each read has shown, and which calls were answered
/// before each call began.
fn answered(config: &Config, shown: &[[Id; 2]], before: &[u8]) -> Traffic {
    let mut s = Traffic::first(config);
    for (call, (seen, before)) in shown.iter().zip(before).enumerate() {
        s.program.calls[call].stage = Stage::Done;
        s.program.calls[call].seen = *seen;
        s.ghost.before[call] = *before;
        s.ghost.begun |= 1 << call;
    }
    s
}

fn config(calls: &[crate::queues::Call]) -> Config {
    Config::new("history", Policy::Basic, calls)
}

#[test]
fn a_read_beside_a_write_shows_all_of_it_or_nothing() {
    let config = config(&[write(0, 2), read(0, 2)]);
    let shows = |seen| explains(&config, &answered(&config, &[[0, 0], seen], &[0, 0]), None);
    assert!(shows([0, 0]) && shows([1, 1]));
    assert!(!shows([1, 0]) && !shows([0, 1]) && !shows([2, 2]));
}

#[test]
fn a_read_after_the_answer_shows_the_write() {
    let config = config(&[write(0, 2), read(0, 2)]);
    let shows = |seen| explains(&config, &answered(&config, &[[0, 0], seen], &[0, 1]), None);
    assert!(shows([1, 1]) && !shows([0, 0]));
}

#[test]
fn reads_do_not_go_back() {
    let config = config(&[write(0, 1), read(0, 1), read(0, 1)]);
    let shows = |one: Id, other: Id| {
        let seen = [[0, 0], [one, 0], [other, 0]];
        explains(&config, &answered(&config, &seen, &[0, 0, 0b10]), None)
    };
    assert!(shows(0, 0) && shows(0, 1) && shows(1, 1) && !shows(1, 0));
}

#[test]
fn the_file_has_what_was_answered() {
    let config = config(&[write(0, 2), write(0, 1)]);
    let s = answered(&config, &[[0, 0], [0, 0]], &[0, 0]);
    let has = |blocks| explains(&config, &s, Some(blocks));
    assert!(has([1, 1, 0]) && has([2, 1, 0]));
    assert!(!has([2, 0, 0]) && !has([0, 0, 0]) && !has([1, 2, 0]));
}

#[test]
fn a_write_without_an_answer_is_there_or_not_and_by_half_only_if_it_is_given_up() {
    let config = config(&[write(0, 2).split()]);
    let mut s = answered(&config, &[[0, 0]], &[0]);
    let all = [[0, 0, 0], [1, 1, 0], [1, 0, 0], [0, 1, 0]];
    let mut has = |stage| {
        s.program.calls[0].stage = stage;
        all.map(|blocks| explains(&config, &s, Some(blocks)))
    };
    assert_eq!(has(Stage::Done), [false, true, false, false]);
    assert_eq!(has(Stage::Open(0, 0)), [true, true, false, false]);
    assert_eq!(has(Stage::Stopped), [true; 4]);
    assert_eq!(has(Stage::Failed), [true; 4]);
}
