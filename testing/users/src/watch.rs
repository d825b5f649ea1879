//! Calls that are under way, and for how long.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One thread's calls.
struct Line {
    who: String,
    /// The call under way, and when it began.
    now: Mutex<Option<(&'static str, Instant)>>,
}

/// All threads whose calls must come back.
#[derive(Default)]
pub struct Watch {
    lines: Mutex<Vec<Arc<Line>>>,
    calls: AtomicU64,
    longest: AtomicU64,
    stop: AtomicBool,
    judged: AtomicBool,
    findings: Mutex<Vec<String>>,
}

/// A thread's place in a [`Watch`].
pub struct Calls {
    watch: Arc<Watch>,
    line: Arc<Line>,
}

impl Watch {
    /// A place for a thread; `who` names it in findings.
    pub fn calls(self: &Arc<Self>, who: impl Into<String>) -> Calls {
        let line = Arc::new(Line { who: who.into(), now: Mutex::new(None) });
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.clone());
        Calls { watch: self.clone(), line }
    }

    /// Notes a finding.
    pub fn find(&self, what: String) {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// All findings until now.
    pub fn findings(&self) -> Vec<String> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks all threads to end.
    pub fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Is the round over?
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Lets go what was kept from others: the parent has seen whose calls come back.
    pub fn judged(&self) {
        self.judged.store(true, Ordering::SeqCst);
    }

    /// May what is kept from others be let go?
    pub fn is_judged(&self) -> bool {
        self.judged.load(Ordering::SeqCst)
    }

    /// Calls that have come back.
    pub fn count(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The longest of them.
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::SeqCst))
    }

    /// Calls that have been under way for longer than `patience`, each as a sentence.
    pub fn stuck(&self, patience: Duration) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let stuck = lines.iter().filter_map(|line| {
            let now = *line.now.lock().unwrap_or_else(PoisonError::into_inner);
            let (call, since) = now.filter(|(_, since)| since.elapsed() > patience)?;
            let for_how_long = since.elapsed().as_secs();
            Some(format!("{} waits in {call} for {for_how_long} s", line.who))
        });
        stuck.collect()
    }
}

impl Calls {
    /// Is the round over?
    pub fn is_over(&self) -> bool {
        self.watch.is_over()
    }

    /// Makes a call, which is watched meanwhile.
    pub fn call<T>(&self, name: &'static str, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        *self.line.now.lock().unwrap_or_else(PoisonError::into_inner) = Some((name, begun));
        let result = call();
        *self.line.now.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.watch.longest.fetch_max(ms, Ordering::SeqCst);
        self.watch.calls.fetch_add(1, Ordering::SeqCst);
        result
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
