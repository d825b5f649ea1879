//! Random programs on both file systems.

use crate::data::{Map, store_through_map};
use crate::pair::{Place, as_user, same_with};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, OFlags, RenameFlags, Uid, XattrFlags, chmod,
    chownat, fallocate, ftruncate, linkat, mknodat, renameat_with, rmdir, symlink, unlink,
};
use rustix::io::{pread, pwrite};
use std::os::fd::OwnedFd;

/// A small generator; both runs see the same numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn name(&mut self) -> String {
        let dirs = ["", "", "", "d0/", "d1/", "d0/d2/", "d1/d0/"];
        let names = ["a", "b", "c", "d0", "d1", "d2"];
        let dir = dirs[self.roll(7) as usize];
        format!("{dir}{}", names[self.roll(6) as usize])
    }

    fn offset(&mut self) -> u64 {
        let around = [0, 4096, 8192, 65_536, 1 << 20][self.roll(5) as usize];
        around + self.roll(5000)
    }
}

fn step(c: &mut Place, dice: &mut Dice, open: &mut Vec<OwnedFd>) {
    let (a, b) = (dice.name(), dice.name());
    let (pa, pb) = (c.p(&a), c.p(&b));
    let n = dice.roll(100);
    match n {
        0..=9 => {
            if let Some(f) =
                c.open(&a, OFlags::CREATE | OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW)
            {
                open.push(f);
            }
        }
        10..=17 => c.dir(&a),
        18..=29 => {
            let flags = [
                RenameFlags::empty(),
                RenameFlags::empty(),
                RenameFlags::NOREPLACE,
                RenameFlags::EXCHANGE,
            ][dice.roll(4) as usize];
            c.r(&format!("rename {a} {b} {flags:?}"), renameat_with(CWD, pa, CWD, pb, flags));
        }
        30..=34 => drop(c.r(&format!("unlink {a}"), unlink(pa))),
        35..=38 => drop(c.r(&format!("rmdir {a}"), rmdir(pa))),
        39..=43 => {
            c.r(&format!("link {a} {b}"), linkat(CWD, pa, CWD, pb, AtFlags::empty()));
        }
        44..=46 => drop(c.r(&format!("symlink {b}"), symlink(a.repeat(1 + n as usize), pb))),
        47 => {
            let kind =
                [FileType::Fifo, FileType::Socket, FileType::RegularFile][dice.roll(3) as usize];
            c.r(&format!("mknod {a}"), mknodat(CWD, pa, kind, 0o640.into(), 0));
        }
        48..=50 => {
            let bits = dice.roll(0o10000) as u32;
            // Through a symlink it is its target's.
            c.r(&format!("chmod {a} {bits:o}"), chmod(pa, bits.into()));
        }
        51..=53 => {
            let (u, g) = (Uid::from_raw(dice.roll(3) as u32), Gid::from_raw(dice.roll(3) as u32));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            c.r(&format!("chown {a}"), chownat(CWD, pa, Some(u), Some(g), flags));
        }
        54..=57 => {
            let name = format!("user.{}", dice.roll(4));
            let value = vec![n as u8; [0, 3, 40, 100, 1000, 3500][dice.roll(6) as usize]];
            let set = rustix::fs::lsetxattr(pa, name.as_str(), &value, XattrFlags::empty());
            c.r(&format!("setxattr {a} {name} {}", value.len()), set);
        }
        58 => {
            let name = format!("user.{}", dice.roll(4));
            c.r(&format!("removexattr {a}"), rustix::fs::lremovexattr(pa, name.as_str()));
        }
        59..=61 => {
            c.stat(&a);
            c.stat(&b);
        }
        62..=64 => as_user(1 + dice.roll(2) as u32, &[1, 2], || {
            c.open(&a, OFlags::CREATE | OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW);
            c.r(&format!("user renames {a} {b}"), rustix::fs::rename(pa, pb));
        }),
        _ if open.is_empty() => {}
        65..=66 => drop(open.swap_remove(dice.roll(open.len() as u64) as usize)),
        _ => {
            let i = dice.roll(open.len() as u64) as usize;
            on_data(c, dice, n, i, &open[i]);
        }
    }
}

fn on_data(c: &mut Place, dice: &mut Dice, n: u64, i: usize, f: &OwnedFd) {
    if rustix::fs::fstat(f).unwrap().st_mode & libc::S_IFMT != libc::S_IFREG {
        return;
    }
    let (at, len) = (dice.offset(), 1 + dice.offset());
    match n {
        67..=78 => {
            let data = vec![dice.roll(255) as u8 + 1; len.min(100_000) as usize];
            c.v(&format!("pwrite {i} {at} {}", data.len()), pwrite(f, &data, at));
        }
        79..=82 => drop(c.r(&format!("ftruncate {i} {at}"), ftruncate(f, at))),
        83..=87 => {
            let keep = FallocateFlags::KEEP_SIZE;
            let mode = [
                FallocateFlags::empty(),
                keep,
                keep | FallocateFlags::PUNCH_HOLE,
                FallocateFlags::ZERO_RANGE,
                keep | FallocateFlags::ZERO_RANGE,
            ][dice.roll(5) as usize];
            c.r(&format!("fallocate {i} {mode:?} {at} {len}"), fallocate(f, mode, at, len));
        }
        88..=90 => drop(c.r(&format!("fsync {i}"), rustix::fs::fsync(f))),
        91..=92 => {
            if rustix::fs::fstat(f).unwrap().st_size >= 8192 {
                store_through_map(f, (at % 8192) as usize, n as u8);
                c.say(format!("map {i}"));
            }
        }
        93 => {
            if rustix::fs::fstat(f).unwrap().st_size >= 8192 {
                let map = Map::new(f, 0, 8192, rustix::mm::MapFlags::PRIVATE).unwrap();
                map.store(17, b"private");
                c.say(format!("map {i} {:x}", crate::pair::hash(&map.load(100, 8092))));
            }
        }
        _ => {
            let mut buf = vec![0u8; 1 << 21];
            let got = pread(f, &mut buf[..], 0).map(|n| (n, crate::pair::hash(&buf[..n])));
            c.v(&format!("pread {i}"), got);
            c.fstat("it", f);
        }
    }
}

fn program(seed: u64, steps: u64) -> impl Fn(&mut Place) + Sync {
    move |c| {
        let mut dice = Dice(seed);
        let mut open = Vec::new();
        for name in ["d0", "d1", "d0/d2"] {
            c.dir(name);
        }
        for _ in 0..steps {
            step(c, &mut dice, &mut open);
        }
    }
}

#[test]
fn random_programs_do_the_same() {
    let long = std::env::var_os("SIFTFS_LONG").is_some();
    let first = std::env::var("SIFTFS_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in first..first + if long { 100 } else { 3 } {
        let options = match seed % 3 {
            0 => "commit=0.02,cache=8M,meta_cache=8M",
            1 => "commit=0.3",
            _ => "",
        };
        println!("seed {seed} {options}");
        same_with(options, program(seed, if long { 6000 } else { 2500 }));
    }
}
