use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    executing: Executing,
}

fn given(words: &[&str]) -> Result<Execution, String> {
    let line = Line::try_parse_from(["serve"].iter().chain(words));
    line.map(|line| line.executing.execution()).map_err(|e| e.to_string())
}

#[test]
fn without_options_it_is_the_default() {
    assert_eq!(given(&[]).unwrap(), Execution::default());
    assert!(Execution::default().executors >= 2);
    assert_eq!(Execution::default().schedule, Schedule::Fair);
}

#[test]
fn each_option_counts() {
    let words = ["--executors", "3", "--schedule", "fcfs", "--cpu-factor", "2.0"];
    let all = given(&[&words[..], &["--doorbell-delay", "900ns"]].concat()).unwrap();
    let (executors, schedule, cpu_factor) = (3, Schedule::Fcfs, 2.0);
    let doorbell_delay = Duration::from_nanos(900);
    assert_eq!(all, Execution { executors, schedule, cpu_factor, doorbell_delay });
}

#[test]
fn what_is_out_of_range_is_refused() {
    for words in [
        ["--executors", "0"],
        ["--executors", "1025"],
        ["--schedule", "cfs"],
        ["--cpu-factor", "0.5"],
        ["--cpu-factor", "NaN"],
        ["--cpu-factor", "inf"],
        ["--doorbell-delay", "900"],
        ["--doorbell-delay", "11ms"],
        ["--doorbell-delay", "5000000000ns"],
        ["--doorbell-delay", "-1ns"],
    ] {
        assert!(given(&words).is_err(), "{words:?}");
    }
}
