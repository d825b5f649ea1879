//! The options of `-o`: how each is written, what it does and how it is taken. The parser, the help
//! text and the man pages are made of these rows.

mod daemon;
mod kernel;
mod volume;

use crate::options::given::Given;
use crate::options::parsed::Options;

/// Takes a word; true for what the option is called after.
pub type SetWord = fn(&mut Options, bool);
/// Takes a value, or says what is wrong with it.
pub type SetValue = fn(&mut Options, Given<'_>) -> Result<(), String>;

/// One option.
pub struct MountOption {
    /// As it is written.
    pub usage: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// What the option does.
    pub meaning: &'static str,
    /// Words without a value, and what each says.
    words: &'static [(&'static str, bool)],
    set_word: Option<SetWord>,
    set_value: Option<SetValue>,
}

const fn flag(
    usage: &'static str,
    default: &'static str,
    meaning: &'static str,
    words: &'static [(&'static str, bool)],
    set: SetWord,
) -> MountOption {
    MountOption { usage, default, meaning, words, set_word: Some(set), set_value: None }
}

const fn value(
    usage: &'static str,
    default: &'static str,
    meaning: &'static str,
    set: SetValue,
) -> MountOption {
    let set_value = Some(set);
    MountOption { usage, default, meaning, words: &[], set_word: None, set_value }
}

const fn both(
    usage: &'static str,
    default: &'static str,
    meaning: &'static str,
    (words, set_word): (&'static [(&'static str, bool)], SetWord),
    set_value: SetValue,
) -> MountOption {
    let (set_word, set_value) = (Some(set_word), Some(set_value));
    MountOption { usage, default, meaning, words, set_word, set_value }
}

/// All options that mean something here.
pub fn options() -> impl Iterator<Item = &'static MountOption> {
    [kernel::OPTIONS, volume::OPTIONS, daemon::OPTIONS].into_iter().flatten()
}

/// What takes this word, and what the word says.
pub fn word(word: &str) -> Option<(SetWord, bool)> {
    options().find_map(|o| {
        let (_, says) = o.words.iter().find(|(known, _)| *known == word)?;
        Some((o.set_word?, *says))
    })
}

/// What takes the value of the option of this name.
pub fn value_of(name: &str) -> Option<SetValue> {
    let named = |o: &&MountOption| o.usage.split_once('=').is_some_and(|(known, _)| known == name);
    options().find(named)?.set_value
}

/// Is the option of this name one of the volume, whose settings they are whatever mounts there are?
pub fn is_of_volume(name: &str) -> bool {
    volume::OPTIONS.iter().any(|o| {
        let named = o.usage.split_once('=').is_some_and(|(known, _)| known == name);
        named || o.words.iter().any(|(word, _)| *word == name)
    })
}

/// The rest of the words.
pub const OTHERS: &str = "mount(8)'s other usual words (defaults, auto, noauto, nofail, _netdev, \
                          x-...) are accepted and mean nothing here. strictatime, diratime and lazytime \
                          cannot be kept to and are refused. remount changes a mount: see mount.siftfs(8).";

/// For `siftfs mount --help`.
pub fn help() -> String {
    let width = options().map(|o| o.usage.len()).max().unwrap_or(0);
    let mut text = String::from("Mount options (-o):\n");
    for o in options() {
        text.push_str(&format!("  {:width$}  {} [default: {}]\n", o.usage, o.meaning, o.default));
    }
    text.push('\n');
    text.push_str(OTHERS);
    text
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
