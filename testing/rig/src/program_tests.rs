use super::*;

#[test]
fn what_ends_is_not_killed() {
    let ended = run_for(Command::new("echo").arg("yes"), Duration::from_secs(60)).expect("echo");
    assert!(ended.status.is_some_and(|s| s.success()));
    assert_eq!(ended.printed, "yes\n");
}

#[test]
fn what_does_not_end_is_killed() {
    let limit = Duration::from_millis(50);
    let ended = run_for(Command::new("sleep").arg("600"), limit).expect("sleep");
    assert!(ended.status.is_none() && ended.time >= limit);
    assert!(run_whole(Command::new("sleep").arg("600"), limit, &[0]).is_err());
}

#[test]
fn a_wrong_status_is_an_error() {
    let long = Duration::from_secs(60);
    assert!(run_whole(&mut Command::new("false"), long, &[0]).is_err());
    assert!(run_whole(&mut Command::new("false"), long, &[0, 1]).is_ok());
}
