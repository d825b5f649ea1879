use super::*;

#[test]
fn a_page_for_every_command() {
    let pages = pages();
    let text = |name: &str| {
        let page = pages.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no {name}"));
        String::from_utf8(page.text.clone()).unwrap()
    };
    let commands = Cli::command();
    let of = |command: &Command, name: String| {
        let page = text(&name);
        assert!(page.contains(".SH \"EXIT STATUS\""), "{page}");
        for argument in command.get_arguments().filter(|a| !a.is_hide_set()) {
            let Some(long) = argument.get_long() else { continue };
            let escaped = long.replace('-', "\\-");
            assert!(page.contains(&escaped), "{long} is not in {page}");
        }
    };
    for command in commands.get_subcommands().filter(|c| !c.is_hide_set()) {
        let name = format!("siftfs-{}", command.get_name());
        of(command, format!("{name}.8"));
        for part in command.get_subcommands() {
            of(part, format!("{name}-{}.8", part.get_name()));
        }
    }
    assert!(pages.iter().any(|p| p.name == "siftfs-key-new.8"));
    assert!(!pages.iter().any(|p| p.name.contains("generate")));
    for name in ["siftfs-mount.8", "mount.siftfs.8"] {
        let page = text(name);
        for o in options() {
            assert!(page.contains(&o.usage.replace('-', "\\-")), "{} is not in {name}", o.usage);
        }
    }
}

#[test]
fn statuses_of_the_pages_are_those_of_the_program() {
    use crate::helper::called::Role;
    use crate::show::failure::{CORRECTED, DAMAGED, FAILED, OPERATIONAL, USAGE};
    let has = |rows: Statuses, role: Role, code: u8| {
        let status = role.exit_status(code).to_string();
        assert!(rows.iter().any(|(s, _)| *s == status), "{role:?} {status}");
    };
    for code in [0, USAGE, FAILED] {
        has(COMMAND, Role::Command, code);
        has(HELPER, Role::Helper, code);
    }
    for code in [0, USAGE, DAMAGED, OPERATIONAL] {
        has(CHECK, Role::Check, code);
        has(REPAIR, Role::Check, code);
    }
    has(REPAIR, Role::Check, CORRECTED);
}
