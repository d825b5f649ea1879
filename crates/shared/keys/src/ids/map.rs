//! User or group ids of a client and of the server, one to one.

/// The id of nobody: what ids are shown as that a client has no id for.
pub const NOBODY: u32 = 65534;

/// A run of ids of a client, and the run of ids of the server that they stand for, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The client's first id.
    pub client: u32,
    /// The server's id for that.
    pub server: u32,
    /// How many ids, at least 1.
    pub count: u32,
}

/// A map of a client's ids to the server's. No two ids have the same one at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// Ranges that overlap at neither end; `None`: every id is itself.
    ranges: Option<Vec<IdRange>>,
}

impl IdMap {
    /// Every id is itself.
    pub fn identity() -> Self {
        Self { ranges: None }
    }

    /// The map of these ranges. The client's [`NOBODY`] has no id in it, since unmapped ids are
    /// shown as that: what was read as nobody's cannot be written back as somebody's.
    ///
    /// # Errors
    /// A range is empty, goes beyond the largest id, is nobody alone, or overlaps with another one.
    pub fn new(ranges: Vec<IdRange>) -> Result<Self, String> {
        for r in &ranges {
            let text = format!("{}:{}:{}", r.client, r.server, r.count);
            // The last number is no id: (uid_t) -1.
            let ends = [r.client, r.server].map(|first| first.checked_add(r.count));
            if r.count == 0 || ends.contains(&None) {
                return Err(format!("{text} is empty or goes beyond 4294967294"));
            }
            if (r.client, r.count) == (NOBODY, 1) {
                return Err(format!("{text}: {NOBODY} stands for the client's unmapped ids"));
            }
        }
        for (end, first) in [("client", client as fn(&IdRange) -> u32), ("server", server)] {
            let mut sorted: Vec<&IdRange> = ranges.iter().collect();
            sorted.sort_by_key(|r| first(r));
            for (a, b) in sorted.iter().zip(sorted.iter().skip(1)) {
                if first(b) - first(a) < a.count {
                    return Err(format!("id {} of the {end} is in two maps", first(b)));
                }
            }
        }
        Ok(Self { ranges: Some(ranges) })
    }

    /// Is every id itself?
    pub fn is_identity(&self) -> bool {
        self.ranges.is_none()
    }

    /// The server's id for a client's; `None`: the client may not name it.
    pub fn to_server(&self, id: u32) -> Option<u32> {
        match &self.ranges {
            _ if id == u32::MAX => None,
            None => Some(id),
            Some(_) if id == NOBODY => None,
            Some(ranges) => moved(ranges, id, client, server),
        }
    }

    /// The client's id for a server's, and [`NOBODY`] if it has none.
    pub fn to_client(&self, id: u32) -> u32 {
        let found = match &self.ranges {
            _ if id == u32::MAX => None,
            None => Some(id),
            Some(ranges) => moved(ranges, id, server, client),
        };
        found.unwrap_or(NOBODY)
    }
}

fn client(range: &IdRange) -> u32 {
    range.client
}

fn server(range: &IdRange) -> u32 {
    range.server
}

/// The id at the end `to` of the range that has it at the end `from`.
fn moved(
    ranges: &[IdRange],
    id: u32,
    from: fn(&IdRange) -> u32,
    to: fn(&IdRange) -> u32,
) -> Option<u32> {
    ranges.iter().find_map(|r| {
        let at = id.checked_sub(from(r)).filter(|at| *at < r.count)?;
        to(r).checked_add(at)
    })
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
