//! What other programs see of a leased file, and by what they end its lease.

use crate::support::run;
use crate::{Held, counted, lease, mounted, open, told};
use memmap2::MmapOptions;
use siftfs_accel::Through;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Writes under a lease ask the daemon for nothing, and are there for everybody.
#[test]
fn writes_need_no_request() {
    let s = mounted();
    let held = Held::of(&s.path("f"));
    let kinds = ["write", "fsync", "setattr", "lookup", "getattr"];
    let before = counted(&s, kinds);
    for n in 0..200 {
        held.append(format!("{n:>9}\n").as_bytes());
    }
    assert_eq!(held.leased.write_at(0, b"the first"), Through::Lease(9));
    assert_eq!(held.leased.sync(false).unwrap(), Through::Lease(()));
    assert_eq!(counted(&s, kinds), before);
    let mut read = [0; 9];
    assert_eq!(held.leased.read_at(0, &mut read).unwrap(), Through::Lease(9));
    assert_eq!(&read, b"the first");
    let told = told(&s);
    assert_eq!(told["records"], 201);
    // All of it became one piece, in which the last write covers what the first one wrote.
    let ingest = &told["ingest"];
    assert_eq!((&ingest["writes"], &ingest["patched"]), (&1.into(), &2000.into()), "{told}");
    assert!(ingest["seconds"]["all"].as_f64().unwrap() > 0.0, "{told}");
    let text = fs::read_to_string(s.path("f")).unwrap();
    assert!(text.starts_with("the first\n") && text.ends_with("      199\n"), "{text}");
    assert_eq!(text.len(), 2000);
    assert!(!held.lasts(), "what another descriptor reads ends the lease");
    assert_eq!(held.leased.append(b"x"), Through::Mount);
    held.file.write_all_at(b"by the kernel", 2000).unwrap();
    assert_eq!(fs::metadata(s.path("f")).unwrap().len(), 2013);
    drop(held);
    s.umount();
    s.assert_plain_ext4();
}

/// To look at a file ends no lease, and shows what was written last.
///
/// Seen to fail when the kernel keeps a leased file's attributes.
#[test]
fn looks_end_no_lease() {
    let s = mounted();
    let held = Held::of(&s.path("f"));
    let (f, dir) = (s.path("f"), s.dir());
    for n in 1..=20u64 {
        held.append(&[b'x'; 4096]);
        assert_eq!(fs::metadata(&f).unwrap().len(), n * 4096);
        let listed = run("ls", &["-l", "--block-size=1", dir]).ok().out;
        assert!(listed.contains(&format!(" {} ", n * 4096)), "{listed}");
        let size = run("stat", &["-c", "%s", f.to_str().unwrap()]).ok().out;
        assert_eq!(size.trim(), (n * 4096).to_string());
        run("du", &["-a", "--apparent-size", dir]).ok();
    }
    let before = fs::metadata(&f).unwrap().modified().unwrap();
    assert!(held.lasts());
    held.leased.close().unwrap();
    // What was shown is what it is.
    assert_eq!(fs::metadata(&f).unwrap().modified().unwrap(), before);
    drop(held.file);
    s.umount();
}

/// A copy has all that was written.
#[test]
fn a_copy_is_whole() {
    let s = mounted();
    let held = Held::of(&s.path("f"));
    let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    for piece in bytes.chunks(7001) {
        held.append(piece);
    }
    let copy = s.path("copy");
    run("cp", &[s.path("f").to_str().unwrap(), copy.to_str().unwrap()]).ok();
    assert!(fs::read(copy).unwrap() == bytes, "the copy is the file");
    assert!(!held.lasts());
    drop(held);
    s.umount();
    s.assert_plain_ext4();
}

/// Who opens the file to write it ends the lease, unless it is the holder's own program.
#[test]
fn another_writer_ends_the_lease() {
    let s = mounted();
    let held = Held::of(&s.path("f"));
    held.append(b"one\n");
    let own = File::options().append(true).open(s.path("f")).unwrap();
    assert!(held.lasts(), "the holder's program may open it once more");
    let path = s.path("f");
    append_by_shell(&path, "two");
    assert!(!held.lasts());
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    (&own).write_all(b"three\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\n");
    drop((own, held));
    s.umount();
}

#[track_caller]
fn append_by_shell(path: &Path, line: &str) {
    run("sh", &["-c", &format!("echo {line} >> {}", path.display())]).ok();
}

/// What comes in the end.
fn patiently<T>(mut what: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(got) = what() {
            return got;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it never comes");
}

/// Appends under a lease, by the kernel, and by other programs, turn and turn about: each record
/// is there once and whole.
#[test]
fn appends_by_all_ways_meet() {
    let s = mounted();
    let path = s.path("f");
    let held = Held::of(&path);
    let by_kernel = File::options().append(true).open(&path).unwrap();
    let Held { file, session, leased } = held;
    let mut leased = Some(leased);
    let (mut wanted, mut by_lease) = (String::new(), 0);
    for n in 0..60 {
        let record = format!("record {n}\n");
        match n % 3 {
            0 => {
                let own = leased.take().filter(|leased| leased.len() != Through::Mount);
                // After three recalls within a second nobody gets the lease for a while, and not
                // before the shell's descriptor is closed. Once it is waited for.
                leased = own.or_else(|| match n {
                    30 => Some(patiently(|| session.lease(&file).ok())),
                    _ => session.lease(&file).ok(),
                });
                match &leased {
                    Some(own) => {
                        assert_ne!(own.append(record.as_bytes()), Through::Mount);
                        by_lease += 1;
                    }
                    None => (&by_kernel).write_all(record.as_bytes()).unwrap(),
                }
            }
            1 => (&by_kernel).write_all(record.as_bytes()).unwrap(),
            _ => append_by_shell(&path, record.trim_end()),
        }
        wanted += &record;
        assert_eq!(fs::metadata(&path).unwrap().len(), wanted.len() as u64, "{n}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), wanted);
    assert!(by_lease > 1, "{by_lease}");
    drop((leased, session, file, by_kernel));
    s.umount();
    s.assert_plain_ext4();
}

/// A mapping that was there before shows what a holder wrote, when the holder's bytes are asked for
/// by a page, and beyond the old end when the size was.
#[test]
fn a_mapping_shows_what_was_written() {
    let s = mounted();
    let path = s.path("f");
    fs::write(&path, [b'a'; 4096]).unwrap();
    let reader = File::open(&path).unwrap();
    // SAFETY: nobody makes the file shorter.
    let map = unsafe { MmapOptions::new().len(3 * 4096).map(&reader).unwrap() };
    assert_eq!(map[0], b'a');
    let held = Held::of(&path);
    assert_eq!(held.leased.write_at(0, &[b'b'; 4096]), Through::Lease(4096));
    held.append(&[b'c'; 8192]);
    assert_eq!(map[4095], b'b', "the page was dropped before the lease was granted");
    assert_eq!(reader.metadata().unwrap().len(), 3 * 4096);
    assert_eq!((map[4096], map[3 * 4096 - 1]), (b'c', b'c'));
    assert!(!held.lasts());
    drop((map, reader, held));
    s.umount();
}

/// Changes of the file and of its names by others come after what was written.
#[test]
fn changes_come_after_what_was_written() {
    let s = mounted();
    let path = s.path("f");
    let held = Held::of(&path);
    let again = |bytes: &[u8]| {
        let leased = lease(&held.session, &held.file);
        assert_ne!(leased.append(bytes), Through::Mount);
        leased
    };
    held.append(b"0123456789");
    run("truncate", &["-s", "4", path.to_str().unwrap()]).ok();
    assert_eq!(fs::read(&path).unwrap(), b"0123");
    let leased = again(b"45");
    fs::rename(&path, s.path("g")).unwrap();
    assert_eq!(leased.len(), Through::Mount);
    assert_eq!(fs::read(s.path("g")).unwrap(), b"012345");
    let leased = again(b"67");
    fs::hard_link(s.path("g"), s.path("h")).unwrap();
    assert_eq!(leased.len(), Through::Mount);
    let leased = again(b"89");
    fs::write(s.path("other"), "other").unwrap();
    fs::rename(s.path("other"), s.path("g")).unwrap();
    assert_eq!(leased.len(), Through::Mount);
    assert_eq!(fs::read(s.path("h")).unwrap(), b"0123456789");
    fs::remove_file(s.path("h")).unwrap();
    let mut all = [0; 10];
    held.file.read_exact_at(&mut all, 0).unwrap();
    assert_eq!(&all, b"0123456789");
    drop((leased, held));
    s.umount();
    s.assert_plain_ext4();
}

/// Other files of a mount with private logs are told for a day, as on any mount.
#[test]
fn other_files_stay_known() {
    let s = mounted();
    for n in 0..50 {
        fs::write(s.path(&format!("other{n}")), "x").unwrap();
    }
    let look = || {
        for n in 0..50 {
            assert!(s.path(&format!("other{n}")).is_file());
        }
    };
    look();
    let held = Held::of(&s.path("f"));
    held.append(b"x");
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let before = counted(&s, ["lookup", "getattr"]);
    look();
    assert_eq!(counted(&s, ["lookup", "getattr"]), before);
    drop((open(&s.path("f")), held));
    s.umount();
}
