//! Lists of processors, as taskset(1) writes them.

use crate::show::failure::Failure;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processors, ascending, none twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List(Vec<usize>);

/// Parses `0,2-3`.
pub fn parse(text: &str) -> Result<List, String> {
    let wrong = || format!("`{text}` is not a list of processors such as 0,2-3");
    let number = |n: &str| match n.parse::<usize>() {
        Ok(n) if n < CpuSet::MAX_CPU => Ok(n),
        _ => Err(wrong()),
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        all.extend(first..=last);
    }
    all.sort_unstable();
    all.dedup();
    Ok(List(all))
}

/// From now on this process and the threads it starts run on these alone.
///
/// # Errors
/// If the machine has none of them.
pub fn pin(list: &List) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    for processor in &list.0 {
        set.set(*processor);
    }
    sched_setaffinity(None, &set).map_err(|e| {
        let why = match (e, sched_getaffinity(None)) {
            (Errno::INVAL, Ok(own)) => format!("it may run on {} alone", show(&own)),
            _ => e.to_string(),
        };
        Failure::plain(format!("this process cannot run on the processors of --cpus: {why}"))
    })
}

/// Processors as [`parse`] takes them.
fn show(set: &CpuSet) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for n in (0..CpuSet::MAX_CPU).filter(|n| set.is_set(*n)) {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => parts.push((n, n)),
        }
    }
    let part = |(first, last)| match first == last {
        true => format!("{first}"),
        false => format!("{first}-{last}"),
    };
    parts.into_iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
#[path = "processors_tests.rs"]
mod tests;
