//! The `siftfs` command: makes, mounts, recovers and checks volumes.

// Both fail loudly when the reader has gone; `output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod command;
mod control;
mod daemon;
mod helper;
mod options;
mod show;

use clap::Parser;
use command::processes::{device, health, key, serve};
use command::programs::{accel, bench, freeze};
use command::{fsck, generate, inspect, live, mount, publish, top, tune, umount, volume, volumes};
use daemon::limits;
use helper::called::{self, Call, Role};
use options::args::{Cli, Command};
use show::failure::{self, Failure, Outcome};
use show::output;
use std::process::ExitCode;

fn main() -> ExitCode {
    failure::install_panic_hook();
    let given: Vec<_> = std::env::args_os().collect();
    let role = Role::of(&given);
    let code = match called::understand(given).and_then(|call| start(&call)) {
        Ok(code) => role.exit_status(code),
        Err(Failure { code, message }) => {
            output::complain(limits::explained(message));
            role.failure_status(code)
        }
    };
    ExitCode::from(code)
}

fn start(call: &Call) -> Outcome {
    if let Some(namespace) = &call.namespace {
        called::enter_namespace(namespace)?;
    }
    match Cli::try_parse_from(&call.arguments) {
        Ok(cli) => {
            limits::outlive_large_files().map_err(Failure::plain)?;
            if cli.command.works_on_a_volume() {
                limits::lift();
            }
            run(cli.command)
        }
        Err(e) => {
            // A reader that has closed the pipe is no failure of ours.
            let _ = e.print();
            Ok(if e.use_stderr() { failure::USAGE } else { 0 })
        }
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Mkfs(a) => volume::mkfs(&a),
        Command::Adopt(a) => volume::adopt(&a),
        Command::Release(a) => volume::release(&a),
        Command::Mount(a) => mount::mount(&a.gathered()),
        Command::Device(a) => device::device(&a),
        Command::Serve(a) => serve::serve(&a),
        Command::Volumes(a) => volumes::volumes(&a),
        Command::Umount(a) => umount::umount(&a),
        Command::Publish(a) => publish::publish(&a),
        Command::Sync(a) => live::sync(&a),
        Command::Status(a) if a.healthy => health::healthy(&a),
        Command::Status(a) => live::status(&a),
        Command::Top(a) => top::top(&a),
        Command::Checkpoint(a) => live::checkpoint(&a),
        Command::Trim(a) => live::trim(&a),
        Command::Freeze(a) => freeze::freeze(&a),
        Command::Recover(a) => volume::recover(&a),
        Command::Fsck(a) => fsck::fsck(&a),
        Command::Inspect(a) => inspect::inspect(&a),
        Command::Tune(a) => tune::tune(&a),
        Command::Key(a) => key::key(&a),
        Command::Accel(a) => accel::accel(&a),
        Command::Bench(a) => bench::bench(&a),
        Command::Generate(a) => generate::generate(&a),
    }
}
