use super::*;

fn converted(line: &str) -> Result<String, Failure> {
    let given = line.split('|').filter(|a| !a.is_empty()).map(OsString::from);
    let out = understand(given)?.into_iter().map(|a| a.into_string().unwrap());
    Ok(out.collect::<Vec<_>>().join(" "))
}

#[test]
fn as_fsck_and_the_boot_call_it() {
    for (given, means) in [
        ("/v", "nothing --quick -- /v"),
        ("-a|/v", "safe --quick -- /v"),
        ("-p|-f|/v", "safe -- /v"),
        ("-y|/v", "all --quick -- /v"),
        ("-fy|/v", "all -- /v"),
        ("-n|-f|/v", "nothing -- /v"),
        ("/v|-nf", "nothing -- /v"),
        ("-a|-T|-l|-C5|/v", "safe --quick --progress-fd 5 -- /v"),
        ("-a|-C 5|/v", "safe --quick --progress-fd 5 -- /v"),
        ("-a|-C|5|/v", "safe --quick --progress-fd 5 -- /v"),
        ("-a|-C|/v", "safe --quick -- /v"),
        ("-apC0|/v", "safe --quick --progress-fd 0 -- /v"),
        ("-t|siftfs|-n|/v", "nothing --quick -- /v"),
        ("-M|-r|-v|-V|--|-v", "nothing --quick -- -v"),
    ] {
        assert_eq!(converted(given).unwrap(), format!("siftfs fsck --repair {means}"), "{given}");
    }
}

#[test]
fn wrong_calls_are_refused() {
    for line in ["", "/v|/w", "-n|-y|/v", "-a|-n|/v", "-x|/v", "-t|ext4|/v", "-t", "-Cx|/v"] {
        assert_eq!(converted(line).unwrap_err().code, USAGE, "{line}");
    }
}
