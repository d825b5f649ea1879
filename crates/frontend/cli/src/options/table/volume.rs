//! Options for the volume.

use super::{MountOption, both, flag, value};
use siftfs_placement::Pools;
use std::time::Duration;

pub const OPTIONS: &[MountOption] = &[
    value(
        "commit=SECONDS",
        "5",
        "age at which unsynced changes are journaled; 0.01 to 3600",
        |o, v| {
            o.open.commit_ms = v.milliseconds()?;
            o.mount.write_back_every = Duration::from_millis(o.open.commit_ms / 2);
            Ok(())
        },
    ),
    value("cache=SIZE", "256M", "page cache, at least 8M", |o, v| {
        v.cache().map(|bytes| o.open.page_cache = bytes)
    }),
    value("meta_cache=SIZE", "64M", "cache of clean metadata blocks, at least 8M", |o, v| {
        v.cache().map(|bytes| o.open.meta_cache = bytes)
    }),
    value(
        "group_wait=MICROSECONDS",
        "1000",
        "how long a flush may wait for other fsyncs to share it",
        |o, v| v.number(0, 100_000).map(|us| o.open.group_wait_us = us),
    ),
    value(
        "fsyncs=MODE",
        "auto",
        "those that come together: shared (one flush for all), parallel (each a durable \
         write), or auto (what measures better)",
        |o, v| {
            let wrong = |()| format!("fsyncs={}: not one of auto, shared, parallel", v.value);
            v.value.parse().map_err(wrong).map(|group| o.open.group = group)
        },
    ),
    value(
        "low_watermark=PERCENT",
        "50",
        "free share of staging or journal below which a background checkpoint starts",
        |o, v| v.percent(1, 99).map(|share| o.open.low_watermark = share),
    ),
    flag(
        "free-lists",
        "off",
        "for measurements: files that private logs are taken in for get new blocks from a list of \
         free runs in memory",
        &[("free-lists", true)],
        |o, _| {
            if o.open.pools == Pools::None {
                o.open.pools = Pools::Shared;
            }
        },
    ),
    flag(
        "block-pools",
        "off",
        "the same, and each program that has private logs gets them from a list of its own",
        &[("block-pools", true)],
        |o, _| o.open.pools = Pools::PerSession,
    ),
    both(
        "discard=WHEN",
        "online, where that is of use",
        "whether freed blocks go back to what the volume lies on: online (after the \
         checkpoint that frees them) or off (only when `siftfs trim` is run); off is \
         the default where the volume's file has no hole; discard and nodiscard mean \
         the same",
        (&[("discard", true), ("nodiscard", false)], |o, on| o.open.discard = Some(on)),
        |o, v| v.switch("online").map(|on| o.open.discard = Some(on)),
    ),
    value(
        "replay=MODE",
        "auto",
        "how this process's checkpoints replay: ordered, coalesce (what is left of a \
         batch), or auto; a `siftfs device` process has its own --replay",
        |o, v| v.parsed().map(|mode| o.open.replay.mode = mode),
    ),
    value(
        "checkpoint_memory=SIZE",
        "256M",
        "memory that a checkpoint of this process may take, at least 64M; a `siftfs \
         device` process has its own --memory",
        |o, v| v.memory().map(|bytes| o.open.replay.memory = bytes),
    ),
    value("log=PATH", "searched for", "where the log is, if not with the volume", |o, v| {
        match v.value {
            "" => Err("log=: no path".into()),
            path => {
                o.open.log = Some(path.into());
                Ok(())
            }
        }
    }),
    value(
        "log_spare=PATH",
        "where it was",
        "where the spare log is, if the volume has one",
        |o, v| match v.value {
            "" => Err("log_spare=: no path".into()),
            path => {
                o.open.log_spare = Some(path.into());
                Ok(())
            }
        },
    ),
    value(
        "log_stall=MILLISECONDS",
        "100",
        "how long a call of the log's device may take before new records go to the \
         spare log, where the volume has one; 10 to 60000",
        |o, v| {
            let bound = v.number(10, 60_000)?;
            o.open.log_stall = Duration::from_millis(bound);
            Ok(())
        },
    ),
    value(
        "record_area=PLACE",
        "where it was",
        "where the record area is, if the volume has one: PATH, pmr:DDDD:BB:DD.F or \
         volatile:PATH",
        |o, v| v.parsed().map(|place| o.open.record_area_at = Some(place)),
    ),
    value(
        "record_max=SIZE",
        "12K",
        "bytes of file data up to which an fsync goes to the record area; 0: no fsync \
         does",
        |o, v| {
            o.open.record_area.most = if v.value == "0" { 0 } else { v.size()? };
            Ok(())
        },
    ),
    value(
        "record_share=PERCENT",
        "100",
        "and share of the dirty pages that these bytes may be, 1 to 100",
        |o, v| v.percent(1, 100).map(|share| o.open.record_area.percent = share),
    ),
    value(
        "record_physical=SWITCH",
        "on",
        "on or off: whether what overwrites mapped blocks names them in the record \
         area, so that the journal says nothing of it",
        |o, v| v.switch("on").map(|on| o.open.record_area.physical = on),
    ),
    value(
        "record_read_back=NANOSECONDS",
        "0",
        "for measurements: what each persist of a volatile: record area takes longer, \
         at most 1000000",
        |o, v| {
            o.open.record_read_back = Duration::from_nanos(v.number(0, 1_000_000)?);
            Ok(())
        },
    ),
    flag("nodirect", "off", "no O_DIRECT on the volume", &[("nodirect", false)], |o, on| {
        o.open.direct = on
    }),
    flag("nouring", "off", "no io_uring on the volume", &[("nouring", false)], |o, on| {
        o.open.uring = on
    }),
];
