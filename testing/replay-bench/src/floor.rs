//! What a checkpoint cannot be faster than, where every byte has to move once: the disk alone, with nobody
//! who finds out what to move, looks at it, or makes its place in the file system.

use crate::volume::Sizes;
use siftfs_base::Result;
use siftfs_device::{AlignedBuf, Device, ReadOp, WriteOp};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

/// What is read or written at once.
const PIECE: usize = 8 << 20;
/// One of the requests for that, which are in flight together.
const REQUEST: usize = 1 << 20;
/// Pieces in memory: one is read while another is written.
const PIECES: usize = 3;

/// Seconds for reading `len` bytes of the lane and writing them to the area, durably.
pub fn seconds(device: &dyn Device, sizes: &Sizes, len: u64) -> Result<f64> {
    let from = sizes.lane_offset();
    let pieces = || (0..len).step_by(PIECE).map(|at| (at, (len - at).min(PIECE as u64) as usize));
    let (give_back, free) = sync_channel(PIECES);
    let (hand_over, read) = sync_channel(PIECES);
    for _ in 0..PIECES {
        let _ = give_back.send(AlignedBuf::zeroed(PIECE));
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || -> Result<()> {
            for (at, len) in pieces() {
                // Whoever hung up has failed.
                let Ok(mut buf) = free.recv() else { break };
                let parts = (0u64..).step_by(REQUEST).zip(buf[..len].chunks_mut(REQUEST));
                let mut ops: Vec<ReadOp<'_>> =
                    parts.map(|(i, buf)| ReadOp { offset: from + at + i, buf }).collect();
                device.read_batch(&mut ops)?;
                if hand_over.send(buf).is_err() {
                    break;
                }
            }
            Ok(())
        });
        for (at, len) in pieces() {
            let Ok(buf) = read.recv() else { break };
            let parts = (0u64..).step_by(REQUEST).zip(buf[..len].chunks(REQUEST));
            let ops: Vec<WriteOp<'_>> =
                parts.map(|(i, data)| WriteOp { offset: at + i, data }).collect();
            device.write_batch(&ops)?;
            let _ = give_back.send(buf);
        }
        drop(read);
        drop(give_back);
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    device.flush()?;
    Ok(start.elapsed().as_secs_f64())
}
