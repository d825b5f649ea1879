//! What a mount that others may be beside makes different, every day: the others run so by
//! `SIFTFS_TEST_OPTIONS=shared`. An append past the kernel's cache left set-id bits to be executed,
//! and root's capabilities of a file.

use crate::pair::shared;
use crate::{data, idmapped, owners, rights};

#[test]
fn set_id_bits_and_capabilities_are_cleared() {
    shared(owners::set_id_bits_and_capabilities_are_cleared);
}

#[test]
fn changes_of_files_with_capabilities() {
    shared(rights::changes_of_files_with_capabilities);
}

#[test]
fn changes_by_every_kind_of_user() {
    shared(rights::changes_by_every_kind_of_user);
}

#[test]
fn programs_of_mapped_users() {
    shared(idmapped::programs_of_mapped_users);
}

#[test]
fn the_largest_size() {
    shared(data::the_largest_size);
}
