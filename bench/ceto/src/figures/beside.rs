//! What a read and a durable write of 4 KiB take on a direct file, and on the kernel's own ways to
//! storage, near and far: the rows of table 1 that belong to a machine where the kernel has them
//! (`testing/guest/fabrics.sh`).

use crate::kernel::{Granted, Kernel, Named};
use crate::span;
use clap::Args;
use siftfs_rig::figure::Output;
use siftfs_rig::place::{Failed, Result};
use siftfs_rig::table::{Compared, Row, Side, show};
use std::path::Path;
use std::time::Duration;

/// What is measured.
#[derive(Args)]
pub struct Words {
    /// A block device, WHOSE FIRST 16 MiB ARE LOST, or a folder of a file system with direct I/O.
    /// All others are compared with the first
    #[arg(long, value_name = "NAME=PATH", required = true)]
    beside: Vec<Named>,
    /// Where a host of a target's volume serves programs. The target is reached where the host says
    /// that it is, over TCP with this machine's key
    #[arg(long, value_name = "NAME=ADDRESS")]
    direct: Vec<Named>,
    /// The same of a target that is reached without keys, and so without encryption
    #[arg(long, value_name = "NAME=ADDRESS")]
    plain: Vec<Named>,
    /// How often each job is done by each way, in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Time of each job in a round
    #[arg(long, default_value = "300ms", value_parser = span::parse)]
    time: Duration,
    /// One round with little work, to see that all of it runs
    #[arg(long)]
    quick: bool,
    /// One JSON document
    #[arg(long)]
    pub json: bool,
}

enum Opened {
    Kernel(Kernel),
    Granted(Box<Granted>),
}

/// One of those that are compared.
struct Measured {
    name: String,
    opened: Opened,
    /// Medians of the rounds, in microseconds, of reads and of writes.
    times: [Vec<f64>; 2],
}

impl Measured {
    fn new(named: &Named, open: impl FnOnce(&str) -> Result<Opened>) -> Result<Self> {
        let Named { name, at } = named;
        let opened = open(at).map_err(|Failed(why)| Failed(format!("{name}: {why}")))?;
        Ok(Self { name: name.clone(), opened, times: Default::default() })
    }

    fn round(&mut self, time: Duration, writes: bool) -> Result<()> {
        let found = match &mut self.opened {
            Opened::Kernel(kernel) => kernel.round(time, writes),
            Opened::Granted(granted) => granted.round(time, writes),
        };
        let found = found.map_err(|Failed(why)| Failed(format!("{}: {why}", self.name)))?;
        self.times[usize::from(writes)].push(found);
        Ok(())
    }

    fn end(self) -> Result<()> {
        match self.opened {
            Opened::Kernel(_) => Ok(()),
            Opened::Granted(granted) => granted.end(),
        }
    }
}

/// Opens all: the kernel's first.
fn opened(words: &Words) -> Result<Vec<Measured>> {
    let Words { beside, direct, plain, .. } = words;
    let mut all = Vec::new();
    for named in beside {
        let side = all.len();
        let open = |at: &str| Kernel::open(Path::new(at), side).map(Opened::Kernel);
        all.push(Measured::new(named, open)?);
    }
    let keys = direct.iter().map(|named| (named, true));
    for (named, keys) in keys.chain(plain.iter().map(|named| (named, false))) {
        let side = all.len();
        let open =
            |at: &str| Granted::open(at, side, keys).map(|own| Opened::Granted(Box::new(own)));
        all.push(Measured::new(named, open)?);
    }
    Ok(all)
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(words: &Words) -> Result<Output> {
    let (rounds, time) = match words.quick {
        true => (1, Duration::from_millis(20)),
        false => (words.rounds as usize, words.time),
    };
    let mut all = opened(words)?;
    let count = all.len();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for i in 0..count * 2 {
            all[(i / 2 + round) % count].round(time, i % 2 == 1)?;
        }
    }
    let rows = ["4 KiB reads", "4 KiB writes, each durable"];
    let rows: Vec<Row> = (0..).zip(rows).map(|(at, name)| row((name, at), words, &all)).collect();
    all.into_iter().try_for_each(Measured::end)?;
    Ok(show(
        &rows,
        "Medians of the rounds, with quartiles; 4 KiB, one call at a time, at random in 16 MiB, medians of calls, the \
         ways in turn. Devices and file systems are read and written past the page cache (O_DIRECT), and a write is \
         durable when it returns (O_DSYNC), as a direct file's is. Nothing is modelled and nothing is injected. The \
         paper's Kernel-L and Kernel-R are ext4 on NVMe, here and over a fabric",
    ))
}

fn row((name, at): (&str, usize), words: &Words, all: &[Measured]) -> Row {
    let ratio = |of: &Measured, to: &Measured| {
        let what = format!("{} to {}", of.name, to.name);
        Compared::ratio(&what, &of.times[at], &to.times[at], None)
    };
    let (kernel, direct) = all.split_at(words.beside.len());
    let first = kernel.first().into_iter();
    let mut compared: Vec<_> =
        first.flat_map(|first| all.iter().skip(1).map(move |one| ratio(one, first))).collect();
    for other in kernel.iter().skip(1) {
        compared.extend(direct.iter().map(|one| ratio(one, other)));
    }
    let sides = all.iter().map(|one| Side::new(one.name.clone(), one.times[at].clone()));
    Row { name: name.into(), unit: "us", sides: sides.collect(), compared }
}
