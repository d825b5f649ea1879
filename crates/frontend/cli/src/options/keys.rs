//! The arguments of `siftfs key`, and those of other commands that keys are meant by.

use crate::show::output;
use clap::{Args, Subcommand};
use siftfs_base::{Error, Result};
use siftfs_codec::Protocol;
use siftfs_keys::{Fingerprint, KeyPair, paths};
use siftfs_transport::{Address, Listener, ServerTls, TransportOptions};
use std::io::{BufRead, IsTerminal, Read};
use std::path::PathBuf;

/// What keys are for, behind the options of `siftfs key`.
const KEY_HELP: &str = "\
A machine's key says over TCP which machine it is. The public line of a client's key belongs in the file \
/etc/siftfs/authorized of its servers, with what the client may do there: \
role=client siftfs-ed25519 KEY COMMENT. The fingerprint of a server's key is what its clients are asked to confirm. \
The file of a key is for its owner alone, and has no passphrase.";

/// Which machines a server talks to over TCP.
#[derive(Args)]
pub struct Admit {
    /// Over TCP: the file of the keys that are admitted, and what each may do; default:
    /// /etc/siftfs/authorized
    #[arg(long, value_name = "FILE")]
    pub authorized: Option<PathBuf>,
    /// Over TCP: the file of this machine's key; default: as of `siftfs key new`
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Over TCP: no keys and no encryption, for a port that trusted machines alone can reach
    #[arg(long, conflicts_with = "authorized")]
    pub insecure: bool,
}

impl Admit {
    /// Listens at `address`, over TCP with keys unless that is switched off.
    ///
    /// # Errors
    /// A message that says what is in use, missing or wrong.
    pub fn listen<P: Protocol>(
        &self,
        address: &Address,
        options: &TransportOptions,
    ) -> Result<Listener<P>> {
        if self.insecure || matches!(address, Address::Unix(_)) {
            return Listener::bind(address, options);
        }
        let key = self.key.clone().map_or_else(paths::key, Ok)?;
        let authorized = self.authorized.clone().unwrap_or_else(paths::authorized);
        let needs = |e: Error| {
            Error::Refused(format!(
                "{address}: over TCP machines are known by their keys: {e}. `siftfs key new` makes \
                 this machine's key, {} lists those that are admitted (siftfs(8), KEYS); --insecure \
                 is for a port that trusted machines alone can reach",
                authorized.display()
            ))
        };
        let pair = KeyPair::load(&key).map_err(needs)?;
        let tls = ServerTls::new(&pair, &authorized).map_err(needs)?;
        Ok(Listener::bind(address, options)?.admitting(tls))
    }
}

/// How a server of another machine is known.
#[derive(Args)]
pub struct Known {
    /// The file of the servers that this machine knows; default: /etc/siftfs/known_servers for
    /// root, siftfs/known_servers in ~/.config (or XDG_CONFIG_HOME) for others
    #[arg(long, value_name = "FILE")]
    pub known_servers: Option<PathBuf>,
    /// What the server's key must be, as `siftfs key show` prints it there
    #[arg(long, value_name = "SHA256:...")]
    pub fingerprint: Option<Fingerprint>,
}

/// Asks the person at the terminal, if there is one.
pub fn confirm() -> Option<&'static dyn Fn(&str) -> bool> {
    let asks = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    asks.then_some(&|question| {
        output::ask(format_args!("{question} [y/N]"));
        let mut answer = String::new();
        let read = std::io::stdin().lock().take(16).read_line(&mut answer);
        read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
    })
}

/// `siftfs key`.
#[derive(Args)]
#[command(after_help = KEY_HELP, disable_help_subcommand = true)]
pub struct Key {
    /// What to do.
    #[command(subcommand)]
    pub what: KeyCommand,
}

/// What `siftfs key` does.
#[derive(Subcommand)]
pub enum KeyCommand {
    /// Make a new key pair, and show its public line and fingerprint; a key that is there is kept
    New(KeyNew),
    /// Show the public line and the fingerprint of a key
    Show(KeyShow),
}

/// `siftfs key new`.
#[derive(Args)]
pub struct KeyNew {
    /// The file; default: /etc/siftfs/key for root, siftfs/key in ~/.config (or XDG_CONFIG_HOME)
    /// for others
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// What the key is called in lines that hold it; default: USER@HOST
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `siftfs key show`.
#[derive(Args)]
pub struct KeyShow {
    /// The file; default: as of `siftfs key new`
    pub file: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
