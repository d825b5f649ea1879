//! What files must have after a power cut: a ledger of what was begun and answered, at which
//! operation of the disk, and its judge.

use siftfs_base::BLOCK_SIZE;

/// Bytes that a disk writes as a whole.
pub const SECTOR: usize = 512;

/// The bytes of a sector of this version.
pub fn sector(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(SECTOR / 8)
}

/// A file's bytes, all of one version.
pub fn file_of(version: u64, blocks: usize) -> Vec<u8> {
    version.to_le_bytes().repeat(blocks * BLOCK_SIZE / 8)
}

/// The version of each sector.
fn versions(bytes: &[u8]) -> Result<Vec<u64>, String> {
    let of = |(at, sector): (usize, &[u8])| {
        let first = u64::from_le_bytes(*sector.first_chunk().unwrap());
        match sector.chunks(8).all(|word| word == first.to_le_bytes()) {
            true => Ok(first),
            false => Err(format!("sector {at} is torn")),
        }
    };
    bytes.chunks(SECTOR).enumerate().map(of).collect()
}

/// What a program did to a file.
#[derive(Clone, Debug)]
pub enum What {
    /// These sectors together.
    Section(Vec<usize>),
    /// These sectors, durably or not.
    Plain(Vec<usize>, bool),
    /// What was written before is durable.
    Flush,
}

#[derive(Clone, Debug)]
struct Event {
    /// The number of the disk's next operation before it, and after its answer.
    begun: u64,
    answered: u64,
    version: u64,
    what: What,
}

/// A file, and what was done to it.
#[derive(Clone, Debug)]
pub struct Expected {
    pub name: String,
    /// It is there, with all sectors of one version, from this operation of the disk on.
    durable: u64,
    /// From this operation on it may be gone.
    pub gone: u64,
    /// From each of these operations on, only that number of its first sectors must be there.
    pub shorter: Vec<(u64, usize)>,
    /// The version that it began with.
    first: u64,
    sectors: usize,
    events: Vec<Event>,
}

impl Expected {
    /// A file whose `blocks` blocks are of this version, and durable before operation `durable`.
    pub fn new(name: &str, version: u64, blocks: usize, durable: u64) -> Self {
        Self {
            name: name.into(),
            durable,
            gone: u64::MAX,
            shorter: Vec::new(),
            first: version,
            sectors: blocks * BLOCK_SIZE / SECTOR,
            events: Vec::new(),
        }
    }

    /// Notes what was done between two operations of the disk.
    pub fn did(&mut self, (begun, answered): (u64, u64), version: u64, what: What) {
        self.events.push(Event { begun, answered, version, what });
    }

    /// Whether it must be there at the cut.
    pub fn is_there(&self, cut: u64) -> bool {
        self.durable <= cut && cut < self.gone
    }

    /// Says what is wrong with the bytes that were found after a cut at operation `cut`.
    pub fn judge(&self, cut: u64, found: &[u8]) -> Result<(), String> {
        let shorter = self.shorter.iter().filter(|(from, _)| *from <= cut).map(|(_, len)| *len);
        let len = shorter.min().unwrap_or(self.sectors);
        let found = found.get(..len * SECTOR).ok_or_else(|| format!("it has {}", found.len()))?;
        let found = versions(found)?;
        let mut may = vec![vec![self.first]; self.sectors];
        for event in self.events.iter().filter(|event| event.begun <= cut) {
            match event.answered <= cut {
                true => event.happened(&mut may),
                false => event.may_have_happened(&mut may, &found)?,
            }
        }
        let wrong = found.iter().zip(&may).position(|(found, may)| !may.contains(found));
        match wrong {
            None => Ok(()),
            Some(at) => {
                Err(format!("sector {at} is of version {} and not of {:?}", found[at], may[at]))
            }
        }
    }
}

impl Event {
    fn happened(&self, may: &mut [Vec<u64>]) {
        match &self.what {
            What::Section(sectors) | What::Plain(sectors, true) => {
                sectors.iter().for_each(|at| may[*at] = vec![self.version]);
            }
            What::Plain(sectors, false) => {
                sectors.iter().for_each(|at| may[*at].push(self.version));
            }
            What::Flush => may.iter_mut().for_each(|may| {
                may.drain(..may.len() - 1);
            }),
        }
    }

    /// It was under way: of a section all is there, or nothing.
    fn may_have_happened(&self, may: &mut [Vec<u64>], found: &[u64]) -> Result<(), String> {
        match &self.what {
            What::Section(sectors) => {
                let there = sectors.iter().filter(|at| found[**at] == self.version).count();
                if there == sectors.len() {
                    self.happened(may);
                } else if there > 0 {
                    let all = sectors.len();
                    return Err(format!("{there} of {all} sectors of section {}", self.version));
                }
            }
            What::Plain(sectors, _) => {
                sectors.iter().for_each(|at| may[*at].push(self.version));
            }
            What::Flush => {}
        }
        Ok(())
    }
}

/// The judge sees a torn section, a lost one, an old version, and a sector of another file.
#[test]
fn the_judge_sees_it() {
    let mut file = Expected::new("f", 1, 1, 5);
    file.did((5, 7), 2, What::Section(vec![0, 1]));
    file.did((7, 9), 3, What::Plain(vec![1], false));
    let bytes = |of: [u64; 8]| of.into_iter().flat_map(sector).collect::<Vec<u8>>();
    let judge = |cut, of| file.judge(cut, &bytes(of)).is_ok();
    assert!(judge(6, [2, 2, 1, 1, 1, 1, 1, 1]) && judge(6, [1; 8]));
    assert!(!judge(6, [2, 1, 1, 1, 1, 1, 1, 1]), "half of a section");
    assert!(!judge(7, [1; 8]), "an answered one is lost");
    assert!(judge(9, [2, 2, 1, 1, 1, 1, 1, 1]) && judge(9, [2, 3, 1, 1, 1, 1, 1, 1]));
    assert!(!judge(9, [2, 1, 1, 1, 1, 1, 1, 1]), "an older version");
    assert!(!judge(4, [9; 8]), "another file's");
    assert!(file.judge(6, &[0; SECTOR]).is_err(), "too short");
    assert!(!file.is_there(4) && file.is_there(5));
    file.did((9, 10), 0, What::Flush);
    assert!(file.judge(10, &bytes([2, 2, 1, 1, 1, 1, 1, 1])).is_err(), "a flush was lost");
    file.shorter.push((11, 1));
    assert!(file.judge(11, &sector(2)).is_ok());
}
