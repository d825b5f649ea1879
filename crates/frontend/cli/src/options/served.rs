//! A volume that another process serves, as `siftfs mount` and fstab name it, and the options that
//! mean nothing for a mount of it.

use crate::options::parsed::{FileLogs, Options, ServedOptions};
use crate::options::table;
use siftfs_base::Error;
use siftfs_fuse::WriteCache;
use siftfs_placement::Address;
use siftfs_remote::{Addresses, Patience, served_by_hosts};
use std::path::{Path, PathBuf};

/// The port of a server that is named as `HOST:/VOLUME`, if the option `port=` does not say.
pub const PORT: u16 = 7400;

/// A volume that another process serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Where its server listens, or where each of the servers does of which one has it.
    pub addresses: Addresses,
    /// The volume's name or UUID; empty for the one that the server has.
    pub volume: String,
    /// How long calls wait for it when it is lost.
    pub patience: Patience,
}

/// The served volume that `given` names: an address (`unix:PATH`, `tcp:HOST:PORT`,
/// `rdma:HOST:PORT`), several with commas between them, or `HOSTS:/VOLUME`; `None` for a volume at
/// a path of this machine. A path that looks like one of these is given with `./` before it.
///
/// # Errors
/// A message: the address is wrong, or does not go with the options.
pub fn served(given: &Path, options: &ServedOptions) -> Result<Option<Served>, String> {
    let text = given.to_str().unwrap_or_default();
    let named = options.volume.clone().unwrap_or_default();
    let at = |addresses, volume| {
        let patience = options.patience()?;
        Ok(Some(Served { addresses, volume, patience }))
    };
    if ["unix:", "tcp:", "rdma:"].iter().any(|kind| text.starts_with(kind)) {
        if options.port.is_some() {
            return Err("port: the address has its port; the option is for HOST:/VOLUME".into());
        }
        return at(text.parse().map_err(|e: Error| e.to_string())?, named);
    }
    let port = options.port.unwrap_or(PORT);
    // A file that is called so is asked for only where the text has that form.
    if let Some((addresses, volume)) = by_hosts(text, port, || given.exists())? {
        if options.volume.as_ref().is_some_and(|named| *named != volume) {
            return Err(format!("volume={named}: {text} names another one"));
        }
        return at(addresses, volume);
    }
    match options {
        ServedOptions { volume: None, port: None, soft: false, timeo: None } => Ok(None),
        _ => Err(
            "volume=, port=, soft and timeo= are for the mount of a volume that another process \
                  serves"
                .into(),
        ),
    }
}

/// What `HOSTS:/VOLUME` names; `None`: the text has another form, or there is such a file.
fn by_hosts(
    text: &str,
    port: u16,
    is_file: impl FnOnce() -> bool,
) -> Result<Option<(Addresses, String)>, String> {
    match served_by_hosts(text, port) {
        Ok(None) => Ok(None),
        _ if is_file() => Ok(None),
        found => found.map_err(|error| error.to_string()),
    }
}

/// As `given`, by paths that hold everywhere.
///
/// # Errors
/// The directory of the caller cannot be found out.
pub fn absolute(given: &Path, served: &Served) -> std::io::Result<PathBuf> {
    if served.addresses.are_remote() {
        return Ok(given.to_path_buf());
    }
    let whole = |address: &Address| match address {
        Address::Unix(path) => Ok(Address::Unix(std::path::absolute(path)?).to_string()),
        network => Ok(network.to_string()),
    };
    let all = served.addresses.all().iter().map(whole).collect::<std::io::Result<Vec<_>>>()?;
    Ok(all.join(",").into())
}

/// Refuses options that mean nothing for the mount of a served volume.
///
/// # Errors
/// A message that names the option.
pub fn refuse(lists: &[String], options: &Options) -> Result<(), String> {
    let names = lists.iter().flat_map(|list| list.split(','));
    let mut names = names.map(|option| option.split('=').next().unwrap_or_default());
    if let Some(name) = names.find(|name| table::is_of_volume(name)) {
        return Err(format!(
            "{name}: this belongs to the volume, which another process has open and serves: leave it out"
        ));
    }
    let refused = [
        (
            options.mount.private_logs && options.file_logs != FileLogs::None,
            "private_logs: logs in files belong to the process that has the volume open, which recovers them; \
             with private_logs=daemon that process makes durable what programs write",
        ),
        (
            options.log_may_die,
            "log_may_die: logs in files belong to the process that has the volume open; leave it out",
        ),
        (
            options.mount.write_cache == WriteCache::Writeback,
            "write_cache=writeback: other sessions of the server would not see what the kernel holds back; \
             leave it out",
        ),
        (
            !options.daemon.listen.is_empty(),
            "listen: the process that has the volume open serves it; leave it out",
        ),
        (
            options.open.noatime,
            "noatime: access times are kept by the process that serves the volume; leave it out",
        ),
        (
            options.service.address.is_some() || options.service.fallback.is_some(),
            "service: the background work is the serving process's; leave it out",
        ),
    ];
    match refused.iter().find(|(given, _)| *given) {
        Some((_, why)) => Err((*why).into()),
        None => Ok(()),
    }
}

/// Refuses private logs where their data would have to travel in messages.
///
/// # Errors
/// A message that says why.
pub fn refuse_logs(served: &Served, options: &Options) -> Result<(), String> {
    if !served.addresses.are_remote() || !options.mount.private_logs {
        return Ok(());
    }
    Err(format!(
        "private_logs: what programs write goes into memory that mount and server share, and only \
         headers to the server: {} would get every byte; leave it out, or mount on the server's machine \
         by its unix socket",
        served.addresses
    ))
}

#[cfg(test)]
#[path = "served_tests.rs"]
mod tests;
