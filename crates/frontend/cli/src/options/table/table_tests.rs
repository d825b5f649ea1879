use super::*;
use crate::options::mount::parse;

/// The list says nothing that the parser does not take, and has what it names as a default.
#[test]
fn every_option_of_the_list_is_taken() {
    for usage in options().flat_map(|o| o.usage.split(", ")) {
        let (name, value) = usage.split_once('=').unwrap_or((usage, ""));
        let example = match value {
            "" => name.to_string(),
            "NAME" => format!("{name}=x"),
            "ADDRESS" if ["service", "listen"].contains(&name) => format!("{name}=unix:/tmp/x"),
            "MODE" if name == "write_cache" => format!("{name}=writeback"),
            "MODE" if name == "memory_group" => format!("{name}=own"),
            "MODE" => format!("{name}=auto"),
            "HOW" => format!("{name}=nice"),
            "ADDRESS" => format!("{name}=127.0.0.1:9000"),
            "PATH" | "FILE" => format!("{name}=/tmp/x"),
            "SHA256:..." => format!("{name}=SHA256:{}", "A".repeat(43)),
            "WHERE" => format!("{name}=on"),
            "LEVEL" => format!("{name}=warn"),
            "FORMAT" => format!("{name}=json"),
            "SWITCH" | "WHEN" => format!("{name}=off"),
            "SIZE" => format!("{name}=64M"),
            "COUNT" => format!("{name}=3"),
            "MILLISECONDS" => format!("{name}=100"),
            _ => format!("{name}=7"),
        };
        parse(std::slice::from_ref(&example), false).unwrap_or_else(|e| panic!("{example}: {e}"));
        // mount(8) passes `user=NAME` on, which is anyone's name; the path of a log, a spare
        // one, a record area or a directory of the volume may be any.
        let any = parse(&[format!("{name}=\u{7f},")], false).is_ok();
        assert_eq!(
            any,
            ["user", "log", "log_spare", "record_area", "subdir"].contains(&name),
            "{name}"
        );
    }
    for o in options() {
        let opposite = ["rw", "suid", "dev", "exec", "async"].contains(&o.default);
        assert!(!opposite || parse(&[o.default.into()], false).is_ok(), "{}", o.default);
    }
}

#[test]
fn the_help_has_every_option() {
    let help = help();
    assert!(options().all(|o| help.contains(o.usage) && help.contains(o.meaning)));
    assert!(help.lines().count() >= options().count() + 2);
}

/// The manual's table of options is this list.
#[test]
fn the_manual_has_every_option() {
    let manual = include_str!("../../../../../../docs/manual.md");
    for name in options().flat_map(|o| o.usage.split(", ")) {
        assert!(manual.contains(&format!("`{name}`")), "`{name}` is not in the manual");
    }
}
