//! What is no protocol any more.

use super::{ANSWERS, Intruder, call, opening, root};
use crate::samples;
use crate::wire::hello;
use siftfs_calls::{Claim, ToServer, VERSION};
use siftfs_codec::{Encoded, Message};
use siftfs_proto::Request;
use std::io::{self, Write};
use std::time::Duration;

/// The client uses slots twice, again and out of order, and slots that do not exist; it sends
/// messages at a wrong time.
pub(super) fn slots(it: &mut Intruder) -> io::Result<()> {
    let mut wire = it.session(false)?;
    let request = Request::StatFs;
    let message = |slot, number| ToServer::Call {
        slot,
        number,
        credentials: root(),
        request: Box::new(request.clone()),
        change: None,
        proofs: None,
    };
    for slot in 0..8 {
        let right = call(&mut wire, slot, root(), request.clone());
        wire.send(&right)?;
    }
    let all = samples::to_server();
    let number = it.rng.below(8);
    let bad = match it.rng.below(8) {
        0 => message(0, 0),
        1 => message(9, 1 + it.rng.below(100)),
        2 => message(64 + it.rng.below(1000) as u32, 0),
        3 => message(u32::MAX, u64::MAX),
        4 => ToServer::Taken { notice: it.rng.below(10) },
        5 => ToServer::Open(Box::new(opening(Claim::Owner, true, None))),
        6 => ToServer::Bye,
        _ => all[it.rng.below(all.len() as u64) as usize].clone(),
    };
    wire.send(&bad)?;
    wire.send(&message(number as u32, 1))?;
    for message in [ToServer::Full, ToServer::Returned] {
        wire.send(&message)?;
    }
    wire.drain(ANSWERS);
    Ok(())
}

/// Frames that are damaged, too long, or end in the middle.
pub(super) fn frames(it: &mut Intruder) -> io::Result<()> {
    let mut wire = match it.rng.chance(50) {
        true => it.session(true)?,
        false => it.greet()?,
    };
    let all = samples::to_server();
    let message = all[it.rng.below(all.len() as u64) as usize].clone();
    let encoded = message.encode().map_err(|e| io::Error::other(e.to_string()))?;
    let Encoded { mut head, blocks } = encoded;
    match it.rng.below(6) {
        // A message that is damaged under a right checksum.
        0 | 1 => {
            for _ in 0..=it.rng.below(4) {
                let at = it.rng.below(head.len() as u64) as usize;
                head[at] = it.rng.bits() as u8;
            }
            let frame = wire.frame(head, &blocks);
            wire.send_bytes(&frame)?;
        }
        // A frame that is damaged.
        2 => {
            let mut frame = wire.frame(head, &blocks);
            let at = it.rng.below(frame.len() as u64) as usize;
            frame[at] ^= 1 << it.rng.below(8);
            wire.send_bytes(&frame)?;
        }
        // One that promises 4 GiB, under a right checksum, and much of it.
        3 => {
            let mut frame = wire.frame(head, &blocks);
            let field = [16, 20, 24][it.rng.below(3) as usize];
            frame[field..field + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            let crc = siftfs_base::crc32c(&frame[..36]);
            frame[36..40].copy_from_slice(&crc.to_le_bytes());
            wire.send_bytes(&frame)?;
            wire.send_bytes(&vec![0; 1 << 20])?;
        }
        // Half of one, and then nothing, for longer than there is patience.
        4 => {
            let frame = wire.frame(head, &blocks);
            let half = it.rng.below(frame.len() as u64) as usize;
            wire.send_bytes(&frame[..half])?;
            wire.drain(Duration::from_secs(2));
        }
        _ => {
            let bytes: Vec<u8> = (0..5000).map(|_| it.rng.bits() as u8).collect();
            wire.send_bytes(&bytes)?;
        }
    }
    wire.drain(ANSWERS);
    Ok(())
}

/// Greetings of other programs and versions, and parts of right ones.
pub(super) fn greetings(it: &mut Intruder) -> io::Result<()> {
    for _ in 0..20 {
        let mut bare = it.door.knock()?;
        let mut bytes = match it.rng.below(4) {
            0 => b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            1 => hello(VERSION + 1 + it.rng.below(3) as u32),
            2 => hello(VERSION),
            // The beginning of TLS.
            _ => vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        };
        if it.rng.chance(50) {
            bytes.truncate(it.rng.below(bytes.len() as u64) as usize);
        } else if it.rng.chance(50) {
            let at = it.rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= it.rng.bits() as u8;
        }
        bare.write_all(&bytes)?;
    }
    Ok(())
}
