//! The `siftfs` command: makes, mounts, recovers and checks volumes.

mod args;
mod control;
mod control_server;
mod daemon;
mod failure;
mod fsck;
mod helper;
mod live;
mod mount;
mod options;
mod progress;
mod size;
mod volume;

use args::{Cli, Command};
use clap::Parser;
use failure::{Failure, Outcome};
use std::process::ExitCode;

fn main() -> ExitCode {
    failure::install_panic_hook();
    let cli = Cli::parse_from(helper::arguments(std::env::args_os().collect()));
    match run(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, message }) => {
            eprintln!("siftfs: {message}");
            ExitCode::from(code)
        }
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Mkfs(a) => volume::mkfs(&a),
        Command::Adopt(a) => volume::adopt(&a),
        Command::Release(a) => volume::release(&a),
        Command::Mount(a) => mount::mount(&a),
        Command::Umount(a) => live::umount(&a),
        Command::Sync(a) => live::sync(&a),
        Command::Status(a) => live::status(&a),
        Command::Checkpoint(a) => live::checkpoint(&a),
        Command::Recover(a) => volume::recover(&a),
        Command::Fsck(a) => fsck::fsck(&a),
    }
}
