//! Descriptors that come, go and change.

use crate::below::guard::{inside, is_inside};
use crate::state::{process, registry, section, table};
use libc::{O_ACCMODE, O_DIRECT, O_DIRECTORY, O_DSYNC, O_PATH, O_RDONLY};

/// O_TMPFILE and O_SYNC have the bits of these. A file without a name has no lease.
const LEFT_ALONE: i32 = O_DIRECT | O_DIRECTORY | O_DSYNC | O_PATH;

/// The program has opened a file.
#[inline]
pub fn opened(fd: i32, flags: i32) {
    if fd < 0 || is_inside() {
        return;
    }
    let tag = match flags & O_ACCMODE {
        _ if flags & LEFT_ALONE != 0 => table::NONE,
        O_RDONLY => table::READER,
        _ => table::WRITER,
    };
    // What is still known of this number was closed by a way that the library does not see.
    if !table::forget(fd) {
        stale(fd);
    }
    if tag != table::NONE && table::tag(fd) == table::NONE {
        table::set(fd, tag);
    }
}

fn stale(fd: i32) {
    inside(|| registry::release(fd));
}

/// Is the descriptor one of the library's own, which the program knows nothing of?
#[inline]
pub fn is_own(fd: i32) -> bool {
    table::tag(fd) == table::OWN && inside(|| Some(registry::is_kept(fd))) == Some(true)
}

/// The program is about to close a descriptor. Answers an error of what it wrote before, which
/// close(2) is to tell.
#[inline]
pub fn closing(fd: i32) -> Option<i32> {
    if table::tag(fd) == table::NONE || is_inside() {
        return None;
    }
    inside(|| {
        if section::are_any() {
            registry::end_section(fd);
        }
        registry::release(fd)
    })
}

/// The program is about to have another open file under this number.
pub fn replaced(fd: i32) {
    if table::tag(fd) == table::NONE || !process::is_own() {
        return;
    }
    if is_own(fd) {
        inside(|| {
            registry::give_up(fd);
            Some(())
        });
    }
    closing(fd);
}

/// Closes a range of descriptors by pieces that the library's own are not in.
pub fn close_range(first: u32, last: u32, close: impl Fn(u32, u32) -> i32) -> i32 {
    if !process::is_own() {
        return close(first, last);
    }
    let mut from = first;
    for fd in table::tagged() {
        let at = fd.cast_unsigned();
        if !(first..=last).contains(&at) {
            continue;
        }
        if !is_own(fd) {
            closing(fd);
            continue;
        }
        if at > from {
            let closed = close(from, at - 1);
            if closed != 0 {
                return closed;
            }
        }
        from = at + 1;
    }
    if from > last { 0 } else { close(from, last) }
}

/// `to` has the same open file as `from`.
#[inline]
pub fn copied(from: i32, to: i32) {
    if to < 0 || to == from || is_inside() {
        return;
    }
    let unknown = [from, to].iter().all(|fd| table::tag(*fd) == table::NONE);
    if unknown || !process::is_own() {
        return;
    }
    closing(to);
    if table::tag(from) == table::NONE {
        return;
    }
    inside(|| {
        registry::copied(from, to);
        Some(())
    });
}

/// The file of the descriptor stays with the kernel.
#[inline]
pub fn pinned(fd: i32) {
    if fd < 0 || table::tag(fd) == table::NONE {
        return;
    }
    inside(|| {
        registry::pin(fd);
        Some(())
    });
}

/// The descriptor stays with the kernel; other ones of its file do not.
#[inline]
pub fn left(fd: i32) {
    if table::tag(fd) == table::NONE || is_inside() {
        return;
    }
    inside(|| {
        // It is not closed: a section goes on.
        if section::are_any() {
            registry::move_sections();
        }
        registry::release(fd)
    });
}

/// The program's own change of the file by the kernel would recall the lease.
#[inline]
pub fn changing(fd: i32) {
    if table::tag(fd) != table::KNOWN {
        return;
    }
    inside(|| {
        if let Some(open) = registry::known(fd) {
            open.inode.give_back();
        }
        Some(())
    });
}

fn share(fd: i32) {
    table::share(fd);
    inside(|| {
        registry::shared(fd);
        Some(())
    });
}

/// Another process gets the open file.
pub fn passed(message: &libc::msghdr) {
    if message.msg_control.is_null() {
        return;
    }
    // SAFETY: the program has made the message for sendmsg(2), which reads the same.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(found) = header.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(header).cast::<i32>();
                let len = found.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize) / 4;
                (0..len).for_each(|at| share(data.add(at).read_unaligned()));
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}
