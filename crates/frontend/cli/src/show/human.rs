//! Numbers for people.

use crate::options::size::show_size;

/// A whole number with its thousands apart.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A latency given in nanoseconds.
pub fn latency(ns: f64) -> String {
    match ns {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.*} µs", usize::from(n < 1e4), n / 1e3),
        n if n < 1e9 => format!("{:.*} ms", usize::from(n < 1e8), n / 1e6),
        n => format!("{:.1} s", n / 1e9),
    }
}

/// A length of time given in seconds.
pub fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

/// Events per second.
pub fn rate(events: u64, seconds: f64) -> String {
    let rate = if seconds > 0.0 { events as f64 / seconds } else { 0.0 };
    if rate < 10.0 { format!("{rate:.1}/s") } else { format!("{}/s", count(rate as u64)) }
}

/// How full something is, as a bar, a share and both numbers.
pub fn fill(used: u64, all: u64) -> String {
    const WIDTH: u64 = 20;
    let share =
        |of: u64| (u128::from(used.min(all)) * u128::from(of)).div_ceil(u128::from(all.max(1)));
    let full = usize::try_from(share(WIDTH)).unwrap_or(0);
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(WIDTH as usize - full));
    format!("[{bar}] {:3} %  {} of {}", share(100), show_size(used), show_size(all))
}

#[cfg(test)]
#[path = "human_tests.rs"]
mod tests;
