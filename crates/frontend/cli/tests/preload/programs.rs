//! Programs that know nothing of the library do the same with and without it.

use crate::support::run;
use crate::{accel, eager, mounted, ran, told};
use std::fs;
use std::path::Path;
use std::process::Command;

const TABLE: &str = "PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, x TEXT);";

fn sqlite(mut command: Command, database: &Path, mode: &str) -> String {
    let mut sql = format!("PRAGMA journal_mode={mode}; {TABLE}");
    for n in 0..150 {
        sql += &format!("INSERT INTO t(x) VALUES(printf('%0{}d', {n}));", 10 + n * 13 % 900);
        if n % 10 == 9 {
            sql += &format!("UPDATE t SET x = x || 'y' WHERE id = {n};");
        }
    }
    // What SQLite says in the end is what it has in its own cache.
    sql += "PRAGMA integrity_check;";
    let said = ran(command.arg(database).arg(sql)).ok();
    assert_eq!(said.err, "");
    said.out
}

fn dump(database: &Path) -> String {
    let check = "PRAGMA integrity_check; SELECT sum(length(x)), count(*) FROM t;";
    run("sqlite3", &[database.to_str().unwrap(), check, ".dump"]).ok().out
}

/// Each of SQLite's journals.
#[test]
fn sqlite_does_the_same() {
    let s = mounted();
    for mode in ["WAL", "DELETE", "TRUNCATE", "PERSIST"] {
        let [ours, theirs] = ["ours", "theirs"].map(|kind| s.path(&format!("{kind}{mode}")));
        let before = told(&s, "records");
        let said = sqlite(eager("sqlite3"), &ours, mode);
        assert!(told(&s, "records") > before + 100, "{mode} goes by leases");
        assert_eq!(said, sqlite(Command::new("sqlite3"), &theirs, mode), "{mode}");
        assert_eq!(dump(&ours), dump(&theirs), "{mode}");
    }
    s.umount();
    s.assert_plain_ext4();
}

/// Two connections of one program share the lease: one reads what the other has just written.
#[test]
fn connections_of_one_program_share_a_lease() {
    let s = mounted();
    let script = "
import sqlite3, sys
one = sqlite3.connect(sys.argv[1], isolation_level=None)
one.execute('PRAGMA journal_mode=WAL'); one.execute('PRAGMA synchronous=FULL')
one.execute('CREATE TABLE t(x)')
two = sqlite3.connect(sys.argv[1], isolation_level=None)
for n in range(200):
    one.execute('INSERT INTO t VALUES(?)', (n,))
    if n % 20 == 0:
        assert two.execute('SELECT max(x), count(*) FROM t').fetchone() == (n, n + 1)
print(two.execute('PRAGMA integrity_check').fetchone()[0])
";
    let path = s.path("database");
    let said = ran(eager("python3").args(["-c", script, path.to_str().unwrap()])).ok();
    assert_eq!(said.out, "ok\n");
    assert!(told(&s, "records") > 200);
    let rows = run("sqlite3", &[path.to_str().unwrap(), "SELECT count(*) FROM t"]).ok().out;
    assert_eq!(rows, "200\n");
    s.umount();
}

/// fio writes 2 KiB at random places, has every fourth one made durable, and reads all of it again.
/// Engines that hand the kernel memory and descriptors (libaio, io_uring) and one that stores
/// through a mapping are not accelerated, and right.
#[test]
fn fio_verifies_what_it_wrote() {
    let s = mounted();
    let caught = ["sync", "psync", "vsync", "pvsync", "pvsync2"];
    let past = ["libaio", "io_uring", "mmap", "posixaio"];
    for engine in caught.iter().chain(&past) {
        let before = told(&s, "records");
        let words = [
            format!("--filename={}", s.path(engine).display()),
            format!("--ioengine={engine}"),
            format!("--bs={}", if *engine == "mmap" { "4k" } else { "2k" }),
        ];
        let job = ["--name=job", "--rw=randwrite", "--size=1M", "--fsync=4", "--iodepth=4"];
        let checks = ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--fallocate=none"];
        ran(eager("fio").args(words).args(job).args(checks).current_dir(s.tmp.path())).ok();
        let records = told(&s, "records") - before;
        let by_lease = records > 400;
        assert_eq!(by_lease, caught.contains(engine), "{engine}: {records} records");
    }
    s.umount();
    s.assert_plain_ext4();
}

/// A script's result, in a directory of its own, by `siftfs accel` and without it.
#[track_caller]
fn same(s: &crate::support::Setup, name: &str, script: &str) {
    let results = ["ours", "theirs"].map(|kind| {
        let dir = s.path(&format!("{name}-{kind}"));
        fs::create_dir(&dir).unwrap();
        let mut command = match kind {
            "ours" => accel(&[], &["bash", "-ec", script]),
            _ => Command::new("bash"),
        };
        if kind == "theirs" {
            command.args(["-ec", script]);
        }
        command.env("SIFTFS_ACCEL", "eager");
        let said = ran(command.current_dir(&dir)).ok();
        (said.out, said.err, dir)
    });
    let [(out, err, ours), (other_out, other_err, theirs)] = results;
    assert_eq!((out, err), (other_out, other_err), "{name}");
    let [ours, theirs] = [&ours, &theirs].map(|dir| dir.to_str().unwrap());
    run("diff", &["-r", ours, theirs]).ok();
}

/// Shells, tools, git and Python.
#[test]
fn tools_do_the_same() {
    let s = mounted();
    same(&s, "dd", "for n in 1 2 3; do dd if=/usr/bin/env of=copy bs=777 conv=fsync,notrunc seek=$n status=none; done
        dd if=copy of=copy bs=512 count=8 seek=100 conv=fdatasync,notrunc status=none; md5sum copy");
    same(&s, "bash", "for n in {1..50}; do echo $n >> list; done; exec 7<>list; echo over >&7; read -u7 line
        echo $line >&7; (echo child >&7); cat <&7; exec 7>&-; sort list | uniq -c | tail -3; sync list; wc list");
    same(&s, "git", "export GIT_AUTHOR_DATE='1 Jan 2020 00:00 +0000' GIT_COMMITTER_DATE='1 Jan 2020 00:00 +0000'
        git init -q .; git config user.name a; git config user.email a@b; git config core.fsync all
        git config core.fsyncMethod fsync
        for n in {1..8}; do seq $((n * 100)) > f$n; git add .; git commit -qm $n; done
        git gc -q; git fsck --strict; git log --format=%H; rm -rf .git/index .git/logs .git/objects .git/ORIG_HEAD");
    same(&s, "python", "python3 - <<'E'
import os, subprocess, tempfile, shutil, json
with open('text', 'w+') as f:
    for n in range(300):
        f.write('line %d\\n' % n)
        if n % 9 == 0: f.flush(); os.fsync(f.fileno())
    f.seek(100); print(f.read(20)); f.truncate(1000)
fd = os.open('raw', os.O_RDWR | os.O_CREAT)
for n in range(100):
    os.write(fd, b'%05d' % n); os.fdatasync(fd)
copy = os.dup(fd); os.lseek(copy, 10, 0); print(os.read(fd, 7)); os.write(copy, b'COPY'); os.fsync(copy)
subprocess.run(['cat'], stdin=fd, check=True)
os.set_inheritable(fd, True); os.lseek(fd, 3, 0)
subprocess.run(['head', '-c', '9'], stdin=fd, check=True, close_fds=False)
print(os.lseek(fd, 0, 1) >= 12)
if os.fork() == 0: os.write(fd, b'child'); os.fsync(fd); os._exit(0)
os.wait(); os.lseek(fd, 200, 0); os.write(fd, b'parent'); os.fsync(fd)
print(os.fstat(fd).st_size, os.stat('raw').st_size); os.close(fd); os.close(copy)
shutil.copy('raw', 'raw2'); os.replace('raw2', 'raw3'); print(open('raw3', 'rb').read()[:40])
E");
    assert!(told(&s, "records") > 100);
    s.umount();
    s.assert_plain_ext4();
}

/// Programs that close whatever they do not know, and that put files under numbers of their own.
#[test]
fn programs_that_close_all_descriptors() {
    let s = mounted();
    let script = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
def go(text):
    for n in range(20): os.write(fd, text); os.fsync(fd)
go(b'1')
os.closerange(fd + 1, 1000); go(b'2')
for other in range(fd + 1, 1000):
    try: os.close(other)
    except OSError: pass
go(b'3')
for other in range(fd + 1, fd + 9):
    os.dup2(os.open('/dev/null', os.O_RDWR), other)
    go(b'4')
print(len(open(sys.argv[1], 'rb').read()))
";
    let said = ran(eager("python3").args(["-c", script, s.path("f").to_str().unwrap()])).ok();
    assert_eq!(said.out, "220\n");
    let wanted = [("1", 20), ("2", 20), ("3", 20), ("4", 160)];
    let wanted: String = wanted.iter().map(|(text, n)| text.repeat(*n)).collect();
    let text = fs::read_to_string(s.path("f")).unwrap();
    assert_eq!(text, wanted);
    assert!(told(&s, "records") > 50);
    s.umount();
}
