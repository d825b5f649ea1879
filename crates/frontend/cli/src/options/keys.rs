//! The arguments of `siftfs key`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What keys are for, behind the options of `siftfs key`.
const KEY_HELP: &str = "\
A machine's key says over TCP which machine it is. The public line of a client's key belongs in the file \
/etc/siftfs/authorized of its servers, with what the client may do there: \
role=client siftfs-ed25519 KEY COMMENT. The fingerprint of a server's key is what its clients are asked to confirm. \
The file of a key is for its owner alone, and has no passphrase.";

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
