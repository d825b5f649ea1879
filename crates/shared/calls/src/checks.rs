//! What a request must be beyond its form, before a Runtime sees it: what the kernel sees to where
//! it passes requests on.

use siftfs_base::Result;
use siftfs_proto::compound::{Compound, FileArg, Step};
use siftfs_proto::{HOLD_MOST, PublishEntry, PublishSource, Request};

/// Longest name in bytes.
const NAME_MAX: usize = 255;
/// Longest path in bytes.
const PATH_MAX: usize = 4095;
/// Longest value of an extended attribute in bytes.
const XATTR_MAX: usize = 64 << 10;
/// Most bytes of one read.
const READ_MAX: u32 = 16 << 20;
/// Most blocks that one `LeaseLocate` asks for.
const LOCATE_MAX: u32 = 64;
/// Most sections that one commit names.
const SECTIONS_MAX: usize = 1024;
/// Most names of a publish.
const PUBLISH_MAX: usize = 4096;

/// As [`check`], of a session that speaks for a kernel: that looks up `.` and `..` when a program
/// opens a file by a handle (open_by_handle_at(2)).
///
/// # Errors
/// As [`check`].
pub fn check_kernels(req: &Request) -> Result<()> {
    match req {
        Request::Lookup { name, .. } if matches!(&name[..], b"." | b"..") => Ok(()),
        _ => check(req),
    }
}

/// Is it a request that a Runtime may get?
///
/// # Errors
/// The errno that the kernel has for it: `ENAMETOOLONG`, `EINVAL`, `E2BIG`.
pub fn check(req: &Request) -> Result<()> {
    use Request as R;
    match req {
        R::Lookup { name, .. }
        | R::MakeNode { name, .. }
        | R::MakeDir { name, .. }
        | R::Symlink { name, .. }
        | R::Link { name, .. }
        | R::Unlink { name, .. }
        | R::RemoveDir { name, .. }
        | R::Create { name, .. } => check_name(name)?,
        R::Rename { name, new_name, .. } => {
            check_name(name)?;
            check_name(new_name)?;
        }
        R::GetXattr { name, .. } | R::RemoveXattr { name, .. } => check_attribute(name)?,
        R::SetXattr { name, value, .. } => {
            check_attribute(name)?;
            demand(value.len() <= XATTR_MAX, libc::E2BIG)?;
        }
        R::Publish { entries, .. } => check_publish(entries)?,
        R::Compound(compound) => check_compound(compound)?,
        _ => {}
    }
    check_numbers(req)
}

fn check_numbers(req: &Request) -> Result<()> {
    use Request as R;
    match req {
        R::Symlink { target, .. } => {
            demand(target.len() <= PATH_MAX, libc::ENAMETOOLONG)?;
            demand(!target.is_empty(), libc::ENOENT)?;
            demand(!target.contains(&0), libc::EINVAL)
        }
        R::Read { len, .. } | R::SectionRead { len, .. } => demand(*len <= READ_MAX, libc::EINVAL),
        R::ReadDir { max_bytes, .. } => demand(*max_bytes <= READ_MAX, libc::EINVAL),
        R::Allocate { offset, len, .. } => demand(*len > 0 && ends(*offset, *len), libc::EINVAL),
        R::Write { offset, data, append: false, .. }
        | R::Append { end: offset, data, .. }
        | R::WriteBack { offset, data, .. }
        | R::SectionWrite { offset, data, .. }
        | R::LeaseWrite { offset, data, .. } => {
            demand(ends(*offset, data.len() as u64), libc::EINVAL)
        }
        R::HoldMany { inodes } => {
            demand(inodes.len() <= HOLD_MOST, libc::E2BIG)?;
            demand(inodes.iter().all(|held| held.count > 0), libc::EINVAL)
        }
        R::SectionCommit { sections, .. } => demand(sections.len() <= SECTIONS_MAX, libc::EMFILE),
        R::LeaseLocate { first, count, .. } => {
            demand(*count <= LOCATE_MAX && ends(*first, (*count).into()), libc::EINVAL)
        }
        _ => Ok(()),
    }
}

/// Bytes of data that a request carries or asks for, at most.
pub fn data_of(req: &Request) -> u64 {
    use Request as R;
    match req {
        R::Write { data, .. }
        | R::Append { data, .. }
        | R::WriteBack { data, .. }
        | R::SectionWrite { data, .. }
        | R::LeaseWrite { data, .. } => data.len() as u64,
        R::Read { len, .. } | R::SectionRead { len, .. } => u64::from(*len),
        R::ReadDir { max_bytes, .. } => u64::from(*max_bytes),
        R::SetXattr { value, .. } => value.len() as u64,
        R::Compound(_) => crate::MAX_MESSAGE,
        _ => 0,
    }
}

fn demand(holds: bool, errno: i32) -> Result<()> {
    if holds { Ok(()) } else { Err(siftfs_base::errno(errno)) }
}

/// Does a range end where an offset of the kernel's can be?
fn ends(offset: u64, len: u64) -> bool {
    offset.checked_add(len).is_some_and(|end| end <= i64::MAX.cast_unsigned())
}

fn check_name(name: &[u8]) -> Result<()> {
    demand(name.len() <= NAME_MAX, libc::ENAMETOOLONG)?;
    let nothing = matches!(name, b"" | b"." | b"..");
    demand(!nothing && !name.iter().any(|byte| matches!(byte, 0 | b'/')), libc::EINVAL)
}

fn check_attribute(name: &[u8]) -> Result<()> {
    demand(name.len() <= NAME_MAX && !name.is_empty() && !name.contains(&0), libc::ERANGE)
}

fn check_path(path: &[u8]) -> Result<()> {
    demand(path.len() <= PATH_MAX, libc::ENAMETOOLONG)?;
    demand(!path.contains(&0), libc::EINVAL)
}

fn check_publish(entries: &[PublishEntry]) -> Result<()> {
    demand(entries.len() <= PUBLISH_MAX, libc::E2BIG)?;
    for entry in entries {
        check_path(&entry.to)?;
        if let PublishSource::Path(path) = &entry.source {
            check_path(path)?;
        }
    }
    Ok(())
}

fn check_compound(compound: &Compound) -> Result<()> {
    compound.steps.iter().try_for_each(check_step)
}

fn check_step(step: &Step<FileArg>) -> Result<()> {
    match step {
        Step::Lookup { path }
        | Step::Open { path, .. }
        | Step::Create { path, .. }
        | Step::Unlink { path } => check_path(path),
        Step::Link { to, .. } => check_path(to),
        Step::Rename { from, to, .. } => {
            check_path(from)?;
            check_path(to)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
