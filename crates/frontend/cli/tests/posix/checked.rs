//! A mount over TCP whose server checks each call's caller ("A machine's mount" in
//! `docs/design/keys.md`) beside the kernel's ext4: whatever is about users, modes and lists.
//! `SIFTFS_TEST_REMOTE=checked` runs all other tests that compare the two so.

use crate::pair::checked;
use crate::{acls, data, flags, names, owners, rights, told, unnamed};

#[test]
fn changes_by_every_kind_of_user() {
    checked(rights::changes_by_every_kind_of_user);
}

#[test]
fn changes_of_files_with_capabilities() {
    checked(rights::changes_of_files_with_capabilities);
}

#[test]
fn directories_and_links_keep_their_bits() {
    checked(rights::directories_and_links_keep_their_bits);
}

#[test]
fn a_stranger_takes_nothing() {
    checked(rights::a_stranger_takes_nothing);
}

#[test]
fn permissions_of_a_user() {
    checked(owners::permissions_of_a_user);
}

#[test]
fn set_id_bits_and_capabilities_are_cleared() {
    checked(owners::set_id_bits_and_capabilities_are_cleared);
}

#[test]
fn what_a_new_file_inherits() {
    checked(owners::what_a_new_file_inherits);
}

#[test]
fn setgid_of_a_foreign_group() {
    checked(owners::setgid_of_a_foreign_group);
}

#[test]
fn chmod_and_lists_go_together() {
    checked(acls::chmod_and_lists_go_together);
}

#[test]
fn what_is_made_inherits() {
    checked(acls::what_is_made_inherits);
}

#[test]
fn lists_decide_who_gets_in() {
    checked(acls::lists_decide_who_gets_in);
}

#[test]
fn rename_rules() {
    checked(names::rename_rules);
}

#[test]
fn sticky_directories() {
    checked(names::sticky_directories);
}

#[test]
fn special_files() {
    checked(names::special_files);
}

#[test]
fn open_flags() {
    checked(data::open_flags);
}

#[test]
fn who_may_set_which() {
    checked(flags::who_may_set_which);
}

#[test]
fn files_made_without_a_name() {
    checked(unnamed::files_made_without_a_name);
}

#[test]
fn bits_that_the_kernel_has_not_seen_go_as_well() {
    checked(told::bits_that_the_kernel_has_not_seen_go_as_well);
}
