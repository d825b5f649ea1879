//! Has this process processors of its own?

use rustix::thread::sched_getaffinity;

/// Was this process given a part of the machine's processors? What it does not know is that no
/// other process has the same ones: an administrator who pins one end pins the other one apart.
pub(crate) fn are_own() -> bool {
    let all = std::fs::read_to_string("/sys/devices/system/cpu/online");
    let all = all.ok().and_then(|text| count(&text));
    let own = sched_getaffinity(None).map(|set| set.count());
    matches!((all, own), (Some(all), Ok(own)) if own < all)
}

/// How many processors a list such as `0,2-3` names.
fn count(list: &str) -> Option<u32> {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    list.trim().split(',').try_fold(0, |sum: u32, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let more = number(last)?.checked_sub(number(first)?)?.checked_add(1)?;
        sum.checked_add(more)
    })
}

#[cfg(test)]
#[path = "processors_tests.rs"]
mod tests;
