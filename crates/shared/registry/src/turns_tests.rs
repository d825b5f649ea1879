use super::*;
use crate::row::RegisteredLease;
use crate::row::tests::{PLACE, entry};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

const SECTOR: usize = 512;
const SECTORS: usize = SLOT / SECTOR;

/// Blocks in memory. Power is lost during the write with the number `cut`: of that block, the
/// sectors of `kept` are the new ones, and nothing is written afterwards.
#[derive(Default)]
struct Memory {
    blocks: RefCell<HashMap<u64, Slot>>,
    cut: Cell<Option<(u32, u8)>>,
    writes: Cell<u32>,
}

impl Memory {
    fn restarted(&self) {
        self.cut.set(None);
    }

    fn found(&self) -> Result<Option<LogEntry>> {
        Turns::read(self, PLACE)
    }
}

impl Slots for Memory {
    fn read(&self, block: u64) -> io::Result<Slot> {
        Ok(self.blocks.borrow().get(&block).copied().unwrap_or([0; SLOT]))
    }

    fn write(&self, block: u64, slot: &Slot) -> io::Result<()> {
        let number = self.writes.replace(self.writes.get() + 1);
        let (cut, kept) = self.cut.get().unwrap_or((u32::MAX, 0));
        let mut there = self.read(block)?;
        for sector in 0..SECTORS {
            if number < cut || (number == cut && kept & 1 << sector != 0) {
                let bytes = sector * SECTOR..(sector + 1) * SECTOR;
                there[bytes.clone()].copy_from_slice(&slot[bytes]);
            }
        }
        self.blocks.borrow_mut().insert(block, there);
        if number < cut { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
    }
}

/// What a row goes through, from the log's making to its end and to the next log's making.
fn life() -> Vec<Option<LogEntry>> {
    let lease = |number| RegisteredLease { slot: 1, number, ino: 12, generation: 3 };
    let made = LogEntry { leases: Vec::new(), begin: 0, ..entry(0) };
    let with = |leases: &[u64], begin| LogEntry {
        leases: leases.iter().map(|number| lease(*number)).collect(),
        begin,
        ..made.clone()
    };
    let full = LogEntry { begin: 8192, ..entry(120) };
    let next = LogEntry { number: 18, key: 7, ..made.clone() };
    vec![
        Some(made.clone()),
        Some(with(&[1], 0)),
        Some(with(&[1, 2], 0)),
        Some(with(&[1, 2], 4096)),
        Some(with(&[2], 4096)),
        Some(full),
        None,
        Some(next),
    ]
}

/// A write that is torn at any of its sectors leaves the row before it or its own, and no mixture
/// of both.
///
/// Seen to fail when both writes go to the same slot.
#[test]
fn a_torn_row_is_the_old_or_the_new_one() {
    let life = life();
    for (cut, _) in life.iter().enumerate() {
        for kept in 0..=u8::MAX {
            let memory = Memory { cut: Cell::new(Some((cut as u32, kept))), ..Memory::default() };
            let mut row = Turns::unused(PLACE);
            let mut old = None;
            for entry in &life {
                match row.write(&memory, entry.clone()) {
                    Ok(()) => old = entry.clone(),
                    Err(_) => break,
                }
            }
            assert_eq!(row.entry(), old.as_ref(), "only what is durable is said");
            memory.restarted();
            let found = memory.found().unwrap();
            let new = &life[cut];
            assert!(found == old || found == *new, "cut {cut}, {kept:08b}: {found:?}");
            assert!(kept != u8::MAX || found == *new, "cut {cut}: the whole write is there");
            assert!(kept != 0 || found == old, "cut {cut}: nothing of it is there");
        }
    }
}

/// After a failed write nothing is promised any more.
///
/// Seen to fail when the failure is not kept.
#[test]
fn after_a_failed_write_every_call_fails() {
    let memory = Memory { cut: Cell::new(Some((1, 0x0f))), ..Memory::default() };
    let mut row = Turns::unused(PLACE);
    row.write(&memory, Some(entry(0))).unwrap();
    assert!(matches!(row.write(&memory, Some(entry(1))), Err(Error::Io { .. })));
    memory.restarted();
    assert!(matches!(row.write(&memory, Some(entry(2))), Err(Error::Latched(_))));
    assert!(matches!(row.check(), Err(Error::Latched(_))));
    assert_eq!(memory.writes.get(), 2, "the third one was not tried");
    assert_eq!(memory.found(), Ok(Some(entry(0))));
}

/// A slot that rotted is as one that was torn; two are told.
#[test]
fn a_row_whose_slots_are_both_damaged_is_told() {
    let memory = Memory::default();
    let mut row = Turns::unused(PLACE);
    row.write(&memory, Some(entry(1))).unwrap();
    row.write(&memory, Some(entry(2))).unwrap();
    let rot = |seq| {
        let mut blocks = memory.blocks.borrow_mut();
        blocks.get_mut(&block(PLACE, seq)).unwrap()[200] ^= 4;
    };
    rot(1);
    assert_eq!(memory.found(), Ok(Some(entry(2))));
    rot(2);
    assert!(matches!(memory.found(), Err(Error::Corrupt { .. })));
    let other = Place { row: 4, ..PLACE };
    assert_eq!(Turns::read(&memory, other), Ok(None), "every row has slots of its own");
}

proptest::proptest! {
    /// Whatever lies in both slots, the newer one of those that are rows is found, or an error.
    #[test]
    fn any_two_slots_are_read(
        seqs: [u64; 2],
        damage: [Option<(u16, u8)>; 2],
        sealed: [bool; 2],
    ) {
        let memory = Memory::default();
        for turn in 0..2 {
            let row = Row { seq: seqs[turn], entry: Some(entry(turn as u64)) };
            let mut slot = row.encode(PLACE);
            if let Some((at, value)) = damage[turn] {
                slot[at as usize % SLOT] = value;
            }
            if sealed[turn] {
                crate::seal(&mut slot);
            }
            memory.blocks.borrow_mut().insert(block(PLACE, turn as u64), slot);
        }
        let found = memory.found();
        if damage == [None; 2] {
            let newest = u64::from(seqs[1] > seqs[0]);
            proptest::prop_assert_eq!(found, Ok(Some(entry(newest))));
        }
    }
}
