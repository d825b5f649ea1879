use super::*;
use crate::work::Site;

/// Whether a process with this argument runs anywhere on the machine.
fn runs(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc is mounted");
    processes.flatten().any(|p| {
        let line = std::fs::read(p.path().join("cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).any(|a| a == argument.as_bytes())
    })
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(LOOK);
    }
}

#[test]
fn descendants_end_with_the_program_even_in_sessions_of_their_own() {
    let logs = tempfile::tempdir().expect("temporary directory");
    let argument = format!("7777.{}", std::process::id());
    let script = format!("setsid sleep {argument} & wait");
    let command = guarded("sh", &["-c", &script]);
    let program = Program::start("family", logs.path(), command, Output::Logged).expect("starts");
    until("the descendant starts", || runs(&argument));
    drop(program);
    assert!(!runs(&argument), "a descendant is left");
}

#[test]
fn a_signal_reaches_the_program_behind_its_guards() {
    let logs = tempfile::tempdir().expect("temporary directory");
    let script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.01; done";
    let command = guarded("sh", &["-c", script]);
    let program = Program::start("trap", logs.path(), command, Output::Logged).expect("starts");
    until("the program is ready", || program.printed().contains("ready"));
    program.signal(rustix::process::Signal::INT).expect("it runs");
    let status = program.wait(Duration::from_secs(20), || false).expect("it ends");
    assert_eq!(status.code(), Some(3));
    assert!(program.printed().contains("caught"));
}

#[test]
fn a_failure_is_told_with_what_the_program_said() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let site = Site::kernel(dir.path(), dir.path());
    let command = guarded("sh", &["-c", "echo no such luck; exit 5"]);
    let Failed(message) = site.run("luck", command).expect_err("it fails");
    assert!(message.contains("no such luck") && message.contains('5'), "{message}");
}

#[test]
fn who_is_told_to_stop_does_not_wait() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let site = Site::kernel(dir.path(), dir.path());
    site.stop();
    let start = Instant::now();
    let Failed(message) = site.run("sleep", guarded("sleep", &["600"])).expect_err("stopped");
    assert!(message.contains("stopped") && start.elapsed() < Duration::from_secs(60), "{message}");
}
