use super::*;

fn args(words: &[&str]) -> Args {
    Args::parse_from([&["siftfs-bench"], words].concat())
}

#[test]
fn without_options_the_default_is_measured_and_kept() {
    let plan = args(&[]).plan().expect("a plan");
    assert_eq!(plan.jobs.len(), JOBS.len());
    let mut both = vec![("siftfs", ""), ("device", "requests=device")];
    both.truncate(if has_rings() { 2 } else { 1 });
    let named = |c: &Config| both.iter().any(|(name, o)| c.name == *name && c.options == *o);
    assert!(plan.configs.len() == both.len() && plan.configs.iter().all(named));
    assert_eq!(args(&[]).results(), PathBuf::from("docs/RESULTS.md"));
}

#[test]
fn what_is_not_the_whole_of_the_default_is_not_kept() {
    for words in [
        &["--quick"][..],
        &["--accel"],
        &["--rows", "mail"],
        &["--config", "a=b"],
        &["--siftfs-options", "b"],
    ] {
        assert_eq!(args(words).results(), PathBuf::from("target/bench/RESULTS.md"), "{words:?}");
        assert_eq!(args(words).svg(), PathBuf::from("target/bench/results.svg"), "{words:?}");
    }
    let given = args(&["--quick", "--results", "x.md"]);
    assert_eq!(given.results(), PathBuf::from("x.md"));
}

#[test]
fn with_the_library_there_are_more_rows() {
    let (plain, accel) = (args(&[]), args(&["--accel"]));
    assert_eq!(plain.jobs().count() + library::jobs::JOBS.len(), accel.jobs().count());
    assert!(args(&["--rows", "pgbench"]).plan().is_err());
    let plan = args(&["--accel", "--rows", "pgbench"]).plan().expect("a plan");
    assert_eq!(plan.jobs.len(), 1);
    let of_log = args(&["--accel", "--rows", "log-700"]).plan().expect("a plan");
    let others = of_log.jobs.iter().filter(|j| !j.name().starts_with("log-700"));
    assert_eq!(others.count(), 0, "rows have been asked for by that word before");
}

#[test]
fn configurations_keep_their_order_and_options() {
    let plan =
        args(&["--config", "ring=requests=ring,write_cache=writeback", "--config", "plain="]);
    let configs = plan.plan().expect("a plan").configs;
    assert_eq!(configs[0].name, "ring");
    assert_eq!(configs[0].options, "requests=ring,write_cache=writeback");
    assert_eq!((configs[1].name.as_str(), configs[1].options.as_str()), ("plain", ""));
}

#[test]
fn names_of_others_and_doubled_names_are_refused() {
    for text in ["ext4=a", "xfs=", "=a", "a b=c", "nothing"] {
        assert!(config(text).is_err(), "{text}");
    }
    assert!(args(&["--config", "a=b", "--config", "a=c"]).plan().is_err());
}

#[test]
fn rows_are_chosen_by_words_and_those_measured_with_them_come_along() {
    let jobs = chosen(&["du-warm".into(), "mail-busy".into()], JOBS.iter()).expect("two jobs");
    let names: Vec<_> = jobs.iter().map(|j| j.name()).collect();
    assert_eq!(names, ["mail-busy", "untar"]);
    assert!(chosen(&["nothing like it".into()], JOBS.iter()).is_err());
}

#[test]
fn the_command_says_what_was_measured_and_not_where_files_went() {
    let of = |words: &[&str]| command(words.iter().map(ToString::to_string));
    assert_eq!(of(&[]), "make bench");
    assert_eq!(of(&["--results", "/tmp/x", "--json=/tmp/y"]), "make bench");
    let quick = of(&["--quick", "--dir", "/mnt", "--config", "a=b=c"]);
    assert_eq!(quick, "make bench BENCH=\"--quick --config a=b=c\"");
}
