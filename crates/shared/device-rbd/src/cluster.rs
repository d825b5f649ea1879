//! A connection to a cluster, by librados.
#![allow(unsafe_code)]

use crate::RbdPlace;
use crate::functions::{Functions, IoContext, Rados, functions};
use siftfs_base::{Error, Result};
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::ptr;

/// Seconds that the cluster has to let a client in, and a monitor to answer a command.
const PATIENCE: &CStr = c"30";
/// Seconds for which a fenced address stays on the cluster's block list: ten years. A process that
/// was stopped for longer than its entry lasts would write again what its library had under way.
const FENCED_FOR: u32 = 315_360_000;
/// Seconds of a year.
const YEAR: u64 = 31_556_952;
/// Bytes of an answer of a monitor that are looked at.
const MAX_ANSWER: usize = 16 << 20;

/// A connection to a cluster, and a pool by it.
pub(crate) struct Cluster {
    pub functions: &'static Functions,
    rados: Rados,
    pub pool: IoContext,
    /// The cluster's UUID, as text.
    pub fsid: String,
}

// SAFETY: librados' handles may be used from any thread, and from several at once.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// Connects to the cluster of `place`, and opens the pool.
    ///
    /// # Errors
    /// Refused, saying what is wrong: the configuration, the key, the pool, or a cluster that does
    /// not answer.
    pub fn connect(place: &RbdPlace) -> Result<Self> {
        let functions = functions()?;
        let user = user(std::env::var("CEPH_ARGS").ok().as_deref());
        let mut rados = ptr::null_mut();
        let name = text(&user)?;
        // SAFETY: the strings live during the call, which fills in the handle.
        let made =
            unsafe { (functions.rados_create2)(&mut rados, c"ceph".as_ptr(), name.as_ptr(), 0) };
        if made < 0 {
            return Err(refused(place, "cannot begin to connect", made));
        }
        let mut cluster = Self { functions, rados, pool: ptr::null_mut(), fsid: String::new() };
        cluster.configure(place)?;
        // SAFETY: the handle was made above.
        let connected = unsafe { (functions.rados_connect)(cluster.rados) };
        if connected < 0 {
            return Err(not_let_in(place, &user, connected));
        }
        cluster.fsid = cluster.string(37, |buf, len| {
            // SAFETY: the buffer has `len` bytes.
            unsafe { (functions.rados_cluster_fsid)(cluster.rados, buf, len) }
        });
        cluster.open_pool(place, &user)?;
        Ok(cluster)
    }

    /// Reads the configuration, the environment's `CEPH_ARGS` behind it, and sets what this crate
    /// relies on over both.
    fn configure(&self, place: &RbdPlace) -> Result<()> {
        let conf = place.conf.as_ref().map(|conf| text(conf.as_os_str().as_bytes())).transpose()?;
        let path = conf.as_ref().map_or(ptr::null(), |conf| conf.as_ptr());
        // SAFETY: the path lives during the call, or is null for the usual places.
        let read = unsafe { (self.functions.rados_conf_read_file)(self.rados, path) };
        if read < 0 {
            return Err(refused(place, "cannot read the cluster's configuration", read));
        }
        // SAFETY: null stands for `CEPH_ARGS`.
        unsafe { (self.functions.rados_conf_parse_env)(self.rados, ptr::null()) };
        let set = [
            // Then what is answered is on all replicas, and a flush waits for what is under way.
            (c"rbd_cache", c"false"),
            (c"rbd_blocklist_on_break_lock", c"true"),
            // A replica may not know yet who was fenced. The successor has asked the primary.
            (c"rbd_read_from_replica_policy", c"default"),
            (c"client_mount_timeout", PATIENCE),
            (c"rados_mon_op_timeout", PATIENCE),
            // What goes wrong is said once, by us.
            (c"log_to_stderr", c"false"),
            (c"err_to_stderr", c"false"),
        ];
        for (name, value) in set {
            // SAFETY: the strings live during the call.
            let done = unsafe {
                (self.functions.rados_conf_set)(self.rados, name.as_ptr(), value.as_ptr())
            };
            if done < 0 {
                let what = format!("cannot set {}", name.to_string_lossy());
                return Err(refused(place, &what, done));
            }
        }
        let cache = self.string(16, |buf, len| {
            // SAFETY: the buffer has `len` bytes.
            unsafe { (self.functions.rados_conf_get)(self.rados, c"rbd_cache".as_ptr(), buf, len) }
        });
        if cache != "false" {
            let what = format!("librbd's own cache cannot be switched off: rbd_cache is {cache}");
            return Err(Error::Refused(format!("{place}: {what}")));
        }
        Ok(())
    }

    fn open_pool(&mut self, place: &RbdPlace, user: &[u8]) -> Result<()> {
        let pool = text(place.pool.as_bytes())?;
        let functions = self.functions;
        // SAFETY: the handle is connected, and the call fills in the pool's.
        let opened =
            unsafe { (functions.rados_ioctx_create)(self.rados, pool.as_ptr(), &mut self.pool) };
        if opened == -libc::ENOENT {
            return Err(Error::Refused(format!(
                "{place}: the cluster has no pool {}, or none that {} may see",
                place.pool,
                String::from_utf8_lossy(user)
            )));
        }
        if opened < 0 {
            return Err(refused(place, "cannot open the pool", opened));
        }
        if let Some(namespace) = &place.namespace {
            let namespace = text(namespace.as_bytes())?;
            // SAFETY: the pool was opened above.
            unsafe { (functions.rados_ioctx_set_namespace)(self.pool, namespace.as_ptr()) };
        }
        Ok(())
    }

    /// A text that `fill` writes into a buffer of `len` bytes; empty if it cannot.
    fn string(&self, len: usize, fill: impl FnOnce(*mut c_char, usize) -> c_int) -> String {
        let mut buf = vec![0u8; len + 1];
        match fill(buf.as_mut_ptr().cast(), len) {
            0.. => CStr::from_bytes_until_nul(&buf)
                .map(|text| text.to_string_lossy().into_owned())
                .unwrap_or_default(),
            _ => String::new(),
        }
    }

    /// The address by which the cluster knows this process.
    pub fn own_address(&self) -> Result<String> {
        let mut given = ptr::null_mut();
        // SAFETY: the handle is connected, and the call fills in a text that is given back below.
        let done = unsafe { (self.functions.rados_getaddrs)(self.rados, &mut given) };
        if done < 0 || given.is_null() {
            return Err(failed("ask for this process's address in the cluster", done));
        }
        // SAFETY: the library has written a text that ends.
        let address = unsafe { CStr::from_ptr(given) }.to_string_lossy().into_owned();
        // SAFETY: it came from the library, and nothing refers to it any more.
        unsafe { (self.functions.rados_buffer_free)(given) };
        Ok(address)
    }

    /// Waits until this process knows the newest map of the cluster's OSDs.
    ///
    /// # Errors
    /// The monitors do not answer.
    pub fn wait_for_latest_map(&self) -> Result<()> {
        // SAFETY: the handle is connected.
        match unsafe { (self.functions.rados_wait_for_latest_osdmap)(self.rados) } {
            0.. => Ok(()),
            error => Err(failed("wait for the newest map of OSDs", error)),
        }
    }

    /// Sends a command to a monitor. `command` is JSON.
    pub fn command(&self, command: &serde_json::Value) -> Result<Vec<u8>> {
        let command = text(command.to_string().as_bytes())?;
        let list = [command.as_ptr()];
        let (mut out, mut out_len) = (ptr::null_mut(), 0);
        let (mut said, mut said_len) = (ptr::null_mut(), 0);
        // SAFETY: the command lives during the call, which fills in two buffers and their lengths.
        let done = unsafe {
            (self.functions.rados_mon_command)(
                self.rados,
                list.as_ptr(),
                1,
                ptr::null(),
                0,
                &mut out,
                &mut out_len,
                &mut said,
                &mut said_len,
            )
        };
        let answer = self.take(out, out_len);
        let said = String::from_utf8_lossy(&self.take(said, said_len)).trim().to_owned();
        if done < 0 {
            let why = io::Error::from_raw_os_error(-done);
            return Err(Error::Refused(format!("a monitor refuses: {why} {said}")));
        }
        Ok(answer)
    }

    /// The bytes of a buffer of the library, which is given back.
    fn take(&self, given: *mut c_char, len: usize) -> Vec<u8> {
        if given.is_null() {
            return Vec::new();
        }
        // SAFETY: the library has given `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(given.cast::<u8>(), len.min(MAX_ANSWER)) };
        let bytes = bytes.to_vec();
        // SAFETY: it came from the library, and nothing refers to it any more.
        unsafe { (self.functions.rados_buffer_free)(given) };
        bytes
    }

    /// Puts a client's address on the cluster's block list for ten years, and waits until this
    /// process knows that it is there. No OSD that this process talks to from then on takes
    /// anything from that client.
    ///
    /// An entry that is there already keeps its own term, which may be an hour. It is never taken
    /// away to be made anew: a process that sleeps before that would take away the entry of years
    /// that another one relies on.
    ///
    /// # Errors
    /// The monitors do not answer, or refuse: the key lacks `profile rbd`. There is an entry that
    /// ends too soon: it is to be waited for.
    pub fn fence(&self, address: &str) -> Result<()> {
        match self.entry(address)? {
            Some(until) if is_long(&until) => return self.wait_for_latest_map(),
            Some(until) => {
                return Err(Error::Refused(format!(
                    "the last owner {address} is on the cluster's block list, but only until {until}, which \
                     a process that was stopped may outlast: try again when that is over"
                )));
            }
            None => {}
        }
        self.command(&serde_json::json!({
            "prefix": "osd blocklist",
            "blocklistop": "add",
            "addr": address,
            "expire": f64::from(FENCED_FOR),
        }))?;
        self.wait_for_latest_map()?;
        match self.entry(address)? {
            Some(until) if is_long(&until) => Ok(()),
            found => {
                let found = found.map_or("not at all".into(), |until| format!("until {until}"));
                let what =
                    format!("{address} is to be on the block list for years, and is {found}");
                Err(Error::Refused(what))
            }
        }
    }

    /// Until when the address is on the block list, as the cluster writes times.
    fn entry(&self, address: &str) -> Result<Option<String>> {
        let command = serde_json::json!({ "prefix": "osd blocklist ls", "format": "json" });
        let answer = self.command(&command)?;
        let list = first_value(&answer).ok_or_else(|| {
            Error::Refused("a monitor's answer about its block list cannot be read".into())
        })?;
        let of = |entry: &serde_json::Value, name| Some(entry.get(name)?.as_str()?.to_owned());
        let mut entries = list.as_array().into_iter().flatten();
        let found = entries.find(|entry| of(entry, "addr").as_deref() == Some(address));
        Ok(found.map(|entry| of(entry, "until").unwrap_or_default()))
    }

    /// What the cluster says of its own health, such as `HEALTH_OK`.
    pub fn health(&self) -> Result<String> {
        let answer = self.command(&serde_json::json!({ "prefix": "health", "format": "json" }))?;
        let health = first_value(&answer).unwrap_or_default();
        let status = health.get("status").and_then(serde_json::Value::as_str);
        Ok(status.unwrap_or("unknown").to_owned())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.pool.is_null() {
            // SAFETY: images of the pool hold this connection, and so are closed.
            unsafe { (self.functions.rados_ioctx_destroy)(self.pool) };
        }
        // SAFETY: nothing uses the handle any more.
        unsafe { (self.functions.rados_shutdown)(self.rados) };
    }
}

/// Does an entry that ends then outlast what anybody stops a process for? Half of the term is left
/// at least; a clock of this machine that is wrong by less than that does not matter.
fn is_long(until: &str) -> bool {
    let year = |text: &str| text.get(..4)?.parse::<u64>().ok();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |since| 1970 + since.as_secs() / YEAR);
    year(until).is_some_and(|year| year >= now + u64::from(FENCED_FOR) / YEAR / 2)
}

/// The value that a monitor's answer begins with; a remark for people may come behind it.
fn first_value(answer: &[u8]) -> Option<serde_json::Value> {
    serde_json::Deserializer::from_slice(answer).into_iter().next()?.ok()
}

/// The client's name: what `CEPH_ARGS` says by `--id`, `--user` or `--name`, else `client.admin`.
fn user(arguments: Option<&str>) -> Vec<u8> {
    let mut words = arguments.unwrap_or_default().split_whitespace();
    let mut name = "client.admin".to_owned();
    while let Some(word) = words.next() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        let full = match option {
            "--id" | "--user" | "-i" => false,
            "--name" | "-n" => true,
            _ => continue,
        };
        let Some(value) = value.or_else(|| words.next()) else { break };
        name = if full { value.to_owned() } else { format!("client.{value}") };
    }
    name.into_bytes()
}

/// A text for the library.
pub(crate) fn text(bytes: impl AsRef<[u8]>) -> Result<CString> {
    CString::new(bytes.as_ref()).map_err(|_| Error::Refused("a name has a zero byte in it".into()))
}

/// The cluster has not let this client in.
fn not_let_in(place: &RbdPlace, user: &[u8], error: c_int) -> Error {
    let user = String::from_utf8_lossy(user);
    let what = match -error {
        libc::ETIMEDOUT => "the cluster does not answer: no monitor was reached".to_owned(),
        libc::EACCES | libc::EPERM => format!(
            "the cluster refuses {user} (its key, or its rights: it needs mon and osd with \
             profile rbd)"
        ),
        libc::ENOENT => format!(
            "no configuration names the cluster's monitors, or no keyring has a key of {user}: \
             see CEPH_CONF and CEPH_ARGS"
        ),
        _ => return refused(place, "cannot connect to the cluster", error),
    };
    Error::Refused(format!("{place}: {what}"))
}

/// A refusal that names the place; `error` is minus an errno.
pub(crate) fn refused(place: &RbdPlace, what: &str, error: c_int) -> Error {
    let why = io::Error::from_raw_os_error(-error);
    Error::Refused(format!("{place}: {what}: {why}"))
}

/// A call of the library that has failed; `error` is minus an errno.
pub(crate) fn failed(what: &str, error: c_int) -> Error {
    let why = io::Error::from_raw_os_error(-error);
    Error::Refused(format!("cannot {what}: {why}"))
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
