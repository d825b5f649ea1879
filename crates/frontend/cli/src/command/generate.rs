//! `siftfs generate`: man pages and completions from the command line's own definition.

use crate::command::manual;
use crate::options::args::{Cli, Generate};
use crate::show::failure::{Failure, Outcome};
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use std::fs;

/// Writes `man/*.8` and `completions/*` below the directory.
pub fn generate(a: &Generate) -> Outcome {
    let (man, completions) = (a.dir.join("man"), a.dir.join("completions"));
    for dir in [&man, &completions] {
        fs::create_dir_all(dir).map_err(|e| Failure::about(dir, e))?;
    }
    for page in manual::pages() {
        let path = man.join(page.name);
        fs::write(&path, page.text).map_err(|e| Failure::about(&path, e))?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut Cli::command(), "siftfs", &completions)
            .map_err(|e| Failure::about(&completions, e))?;
    }
    Ok(0)
}
