//! `make test-apps`: real, unmodified software on a mounted volume. The daemon is killed in the
//! middle of each one's work; after recovery, after more work, and under the kernel's ext4, each
//! one's own checker must find its data whole and everything it acknowledged.

mod accel;
mod cargo;
mod copies;
mod databases;
mod git;
mod go;
mod program;
mod publish;
mod rsync;
mod served;
mod source;
mod tar;
mod target;
mod trial;
mod work;

use clap::Parser;
use databases::{leveldb, mariadb, postgres, redis, rocksdb, sqlite, sqlite_tests};
use siftfs_rig::place::{Failed, Place, Result, failed};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use trial::{Outcome, Setting, Times};
use work::App;

/// Space needed in the temporary directory, in bytes.
const NEEDED: u64 = 6 << 30;

/// Runs real software on SiftFS, with a crash in the middle.
#[derive(Parser)]
#[command(name = "siftfs-apps")]
struct Args {
    /// Only these, with commas between.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds that each works before a crash [default: 10, or 5 with --served].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=600))]
    before: Option<u64>,
    /// Crashes of each, one after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    crashes: u32,
    /// Seconds that each works after the last crash [default: 5, or 3 with --served].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=600))]
    after: Option<u64>,
    /// Directory for the volumes [default: $TMPDIR, or /var/tmp].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Volumes without a record area. Others have one in a file, which outlives the daemon.
    #[arg(long)]
    without_record_area: bool,
    /// Programs have the library of `siftfs accel` loaded, and mounts have private logs. A program
    /// that must get leases and did not has failed. SIFTFS_ACCEL=eager: a lease whenever there can
    /// be one.
    #[arg(long)]
    accel: bool,
    /// As --accel, by `siftfs accel --direct`, on the mount of a target's volume, which has no
    /// record area: programs read and write their files at the target. A program that must get
    /// leases and made no request there has failed.
    #[arg(long, conflicts_with_all = ["accel", "served"])]
    direct: bool,
    /// Programs work through the mount of a volume that `siftfs serve` has. Before each crash of
    /// the mount's daemon the server is killed in the middle of the work, and started again.
    #[arg(long, conflicts_with = "accel")]
    served: bool,
    /// Copies the volume of a failed trial into this directory.
    #[arg(long)]
    keep: Option<PathBuf>,
}

type Make = fn() -> Result<Box<dyn App>>;

const APPS: [(&str, Make); 15] = [
    ("sqlite", || Ok(Box::new(sqlite::Sqlite::usual()))),
    ("sqlite-alone", || Ok(Box::new(sqlite::Sqlite::alone()))),
    ("sqlite-sections", || Ok(Box::new(sqlite::Sqlite::by_sections()))),
    ("sqlite-tests", || Ok(Box::new(sqlite_tests::SqliteTests::new()?))),
    ("publish", || Ok(Box::<publish::Publishers>::default())),
    ("postgresql", || Ok(Box::new(postgres::Postgres::new()?))),
    ("mariadb", || Ok(Box::<mariadb::MariaDb>::default())),
    ("leveldb", || Ok(Box::<leveldb::LevelDb>::default())),
    ("rocksdb", || Ok(Box::<rocksdb::RocksDb>::default())),
    ("redis", || Ok(Box::<redis::Redis>::default())),
    ("git", || Ok(Box::<git::Git>::default())),
    ("cargo", || Ok(Box::<cargo::Cargo>::default())),
    ("go", || Ok(Box::<go::Go>::default())),
    ("rsync", || Ok(Box::<rsync::Rsync>::default())),
    ("tar", || Ok(Box::<tar::Tar>::default())),
];

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Failed(message)) => {
            eprintln!("siftfs-apps: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let known = |name: &String| APPS.iter().any(|(n, _)| n == name);
    if let Some(unknown) = args.only.iter().find(|n| !known(n)) {
        let names: Vec<_> = APPS.iter().map(|(n, _)| *n).collect();
        return Err(Failed(format!("no application is called {unknown}; {}", names.join(", "))));
    }
    if args.accel || args.direct {
        accel::load(args.direct)?;
    }
    let place = Place::new("siftfs-apps", NEEDED, args.dir.as_deref())?;
    // PostgreSQL's user has to get through.
    let root = place.path("");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755))
        .map_err(failed(root.display()))?;
    let times = Times {
        before: Duration::from_secs(args.before.unwrap_or(if args.served { 5 } else { 10 })),
        crashes: args.crashes,
        after: Duration::from_secs(args.after.unwrap_or(if args.served { 3 } else { 5 })),
    };
    let mut outcomes = Vec::new();
    for (name, make) in APPS {
        if args.only.is_empty() || args.only.iter().any(|n| n == name) {
            place.go_on()?;
            let mut app = make()?;
            let setting = Setting {
                area: !args.without_record_area && !args.direct,
                accelerated: args.accel || args.direct,
                direct: args.direct,
                served: args.served,
                keep: args.keep.as_deref(),
            };
            outcomes.push(trial::run(&place, app.as_mut(), times, setting));
        }
    }
    print(&outcomes);
    Ok(outcomes.iter().all(|o| o.error.is_none()))
}

fn print(outcomes: &[Outcome]) {
    println!("\n{:16} {:32} {:32} {:>6}", "", "acknowledged before the crash", "in all", "");
    for o in outcomes {
        let verdict = if o.error.is_none() { "held" } else { "FAILED" };
        let took = format!("{:.0?}", o.took);
        println!("{:16} {:32} {:32} {took:>6}  {verdict}", o.name, o.first, o.all);
    }
    for (name, taken) in outcomes.iter().filter_map(|o| Some((o.name, o.taken?))) {
        println!("{name:16} {taken}");
    }
    for o in outcomes {
        if let Some(error) = &o.error {
            println!("\n{}, while {}: {error}", o.name, o.step);
        }
    }
}
