use super::*;

#[test]
fn lists() {
    assert_eq!(parse("0"), Ok(List(vec![0])));
    assert_eq!(parse("3,0-1,1"), Ok(List(vec![0, 1, 3])));
    for wrong in ["", "a", "1-", "2-1", "0,,1", "99999", "-1"] {
        assert!(parse(wrong).is_err_and(|e| e.contains("list of processors")), "{wrong}");
    }
}

/// What the process may run on is said as a list that can be given back.
#[test]
fn lists_are_shown_as_they_are_parsed() {
    for text in ["0", "0-3", "0,2-4,9"] {
        let List(all) = parse(text).unwrap();
        let mut set = CpuSet::new();
        all.iter().for_each(|n| set.set(*n));
        assert_eq!(show(&set), text);
    }
}

#[test]
fn processors_that_are_not_there_are_refused_with_those_that_are() {
    let absent = List(vec![CpuSet::MAX_CPU - 1]);
    let own = show(&sched_getaffinity(None).unwrap());
    let said = pin(&absent).unwrap_err().message;
    assert!(said.contains("--cpus") && said.contains(&format!("run on {own} alone")), "{said}");
}
