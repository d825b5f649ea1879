//! Options for the daemon, and for the process that does the background work.

use super::{MountOption, flag, value};
use crate::daemon::logging::{Format, Level};
use crate::daemon::metrics_server::Address;
use crate::options::given::MAX_SPIN;
use clap::ValueEnum;
use std::time::Duration;

pub const OPTIONS: &[MountOption] = &[
    value(
        "memory_group=MODE",
        "auto",
        "the memory control group that the daemon is in: own, stay (that of the program \
         that mounts), or auto (own where the kernel could let it wait for its own \
         mount)",
        |o, v| v.value.parse().map(|place| o.daemon.memory_group = place),
    ),
    value(
        "metrics=ADDRESS",
        "off",
        "serve Prometheus' text format at 127.0.0.1:PORT or on a unix socket's path",
        |o, v| Address::parse(v.value).map(|place| o.daemon.metrics = Some(place)),
    ),
    value("log_file=PATH", "nowhere", "where the daemon writes its log", |o, v| {
        v.absolute().map(|file| o.daemon.log_file = Some(file))
    }),
    value(
        "log_level=LEVEL",
        "info",
        "what the log holds: error, warn, info, debug or trace",
        |o, v| {
            let words = Level::value_variants().iter().map(|level| (level.name(), *level));
            let words: Vec<_> = words.collect();
            v.one_of(&words).map(|level| o.daemon.log_level = Some(level))
        },
    ),
    value("log_format=FORMAT", "text", "text, or json: one document per line", |o, v| {
        v.one_of(&[("text", Format::Text), ("json", Format::Json)])
            .map(|format| o.daemon.log_format = format)
    }),
    value(
        "service=ADDRESS",
        "the mount itself",
        "the `siftfs device` process that does the background work: unix:PATH, \
         tcp:HOST:PORT or rdma:HOST:PORT",
        |o, v| v.parsed().map(|address| o.service.address = Some(address)),
    ),
    value(
        "service_fallback=SECONDS",
        "off",
        "when that process has been away for so long, the mount does the work until it \
         is back",
        |o, v| {
            o.service.fallback = Some(Duration::from_secs(v.number(0, 86_400)?));
            Ok(())
        },
    ),
    value(
        "listen=ADDRESS",
        "off",
        "serve the volume to other processes, too, at unix:PATH, tcp:HOST:PORT or rdma:HOST:PORT, \
         as `siftfs serve` does; may be given several times; implies shared",
        |o, v| {
            let address = v.parsed()?;
            if matches!(&address, siftfs_placement::Address::Unix(path) if path.is_relative()) {
                return Err(format!("listen={address}: not an absolute path"));
            }
            o.daemon.listen.push(address);
            o.mount.shared = true;
            Ok(())
        },
    ),
    value(
        "authorized=FILE",
        "this machine's",
        "over TCP: the file of the keys that listen= admits",
        |o, v| v.absolute().map(|file| o.daemon.authorized = Some(file)),
    ),
    value(
        "key=FILE",
        "this machine's",
        "over TCP: the key that the other process is shown (`siftfs key new`)",
        |o, v| v.absolute().map(|file| o.service.trust.key = Some(file)),
    ),
    value(
        "known_servers=FILE",
        "this machine's",
        "over TCP: the file of the servers that are known",
        |o, v| v.absolute().map(|file| o.service.trust.known_servers = Some(file)),
    ),
    value(
        "fingerprint=SHA256:...",
        "as known",
        "over TCP: what the server's key must be, as `siftfs key show` prints it there",
        |o, v| v.parsed().map(|print| o.service.trust.fingerprint = Some(print)),
    ),
    flag(
        "hard, soft",
        "hard",
        "of a served volume: calls wait until a server that is lost is there again, or fail with EIO after a time",
        &[("hard", false), ("soft", true)],
        |o, soft| o.served.soft = soft,
    ),
    value("timeo=SECONDS", "60", "with soft: that time, at most 86400", |o, v| {
        o.served.timeo = Some(Duration::from_secs(v.number(1, 86_400)?));
        Ok(())
    }),
    flag(
        "insecure",
        "off",
        "over TCP: no keys and no encryption, where trusted machines alone are between the two",
        &[("insecure", true)],
        |o, _| o.service.trust.insecure = true,
    ),
    value(
        "service_spin=MICROSECONDS",
        "20",
        "how long to spin for that process's answer before sleeping, at most 10000; 0 \
         never spins",
        |o, v| {
            o.service.transport.spin = Duration::from_micros(v.number(0, MAX_SPIN)?);
            Ok(())
        },
    ),
    value(
        "service_memory=SIZE",
        "16M",
        "memory shared with that process through a unix address, at most 1G; 0: all \
         through the socket",
        |o, v| v.arena().map(|bytes| o.service.transport.shared_memory = bytes),
    ),
    value(
        "volume=NAME",
        "the server's",
        "of a volume that another process serves: its name or UUID, which the server has to \
         confirm; HOST:/VOLUME says it, too",
        |o, v| v.volume().map(|name| o.served.volume = Some(name)),
    ),
    value("port=PORT", "7400", "the port of a server that is named as HOST:/VOLUME", |o, v| {
        let port = v.number(1, u64::from(u16::MAX))?;
        o.served.port = u16::try_from(port).ok();
        Ok(())
    }),
];
