//! Atomic sections of programs that know nothing of SiftFS (`siftfs accel --direct`): by the redo
//! lane of the target where it can take them, by the mount where it cannot.

use crate::accel::{FILE, Program, Town, at_target, direct, start};
use crate::{await_that, kill_host, status};
use siftfs_sqlite::Connection;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

const CANCELED: &str = "errno 125";
const NO_SECTION: &str = "errno 22";

/// Requests of the mount's kernel that a section by the lane makes none of.
fn requests(town: &Town) -> [u64; 4] {
    let now = status(&town.setup);
    let of = |name: &str| now["mounts"][0]["requests"][name].as_u64().unwrap_or(0);
    ["read", "write", "fsync", "ioctl"].map(of)
}

fn seen(town: &Town) -> Vec<u8> {
    fs::read(town.setup.path("f")).unwrap()
}

/// A program whose next section goes by the lane, without a question to the daemon.
fn ready(town: &Town) -> Program {
    let mut program = town.program();
    assert_eq!(program.tell("datasync"), "0");
    program
}

/// Each call is answered so.
#[track_caller]
fn ok(program: &mut Program, all: &[(&str, &str)]) {
    for (what, answer) in all {
        assert_eq!(program.tell(what), *answer, "{what}");
    }
}

/// The lane carries sections: no request of the mount, and one at the target for each commit. The
/// section's owner sees it, another descriptor what was committed.
#[test]
fn a_section_is_one_request_at_the_target() {
    let town = Town::with_lane("8M");
    let mut program = ready(&town);
    ok(&mut program, &[("second", "0"), ("read2 0 10", "10 of 1")]);
    let (before, had) = (requests(&town), at_target(&town.setup));
    let mut model = vec![1; FILE];
    for turn in 0..40_u8 {
        let at = usize::from(turn) * 20_000;
        let byte = turn + 2;
        ok(&mut program, &[("start", "0"), ("start2", "errno 16"), ("commit2", NO_SECTION)]);
        assert_eq!(program.tell(&format!("write {at} 9000 {byte}")), "9000");
        assert_eq!(program.tell(&format!("write {} 100 99", at + 50)), "100");
        assert_eq!(program.tell(&format!("read {} 100", at + 50)), "100 of 99");
        assert_eq!(program.tell(&format!("read {} 50", at)), format!("50 of {byte}"));
        assert_eq!(program.tell(&format!("read2 {} 8000", at + 500)), "8000 of 1");
        if turn % 4 == 3 {
            assert_eq!(program.tell("abort"), "0");
            assert_eq!(program.tell(&format!("read {at} 9000")), "9000 of 1");
        } else {
            assert_eq!(program.tell("commit"), "0");
            model[at..at + 9000].fill(byte);
            model[at + 50..at + 150].fill(99);
        }
        assert_eq!(program.tell("commit"), NO_SECTION);
        assert_eq!(program.tell(&format!("read2 {} 50", at)), format!("50 of {}", model[at]));
        assert_eq!(program.tell("datasync"), "0");
    }
    let after = requests(&town);
    // The commits that are nobody's are the kernel's to refuse.
    assert_eq!((after[0], after[1], after[2]), (before[0], before[1], before[2]));
    assert_eq!(after[3], before[3] + 40, "commits without a section, and nothing else");
    assert_eq!(town.told("direct"), 1);
    // Of each turn: five reads at most, one of which may be two; and 30 commits.
    let made = at_target(&town.setup) - had;
    assert!((40 * 4 + 30..40 * 7 + 30).contains(&made), "{made} requests at the target");
    assert!(seen(&town) == model, "by the mount");
    program.end();
    town.end();
}

/// What the lane does not take is a section of the mount as a whole: behind the file's end, larger
/// than is kept, and wherever there is no lane.
#[test]
fn what_the_lane_does_not_take_is_the_mounts() {
    for town in [Town::with_lane("8M"), Town::new()] {
        let mut model = vec![1; FILE];
        let mut program = ready(&town);
        ok(&mut program, &[("start", "0"), ("write 100 5000 2", "5000")]);
        // It grows.
        let end = FILE - 10;
        assert_eq!(program.tell(&format!("write {end} 100 3")), "100");
        assert_eq!(town.told("direct"), 0);
        ok(&mut program, &[("read 100 5000", "5000 of 2"), ("write 200 10 4", "10")]);
        ok(&mut program, &[("commit", "0"), ("commit", NO_SECTION)]);
        model.resize(FILE + 90, 3);
        model[end..FILE].fill(3);
        model[100..5100].fill(2);
        model[200..210].fill(4);
        assert!(seen(&town) == model);
        program.until_direct(&town, "datasync");
        // It is too much.
        assert_eq!(program.tell("start"), "0");
        for byte in 5..10 {
            assert_eq!(program.tell(&format!("write 0 1000000 {byte}")), "1000000");
        }
        assert_eq!(town.told("direct"), 0);
        assert_eq!(program.tell("commit"), "0");
        model[..1_000_000].fill(9);
        assert!(seen(&town) == model);
        // One that is given up there.
        program.until_direct(&town, "datasync");
        ok(&mut program, &[("start", "0"), ("write 0 10 11", "10")]);
        assert_eq!(program.tell(&format!("write {} 1 11", FILE + 90)), "1");
        ok(&mut program, &[("abort", "0"), ("read 0 10", "10 of 9")]);
        assert!(seen(&town) == model);
        program.end();
        town.end();
    }
}

/// Without a lane a section is found out to be the mount's when it is committed, and the mount has
/// the next ones from the start: one after the first of these, and more after each.
#[test]
fn without_a_lane() {
    let town = Town::new();
    let mut program = town.program();
    let mut model = vec![1; FILE];
    for turn in 0..4_u8 {
        program.until_direct(&town, "datasync");
        let at = usize::from(turn) * 5000;
        assert_eq!(program.tell("start"), "0");
        assert_eq!(town.told("direct") == 1, turn % 2 == 0, "turn {turn}");
        assert_eq!(program.tell(&format!("write {at} 4000 {}", turn + 2)), "4000");
        ok(&mut program, &[("commit", "0"), ("commit", NO_SECTION)]);
        model[at..at + 4000].fill(turn + 2);
        assert!(seen(&town) == model, "turn {turn}");
    }
    program.end();
    town.end();
}

/// Others who change the file end the section, as on the mount: it is read on, and not committed.
#[test]
fn others_make_a_section_void() {
    let town = Town::with_lane("8M");
    let mut program = ready(&town);
    let mut model = vec![1; FILE];
    // Another program, whose write recalls the lease.
    ok(&mut program, &[("start", "0"), ("write 0 100 2", "100")]);
    assert_eq!(town.told("direct"), 1);
    let other = fs::File::options().write(true).open(town.setup.path("f")).unwrap();
    other.write_all_at(&[3; 10], 50).unwrap();
    model[50..60].fill(3);
    ok(&mut program, &[("read 0 100", "100 of 2"), ("write 500 10 2", "10")]);
    ok(&mut program, &[("commit", CANCELED), ("read 0 100", "100 of 2"), ("commit", CANCELED)]);
    ok(&mut program, &[("abort", "0"), ("read 0 50", "50 of 1"), ("commit", NO_SECTION)]);
    assert!(seen(&town) == model);
    drop(other);
    // Another open file of the program itself.
    program.until_direct(&town, "datasync");
    ok(&mut program, &[("second", "0"), ("start", "0"), ("write 0 100 4", "100")]);
    ok(&mut program, &[("write2 1000 10 5", "10"), ("read 0 100", "100 of 4")]);
    assert_eq!(program.tell("commit"), "0", "it changed other bytes");
    model[..100].fill(4);
    model[1000..1010].fill(5);
    ok(&mut program, &[("start", "0"), ("write 0 100 6", "100"), ("write2 99 1 7", "1")]);
    ok(&mut program, &[("commit", CANCELED), ("read 0 100", "100 of 6"), ("abort", "0")]);
    model[99] = 7;
    // The file's size is set.
    program.until_direct(&town, "datasync");
    ok(&mut program, &[("start", "0"), ("write 0 100 8", "100"), ("truncate 1048576", "0")]);
    ok(&mut program, &[("commit", CANCELED), ("abort", "0")]);
    assert!(seen(&town) == model);
    program.end();
    town.end();
}

/// A section ends with any close of its file; a child takes nothing of it, and whatever the program
/// becomes has none.
#[test]
fn ends_of_sections() {
    let town = Town::with_lane("8M");
    let mut program = ready(&town);
    let mut model = vec![1; FILE];
    ok(&mut program, &[("second", "0"), ("start", "0"), ("write 0 100 2", "100")]);
    ok(&mut program, &[("close2", "0"), ("commit", NO_SECTION), ("read 0 100", "100 of 1")]);
    program.until_direct(&town, "datasync");
    // The parent's goes on, with the mount.
    ok(&mut program, &[("start", "0"), ("write 0 100 3", "100"), ("child", "0")]);
    ok(&mut program, &[("read 0 100", "100 of 3"), ("write 200 100 3", "100")]);
    assert_eq!(program.tell("commit"), "0");
    model[..100].fill(3);
    model[200..300].fill(3);
    assert!(seen(&town) == model);
    // By the offset, and by another number of the same open file.
    assert_eq!(program.tell("plain"), "0");
    program.until_direct(&town, "datasync");
    ok(&mut program, &[("seek 300", "300"), ("start", "0"), ("here 100 4", "100")]);
    ok(&mut program, &[("here 50 5", "50"), ("seek 350", "350"), ("next 100", "100, 50 of 4")]);
    assert_eq!(program.tell("commit"), "0");
    model[300..400].fill(4);
    model[400..450].fill(5);
    // A mapping shows the file to be the kernel's: the section goes on there.
    ok(&mut program, &[("start", "0"), ("write 0 4096 6", "4096"), ("map 8192 1", "1")]);
    assert_eq!(program.tell("abort"), "0");
    assert!(seen(&town) == model);
    assert_eq!(program.tell("plain"), "0");
    program.until_direct(&town, "datasync");
    // Another program in this one's place.
    ok(&mut program, &[("start", "0"), ("write 0 4096 7", "4096"), ("exec", "0")]);
    ok(&mut program, &[("commit", NO_SECTION), ("read 0 50", "50 of 3")]);
    program.end();
    assert!(seen(&town) == model);
    town.end();
}

/// The target dies in a section, the program, and the daemon.
#[test]
fn deaths_in_a_section() {
    let mut town = Town::with_lane("8M");
    let mut program = ready(&town);
    let mut model = vec![1; FILE];
    for lane in [true, false] {
        let at = if lane { 0 } else { 50_000 };
        ok(&mut program, &[("start", "0")]);
        assert_eq!(program.tell(&format!("write {at} 9000 2")), "9000");
        town.target.take().unwrap().kill();
        town.target = Some(start(&town.setup));
        assert_eq!(program.tell(&format!("read {at} 9000")), "9000 of 2");
        assert_eq!(program.tell(&format!("write {} 100 3", at + 100)), "100");
        let committed = program.tell("commit");
        assert!(committed == "0" || committed == CANCELED, "{committed}");
        if committed == "0" {
            model[at..at + 9000].fill(2);
            model[at + 100..at + 200].fill(3);
        } else {
            assert_eq!(program.tell("abort"), "0");
        }
        assert!(seen(&town) == model, "{committed}");
        program.until_direct(&town, "datasync");
    }
    ok(&mut program, &[("start", "0"), ("write 0 9000 4", "9000")]);
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    assert!(seen(&town) == model);
    let mut program = Program::start(&town.setup, &town.setup.path("f"));
    program.until_direct(&town, "datasync");
    ok(&mut program, &[("start", "0"), ("write 0 9000 5", "9000")]);
    kill_host(&town.setup);
    await_that("the grant ends", || program.tell("read 0 10").starts_with("errno"));
    for what in ["write 0 10 6", "commit"] {
        assert!(program.tell(what).starts_with("errno"), "{what}");
    }
    program.end();
    town.mount("");
    assert!(seen(&town) == model);
    town.end();
}

/// SQLite with sections, in a process of its own: this test's own program, with the library.
struct Sqlite {
    child: Child,
    says: BufReader<ChildStdout>,
    told: ChildStdin,
}

const DATABASE: &str = "SIFTFS_TEST_DATABASE";
const MARK: &str = "sqlite says ";

impl Sqlite {
    fn start(path: &std::path::Path) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut child = direct(&own)
            .args(["--exact", "sections::a_transaction_is_one_section_of_the_lane", "--nocapture"])
            .env(DATABASE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let told = child.stdin.take().unwrap();
        Self { child, says, told }
    }

    fn tell(&mut self, sql: &str) -> String {
        writeln!(self.told, "{sql}").unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.says.read_line(&mut line).unwrap(), 0, "it has ended: {sql}");
            // The test's own name may come before it.
            if let Some((_, said)) = line.split_once(MARK) {
                return said.trim_end().to_owned();
            }
        }
    }
}

/// The other process: one statement a line.
fn be_sqlite(path: &str) {
    assert!(siftfs_sqlite::knows_sections());
    let database = Connection::open(path).unwrap();
    database.execute_batch("PRAGMA synchronous=FULL").unwrap();
    for sql in std::io::stdin().lock().lines() {
        let sql = sql.unwrap();
        let said = match sql.starts_with("SELECT") || sql.starts_with("PRAGMA") {
            true => database.query_row(&sql, [], |row| row.get::<_, String>(0)),
            false => database.execute(&sql, []).map(|n| n.to_string()),
        };
        println!("{MARK}{}", said.unwrap_or_else(|error| error.to_string()));
    }
}

/// SQLite that was built for F2FS's batch atomic writes, under `siftfs accel --direct`: each of its
/// transactions is a section, which the target's lane takes; there is no journal, no write and no
/// ioctl of the mount.
#[test]
fn a_transaction_is_one_section_of_the_lane() {
    if let Ok(path) = std::env::var(DATABASE) {
        return be_sqlite(&path);
    }
    let town = Town::with_lane("8M");
    let mut sqlite = Sqlite::start(&town.setup.path("database"));
    assert_eq!(sqlite.tell("CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER)"), "0");
    for id in 0..50 {
        assert_eq!(sqlite.tell(&format!("INSERT INTO t VALUES({id}, 0)")), "1");
    }
    let update = |sqlite: &mut Sqlite, id: u64| {
        assert_eq!(sqlite.tell(&format!("UPDATE t SET n = n + 1 WHERE id = {}", id % 50)), "1");
    };
    // Its blocks are granted when they are home.
    await_that("it is at the target", || {
        let before = requests(&town);
        (0..10).for_each(|_| update(&mut sqlite, 0));
        requests(&town) == before && town.told("direct") == 1
    });
    let (before, had) = (requests(&town), at_target(&town.setup));
    let records = town.told("records");
    for id in 0..200 {
        update(&mut sqlite, id);
    }
    assert_eq!(requests(&town), before, "the mount had requests");
    assert_eq!((town.told("direct"), town.told("records")), (1, records));
    let made = at_target(&town.setup) - had;
    println!("200 transactions: {made} requests at the target, none of them at the mount");
    assert!(made >= 200, "{made} requests at the target");
    assert_eq!(sqlite.tell("PRAGMA integrity_check"), "ok");
    drop(sqlite.told);
    assert!(sqlite.child.wait().unwrap().success());
    let names: Vec<_> =
        fs::read_dir(town.setup.dir()).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("journal")), "{names:?}");
    let database = Connection::open(town.setup.path("database")).unwrap();
    let check =
        "SELECT (SELECT sum(n) FROM t WHERE id > 0) || (SELECT * FROM pragma_integrity_check)";
    let said: String = database.query_row(check, [], |row| row.get(0)).unwrap();
    assert_eq!(said, "196ok");
    drop(database);
    town.end();
}
