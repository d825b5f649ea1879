//! Every command line that the documentation, the man pages, the help texts and the program's own
//! messages name is one that the program understands. None is executed.

use super::*;
use crate::command::manual;
use crate::command::remount;
use crate::options::mount;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A command line, without brackets.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    words: Vec<String>,
    /// It is to be typed as it is. Others may leave out what a command needs.
    whole: bool,
}

/// The repository.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// The files below `dir` whose names end with `.ext`, but for tests and what is built.
fn files(dir: &Path, ext: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with('.') && !["target", "tests"].contains(&&name[..]) {
                found.extend(files(&path, ext));
            }
        } else if name.ends_with(&format!(".{ext}")) && !name.ends_with("_tests.rs") {
            found.push(path);
        }
    }
    found
}

/// What is between backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The command lines of a page: of its blocks of code, and of its sentences.
fn of_page(page: &str) -> Vec<(String, bool)> {
    let (mut fenced, mut prose, mut found) = (false, String::new(), Vec::new());
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            let parts = line.split(['&', ';', '#']).flat_map(|p| p.split(": "));
            found.extend(parts.filter_map(|part| Some((after_program(part.trim())?, true))));
        } else {
            prose += line;
            prose += if line.starts_with('|') { "\n" } else { " " };
        }
    }
    found.extend(spans(&prose).filter_map(|s| Some((after_program(s)?, false))));
    found
}

/// The arguments, if the program is ours. What a pipe takes them to is another program's.
fn after_program(text: &str) -> Option<String> {
    let (program, rest) = text.split('|').next()?.split_once(' ')?;
    (Path::new(program).file_name()? == "siftfs").then(|| rest.to_string())
}

/// The command lines of a source file: of its messages, help texts and comments.
fn of_source(text: &str) -> Vec<(String, bool)> {
    let mut joined = String::new();
    for line in text.lines().map(str::trim_start) {
        let line = line.trim_start_matches("//").trim_start_matches(['/', '!']);
        match line.strip_suffix('\\') {
            Some(line) => joined += line,
            None => joined += &format!("{line} "),
        }
    }
    let quoted = joined.split("`siftfs ").skip(1).filter_map(|rest| rest.split('`').next());
    let told = quoted.map(|q| format!("siftfs {q}"));
    told.filter(|q| q.len() < 200).filter_map(|q| Some((after_program(&q)?, false))).collect()
}

/// As it is written: `VOLUME [--size S] [--force]` is three lines.
fn variants(text: &str) -> Vec<String> {
    let (mut depth, mut base, mut groups) = (0usize, String::new(), Vec::new());
    for c in text.chars() {
        match c {
            '[' => {
                depth += 1;
                if depth == 1 {
                    groups.push(String::new());
                }
            }
            ']' => depth = depth.saturating_sub(1),
            _ if depth == 0 => base.push(c),
            _ if depth == 1 => groups.last_mut().unwrap().push(c),
            _ => {}
        }
    }
    let more = groups.iter().map(|group| format!("{base} {group}")).collect::<Vec<_>>();
    std::iter::once(base).chain(more).collect()
}

/// Something that may stand where the documentation has a name in capitals.
fn example(before: &str, word: &str) -> String {
    match word {
        "S" | "SIZE" => "512M",
        "N" | "COUNT" => "2",
        "L" => "label",
        "FORM" => "ref",
        "PERCENT" | "SECONDS" | "MICROSECONDS" => "10",
        "LIST" => "0",
        "ADDRESS" => "unix:/x",
        "LEVEL" if before == "--level" => "durable",
        "LEVEL" => "info",
        "MODE" => "auto",
        "ORDER" => "fcfs",
        "OPTIONS" => "ro",
        "COMMAND" => "mount",
        "WHAT" => "show",
        other => other,
    }
    .to_string()
}

fn words(text: &str) -> Vec<String> {
    let mut words = vec!["siftfs".to_string()];
    for word in text.split_whitespace().filter(|w| *w != "...") {
        let word = word.trim_matches(['"', '\'']).trim_end_matches(",...");
        let before = words.last().unwrap().clone();
        words.push(match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => {
                format!("{name}={}", example("", value))
            }
            _ => example(&before, word),
        });
    }
    words
}

/// All that is named, with the place that names it.
fn named() -> Vec<(String, Line)> {
    let top = top();
    let mut found = Vec::new();
    let mut pages = vec!["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "testing/README.md"]
        .into_iter()
        .map(|name| top.join(name))
        .collect::<Vec<_>>();
    pages.extend(files(&top.join("docs"), "md"));
    for path in pages {
        let page = fs::read_to_string(&path).unwrap();
        found.extend(of_page(&page).into_iter().map(|l| (path.display().to_string(), l)));
    }
    for path in ["crates", "bench"].iter().flat_map(|dir| files(&top.join(dir), "rs")) {
        let text = fs::read_to_string(&path).unwrap();
        found.extend(of_source(&text).into_iter().map(|l| (path.display().to_string(), l)));
    }
    for page in manual::pages() {
        let text = String::from_utf8(page.text).unwrap().replace("\\-", "-").replace('\n', " ");
        let lines = spans(&text).filter_map(|s| Some((after_program(s)?, false)));
        found.extend(lines.map(|l| (page.name.clone(), l)).collect::<Vec<_>>());
    }
    let each = |(place, (text, whole)): (String, (String, bool))| {
        let lines = variants(&text).into_iter().map(move |v| Line { words: words(&v), whole });
        lines.map(move |line| (place.clone(), line)).collect::<Vec<_>>()
    };
    found.into_iter().flat_map(each).collect()
}

/// Was no value given at all?
fn is_none(given: &ContextValue) -> bool {
    matches!(given, ContextValue::String(text) if text.is_empty())
}

/// What is wrong with a line, if anything is.
fn wrong(line: &Line) -> Option<String> {
    let words: Vec<&str> = line.words.iter().map(|w| &w[..]).collect();
    let asks_help = matches!(
        &words[1..],
        ["help", ..] | ["--help" | "-h" | "--version" | "-V"] | [_, "--help" | "-h"]
    );
    match Cli::try_parse_from(&words) {
        Ok(_) if asks_help => Some("this prints no help".into()),
        Ok(cli) => wrong_in(&cli.command),
        Err(e) => match e.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion if asks_help => None,
            ErrorKind::MissingRequiredArgument | ErrorKind::TooFewValues if !line.whole => None,
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if !line.whole => None,
            // As in "`siftfs device --spin` says so": an option without its value.
            ErrorKind::InvalidValue
                if !line.whole && e.get(ContextKind::InvalidValue).is_some_and(is_none) =>
            {
                None
            }
            _ => Some(e.to_string()),
        },
    }
}

/// As [`wrong`], in what clap does not look at.
fn wrong_in(command: &Command) -> Option<String> {
    match command {
        Command::Mount(a) if !remount::is_asked(&a.options) => {
            mount::parse(&a.options, false).err()
        }
        Command::Bench(Bench { bench: Some(NamedBench::Named(all)) }) => {
            let name = all[0].to_str().unwrap();
            let name = name.split_once('-').map_or(name, |(prefix, _)| prefix);
            let there =
                top().join("bench").join(name).is_dir() || name.starts_with('{') || name == "NAME";
            (!there).then(|| format!("there is no bench {name}"))
        }
        _ => None,
    }
}

#[test]
fn every_command_line_that_is_named_is_understood() {
    let all = named();
    let mut complaints = BTreeSet::new();
    for (place, line) in &all {
        if let Some(what) = wrong(line) {
            complaints.insert(format!("{place}: {}: {what}", line.words.join(" ")));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.into_iter().collect::<Vec<_>>().join("\n"));
    // Were they found at all?
    let has = |place: &str, text: &str| {
        let is = |(p, l): &&(String, Line)| p.ends_with(place) && l.words.join(" ") == text;
        assert!(all.iter().any(|found| is(&found)), "{text} was not found in {place}");
    };
    has("README.md", "siftfs bench coinpurse --help");
    has("README.md", "siftfs mkfs disk.sift --size 512M");
    has("docs/manual.md", "siftfs fsck VOLUME --timeout 10");
    has("docs/manual.md", "siftfs key new --file PATH");
    has("src/command/programs/bench.rs", "siftfs bench {prefix} --help");
    has("src/command/umount.rs", "siftfs recover {volume}");
    has("fsck.siftfs.8", "siftfs recover --discard-log");
}

#[test]
fn every_command_has_help_of_its_own() {
    let mut cli = Cli::command();
    cli.build();
    for command in cli.get_subcommands().filter(|c| c.get_name() != "help") {
        let name = command.get_name();
        for ask in [&[name, "--help"][..], &[name, "-h"], &["help", name]] {
            let asked = ["siftfs"].iter().chain(ask);
            let e = Cli::try_parse_from(asked).err().expect("help is no command");
            assert_eq!(e.kind(), ErrorKind::DisplayHelp, "{ask:?}");
            assert!(e.to_string().contains(&format!("Usage: siftfs {name}")), "{ask:?}: {e}");
        }
    }
}
