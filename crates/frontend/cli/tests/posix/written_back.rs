//! What the kernel's writeback cache makes different, every day: the others run so by
//! `SIFTFS_TEST_OPTIONS=write_cache=writeback`.

use crate::pair::written_back;
use crate::{attrs, data, flags, idmapped, overlay, owners, rights, told};

#[test]
fn times_are_set() {
    written_back(attrs::times_are_set);
}

#[test]
fn what_moves_times() {
    written_back(attrs::what_moves_times);
}

#[test]
fn holes_and_preallocation() {
    written_back(data::holes_and_preallocation);
}

#[test]
fn stores_through_mappings_are_data_for_seek_and_copies() {
    written_back(data::stores_through_mappings_are_data_for_seek_and_copies);
}

#[test]
fn the_largest_size() {
    written_back(data::the_largest_size);
}

#[test]
fn an_open_descriptor_changes_nothing_either() {
    written_back(flags::an_open_descriptor_changes_nothing_either);
}

#[test]
fn append_only_files_and_directories() {
    written_back(flags::append_only_files_and_directories);
}

#[test]
fn who_may_set_which() {
    written_back(flags::who_may_set_which);
}

#[test]
fn set_id_bits_and_capabilities_are_cleared() {
    written_back(owners::set_id_bits_and_capabilities_are_cleared);
}

#[test]
fn changes_of_files_with_capabilities() {
    written_back(rights::changes_of_files_with_capabilities);
}

#[test]
fn changes_by_every_kind_of_user() {
    written_back(rights::changes_by_every_kind_of_user);
}

#[test]
fn every_change_is_shown_at_once() {
    written_back(told::every_change_is_shown_at_once);
}

#[test]
fn a_copy_up_keeps_privileges() {
    written_back(overlay::a_copy_up_keeps_privileges);
}

#[test]
fn programs_of_mapped_users() {
    written_back(idmapped::programs_of_mapped_users);
}
